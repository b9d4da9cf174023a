//! Detection of the exit of a child process.
//!
//! A [`Watch`] waits until one child process exits. On Linux it uses a process descriptor, which
//! becomes readable when the process exits and stays readable. This needs no signal handler, and
//! shares nothing with other children. If process descriptors are not available, it uses SIGCHLD:
//! whenever any child of the program exits, each watch checks its own child.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{self, ExitStatus};
use std::task::{Context, Poll, ready};

use crate::signal::unix::{Signal, SignalKind, signal};
use volt_core::driver::readiness::Direction;
use volt_core::driver::registration::Registration;

#[derive(Debug)]
pub(super) enum Watch {
    Descriptor(Registration<OwnedFd>),
    Signal(Signal),
}

impl Watch {
    /// Watches a child that has not been waited for yet, so that its process ID cannot belong to
    /// another process.
    ///
    /// # Errors
    /// Returns an error if the program has run out of file descriptors.
    ///
    /// # Panics
    /// Panics if called outside the context of a runtime.
    pub(super) fn new(child: &process::Child) -> io::Result<Self> {
        match descriptor(child) {
            Some(watched) => Ok(Watch::Descriptor(watched?)),
            None => Ok(Watch::Signal(signal(SignalKind::child())?)),
        }
    }

    /// Waits until `child` exits, and returns its status.
    pub(super) fn poll_exit(
        &mut self,
        cx: &mut Context<'_>,
        child: &mut process::Child,
    ) -> Poll<io::Result<ExitStatus>> {
        match self {
            // The result of `try_wait` decides: for a traced process the descriptor reports the
            // exit twice.
            Watch::Descriptor(io) => io.poll_run(cx, Direction::Read, |_| try_wait(child)),
            Watch::Signal(ends) => loop {
                // The poll must come before the check. An exit between the two is then reported by
                // the next signal event.
                let change = ends.poll_signal(cx);
                match try_wait(child) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    result => return Poll::Ready(result),
                }
                ready!(change)?;
            },
        }
    }
}

fn try_wait(child: &mut process::Child) -> io::Result<ExitStatus> {
    child.try_wait()?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
}

/// Returns `None` if the system has no process descriptors.
#[cfg(target_os = "linux")]
fn descriptor(child: &process::Child) -> Option<io::Result<Registration<OwnedFd>>> {
    use rustix::io::Errno;
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use crate::io::Interest;
    use volt_core::context;
    use volt_core::driver::readiness::Flags;

    let driver = context::driver();
    match pidfd_open(Pid::from_child(child), PidfdFlags::empty()) {
        Ok(fd) => {
            let io = Registration::with_interest(driver, fd, Interest::READABLE.to_mio(), Flags::NONE);
            Some(io.map_err(|(_, error)| error))
        }
        // The kernel is too old, or a sandbox forbids the call.
        Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => None,
        Err(error) => Some(Err(error.into())),
    }
}

#[cfg(not(target_os = "linux"))]
fn descriptor(_: &process::Child) -> Option<io::Result<Registration<OwnedFd>>> {
    None
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use volt_core::Builder;

    #[test]
    fn without_pidfds_signals_report_the_exit_of_children() {
        let runtime = Builder::new_multi_thread().worker_threads(1).control_socket(false).build().unwrap();
        runtime.block_on(async {
            let sleepers = [0, 1, 2].map(|n| {
                let mut child = process::Command::new("sh").args(["-c", &format!("exit {n}")]).spawn().unwrap();
                let mut watch = Watch::Signal(signal(SignalKind::child()).unwrap());
                crate::spawn(async move { poll_fn(|cx| watch.poll_exit(cx, &mut child)).await.unwrap().code() })
            });
            for (n, sleeper) in (0..).zip(sleepers) {
                assert_eq!(sleeper.await.unwrap(), Some(n));
            }
        });
    }
}
