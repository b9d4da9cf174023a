//! Takes the stack of another thread of this process while it is stuck, by a signal whose handler
//! only copies.
//!
//! Shape: threads that may be asked register, and get a [`Thread`]; a [`Sampler`] asks one at a
//! time, through the slot of [`request`](crate::request), and sends it the signal. The handler
//! finds out whether this thread is the one that is asked, copies its registers and up to 64 KiB of
//! its stack from the stack pointer on, and wakes the requester, who unwinds the copy while the
//! thread is on its way again.
//!
//! Who writes: the page, the handler. Who asks: plain threads, never a worker, since the requester
//! waits.
//!
//! Invariants.
//! * COPIES-ONLY: the handler takes no lock, allocates nothing, unwinds nothing, touches no
//!   thread-local but `errno`, which it puts back. So it does not matter what it interrupts:
//!   malloc, a panic, another handler, this one's own requester.
//! * ALIVE-WHILE-ASKED: a request is published only under the lock under which a thread ends its
//!   registration; when it does, it answers what it is asked. So whoever bears the number that is
//!   asked is the thread that registered with these bounds.
//! * NEVER-HELD: the requester waits no longer than it is told, plus [`GRACE`], whatever the thread
//!   does: stopped, in a system call that nothing interrupts, ended, or with the signal blocked.
//!
//! Cost: the copy takes less than 1 µs, 64 KiB of it included, and waking the requester up to 10
//! µs; with the way through kernel and back, 7 to 25 µs of the thread's time (x86-64, 2.6 GHz, in a
//! virtual machine).
//!
//! Caveat for the application: a system call that waits, in a thread that is asked, is interrupted.
//! The kernel restarts most (SA_RESTART: reads, writes, locks, `wait`), and Rust's `sleep` goes on
//! by itself; but `epoll_wait`, `poll`, `select`, `nanosleep` called from C, socket calls with a
//! time-out, `sigtimedwait` and `io_getevents` return EINTR, as they may for any signal: see
//! signal(7). Only polls that are already late are asked.
//!
//! Rejected: ptrace, which a process cannot do to itself; `perf_event_open` and reading
//! `/proc/self/task/*/stack`, which need rights; frame pointers, which default builds do not have;
//! unwinding in the handler, which takes locks of the loader and faults on a broken stack.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rustix::thread::futex::{self, Flags, Timespec};

use super::forever::Forever;
use super::page::{self, Page};
use super::raw::RawStack;
use super::signals::{self, Signal};
use crate::fork::Home;
use crate::request::{self, Answer, Asked, PENDING, Requester, Slot};

/// How long an answer that is under way may take beyond the requester's patience: a thread in its
/// handler may lose its processor, or fault in a page.
const GRACE: Duration = Duration::from_millis(5);
/// How often a thread checks whether another's request is done. Requests are rare, and one takes
/// some tens of µs.
const TURN_INTERVAL: Duration = Duration::from_micros(100);
/// What handler and requesters share.
struct Shared {
    slot: Slot<Page>,
    /// The thread that holds the lock may ask. Only ever tried: a forked child may have inherited
    /// it locked.
    requester: Mutex<Requester<Page>>,
}

/// Made by the first [`Sampler`].
static SHARED: Forever<Shared> = Forever::new();

thread_local! {
    /// This thread's registration, which ends with the thread at the latest: ALIVE-WHILE-ASKED even
    /// if its guard was forgotten.
    static OWN: RefCell<Option<Own>> = const { RefCell::new(None) };
}

/// A thread that can be asked for its stack, until its registration ends.
#[derive(Debug)]
pub struct Thread {
    tid: u32,
    stack: Range<usize>,
    is_alive: Mutex<bool>,
    /// In a forked child, this is the copy of a registration that stayed behind, its lock perhaps
    /// held.
    home: Home,
}

impl Thread {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_alive.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// ALIVE-WHILE-ASKED: nobody asks from now on; and who has asked is answered.
    fn end(&self) {
        if !self.home.is_here() {
            return;
        }
        *self.lock() = false;
        if let Some(claim) = SHARED.get().and_then(|shared| shared.slot.claim(|| self.tid)) {
            wake(claim.end());
        }
    }
}

struct Own {
    thread: Arc<Thread>,
    /// The signal, if this thread had it blocked before.
    blocked: Option<Signal>,
}

impl Drop for Own {
    fn drop(&mut self) {
        self.thread.end();
        if let Some(signal) = self.blocked {
            signal.block();
        }
    }
}

/// Ends the registration of the thread that made it, when it is dropped.
#[derive(Debug)]
pub struct Registered {
    thread: Arc<Thread>,
    /// Whether the thread was not registered before.
    is_first: bool,
    /// Stays on its thread.
    not_send: PhantomData<*const ()>,
}

impl Registered {
    /// Who to [`capture`](Sampler::capture).
    pub fn thread(&self) -> &Arc<Thread> {
        &self.thread
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if self.is_first {
            // Fails at the thread's end, if it is over by then.
            let own = OWN.try_with(RefCell::take);
            drop(own);
        }
    }
}

/// Why there is no stack.
#[derive(Debug)]
pub enum CaptureError {
    /// The thread has ended, or will in a moment.
    Ended,
    /// Another stack was being taken all the time, or too many threads stand still in the middle of
    /// answering.
    Busy,
    /// The thread did not answer in time.
    NoAnswer {
        /// How long it was waited for.
        waited: Duration,
        /// The signal that it was sent.
        signal: i32,
        /// Whether the signal has another handler now than ours.
        is_replaced: bool,
    },
    /// The signal could not be sent.
    NotSent(io::Error),
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("the thread has ended"),
            Self::Busy => f.write_str("other stacks were being taken"),
            Self::NoAnswer { waited, signal, is_replaced: false } => write!(
                f,
                "no answer to signal {signal} within {waited:?}: the thread is stopped, waits in the kernel where no \
                 signal wakes it, gets no processor, or has the signal blocked"
            ),
            Self::NoAnswer { waited, signal, is_replaced: true } => write!(
                f,
                "no answer within {waited:?}: another handler was installed for signal {signal}: choose another signal"
            ),
            Self::NotSent(error) => write!(f, "the signal could not be sent: {error}"),
        }
    }
}

impl std::error::Error for CaptureError {}

/// Takes stacks of threads that registered with it.
#[derive(Debug)]
pub struct Sampler {
    signal: Signal,
}

impl Sampler {
    /// Installs the handler for `signal`, SIGURG unless told otherwise. It stays installed for the
    /// life of the process, since a signal may be late.
    ///
    /// # Errors
    /// The signal tells of faults, cannot be handled, or is kept by the C library.
    pub fn new(signal: Option<i32>) -> io::Result<Self> {
        let (slot, requester) = request::pair(Page::blank);
        SHARED.get_or_put(Shared { slot, requester: Mutex::new(requester) });
        Ok(Self { signal: Signal::handled(signal, on_signal)? })
    }

    /// From now on, until the guard is dropped, this thread can be asked for its stack. A second
    /// registration of a thread is the same as its first.
    ///
    /// # Errors
    /// The C library does not say where the stack is.
    pub fn register(&self) -> io::Result<Registered> {
        OWN.with_borrow_mut(|own| {
            let is_first = own.is_none();
            let thread = match own {
                Some(own) => own.thread.clone(),
                None => {
                    let thread = Arc::new(Thread {
                        tid: own_tid(),
                        stack: page::own_stack()?,
                        is_alive: Mutex::new(true),
                        home: Home::here(),
                    });
                    let blocked = self.signal.unblock().then_some(self.signal);
                    own.insert(Own { thread, blocked }).thread.clone()
                }
            };
            Ok(Registered { thread, is_first, not_send: PhantomData })
        })
    }

    /// The stack of `thread` as it is now. Waits for the answer, and for other requesters, no
    /// longer than `patience` (and `GRACE`).
    ///
    /// # Errors
    /// There is no answer, and the error says why.
    pub fn capture(&self, thread: &Thread, patience: Duration) -> Result<RawStack, CaptureError> {
        let until = Instant::now() + patience;
        let Shared { slot, requester } = SHARED.get().ok_or(CaptureError::Busy)?;
        let mut requester = turn(requester, until).ok_or(CaptureError::Busy)?;
        let asked = {
            // ALIVE-WHILE-ASKED
            let is_alive = thread.lock();
            if !*is_alive {
                return Err(CaptureError::Ended);
            }
            requester.ask(slot, thread.tid, |page| page.own.clone_from(&thread.stack)).ok_or(CaptureError::Busy)?
        };
        let sent = self.signal.send(thread.tid);
        if sent.is_ok() {
            wait(&asked, until);
        }
        if !asked.withdraw() {
            wait(&asked, Instant::now() + GRACE);
        }
        match (asked.answer(Page::raw), sent) {
            (Some(Answer::Written(stack)), _) => Ok(stack),
            (Some(Answer::Ended), _) => Err(CaptureError::Ended),
            (None, Err(error)) => Err(CaptureError::NotSent(error)),
            (None, Ok(())) => Err(CaptureError::NoAnswer {
                waited: patience,
                signal: self.signal.number(),
                is_replaced: self.signal.is_replaced(),
            }),
        }
    }
}

/// Returns the requester when it is this thread's turn; `None` if it is not by `until`.
fn turn(requester: &Mutex<Requester<Page>>, until: Instant) -> Option<MutexGuard<'_, Requester<Page>>> {
    loop {
        match requester.try_lock() {
            Ok(requester) => return Some(requester),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() < until => std::thread::sleep(TURN_INTERVAL),
            Err(TryLockError::WouldBlock) => return None,
        }
    }
}

/// Until the answer, or `until`.
fn wait(asked: &Asked<'_, Page>, until: Instant) {
    while asked.answer(|_| ()).is_none() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        let left =
            Timespec { tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: left.subsec_nanos().into() };
        // However it ends, the loop checks again.
        let _ = futex::wait(asked.pending(), Flags::PRIVATE, PENDING, Some(&left));
    }
}

/// Fails only for an address that is none.
fn wake(pending: &'static AtomicU32) {
    let _ = futex::wake(pending, Flags::PRIVATE, 1);
}

/// The handler. COPIES-ONLY.
extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: there is always an `errno`.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: it is this thread's own.
    let saved = unsafe { *errno };
    if let Some(claim) = SHARED.get().and_then(|shared| shared.slot.claim(own_tid)) {
        // SAFETY: the kernel gives this to every handler installed with SA_SIGINFO, as this one is.
        let context = unsafe { &*context.cast::<libc::ucontext_t>() };
        wake(claim.write(|page| page.take(context)));
    }
    signals::pass_on(signal, info, context);
    // SAFETY: as above.
    unsafe { *errno = saved };
}

fn own_tid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}
