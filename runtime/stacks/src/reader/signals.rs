//! The signal that a thread is asked by: which, how it is sent and marked as ours, and what becomes
//! of handlers that were there before.
//!
//! Shape: for each number, what the program did with that signal before. The handler is installed
//! once and never taken away, since a signal may arrive late, and since somebody may have put a
//! handler over it which calls this one.
//!
//! A signal is sent with a value that marks it as ours; one without the mark goes on to the handler
//! that was there before. As two that are under way to one thread become one, the mark says where a
//! signal goes, and not whether the thread is asked.
//!
//! It is SIGURG unless told otherwise. Go sends that for preemption, and gives the reasons:
//! debuggers let it pass, no C library keeps it for itself, and programs that use it for what it is
//! meant for (out-of-band data) hardly exist, and must bear it for no reason anyway. And by default
//! it is ignored: one that arrives late, after an `exec`, is harmless.
//!
//! Rejected: a real-time signal, which ends the program if it arrives after an `exec`, stops
//! debuggers, and is queued, so that late ones pile up; SIGPROF, which profilers use; SIGUSR1 and
//! SIGUSR2, which applications do. Whoever has to can choose one of them.
//!
//! Source: Go, `runtime/signal_unix.go`, on `sigPreempt`; signal(7).

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use super::forever::Forever;

/// Signals have numbers from 1 to this.
const SIGNAL_MAX: usize = 64;
/// Signals that tell of faults, or cannot be handled; and 0, which is none.
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

/// What the kernel calls.
pub(super) type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// What the program did with each signal before.
static FORMER: [Forever<libc::sigaction>; SIGNAL_MAX + 1] = [const { Forever::new() }; SIGNAL_MAX + 1];

fn former(number: c_int) -> Option<&'static Forever<libc::sigaction>> {
    FORMER.get(usize::try_from(number).ok()?)
}

/// A signal that has our handler.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signal {
    number: c_int,
    handler: Handler,
}

impl Signal {
    /// Installs `handler` for signal `number`, SIGURG unless told otherwise. The same handler for
    /// all signals.
    ///
    /// # Errors
    /// The signal tells of faults, cannot be handled, or is kept by the C library.
    pub(super) fn handled(number: Option<c_int>, handler: Handler) -> io::Result<Self> {
        let number = number.unwrap_or(libc::SIGURG);
        let former = former(number).filter(|_| !UNUSABLE.contains(&number)).ok_or_else(|| {
            let message = format!("signal {number} cannot be used: take SIGURG, SIGUSR2 or a real-time signal");
            io::Error::new(io::ErrorKind::InvalidInput, message)
        })?;
        let this = Self { number, handler };
        this.install(former)?;
        Ok(this)
    }

    /// What was there before goes to `former` first, so that no signal falls in between. Threads
    /// that come here together do the same twice, which is as good as once.
    fn install(self, former: &Forever<libc::sigaction>) -> io::Result<()> {
        let before = self.installed()?;
        let is_ours = before.sa_sigaction == self.handler as usize;
        if is_ours || before.sa_sigaction != former.get_or_put(before).sa_sigaction {
            // Installed already. Or it was, and another handler came since: it passes signals on to
            // this one, or was meant not to.
            return Ok(());
        }
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: a `sigaction` is numbers, and an optional function, for all of which zero is a
        // value.
        let action = unsafe { action.assume_init_mut() };
        action.sa_sigaction = self.handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        // SAFETY: a signal set that may be written to. All are blocked meanwhile: nothing
        // interrupts the handler.
        unsafe { libc::sigfillset(&raw mut action.sa_mask) };
        // SAFETY: the action is complete, and its handler does only what handlers may.
        if unsafe { libc::sigaction(self.number, action, ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// What the process does with it now.
    fn installed(self) -> io::Result<libc::sigaction> {
        let mut action = MaybeUninit::uninit();
        // SAFETY: nothing is installed; the present action is written to memory of its type.
        if unsafe { libc::sigaction(self.number, ptr::null(), action.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was written.
        Ok(unsafe { action.assume_init() })
    }

    pub(super) fn number(self) -> c_int {
        self.number
    }

    /// Whether another handler was installed over ours.
    pub(super) fn is_replaced(self) -> bool {
        self.installed().is_ok_and(|action| action.sa_sigaction != self.handler as usize)
    }

    /// Sends it to thread `tid` of this process, marked as ours.
    ///
    /// # Errors
    /// There is no such thread, or the kernel does not allow it.
    pub(super) fn send(self, tid: u32) -> io::Result<()> {
        let info = Info::ours(self.number);
        // SAFETY: the kernel reads `info`, which has the form and size of its `siginfo_t`.
        let sent = unsafe {
            libc::syscall(libc::SYS_rt_tgsigqueueinfo, std::process::id(), tid, self.number, ptr::from_ref(&info))
        };
        if sent == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Lets it through to this thread; whether it was blocked before.
    pub(super) fn unblock(self) -> bool {
        self.mask(libc::SIG_UNBLOCK)
    }

    /// Blocks it in this thread.
    pub(super) fn block(self) {
        let _was_blocked = self.mask(libc::SIG_BLOCK);
    }

    fn mask(self, how: c_int) -> bool {
        let mut set = MaybeUninit::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: makes it an empty set.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: it is a set.
        unsafe { libc::sigaddset(set.as_mut_ptr(), self.number) };
        // SAFETY: `set` is one, and `before` has room for one.
        if unsafe { libc::pthread_sigmask(how, set.as_ptr(), before.as_mut_ptr()) } != 0 {
            return false;
        }
        // SAFETY: it was written.
        unsafe { libc::sigismember(before.as_ptr(), self.number) == 1 }
    }
}

/// What the kernel tells of a signal that was sent with a value: its `siginfo_t`, on 64 bits.
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

    /// The value that nobody else sends: an address in this process.
    fn mark() -> usize {
        ptr::from_ref(&FORMER).addr()
    }

    fn is_ours(&self) -> bool {
        self.code == libc::SI_QUEUE && self.value == Self::mark()
    }
}

/// In the handler: calls the one that was there before, unless the signal is ours.
pub(super) fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives it to every handler installed with SA_SIGINFO, as ours is; and it is
    // of this form.
    if unsafe { &*info.cast::<Info>() }.is_ours() {
        return;
    }
    let former = former(signal).and_then(Forever::get);
    let Some(former) = former.filter(|former| !matches!(former.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN)) else {
        return;
    };
    // SAFETY: the kernel gives this to every handler installed with SA_SIGINFO, as ours is.
    let interrupted = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_sigmask };
    let ours = set_mask(&mask_of(former, signal, interrupted));
    if former.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: installed with SA_SIGINFO, it is a function of this type; and it is neither of
        // the two numbers that are none.
        let former: Handler = unsafe { std::mem::transmute(former.sa_sigaction) };
        former(signal, info, context);
    } else {
        // SAFETY: as above, without SA_SIGINFO.
        let former: extern "C" fn(c_int) = unsafe { std::mem::transmute(former.sa_sigaction) };
        former(signal);
    }
    set_mask(&ours);
}

/// What is blocked while `former` runs, as if the kernel had called it: what was blocked when the
/// signal came, what the handler asked for, and the signal itself. Ours blocks everything, which a
/// handler of somebody else's that takes its time, or waits for another signal, must not do.
fn mask_of(former: &libc::sigaction, signal: c_int, interrupted: &libc::sigset_t) -> libc::sigset_t {
    let mut mask = MaybeUninit::uninit();
    // SAFETY: makes it an empty set.
    unsafe { libc::sigemptyset(mask.as_mut_ptr()) };
    // SAFETY: it is a set.
    let mask = unsafe { mask.assume_init_mut() };
    for number in 1..=SIGNAL_MAX as c_int {
        // SAFETY: a set. Of the kernel's the C library's type goes beyond its end, where no signal
        // of these numbers stands.
        let is_blocked = unsafe { libc::sigismember(interrupted, number) } == 1;
        // SAFETY: a set.
        let is_asked_for = unsafe { libc::sigismember(&raw const former.sa_mask, number) } == 1;
        let is_itself = number == signal && former.sa_flags & libc::SA_NODEFER == 0;
        if is_blocked || is_asked_for || is_itself {
            // SAFETY: a set. The C library keeps two numbers for itself, and takes none of them.
            unsafe { libc::sigaddset(mask, number) };
        }
    }
    *mask
}

/// Has this thread block `mask` and nothing else. Returns what it has blocked before.
fn set_mask(mask: &libc::sigset_t) -> libc::sigset_t {
    let mut before = *mask;
    // SAFETY: `mask` is a set, and `before` has room for one. It fails for another request than
    // this only.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, &raw mut before) };
    before
}
