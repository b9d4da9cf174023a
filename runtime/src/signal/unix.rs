//! Unix signals.
//!
//! A *listener* ([`Signal`]) reports that the program has received a signal of one kind. Any number
//! of listeners can exist for the same signal, in any number of runtimes.
//!
//! No signal is lost: a listener completes at least once after the last signal. Signals that arrive
//! before the listener is polled are reported once. The kernel does the same with pending signals.
//!
//! The signal handler stays installed after the last listener was dropped. The kernel's default
//! action cannot be restored while other code may have registered a handler for the same signal.

// Shape. Each listener has its own pipe. The signal handler of the program writes a byte into the
// pipe of each listener of that signal. The driver of the listener's runtime watches the other end
// of the pipe. So listeners share only the handler.
//
// The handler runs on a thread that the kernel chooses. It loads one atomic and makes one `write`;
// both are allowed in a signal handler.
//
// Invariants:
// * *Not lost*: after a signal, the pipe contains a byte, or is full, until the listener has
//   reported it.
// * *Of this process*: a forked child process has the handler and the pipes of its parent. The
//   handler checks whether it runs in the process that registered it. In any other process it
//   writes nothing.
//
// Rejected: one pipe for the program and a list of listeners, as in Tokio. It needs a place in
// every driver, and a table of all signals. Rejected: `signalfd`. The signal must be blocked in all
// threads, including those of other libraries, and child processes inherit that.

use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};

use signal_hook_registry::SigId;
use volt_stacks::fork::Home;

use crate::io::Interest;
use volt_core::context;
use volt_core::driver::readiness::{Direction, Flags};
use volt_core::driver::registration::Registration;

/// A kind of signal, such as SIGTERM.
///
/// ```
/// use volt::signal::unix::SignalKind;
///
/// assert_eq!(SignalKind::from_raw(15), SignalKind::terminate());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SignalKind(i32);

impl SignalKind {
    /// Creates the kind for a raw signal number.
    pub const fn from_raw(number: i32) -> SignalKind {
        SignalKind(number)
    }

    /// Returns the raw signal number.
    pub const fn as_raw_value(&self) -> i32 {
        self.0
    }
}

macro_rules! kinds {
    ($($(#[$attribute:meta])* $name:ident = $signal:ident, $what:literal;)+) => {
        impl SignalKind {
            $(
                $(#[$attribute])*
                #[doc = concat!("Represents ", stringify!($signal), ": ", $what)]
                pub const fn $name() -> SignalKind {
                    SignalKind(libc::$signal)
                }
            )+
        }
    };
}

kinds! {
    alarm = SIGALRM, "a timer of the program has expired. By default, it terminates the program.";
    child = SIGCHLD, "a child process has exited, stopped or continued. By default, it is ignored.";
    hangup = SIGHUP, "the terminal was closed; servers by convention reload their configuration. By default, it terminates the program.";
    interrupt = SIGINT, "Ctrl-C. By default, it terminates the program.";
    io = SIGIO, "a descriptor for which signal-driven I/O is enabled is ready. By default, it terminates the program on Linux.";
    pipe = SIGPIPE, "the program wrote to a pipe that has no reader. Rust programs ignore it by default.";
    quit = SIGQUIT, "Ctrl-\\. By default, it terminates the program with a core dump.";
    terminate = SIGTERM, "a request to terminate. By default, it terminates the program.";
    user_defined1 = SIGUSR1, "defined by the program. By default, it terminates the program.";
    user_defined2 = SIGUSR2, "defined by the program. By default, it terminates the program.";
    window_change = SIGWINCH, "the size of the terminal has changed. By default, it is ignored.";
}

impl From<i32> for SignalKind {
    fn from(number: i32) -> SignalKind {
        SignalKind(number)
    }
}

impl From<SignalKind> for i32 {
    fn from(kind: SignalKind) -> i32 {
        kind.0
    }
}

/// Starts to listen for signals of the given kind, and returns the listener.
///
/// The first call for a signal disables its default action for good, which for most signals is to
/// terminate the program. The default action stays disabled after the last listener was dropped.
///
/// # Errors
/// Returns `InvalidInput` in three cases: the signal accepts no handler (SIGKILL, SIGSTOP), it
/// reports a fault (SIGSEGV, SIGILL, SIGFPE), or the number is not that of a signal. Also returns
/// an error if the underlying system call fails.
///
/// # Panics
/// Panics if called outside the context of a runtime.
///
/// ```
/// use volt::signal::unix::{SignalKind, signal};
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// let mut hangups = signal(SignalKind::hangup())?;
/// # rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::HUP)?;
/// hangups.recv().await;
/// // Read the configuration again.
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
#[track_caller]
pub fn signal(kind: SignalKind) -> io::Result<Signal> {
    let driver = context::driver();
    if signal_hook_registry::FORBIDDEN.contains(&kind.0) {
        let text = format!("signal {} cannot be listened for: it reports a fault, or it cannot have a handler", kind.0);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let (receiver, sender) = io::pipe()?;
    let (receiver, sender) = (OwnedFd::from(receiver), OwnedFd::from(sender));
    for end in [&receiver, &sender] {
        rustix::io::ioctl_fionbio(end, true)?;
    }
    let home = Home::here();
    let io = Registration::with_interest(driver, receiver, Interest::READABLE.to_mio(), Flags::NONE);
    let io = io.map_err(|(_, error)| error)?;
    let tell = move || {
        if home.is_here() {
            // A full pipe also notifies the listener.
            let _ = rustix::io::write(&sender, &[0]);
        }
    };
    // SAFETY: the action may run in a signal handler. It reads an atomic, writes to a descriptor
    // that it owns, and does nothing else.
    let id = unsafe { signal_hook_registry::register(kind.0, tell) }?;
    Ok(Signal { io, id })
}

/// A listener for one kind of signal, created by [`signal`].
///
/// Several listeners for the same signal are independent: each receives every notification.
#[derive(Debug)]
#[must_use = "a listener does nothing unless it is awaited"]
pub struct Signal {
    io: Registration<OwnedFd>,
    id: SigId,
}

impl Signal {
    /// Waits for the next signal. Signals that arrived since the last call are reported once,
    /// regardless of their number.
    ///
    /// Returns `None` after the runtime has been shut down.
    ///
    /// # Cancel safety
    /// This method is cancel safe. No signal is lost.
    pub async fn recv(&mut self) -> Option<()> {
        self.io.run(Direction::Read, empty).await.ok()
    }

    /// Polls for the next signal as [`recv`](Self::recv) does.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<()>> {
        self.poll_signal(cx).map(Result::ok)
    }

    /// Polls for the next signal.
    ///
    /// # Errors
    /// Returns an error if the runtime has been shut down.
    pub(crate) fn poll_signal(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.poll_run(cx, Direction::Read, empty)
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        signal_hook_registry::unregister(self.id);
    }
}

/// Empties the pipe. Returns `WouldBlock` if it is empty already. Reads at most as much as a pipe
/// can contain; otherwise a continuous flow of signals could keep this loop running.
fn empty(pipe: &OwnedFd) -> io::Result<()> {
    let mut told = [0; 1024];
    let mut read = rustix::io::read(pipe, &mut told)?;
    for _ in 0..64 {
        if read < told.len() {
            break;
        }
        read = rustix::io::read(pipe, &mut told).unwrap_or(0);
    }
    Ok(())
}
