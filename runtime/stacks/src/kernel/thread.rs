//! Samples one thread from another thread of the same program: how long it ran, how long it waited
//! for a processor, and where it is blocked.
//!
//! The runtime's sentinel and the metrics of worker threads use this module.
//!
//! # Shape
//!
//! A [`ThreadProbe`] per thread, which keeps the files that it reads open. [`ThreadProbe::sample`]
//! returns a [`ThreadSample`], one reading of the thread.
//!
//! | source                  | contents                                        | kept open    | if it cannot be read           |
//! |-------------------------|-------------------------------------------------|--------------|--------------------------------|
//! | the thread's CPU clock  | time on a processor, up to now                  | no file      | `schedstat`, up to a tick late |
//! | `schedstat`             | time waited for a processor, times it got one   | from `new`   | `None` (no `SCHED_INFO`)       |
//! | `stat`                  | state, major faults                             | from `new`   | `None`                         |
//! | `syscall`               | the current system call and its arguments       | since needed | `None` (not dumpable, not root)|
//! | `wchan`                 | the kernel function that it waits in            | since needed | `None` (no `KALLSYMS`)         |
//!
//! A read takes microseconds: the test `a_sample_costs_microseconds` prints how many. The last two
//! are read only for a blocked thread. A probe therefore needs two descriptors if no
//! sample ever finds its thread blocked, and four otherwise. No privilege is needed, and neither
//! Yama's `ptrace_scope` nor `perf_event_paranoid` matters: the kernel always lets a thread read
//! other threads of its own program. But the files of a program that is not dumpable belong to
//! root, and only the owner may read `syscall`.
//!
//! Writer: the kernel. Readers: any thread of the program, at any time. Reading allocates nothing,
//! except for the path of a file that is opened.
//!
//! # Delays in the kernel's counts
//!
//! * `schedstat`'s time on a processor is brought up to date at ticks (4 ms apart at 250 Hz) and
//!   context switches. The clock is exact, hence its use. Reading it updates `schedstat` as well.
//! * The time waited is updated when the wait *ends*, so it does not include a wait in progress.
//!   [`ThreadSample::is_on_cpu`] covers that case: it is set if the clock advanced during the
//!   sample.
//! * Major faults are counted when the page has arrived.
//!
//! A sample is only nearly one instant: a thread may proceed while its files are read.
//!
//! # Invariant
//!
//! *No stranger*: a probe never returns the counters of another thread, although the id of an ended
//! thread may be reused. An open file refers to the thread itself, not to its id. A value that was
//! read by id (the clock, a file opened just now) counts only if an open file is still readable
//! afterwards.
//!
//! # Rejected alternatives
//!
//! * `status` for voluntary and involuntary switches: 20 µs, more than all others together, and
//!   `schedstat` counts switches too.
//! * `stack`, and taskstats over netlink: root only.
//! * `sched`: needs a debugging kernel.
//! * `perf_event_open` of the context switches: kernel events require privileges from
//!   `perf_event_paranoid` = 2 on.
//!
//! Sources: `proc(5)`, `fs/proc/{array,base}.c`, `kernel/ptrace.c` (`same_thread_group`),
//! `kernel/sched/stats.h` of Linux 6.18.

use std::ffi::c_long;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

/// Maximum number of bytes read from a file. `stat`, the longest, has 52 numbers of at most 20
/// digits.
const FILE_MAX_BYTES: usize = 1200;
/// Maximum number of bytes kept of a kernel function's name.
const CHANNEL_MAX_BYTES: usize = 62;
/// Number of system call arguments that are kept: enough to recognize a `poll` without descriptors.
const ARGUMENTS: usize = 2;

/// The `proc` files of a thread.
#[derive(Clone, Copy, Debug)]
enum Source {
    Schedstat,
    Stat,
    Syscall,
    Wchan,
}

impl Source {
    const ALL: [Source; 4] = [Source::Schedstat, Source::Stat, Source::Syscall, Source::Wchan];

    fn name(self) -> &'static str {
        match self {
            Source::Schedstat => "schedstat",
            Source::Stat => "stat",
            Source::Syscall => "syscall",
            Source::Wchan => "wchan",
        }
    }
}

/// Samples one thread of this program. See the header of this file.
#[derive(Debug)]
pub struct ThreadProbe {
    tid: u32,
    files: [OnceLock<File>; Source::ALL.len()],
}

impl ThreadProbe {
    /// Creates a probe for the thread with this id (`gettid`) in this program. Call it while that
    /// thread runs, preferably from that thread: then no id is used after the thread has exited.
    ///
    /// Never fails. Values that cannot be read are missing in the samples.
    pub fn new(tid: u32) -> Self {
        let probe = Self { tid, files: Default::default() };
        for source in [Source::Schedstat, Source::Stat] {
            // A file that cannot be opened now is tried again by the sample that needs it.
            let _is_opened = probe.file(source);
        }
        probe
    }

    /// Returns the time on a processor and the time waited for one, in less than 1 µs; for metrics
    /// that are always on. Returns `None` if the thread has exited, or if the kernel reports
    /// neither.
    pub fn times(&self) -> Option<ThreadTimes> {
        let clock_ns = thread_clock_ns(self.tid);
        let mut buffer = [0; FILE_MAX_BYTES];
        match self.read(Source::Schedstat, &mut buffer) {
            Ok(text) => ThreadTimes::parse(clock_ns, text),
            Err(error) if has_exited(&error) => None,
            // If the thread had ended, the clock could not be read either.
            Err(_) => Some(ThreadTimes { run_ns: clock_ns?, run_delay_ns: None, timeslices: None }),
        }
    }

    /// Samples the thread in 4 µs, or 8 µs if it is blocked. Returns `None` if it has ended, or if
    /// the kernel reports nothing.
    pub fn sample(&self) -> Option<ThreadSample> {
        let early_ns = thread_clock_ns(self.tid);
        let mut buffer = [0; FILE_MAX_BYTES];
        let Stat { state, major_faults } = match self.read(Source::Stat, &mut buffer) {
            Ok(text) => Stat::parse(text)?,
            Err(error) if has_exited(&error) => return None,
            Err(_) => Stat { state: None, major_faults: None },
        };
        let (mut inside, mut wait_channel) = (None, None);
        if state.is_none_or(ThreadState::is_blocked) {
            inside = self.read(Source::Syscall, &mut buffer).ok().and_then(Inside::parse);
            wait_channel = self.read(Source::Wchan, &mut buffer).ok().and_then(WaitChannel::parse);
        }
        // Read last: this also confirms that the values read by id belong to this thread.
        let times = self.times()?;
        let is_on_cpu = early_ns.is_some_and(|early_ns| times.run_ns > early_ns);
        Some(ThreadSample { times, is_on_cpu, state, major_faults, inside, wait_channel })
    }

    /// Returns the file, and opens it if necessary.
    fn file(&self, source: Source) -> io::Result<&File> {
        let slot = &self.files[source as usize];
        if let Some(file) = slot.get() {
            return Ok(file);
        }
        if cfg!(any(miri, not(target_os = "linux"))) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let file = File::open(format!("/proc/self/task/{}/{}", self.tid, source.name()))?;
        // If two threads open it concurrently, one of the two files is closed.
        Ok(slot.get_or_init(|| file))
    }

    fn read<'a>(&self, source: Source, buffer: &'a mut [u8; FILE_MAX_BYTES]) -> io::Result<&'a str> {
        // The kernel generates the contents anew for each read from offset 0.
        let len = self.file(source)?.read_at(buffer, 0)?;
        let text = &mut buffer[..len];
        // Only the name of the thread, in `stat`, may have other characters. It is not needed, and
        // the kernel keeps 15 bytes of it, which may end inside a character.
        text.iter_mut().filter(|byte| !byte.is_ascii()).for_each(|byte| *byte = b'?');
        std::str::from_utf8(text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

/// Returns whether this is the error of an open file whose thread has exited.
fn has_exited(error: &io::Error) -> bool {
    const ESRCH: i32 = 3;
    error.raw_os_error() == Some(ESRCH)
}

/// Returns the time that the thread with this id has spent on processors, exact up to now. `None`
/// if it is not a thread of this program.
#[cfg(all(target_os = "linux", not(miri)))]
fn thread_clock_ns(tid: u32) -> Option<u64> {
    /// "The scheduler's count of one thread", in the low bits of a clock id. The bits above contain
    /// the thread id, inverted.
    const SCHEDULER_OF_THREAD: i32 = 6;
    let clock = (!i32::try_from(tid).ok()? << 3) | SCHEDULER_OF_THREAD;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the C library's function. `time` is valid for writes during the call, and any clock
    // id may be passed: an unknown one results in an error.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut time) };
    if failed != 0 {
        return None;
    }
    Some(u64::try_from(time.tv_sec).ok()? * 1_000_000_000 + u64::try_from(time.tv_nsec).ok()?)
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn thread_clock_ns(_tid: u32) -> Option<u64> {
    None
}

/// Returns the id of the calling thread, or `None` on systems where probes read nothing.
pub fn own_id() -> Option<u32> {
    #[cfg(all(target_os = "linux", not(miri)))]
    return u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).ok();
    #[cfg(not(all(target_os = "linux", not(miri))))]
    None
}

/// How a thread's time was spent, since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// Time on a processor, in user and kernel mode, up to now, ns.
    pub run_ns: u64,
    /// Time that it was runnable and waited for a processor, ns, without a wait in progress.
    pub run_delay_ns: Option<u64>,
    /// How often it received a processor.
    pub timeslices: Option<u64>,
}

impl ThreadTimes {
    /// Reads the times of the thread with this id in this program once. Keeps no file open.
    pub fn now_of(tid: u32) -> Option<Self> {
        ThreadProbe { tid, files: Default::default() }.times()
    }

    /// Parses `schedstat`: `run_ns run_delay_ns timeslices`.
    fn parse(clock_ns: Option<u64>, text: &str) -> Option<Self> {
        let mut numbers = text.split_ascii_whitespace().map(|number| number.parse().ok());
        let late_ns: Option<u64> = numbers.next().flatten();
        let (run_delay_ns, timeslices) = (numbers.next().flatten(), numbers.next().flatten());
        Some(Self { run_ns: clock_ns.or(late_ns)?, run_delay_ns, timeslices })
    }
}

/// The scheduler's state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadState {
    /// `R`: on a processor, or waiting for one.
    Runnable,
    /// `S`, `I`: blocked; a signal would wake it.
    Sleeping,
    /// `D`: blocked where no signal wakes it, usually for the disk.
    Uninterruptible,
    /// `T`, `t`: stopped by a signal or a debugger.
    Stopped,
}

impl ThreadState {
    pub(crate) fn is_blocked(self) -> bool {
        self != ThreadState::Runnable
    }
}

/// The contents of the file `stat`.
struct Stat {
    state: Option<ThreadState>,
    major_faults: Option<u64>,
}

impl Stat {
    /// Returns `None` if the thread is dead.
    fn parse(text: &str) -> Option<Self> {
        // The name is in parentheses and may contain any character, including parentheses and
        // blanks.
        let (_, text) = text.rsplit_once(')').unwrap_or_default();
        let mut fields = text.split_ascii_whitespace();
        let state = match fields.next() {
            Some("R") => Some(ThreadState::Runnable),
            Some("S" | "I") => Some(ThreadState::Sleeping),
            Some("D") => Some(ThreadState::Uninterruptible),
            Some("T" | "t") => Some(ThreadState::Stopped),
            Some("Z" | "X" | "x") => return None,
            _ => None,
        };
        /// `majflt`, the 12th field of the file, counted from the one after the state.
        const MAJOR_FAULTS: usize = 8;
        Some(Self { state, major_faults: fields.nth(MAJOR_FAULTS).and_then(|number| number.parse().ok()) })
    }
}

/// How a blocked thread entered the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inside {
    /// A system call.
    Syscall {
        /// Its number on this architecture.
        number: c_long,
        /// Its first arguments.
        arguments: [u64; ARGUMENTS],
    },
    /// No system call: a processor exception, usually for a page that was not in memory.
    Exception,
}

impl Inside {
    /// Parses `syscall`: `number 0xargument … 0xsp 0xpc`, or `-1 0xsp 0xpc`, or `running`.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let number = words.next()?.parse().ok()?;
        if number == -1 {
            return Some(Inside::Exception);
        }
        let mut arguments = [0; ARGUMENTS];
        for argument in &mut arguments {
            *argument = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
        }
        Some(Inside::Syscall { number, arguments })
    }
}

/// Parses `text` as each of the files of a thread, for the fuzz targets. Returns the sample.
#[cfg(fuzzing)]
pub(super) fn parse(text: &str) -> Option<ThreadSample> {
    let Stat { state, major_faults } = Stat::parse(text)?;
    Some(ThreadSample {
        times: ThreadTimes::parse(None, text).unwrap_or_default(),
        is_on_cpu: false,
        state,
        major_faults,
        inside: Inside::parse(text),
        wait_channel: WaitChannel::parse(text),
    })
}

/// The name of the kernel function that a thread waits in, truncated to `CHANNEL_MAX_BYTES`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct WaitChannel {
    len: u8,
    bytes: [u8; CHANNEL_MAX_BYTES],
}

impl WaitChannel {
    /// Parses `wchan`. Returns `None` for `0`: not blocked, or unknown.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim_end();
        if text.is_empty() || text == "0" {
            return None;
        }
        let mut bytes = [0; CHANNEL_MAX_BYTES];
        let kept = &text.as_bytes()[..text.floor_char_boundary(CHANNEL_MAX_BYTES)];
        bytes[..kept.len()].copy_from_slice(kept);
        Some(Self { len: u8::try_from(kept.len()).ok()?, bytes })
    }

    /// Returns the function's name.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl std::fmt::Debug for WaitChannel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_str().fmt(f)
    }
}

/// One sample of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadSample {
    /// How its time was spent so far.
    pub(crate) times: ThreadTimes,
    /// Whether it ran during the sample. If this is false and the thread is runnable, it waits for
    /// a processor.
    pub is_on_cpu: bool,
    /// The scheduler's state of the thread.
    pub(crate) state: Option<ThreadState>,
    /// Number of pages that had to be fetched from a disk or a substitute for one.
    pub(crate) major_faults: Option<u64>,
    /// How it entered the kernel, if it is blocked and the kernel reports that.
    pub(crate) inside: Option<Inside>,
    /// The kernel function that it waits in, if it is blocked and the kernel reports that.
    pub wait_channel: Option<WaitChannel>,
}

impl ThreadSample {
    /// Returns whether the thread was blocked in the kernel, or stopped.
    pub fn is_blocked(&self) -> bool {
        self.state.is_some_and(ThreadState::is_blocked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_shift_the_fields() {
        let text = "9337 (a) S (b) ) D 9316 9316 26096 0 -1 4194368 2 0 17 0 0 0 0 0 20 0 6 0 1171572 44498944 345";
        let stat = Stat::parse(text).unwrap();
        assert_eq!(stat.state, Some(ThreadState::Uninterruptible));
        assert_eq!(stat.major_faults, Some(17));
    }

    #[test]
    fn a_zombie_has_ended_and_a_new_state_is_unknown() {
        assert!(Stat::parse("1 (a) Z 1").is_none());
        assert_eq!(Stat::parse("1 (a) Q 1").unwrap().state, None);
        assert_eq!(Stat::parse("").unwrap().major_faults, None);
    }

    #[test]
    fn the_clock_overrides_a_late_schedstat() {
        let reported = ThreadTimes { run_ns: 7, run_delay_ns: Some(17045), timeslices: Some(3) };
        assert_eq!(ThreadTimes::parse(Some(7), "5 17045 3\n"), Some(reported));
        assert_eq!(ThreadTimes::parse(None, "5 17045 3\n"), Some(ThreadTimes { run_ns: 5, ..reported }));
        assert_eq!(ThreadTimes::parse(None, "garbage"), None);
    }

    #[test]
    fn a_page_fault_is_no_system_call() {
        let call = Inside::Syscall { number: 230, arguments: [0x1, 0xff] };
        assert_eq!(Inside::parse("230 0x1 0xff 0x0 0x7fa4 0x0 0x0 0x7fa4 0x7fa4\n"), Some(call));
        assert_eq!(Inside::parse("-1 0x7fa4 0x7fa4\n"), Some(Inside::Exception));
        assert_eq!(Inside::parse("running\n"), None);
        assert_eq!(Inside::parse(""), None);
    }

    #[test]
    fn a_wait_channel_of_zero_is_none_and_a_long_one_is_cut() {
        assert_eq!(WaitChannel::parse("0"), None);
        assert_eq!(WaitChannel::parse("anon_pipe_read").unwrap().as_str(), "anon_pipe_read");
        assert_eq!(WaitChannel::parse(&"ä".repeat(80)).unwrap().as_str(), "ä".repeat(CHANNEL_MAX_BYTES / 2));
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn a_name_that_is_cut_inside_a_character_hides_no_state() {
        // 16 bytes, of which the kernel keeps 15.
        let named = std::thread::Builder::new().name("ж".repeat(8));
        let thread = named.spawn(|| ThreadProbe::new(own_id().unwrap()).sample().unwrap()).unwrap();
        let sample = thread.join().unwrap();
        assert_eq!((sample.state, sample.major_faults.is_some()), (Some(ThreadState::Runnable), true));
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn a_probe_does_not_follow_a_reused_thread_id() {
        let own = || rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let mut probe = std::thread::spawn(move || ThreadProbe::new(own())).join().unwrap();
        // As if this thread had received the ended thread's id.
        probe.tid = own();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        // `join` may return before the kernel has removed the thread from its list.
        while probe.sample().is_some() || probe.times().is_some() {
            assert!(std::time::Instant::now() < until, "{:?}", probe.sample());
            std::thread::yield_now();
        }
    }
}
