//! The dump on SIGQUIT: `VOLT_DUMP_ON_SIGQUIT=1` makes the program print what every task waits for
//! when it receives that signal, as a Java program prints its threads. The program continues.
//!
//! It is for programs to which no console can attach: in a container without one, or without access
//! to the control socket. Ctrl-\ in a terminal sends the signal, too.
//!
//! The first runtime of the program reads the variable. If it requests dumps, that runtime installs
//! a handler of the signal and starts the thread `volt-quit`, which lasts until the program exits.
//!
//! One ordinary case: a thread of the program receives the signal. The handler writes a byte into a
//! pipe. The thread `volt-quit`, which reads from the pipe, makes a dump of one runtime after the
//! other and writes it to stderr. The race is between the handler and that thread, when more
//! signals arrive while a dump is made.
//!
//! Protocol, with a flag `is_due` next to the pipe:
//! * Signal: (1) set the flag; (2) if it was not set, write a byte.
//! * Thread: (1) read a byte; (2) reset the flag; (3) make the dump.
//!
//! Invariants:
//! * *Not lost*: after a signal, a dump begins. If the flag was set, there is a byte that the
//!   thread has not read, or the thread is about to reset the flag and to make the dump.
//! * *One more at most*: whatever number of signals arrive during a dump, one dump follows. So at
//!   most two bytes are in the pipe, and the handler never blocks.
//! * *Async-signal-safe*: the handler loads and changes atomics, and calls `write`.
//! * *Not in a forked child*: it inherits the handler, which does nothing there. The first
//!   runtime that the child builds installs its own.
//!
//! The handler is one of `signal-hook-registry`, as the listeners of `volt::signal` are. So both
//! receive the signal, and a handler that the program had installed before is called as well.
//!
//! Rejected: `signalfd`, for which the signal must be blocked in all threads. Also rejected: a
//! request to the observer's thread, which has to serve clients meanwhile, and which a runtime
//! without a control socket does not start. With `Builder::stack_signal(SIGQUIT)`, each capture of
//! a stack also causes a dump: choose another signal there.

use std::ffi::OsStr;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use rustix::process::Signal;
use volt_stacks::fork::{self, Home};
use volt_telemetry::dump::Query;

use super::recording::FAULT;
use super::registry;
use crate::scheduler::readers::limit::{Limit, TIME_MAX};

/// The variable that requests dumps.
const VARIABLE: &str = "VOLT_DUMP_ON_SIGQUIT";
/// Name of the thread.
const THREAD_NAME: &str = "volt-quit";

/// Prints dumps on SIGQUIT if the environment requests it. Does nothing if it was called before in
/// this program. If the variable has a bad value, or the handler cannot be installed, reports that,
/// and the program continues.
pub(crate) fn listen_if_requested() {
    /// The number of forks, plus one, that the program had when this was called last.
    static CALLED_AFTER_FORKS: AtomicU32 = AtomicU32::new(0);
    // Forks are counted from the first `Home` on.
    let home = Home::here();
    let forks = fork::count().wrapping_add(1);
    // ORDERING: Relaxed; of the threads of a program that build its first runtimes concurrently,
    // only one receives another number, and it publishes nothing by this. A `Once` would block
    // forever in a child that was forked during the first call.
    if CALLED_AFTER_FORKS.swap(forks, Ordering::Relaxed) == forks {
        return;
    }
    let Some(value) = std::env::var_os(VARIABLE) else { return };
    let done = is_requested(&value).and_then(|is_requested| if is_requested { listen(home) } else { Ok(()) });
    if let Err(error) = done {
        let value = value.to_string_lossy();
        let shown = value.escape_debug();
        // Also on stderr, since the program may have no subscriber. Not a print macro, which panics
        // if stderr is closed.
        let text = format!("volt: {VARIABLE}={shown}: {error}; the program continues without dumps on SIGQUIT\n");
        let _result = io::stderr().write_all(text.as_bytes());
        tracing::error!(target: "volt::observe", value = %shown, %error, "SIGQUIT prints no dump; the program continues");
    }
}

/// Returns whether the value of the variable requests dumps.
fn is_requested(value: &OsStr) -> Result<bool, String> {
    match value.to_str().map(str::trim) {
        Some("1") => Ok(true),
        Some("" | "0") => Ok(false),
        _ => Err("not a valid value: set it to 1 to print a dump on SIGQUIT, or to 0, or unset it".to_owned()),
    }
}

fn listen(home: Home) -> Result<(), String> {
    let (requests, signals) = Requests::new().map_err(|error| format!("no pipe could be created: {error}"))?;
    let action = move || {
        if home.is_here() {
            signals.request();
        }
    };
    thread::Builder::new()
        .name(THREAD_NAME.into())
        .spawn(move || {
            // Fails only if the handler's end of the pipe is closed.
            while requests.wait().is_ok() {
                // Fails if nothing can be written to stderr.
                let _result = write_dumps(&mut io::stderr());
            }
        })
        .map_err(|error| format!("the thread {THREAD_NAME} cannot be started: {error}"))?;
    // SAFETY: the action may run in a signal handler. It reads an atomic and calls `request`, which
    // is async-signal-safe.
    let registered = unsafe { signal_hook_registry::register(Signal::QUIT.as_raw(), action) };
    // If it fails, the action is dropped, and the thread ends.
    registered.map_err(|error| format!("the signal handler cannot be installed: {error}"))?;
    Ok(())
}

/// The thread's side of the requests.
struct Requests {
    pipe: PipeReader,
    is_due: Arc<AtomicBool>,
}

/// The handler's side of the requests.
struct Signals {
    pipe: PipeWriter,
    is_due: Arc<AtomicBool>,
}

impl Requests {
    fn new() -> io::Result<(Self, Signals)> {
        let (reader, writer) = io::pipe()?;
        let is_due = Arc::new(AtomicBool::new(false));
        Ok((Self { pipe: reader, is_due: is_due.clone() }, Signals { pipe: writer, is_due }))
    }

    /// Protocol, thread (1) and (2).
    fn wait(&self) -> io::Result<()> {
        (&self.pipe).read_exact(&mut [0])?;
        // ORDERING: Relaxed; pairs with the swap in `request`. Only the order of the changes of
        // this one flag matters, and each signal before this change belongs to the dump after it.
        self.is_due.store(false, Ordering::Relaxed);
        Ok(())
    }
}

impl Signals {
    /// Protocol, signal (1) and (2). Async-signal-safe.
    fn request(&self) {
        // ORDERING: Relaxed; pairs with the store in `wait`, see there.
        if !self.is_due.swap(true, Ordering::Relaxed) {
            // Fails only if the thread has exited.
            let _result = rustix::io::write(&self.pipe, &[1]);
        }
    }
}

/// Writes a dump of every runtime of this program, each in one piece.
fn write_dumps(out: &mut dyn Write) -> io::Result<()> {
    let (program, pid) = (registry::program_name(), std::process::id());
    out.write_all(format!("volt: dump of {program}, pid {pid}, on SIGQUIT\n\n").as_bytes())?;
    for runtime in registry::observed() {
        // It has ended meanwhile, or it continues until its dump is complete.
        let Some(runtime) = runtime.upgrade() else { continue };
        let (limit, _canceller) = Limit::new(TIME_MAX);
        // Unwind safe: nothing that the dump has changed is used again.
        let text = catch_unwind(AssertUnwindSafe(|| runtime.dump(&Query::default(), &limit).text()));
        let text = text.unwrap_or_else(|_| format!("volt: {FAULT}\n"));
        out.write_all(format!("{text}\n").as_bytes())?;
    }
    out.write_all(b"volt: end of the dump; the program continues\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_1_requests_dumps_and_bad_values_name_the_remedy() {
        let of = |value: &str| is_requested(OsStr::new(value));
        assert_eq!([of("1"), of(" 1 "), of("0"), of("")], [Ok(true), Ok(true), Ok(false), Ok(false)]);
        for bad in ["yes", "2", "true", "/tmp/dump"] {
            assert!(of(bad).unwrap_err().contains("set it to 1"), "{bad}");
        }
    }

    #[test]
    fn signals_during_a_dump_cause_one_more_dump() {
        let (requests, signals) = Requests::new().unwrap();
        let bytes_left = || rustix::io::ioctl_fionread(&requests.pipe).unwrap();
        signals.request();
        requests.wait().unwrap();
        // The dump is being made.
        (0..5).for_each(|_| signals.request());
        assert_eq!(bytes_left(), 1);
        requests.wait().unwrap();
        assert_eq!(bytes_left(), 0);
        signals.request();
        assert_eq!(bytes_left(), 1, "later signals count again");
    }

    #[test]
    fn the_thread_ends_with_the_handler() {
        let (requests, signals) = Requests::new().unwrap();
        drop(signals);
        assert!(requests.wait().is_err());
    }
}
