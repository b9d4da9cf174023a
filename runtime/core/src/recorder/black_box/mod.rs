//! The black box of a runtime: a file that keeps the runtime's state while it runs, so that the
//! state outlives a program that is killed.
//!
//! A program that is killed by `kill -9` or by the OOM killer cannot write a report. With
//! `VOLT_BLACK_BOX=DIR` or `Builder::black_box`, each runtime maps a file of that directory into
//! its memory. Workers write their cells and their recorder's rings there, instead of to the heap,
//! with the same instructions. When the program is killed, the kernel keeps what was stored until
//! the last instruction. `volt-console post-mortem` reads it.
//!
//! An ordinary case: worker 1 polls a task for 3 s, and the kernel kills the program. The cells of
//! worker 1 contain the task's id, the address of its spawn line, and when the poll began. The
//! texts contain the line for that address, since the sentinel had added it at its first check
//! during the poll. The last sample contains the findings, and is usually up to [`SAMPLE_INTERVAL`]
//! old.
//!
//! | what | written by | how old at the end |
//! |---|---|---|
//! | cells: the poll in flight, the phase | the worker | current |
//! | rings: events, while the flight recorder is on | the thread of the lane | current |
//! | the time of the last check | the sentinel | its interval, while a worker is awake |
//! | texts for addresses and numbers | the sentinel | its interval, while a worker is awake |
//! | sample: snapshot, findings, memory | the thread that takes the doctor's snapshots | a quarter of a second, or up to a second if samples take long, while a worker is awake |
//!
//! The layout is that of [`volt_telemetry::recording::black_box`]. The parts, bottom to top:
//! * `mapping`: the mapped file, and what happens to it when the program forks or exits;
//! * `file`: creates the file, and deletes those of earlier runs;
//! * `facts`: facts about the program, and its memory;
//! * `texts`: the logs of texts;
//! * `space`: the black box itself;
//! * `unsupported`: the same names, on systems other than Linux and under Miri;
//! * `wanted`: creates it if the program or the environment requests it.
//!
//! Invariants:
//! * *No page fails*: the kernel has allocated the pages before they are mapped or used. So a full
//!   disk is an error when the black box is created, and never a SIGBUS later.
//! * *The program continues*: without a black box the program runs as usual, with a warning.
//! * *Its own file*: the file is created by this program, with mode 0600 and under a name that did
//!   not exist, so no symbolic link is followed. A forked child gets a private copy of the memory.
//! * *Bounded*: the size follows from the numbers of workers, spares and records. The files of
//!   running programs are kept, and those of the last [`file::RUNS_MAX`] runs of a name that ended,
//!   with at most [`file::BOXES`] files each.
//!
//! Rejected:
//! * Copies of the cells, written from time to time: they would miss the last moment, which is what
//!   matters.
//! * A fixed place for each counter, for readers of the file: the layout of the cells would become
//!   a format. Readers need only the poll in flight and the phase to be current, so only the places
//!   of these are fixed. Everything else is in the sample.
//! * Resolving addresses of spawn lines from the executable: it may have been replaced, and the
//!   layout of `Location` is the compiler's.

cfg_select! {
    all(target_os = "linux", not(miri)) => {
        mod facts;
        mod file;
        mod mapping;
        mod texts;

        pub(crate) mod space;
    }
    _ => {
        #[path = "unsupported.rs"]
        pub(crate) mod space;
    }
}
pub(crate) mod wanted;

#[cfg(all(target_os = "linux", not(miri)))]
use std::time::Duration;

/// How often a sample is written while a worker is awake, at most.
#[cfg(all(target_os = "linux", not(miri)))]
const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests;
