//! Signals of a Unix.
//!
//! Shape. Each listener has a pipe of its own. The process's handler for its signal writes a byte
//! into each of them, and the driver of the listener's runtime watches the other end. So there is
//! nothing that listeners share but the handler, and they may be of several runtimes.
//!
//! Who writes: the signal handler, on whatever thread the kernel chose. It makes one `write` and
//! loads one atomic: both are allowed there.
//!
//! Invariants. *Not lost*: a byte is in the pipe, or the pipe is full of others, until the listener
//! has been told; so it is told at least once after the last signal. Signals of one kind that come
//! before it checks are reported once, as the kernel itself does with those that are pending. *Of
//! this process*: a child that was forked has the handler and the pipes of its parent; its handler
//! sees that it is in another process, and leaves them alone.
//!
//! The handler stays, as the kernel's default action cannot be given back while others may have
//! asked for the same signal.
//!
//! Rejected: one pipe a process and a list of listeners (what Tokio does): it takes a place in
//! every driver, and a table of all signals; `signalfd`: the signal must be blocked in all threads,
//! those of others included, and children inherit that.

use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};

use signal_hook_registry::SigId;
use volt_stacks::fork::Home;

use crate::io::Interest;
use volt_core::context;
use volt_core::driver::readiness::{Direction, Flags};
use volt_core::driver::registration::Registration;

/// Which signal.
///
/// ```
/// use volt::signal::unix::SignalKind;
///
/// assert_eq!(SignalKind::from_raw(15), SignalKind::terminate());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SignalKind(i32);

impl SignalKind {
    /// The signal with that number.
    pub const fn from_raw(number: i32) -> SignalKind {
        SignalKind(number)
    }

    /// Its number.
    pub const fn as_raw_value(&self) -> i32 {
        self.0
    }
}

macro_rules! kinds {
    ($($(#[$attribute:meta])* $name:ident = $signal:ident, $what:literal;)+) => {
        impl SignalKind {
            $(
                $(#[$attribute])*
                #[doc = concat!(stringify!($signal), ": ", $what)]
                pub const fn $name() -> SignalKind {
                    SignalKind(libc::$signal)
                }
            )+
        }
    };
}

kinds! {
    alarm = SIGALRM, "a timer of the process has run out.";
    child = SIGCHLD, "a child has ended, stopped or gone on.";
    hangup = SIGHUP, "the terminal is gone; for servers, by custom, to read their configuration again.";
    interrupt = SIGINT, "Ctrl-C.";
    io = SIGIO, "a descriptor is ready, for those who asked to be told so.";
    pipe = SIGPIPE, "something was written to what nobody reads any more.";
    quit = SIGQUIT, "Ctrl-\\.";
    terminate = SIGTERM, "to end.";
    user_defined1 = SIGUSR1, "what the program wants it to be.";
    user_defined2 = SIGUSR2, "what the program wants it to be.";
    window_change = SIGWINCH, "the terminal has another size.";
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

/// Listens for a signal, from now on.
///
/// Once it was listened for, the signal's default action (to end the process, as a rule) is off for
/// good, also after the last listener is gone.
///
/// # Errors
/// `InvalidInput` for a signal that no handler may have (SIGKILL, SIGSTOP) or that tells of a fault
/// (SIGSEGV, SIGILL, SIGFPE), or a number that is no signal's; what the system says.
///
/// # Panics
/// Outside a runtime.
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
        let text = format!("signal {} cannot be listened for: it tells of a fault, or takes no handler", kind.0);
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
            // A full pipe tells as well.
            let _ = rustix::io::write(&sender, &[0]);
        }
    };
    // SAFETY: the action may run in a signal handler: it reads an atomic and writes to a descriptor
    // that it owns, and does nothing else.
    let id = unsafe { signal_hook_registry::register(kind.0, tell) }?;
    Ok(Signal { io, id })
}

/// A listener for one signal; see [`signal`]. Any number of them may listen for the same one: each
/// is told.
#[derive(Debug)]
#[must_use = "signals are told to whoever asks"]
pub struct Signal {
    io: Registration<OwnedFd>,
    id: SigId,
}

impl Signal {
    /// Waits for the signal. Those that came since the last call, however many, are told once.
    /// `None` after the runtime was shut down.
    ///
    /// # Cancel safety
    /// No signal is lost.
    pub async fn recv(&mut self) -> Option<()> {
        self.io.run(Direction::Read, empty).await.ok()
    }

    /// Polls as [`recv`](Self::recv).
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<()>> {
        self.io.poll_run(cx, Direction::Read, empty).map(Result::ok)
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        signal_hook_registry::unregister(self.id);
    }
}

/// Takes what is in the pipe: an error if that is nothing. Bounded by what a pipe holds, or a storm
/// of signals would keep it here.
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
