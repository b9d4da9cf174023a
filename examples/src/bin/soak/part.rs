//! One part of the load, with its counts.
//!
//! Each operation that gave the expected result counts as done. One that was refused because of an
//! injected fault (no descriptor, no thread) counts as refused, and is tried again later. Any other
//! result is wrong, and is printed.

use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rustix::io::Errno;

use crate::random::Random;

/// The errors of system calls that the faults cause: no descriptor, no thread.
const REFUSALS: [Errno; 2] = [Errno::MFILE, Errno::AGAIN];

/// One part of the load, with its counts.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) name: &'static str,
    done: AtomicU64,
    refused: AtomicU64,
    wrong: AtomicU64,
    is_over: AtomicBool,
}

impl Part {
    pub(crate) fn new(name: &'static str) -> Arc<Self> {
        let zero = || AtomicU64::new(0);
        Arc::new(Self { name, done: zero(), refused: zero(), wrong: zero(), is_over: AtomicBool::new(false) })
    }

    pub(crate) fn done(&self) -> u64 {
        // ORDERING: Relaxed, here and below: counts, which order nothing; the main thread reads
        // them while the tasks run.
        self.done.load(Relaxed)
    }

    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    pub(crate) fn wrong(&self) -> u64 {
        self.wrong.load(Relaxed)
    }

    pub(crate) fn count(&self) {
        self.done.fetch_add(1, Relaxed);
    }

    /// Counts an operation as done if `is_right`, else as wrong.
    pub(crate) fn verify(&self, is_right: bool, what: impl Display) {
        if is_right {
            self.count();
        } else {
            self.wrong.fetch_add(1, Relaxed);
            println!("wrong: {}: {what}", self.name);
        }
    }

    /// Counts an error: as refused if a fault may have caused it, else as wrong.
    pub(crate) fn error(&self, error: &io::Error, what: &str) {
        if Errno::from_io_error(error).is_some_and(|number| REFUSALS.contains(&number)) {
            self.refused.fetch_add(1, Relaxed);
        } else {
            self.verify(false, format_args!("{what}: {error}"));
        }
    }

    /// Returns whether the run is over, so that the part's tasks return.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    pub(crate) fn end(&self) {
        self.is_over.store(true, Relaxed);
    }
}

/// Waits for a random time below `max`, so that the parts overlap differently each time and leave
/// the processors free for a part of it.
pub(crate) async fn pause(random: &mut Random, max: Duration) {
    volt::time::sleep(max.mul_f64(random.ratio())).await;
}
