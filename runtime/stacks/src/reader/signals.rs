//! The signal by which the requester interrupts a thread: its number, how it is sent and marked,
//! and how handlers that were installed before are preserved.
//!
//! `capture` installs its handler through this module, sends the signal, and lets the handler
//! forward signals of other senders.
//!
//! # Shape
//!
//! For each signal number, `FORMER` stores the action that the program had before. The handler is
//! installed once and never removed. A signal may arrive late, and another library may have
//! installed a handler over it that calls this one.
//!
//! A signal is sent with a value that marks it as Volt's own. A signal without the mark is passed
//! on to the former handler. Two pending signals to one thread may be merged into one. The mark
//! therefore only decides whether the signal is passed on, and not whether there is a request for
//! the thread.
//!
//! # Choice of the signal
//!
//! The default is SIGURG. Go uses it for preemption, for these reasons. Debuggers pass it on, and
//! no C library reserves it. Programs that use it for its purpose (out-of-band data) hardly exist,
//! and must tolerate spurious ones anyway. Its default action is to ignore it, so one that arrives
//! late, after an `exec`, is harmless.
//!
//! # Rejected alternatives
//!
//! * A real-time signal: it terminates the program if it arrives after an `exec`. It stops
//!   debuggers. It is queued, so late ones accumulate.
//! * SIGPROF: profilers use it.
//! * SIGUSR1 and SIGUSR2: applications use them.
//!
//! Users may still configure one of these.
//!
//! Sources: Go, `runtime/signal_unix.go`, on `sigPreempt`; signal(7).

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use super::forever::Forever;

/// The highest signal number; the lowest is 1.
const SIGNAL_MAX: usize = 64;
/// Signals that report faults or cannot be handled; and 0, which is not a signal.
const UNUSABLE: [c_int; 10] = [
    0,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
    libc::SIGKILL,
    libc::SIGSTOP,
];

/// The type of a signal handler that the kernel calls.
pub(super) type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// The program's former action for each signal.
static FORMER: [Forever<libc::sigaction>; SIGNAL_MAX + 1] = [const { Forever::new() }; SIGNAL_MAX + 1];

fn former(number: c_int) -> Option<&'static Forever<libc::sigaction>> {
    FORMER.get(usize::try_from(number).ok()?)
}

/// A signal for which Volt's handler is installed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signal {
    number: c_int,
    handler: Handler,
}

impl Signal {
    /// Installs `handler` for signal `number`, by default SIGURG. All signals must use the same
    /// handler.
    ///
    /// # Errors
    /// Returns an error if the signal reports faults, cannot be handled, or is reserved by the C
    /// library.
    pub(super) fn handled(number: Option<c_int>, handler: Handler) -> io::Result<Self> {
        let number = number.unwrap_or(libc::SIGURG);
        let former = former(number).filter(|_| !UNUSABLE.contains(&number)).ok_or_else(|| {
            let message = format!("signal {number} cannot be used: choose SIGURG, SIGUSR2 or a real-time signal");
            io::Error::new(io::ErrorKind::InvalidInput, message)
        })?;
        let this = Self { number, handler };
        this.install(former)?;
        Ok(this)
    }

    /// Installs the handler. Stores the former action first, so that every signal finds it. Threads
    /// that do this concurrently store and install the same, which is harmless.
    fn install(self, former: &Forever<libc::sigaction>) -> io::Result<()> {
        let before = self.installed()?;
        let is_ours = before.sa_sigaction == self.handler as usize;
        if is_ours || before.sa_sigaction != former.get_or_put(before).sa_sigaction {
            // The handler is installed already. Or it was, and another handler has been installed
            // since, which forwards signals to this one or deliberately does not.
            return Ok(());
        }
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: a `sigaction` consists of numbers and an optional function, for all of which zero
        // is valid.
        let action = unsafe { action.assume_init_mut() };
        action.sa_sigaction = self.handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        // SAFETY: a valid signal set. All signals are blocked while the handler runs: no other
        // handler interrupts it.
        unsafe { libc::sigfillset(&raw mut action.sa_mask) };
        // SAFETY: the action is complete, and its handler is async-signal-safe.
        if unsafe { libc::sigaction(self.number, action, ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Returns the current action for the signal.
    fn installed(self) -> io::Result<libc::sigaction> {
        let mut action = MaybeUninit::uninit();
        // SAFETY: nothing is installed; the current action is written to memory of its type.
        if unsafe { libc::sigaction(self.number, ptr::null(), action.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was written.
        Ok(unsafe { action.assume_init() })
    }

    pub(super) fn number(self) -> c_int {
        self.number
    }

    /// Returns whether another handler was installed over Volt's.
    pub(super) fn is_replaced(self) -> bool {
        self.installed().is_ok_and(|action| action.sa_sigaction != self.handler as usize)
    }

    /// Sends the signal to thread `tid` of this program, with Volt's mark.
    ///
    /// # Errors
    /// Returns an error if there is no such thread, or the kernel does not allow it.
    pub(super) fn send(self, tid: u32) -> io::Result<()> {
        let info = Info::ours(self.number);
        // SAFETY: the kernel reads `info`, which has the layout and size of its `siginfo_t`.
        let sent = unsafe {
            libc::syscall(libc::SYS_rt_tgsigqueueinfo, std::process::id(), tid, self.number, ptr::from_ref(&info))
        };
        if sent == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Unblocks the signal in this thread. Returns whether it was blocked.
    pub(super) fn unblock(self) -> bool {
        self.mask(libc::SIG_UNBLOCK)
    }

    /// Blocks the signal in this thread.
    pub(super) fn block(self) {
        let _was_blocked = self.mask(libc::SIG_BLOCK);
    }

    fn mask(self, how: c_int) -> bool {
        let mut set = MaybeUninit::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: initializes it as an empty set.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: it is a valid set.
        unsafe { libc::sigaddset(set.as_mut_ptr(), self.number) };
        // SAFETY: `set` is valid, and `before` has room for a set.
        if unsafe { libc::pthread_sigmask(how, set.as_ptr(), before.as_mut_ptr()) } != 0 {
            return false;
        }
        // SAFETY: it was written.
        unsafe { libc::sigismember(before.as_ptr(), self.number) == 1 }
    }
}

/// The kernel's `siginfo_t` for a signal that was sent with a value, on 64-bit systems.
#[repr(C)]
struct Info {
    signal: c_int,
    errno: c_int,
    code: c_int,
    gap: c_int,
    pid: c_int,
    uid: u32,
    value: usize,
    rest: [u64; 12],
}

const _: () = assert!(size_of::<Info>() == size_of::<libc::siginfo_t>());

impl Info {
    fn ours(signal: c_int) -> Self {
        let pid = std::process::id().cast_signed();
        Self { signal, errno: 0, code: libc::SI_QUEUE, gap: 0, pid, uid: 0, value: Self::mark(), rest: [0; 12] }
    }

    /// Returns the value that marks Volt's signals. No other sender uses it: it is an address in
    /// this program.
    fn mark() -> usize {
        ptr::from_ref(&FORMER).addr()
    }

    fn is_ours(&self) -> bool {
        self.code == libc::SI_QUEUE && self.value == Self::mark()
    }
}

/// Called in the handler: calls the former handler, unless the signal is Volt's own.
pub(super) fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid `siginfo_t` to every handler installed with SA_SIGINFO, as
    // this one is, and `Info` has its layout.
    if unsafe { &*info.cast::<Info>() }.is_ours() {
        return;
    }
    let former = former(signal).and_then(Forever::get);
    let Some(former) = former.filter(|former| !matches!(former.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN)) else {
        return;
    };
    // SAFETY: the kernel passes a valid context to every handler installed with SA_SIGINFO.
    let interrupted = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_sigmask };
    let ours = set_mask(&mask_of(former, signal, interrupted));
    if former.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: it was installed with SA_SIGINFO, so it is a function of this type; the two
        // special values were excluded above.
        let former: Handler = unsafe { std::mem::transmute(former.sa_sigaction) };
        former(signal, info, context);
    } else {
        // SAFETY: as above, without SA_SIGINFO.
        let former: extern "C" fn(c_int) = unsafe { std::mem::transmute(former.sa_sigaction) };
        former(signal);
    }
    set_mask(&ours);
}

/// Returns the signals to block while `former` runs, as if the kernel had called it: those blocked
/// when the signal arrived, those in the handler's mask, and the signal itself. Volt's handler
/// blocks all signals. A foreign handler that takes long, or waits for another signal, must not run
/// with that mask.
fn mask_of(former: &libc::sigaction, signal: c_int, interrupted: &libc::sigset_t) -> libc::sigset_t {
    let mut mask = MaybeUninit::uninit();
    // SAFETY: initializes it as an empty set.
    unsafe { libc::sigemptyset(mask.as_mut_ptr()) };
    // SAFETY: it is a valid set.
    let mask = unsafe { mask.assume_init_mut() };
    for number in 1..=SIGNAL_MAX as c_int {
        // SAFETY: a valid set. The kernel's set is shorter than the C library's type, but contains
        // all signals up to this number.
        let is_blocked = unsafe { libc::sigismember(interrupted, number) } == 1;
        // SAFETY: a valid set.
        let is_requested = unsafe { libc::sigismember(&raw const former.sa_mask, number) } == 1;
        let is_itself = number == signal && former.sa_flags & libc::SA_NODEFER == 0;
        if is_blocked || is_requested || is_itself {
            // SAFETY: a valid set. The C library reserves two numbers and ignores them here.
            unsafe { libc::sigaddset(mask, number) };
        }
    }
    *mask
}

/// Makes `mask` the set of signals that this thread blocks. Returns the former set.
fn set_mask(mask: &libc::sigset_t) -> libc::sigset_t {
    let mut before = *mask;
    // SAFETY: `mask` is a valid set, and `before` has room for one. The call fails only for an
    // invalid first argument.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, &raw mut before) };
    before
}
