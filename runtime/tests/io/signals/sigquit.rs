//! The dump on SIGQUIT, which the environment variable `VOLT_DUMP_ON_SIGQUIT` requests. Each test
//! runs in a separate program, since the signal reaches the whole program.

use std::future::{pending, poll_fn};
use std::io::{BufRead, BufReader, PipeReader};
use std::os::fd::AsRawFd;
use std::sync::mpsc;
use std::task::Poll;

use crate::watchdog::{alone_with, builder, watched};
use rustix::process::{Signal, getpid, kill_process};
use volt::Runtime;
use volt::signal::unix::{SignalKind, signal};
use volt::sync::oneshot;
use volt::telemetry::dump::Query;

/// Requests dumps.
pub const ON: &[(&str, &str)] = &[("VOLT_DUMP_ON_SIGQUIT", "1")];

const END: &str = "volt: end of the dump";

/// The program's stderr, as a pipe from which this program itself reads.
pub struct Stderr(BufReader<PipeReader>);

impl Stderr {
    pub fn of_this_program() -> Self {
        let (reader, writer) = std::io::pipe().unwrap();
        // SAFETY: both are open descriptors, and nothing owns descriptor 2.
        let replaced = unsafe { libc::dup2(writer.as_raw_fd(), libc::STDERR_FILENO) };
        assert_eq!(replaced, libc::STDERR_FILENO);
        // The test that started this program prints its stdout.
        std::panic::set_hook(Box::new(|panic| println!("{panic}")));
        Self(BufReader::new(reader))
    }

    /// Waits for a complete dump.
    pub fn dump(&mut self) -> String {
        let mut text = String::new();
        while !text.contains(END) {
            assert!(self.0.read_line(&mut text).unwrap() > 0, "{text}");
        }
        text
    }
}

pub fn sigquit() {
    kill_process(getpid(), Signal::QUIT).unwrap();
}

/// Waits until this many tasks wait.
pub fn until_waiting(runtime: &Runtime, count: u64) {
    let handle = runtime.handle().clone();
    let query = Query { polls: false, ..Query::default() };
    while runtime.block_on(handle.dump_with(query.clone())).waiting != count {}
}

/// Returns the action of the signal: by default it terminates the program, and a program that a
/// script starts in the background ignores it.
fn action() -> libc::sighandler_t {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: installs nothing, and writes the present action to memory of its type.
    assert_eq!(unsafe { libc::sigaction(libc::SIGQUIT, std::ptr::null(), action.as_mut_ptr()) }, 0);
    // SAFETY: it was written.
    unsafe { action.assume_init() }.sa_sigaction
}

#[test]
fn sigquit_prints_all_runtimes_and_the_program_continues() {
    alone_with(ON, || {
        watched(|| {
            let (service, other) = (builder(2).name("service").build().unwrap(), builder(1).name("other"));
            let other = other.build().unwrap();
            let mut stderr = Stderr::of_this_program();
            let (sender, receiver) = oneshot::channel::<u32>();
            let (task, line) = (service.spawn(receiver), line!());
            other.spawn(pending::<()>());
            until_waiting(&service, 1);
            until_waiting(&other, 1);
            let mut listener = service.block_on(async { signal(SignalKind::quit()) }).unwrap();
            sigquit();
            let dump = stderr.dump();
            let start = format!("pid {}, on SIGQUIT\n", std::process::id());
            let spawned = format!("sigquit.rs:{line}");
            for expected in
                [&*start, "runtime service: 1 task: 1 waiting", "runtime other: 1 task: 1 waiting", &spawned]
            {
                assert!(dump.contains(expected), "{expected}: {dump}");
            }
            service.block_on(listener.recv()).unwrap();
            sender.send(7).unwrap();
            assert_eq!(service.block_on(task).unwrap(), Ok(7));
            drop(other);
            sigquit();
            let dump = stderr.dump();
            assert!(dump.contains("runtime service: 0 tasks") && !dump.contains("other"), "{dump}");
            drop(service);
            sigquit();
            let dump = stderr.dump();
            assert!(dump.contains("on SIGQUIT") && !dump.contains("runtime "), "{dump}");
        });
    });
}

#[test]
fn a_sigquit_during_a_dump_is_not_lost() {
    alone_with(ON, || {
        watched(|| {
            let runtime = builder(1).name("slow").build().unwrap();
            let mut stderr = Stderr::of_this_program();
            // From its second poll on, the task waits for permission, so a dump does, too.
            let ((begun, begins), (permit, permits)) = (mpsc::channel(), mpsc::channel::<()>());
            let mut polls = 0;
            runtime.spawn(poll_fn(move |_| {
                polls += 1;
                if polls > 1 {
                    begun.send(()).unwrap();
                    permits.recv().unwrap();
                }
                Poll::<()>::Pending
            }));
            until_waiting(&runtime, 1);
            sigquit();
            begins.recv().unwrap();
            (0..5).for_each(|_| sigquit());
            permit.send(()).unwrap();
            stderr.dump();
            begins.recv().unwrap();
            permit.send(()).unwrap();
            stderr.dump();
        });
    });
}

#[test]
fn a_bad_value_is_reported_and_installs_no_handler() {
    let stderr = alone_with(&[("VOLT_DUMP_ON_SIGQUIT", "yes")], || {
        let inherited = action();
        let runtime = builder(1).build().unwrap();
        assert_eq!(action(), inherited);
        assert_eq!(runtime.block_on(async { 7 }), 7, "the program continues");
    });
    let expected = "volt: VOLT_DUMP_ON_SIGQUIT=yes: not a valid value: set it to 1";
    assert!(stderr.is_none_or(|stderr| stderr.contains(expected)));
}

#[test]
fn sigquit_keeps_its_action_unless_dumps_are_requested() {
    let variable = "VOLT_DUMP_ON_SIGQUIT";
    for variables in [&[][..], &[(variable, "")], &[(variable, "0")]] {
        alone_with(variables, || {
            let inherited = action();
            let _runtime = builder(1).build().unwrap();
            assert_eq!(action(), inherited);
        });
    }
}
