//! Unix signals.
//!
//! A *listener* ([`Signal`]) reports that the program has received a signal of one kind. Any number
//! of listeners can exist for the same signal, in any number of runtimes.
//!
//! Once the first listener of a kind was created, no signal of that kind is lost, but signals are
//! merged: a listener reports all signals that arrived before its poll as one. A signal that no
//! listener has reported, for example because none existed when it arrived, is reported by the next
//! listener that is created. The kernel does the same with pending signals.
//!
//! The signal handler stays installed after the last listener was dropped. The kernel's default
//! action cannot be restored while other code may have registered a handler for the same signal.

// For a newcomer: a signal handler may do very little, so it only counts the signal and writes a
// byte into the pipe of each listener. The count determines whether there is a signal to report;
// the byte wakes the listener up. The count exists once for each kind of signal, for as long as the
// program runs. So a signal that arrives while there is no listener is counted, and the next
// listener reports it.
//
// Shape. Each kind of signal has a [`Kind`] in a static table, and each listener has its own pipe.
// The driver of the listener's runtime watches the pipe. So listeners share only the counts.
//
// The handler runs on a thread that the kernel chooses. It makes one atomic addition and, for each
// listener, one atomic load and one `write`; all are allowed in a signal handler.
//
// Protocol of a signal and a listener:
// 1. The handler adds 1 to `received`.
// 2. The handler writes a byte into the pipe of each listener.
// 3. The listener, if woken, compares `received` with the last count that it has seen. If they
//    differ, it reports the signal, and stores the new count in itself and in `reported`.
// 4. Otherwise it empties its pipe and compares again, because the bytes may belong to a signal
//    that was counted after step 3. If there is still nothing to report, it waits for the next
//    byte.
//
// A new listener starts with the count in `reported` as the last one that it has seen. It registers
// its pipe with the handler first, and its pipe has a byte from the beginning, so that it makes
// step 3 once without a signal.
//
// Invariants:
// * *Counted first*: the action that counts is registered before that of any listener, and the
//   handler runs the actions in this order. So a byte in a pipe belongs to a signal that was
//   counted.
// * *Not lost*: while `received` differs from what a listener has seen, its pipe has a byte, or a
//   byte follows, or its readiness is set.
// * *Of this process*: a forked child process has the handler, the counts and the pipes of its
//   parent. The handler checks whether it runs in the process that registered the pipe. In any
//   other process it writes nothing. The first listener of a child ignores the signals that were
//   counted before.
//
// Rejected: one pipe for the program and a list of listeners, as in Tokio. It needs a place in
// every driver. Rejected: `signalfd`. The signal must be blocked in all threads, including those of
// other libraries, and child processes inherit that.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};

use signal_hook_registry::SigId;
use volt_stacks::fork::{self, Home};

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
/// A signal that arrived after the first listener of its kind was created, and that no listener has
/// reported, is reported by the new listener.
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
    let number = kind.0;
    if signal_hook_registry::FORBIDDEN.contains(&number) {
        let text = format!("signal {number} cannot be listened for: it reports a fault, or it cannot have a handler");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let kind = usize::try_from(number).ok().and_then(|number| KINDS.get(number)).ok_or_else(|| unknown(number))?;
    kind.count(number)
        .map_err(|error| if error.kind() == io::ErrorKind::InvalidInput { unknown(number) } else { error })?;
    let (receiver, sender) = io::pipe()?;
    let (receiver, sender) = (OwnedFd::from(receiver), OwnedFd::from(sender));
    for end in [&receiver, &sender] {
        rustix::io::ioctl_fionbio(end, true)?;
    }
    // Makes the listener compare the counts once.
    rustix::io::write(&sender, &[0])?;
    let home = Home::here();
    let io = Registration::with_interest(driver, receiver, Interest::READABLE.to_mio(), Flags::NONE);
    let io = io.map_err(|(_, error)| error)?;
    let notify = move || {
        if home.is_here() {
            // A full pipe also notifies the listener.
            let _ = rustix::io::write(&sender, &[0]);
        }
    };
    // SAFETY: the action may run in a signal handler. It reads an atomic, writes to a descriptor
    // that it owns, and does nothing else.
    let id = unsafe { signal_hook_registry::register(number, notify) }?;
    // ORDERING: Acquire; pairs with the Release in `Seen::report`.
    let seen = Seen { kind, count: kind.reported.load(Ordering::Acquire) };
    Ok(Signal { io, id, seen })
}

/// The error for a number that is not that of a signal.
fn unknown(number: i32) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("{number} is not the number of a signal; `SignalKind` has functions for the usual ones"),
    )
}

/// The most kinds of signals that a supported system has, plus 1: FreeBSD has 126.
const KINDS_MAX: usize = 128;

/// The counts of each kind of signal, by its number.
static KINDS: [Kind; KINDS_MAX] = [const { Kind::new() }; KINDS_MAX];

/// The counts of one kind of signal.
#[derive(Debug)]
struct Kind {
    /// Signals since the first listener was created. Written by the handler.
    received: AtomicU64,
    /// The value of `received` that a listener has reported last. Written by listeners.
    reported: AtomicU64,
    /// Whether the handler counts.
    is_counted: AtomicBool,
    /// The number of forks before the last listener was created.
    forks: AtomicU32,
}

impl Kind {
    const fn new() -> Kind {
        Kind {
            received: AtomicU64::new(0),
            reported: AtomicU64::new(0),
            is_counted: AtomicBool::new(false),
            forks: AtomicU32::new(0),
        }
    }

    /// Makes the handler count the signals of this kind, if it does not yet.
    fn count(&'static self, number: i32) -> io::Result<()> {
        // ORDERING: Acquire; pairs with the Release below, so the action that counts is registered
        // before the one that the caller registers.
        if !self.is_counted.load(Ordering::Acquire) {
            let add = || {
                // ORDERING: Release; pairs with the Acquire in `Seen::report`. Publishes nothing
                // else; it comes before the byte in the pipe, which is in the same handler.
                self.received.fetch_add(1, Ordering::Release);
            };
            // SAFETY: the action may run in a signal handler. It is one atomic addition.
            let id = unsafe { signal_hook_registry::register(number, add) }?;
            // ORDERING: AcqRel; pairs with the load above and with this operation in other threads.
            if self.is_counted.swap(true, Ordering::AcqRel) {
                // Another thread was faster. A signal that arrived meanwhile counts twice, which
                // may complete one more call of `recv`.
                signal_hook_registry::unregister(id);
            }
        }
        let forks = fork::count();
        // ORDERING: Relaxed; only the value matters. A forked child has one thread when it creates
        // its first listener, or its threads create several and each of them may do this.
        if self.forks.swap(forks, Ordering::Relaxed) != forks {
            // ORDERING: Acquire, Release; as in `Seen::report`.
            self.reported.fetch_max(self.received.load(Ordering::Acquire), Ordering::Release);
        }
        Ok(())
    }
}

/// The signals that one listener has seen.
#[derive(Debug)]
struct Seen {
    kind: &'static Kind,
    /// The value of `received` that this listener has reported last.
    count: u64,
}

impl Seen {
    /// Returns whether there is a signal to report, and marks it as reported.
    fn report(&mut self) -> bool {
        // ORDERING: Acquire; pairs with the Release in `Kind::count`: a signal whose byte was read
        // is counted.
        let received = self.kind.received.load(Ordering::Acquire);
        if received == self.count {
            return false;
        }
        self.count = received;
        // ORDERING: Release; pairs with the Acquire in `signal`.
        self.kind.reported.fetch_max(received, Ordering::Release);
        true
    }

    /// Returns `WouldBlock` if there is no signal to report.
    fn attempt(&mut self, pipe: &OwnedFd) -> io::Result<()> {
        if self.report() {
            return Ok(());
        }
        empty(pipe)?;
        if self.report() { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }
}

/// A listener for one kind of signal, created by [`signal`].
///
/// Several listeners for the same signal are independent: each receives every notification.
#[derive(Debug)]
#[must_use = "a listener does nothing unless it is awaited"]
pub struct Signal {
    io: Registration<OwnedFd>,
    id: SigId,
    seen: Seen,
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
        let Signal { io, seen, .. } = self;
        io.run(Direction::Read, |pipe| seen.attempt(pipe)).await.ok()
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
        let Signal { io, seen, .. } = self;
        io.poll_run(cx, Direction::Read, |pipe| seen.attempt(pipe))
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
    let mut bytes = [0; 1024];
    let mut read = rustix::io::read(pipe, &mut bytes)?;
    for _ in 0..64 {
        if read < bytes.len() {
            break;
        }
        read = rustix::io::read(pipe, &mut bytes).unwrap_or(0);
    }
    Ok(())
}
