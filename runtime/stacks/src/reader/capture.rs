//! Captures the stack of another thread of this program while it is stuck. A signal handler on that
//! thread copies the stack, and does nothing else.
//!
//! # One ordinary case
//!
//! Threads that may be captured register, and each gets a [`Thread`]. A [`Sampler`] publishes a
//! request for one thread at a time in the slot of [`request`](crate::request), and sends the
//! signal. The handler checks that the request is for its thread. It copies the registers and up to
//! 64 KiB of the stack, from the stack pointer on, and wakes the requester. The copy is unwound
//! while the thread continues.
//!
//! Writer: the handler writes the page. Requesters are plain threads, never workers, since they
//! block.
//!
//! # Invariants
//!
//! * COPIES-ONLY: the handler takes no lock, allocates nothing, unwinds nothing, and touches no
//!   thread-local except `errno`, which it restores. It may therefore interrupt anything: malloc, a
//!   panic, another handler, or a requester.
//! * ALIVE-WHILE-ASKED: a request is published only under the lock under which a thread ends its
//!   registration, and a thread that ends it answers the pending request. So the thread with the
//!   requested id is the one that registered, with these stack bounds, and not a later one with the
//!   same id.
//! * NEVER-HELD: the requester waits at most for the given timeout plus [`GRACE`], whatever the
//!   thread does. The thread may be stopped, be in a system call that nothing interrupts, have
//!   ended, or have the signal blocked.
//!
//! # Cost
//!
//! The copy takes less than 1 µs, even for 64 KiB. Waking the requester takes up to 10 µs.
//! Including the way through the kernel and back, the thread loses 7 to 25 µs (x86-64, 2.6 GHz, in
//! a virtual machine).
//!
//! # Caveat for the application
//!
//! A blocking system call of the captured thread is interrupted. The kernel restarts most calls
//! (SA_RESTART: reads, writes, locks, `wait`), and Rust's `sleep` continues. But `epoll_wait`,
//! `poll`, `select`, `nanosleep` called from C, socket calls with a timeout, `sigtimedwait` and
//! `io_getevents` return EINTR, as they may for any signal: see signal(7). Only threads whose poll
//! exceeds the stall threshold are captured.
//!
//! # Rejected alternatives
//!
//! * ptrace: a process cannot trace itself.
//! * `perf_event_open`, and reading `/proc/self/task/*/stack`: they require privileges.
//! * Frame pointers: default builds do not have them.
//! * Unwinding in the handler: it takes locks of the loader and faults on a corrupt stack.

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
use crate::request::{self, Answer, PENDING, Pending, Requester, Slot};

/// How long an answer that is under way may take beyond the requester's timeout: the handler may
/// lose its processor, or fault in a page.
const GRACE: Duration = Duration::from_millis(5);
/// How often a requester checks whether another's request is done. Requests are rare, and one takes
/// some tens of µs.
const TURN_INTERVAL: Duration = Duration::from_micros(100);
/// The state shared by the handler and the requesters.
struct Shared {
    slot: Slot<Page>,
    /// The thread that holds the lock may publish a request. Only `try_lock` is used: a forked
    /// child may have inherited it locked.
    requester: Mutex<Requester<Page>>,
}

/// Created by the first [`Sampler`].
static SHARED: Forever<Shared> = Forever::new();

thread_local! {
    /// This thread's registration. It ends with the thread at the latest, so ALIVE-WHILE-ASKED
    /// holds even if the guard was forgotten.
    static OWN: RefCell<Option<Own>> = const { RefCell::new(None) };
}

/// A thread whose stack can be captured, until its registration ends.
#[derive(Debug)]
pub struct Thread {
    tid: u32,
    stack: Range<usize>,
    is_alive: Mutex<bool>,
    /// In a forked child, this value is the copy of the parent's registration, whose lock may be
    /// held.
    home: Home,
}

impl Thread {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_alive.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// ALIVE-WHILE-ASKED: from now on no request is published for this thread, and a pending one is
    /// answered.
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
    /// The signal, if this thread had blocked it before the registration.
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

/// A guard that ends the registration of the current thread when it is dropped.
#[derive(Debug)]
pub struct Registered {
    thread: Arc<Thread>,
    /// Whether this guard made the registration, and not an earlier one.
    is_first: bool,
    /// The guard must stay on its thread.
    not_send: PhantomData<*const ()>,
}

impl Registered {
    /// Returns the thread to pass to [`capture`](Sampler::capture).
    pub fn thread(&self) -> &Arc<Thread> {
        &self.thread
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if self.is_first {
            // Fails while the thread ends, if the thread-local is already destroyed.
            let own = OWN.try_with(RefCell::take);
            drop(own);
        }
    }
}

/// Why no stack was captured.
#[derive(Debug)]
pub enum CaptureError {
    /// The thread has exited or is about to exit.
    Ended,
    /// Other stacks were being captured the whole time, or too many threads are suspended while
    /// they answer.
    Busy,
    /// The thread did not answer in time.
    NoAnswer {
        /// How long the requester waited.
        waited: Duration,
        /// The signal that was sent.
        signal: i32,
        /// Whether another handler has replaced Volt's for this signal.
        is_replaced: bool,
    },
    /// The signal could not be sent.
    NotSent(io::Error),
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("the thread has exited"),
            Self::Busy => f.write_str("other stacks were being captured"),
            Self::NoAnswer { waited, signal, is_replaced: false } => write!(
                f,
                "no response to signal {signal} within {waited:?}: the thread is stopped, waits in the kernel where no \
                 signal wakes it, gets no processor, or blocks the signal"
            ),
            Self::NoAnswer { waited, signal, is_replaced: true } => write!(
                f,
                "no response within {waited:?}: another handler was installed for signal {signal}: choose another signal"
            ),
            Self::NotSent(error) => write!(f, "the signal could not be sent: {error}"),
        }
    }
}

impl std::error::Error for CaptureError {}

/// Captures stacks of threads that registered with it.
#[derive(Debug)]
pub struct Sampler {
    signal: Signal,
}

impl Sampler {
    /// Creates a sampler and installs its handler for `signal`, by default SIGURG. The handler
    /// stays installed as long as the program runs, since a signal may arrive late.
    ///
    /// # Errors
    /// Returns an error if the signal reports faults, cannot be handled, or is reserved by the C
    /// library.
    pub fn new(signal: Option<i32>) -> io::Result<Self> {
        if SHARED.get().is_none() {
            let (slot, requester) = request::pair(Page::blank);
            SHARED.get_or_put(Shared { slot, requester: Mutex::new(requester) });
        }
        Ok(Self { signal: Signal::handled(signal, on_signal)? })
    }

    /// Registers the calling thread: its stack can be captured until the guard is dropped.
    /// Registering a thread again returns the same registration.
    ///
    /// # Errors
    /// Returns an error if the C library does not provide the bounds of the stack, or if the thread
    /// is ending and has destroyed its thread-locals.
    pub fn register(&self) -> io::Result<Registered> {
        let registered = OWN.try_with(|own| {
            let mut own = own.borrow_mut();
            let is_first = own.is_none();
            let thread = match &mut *own {
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
        });
        registered.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    /// Captures the current stack of `thread`. Waits for the answer, and for other requesters, at
    /// most for `timeout` (plus 5 ms if the answer is already under way). Blocks the calling
    /// thread.
    ///
    /// # Errors
    /// Returns a [`CaptureError`] with the reason if there was no answer.
    pub fn capture(&self, thread: &Thread, timeout: Duration) -> Result<RawStack, CaptureError> {
        let until = Instant::now() + timeout;
        let Shared { slot, requester } = SHARED.get().ok_or(CaptureError::Busy)?;
        let mut requester = turn(requester, until).ok_or(CaptureError::Busy)?;
        let request = {
            // ALIVE-WHILE-ASKED
            let is_alive = thread.lock();
            if !*is_alive {
                return Err(CaptureError::Ended);
            }
            requester.send(slot, thread.tid, |page| page.own.clone_from(&thread.stack)).ok_or(CaptureError::Busy)?
        };
        let sent = self.signal.send(thread.tid);
        if sent.is_ok() {
            wait(&request, until);
        }
        if !request.withdraw() {
            wait(&request, Instant::now() + GRACE);
        }
        match (request.answer(Page::raw), sent) {
            (Some(Answer::Written(stack)), _) => Ok(stack),
            (Some(Answer::Ended), _) => Err(CaptureError::Ended),
            (None, Err(error)) => Err(CaptureError::NotSent(error)),
            (None, Ok(())) => Err(CaptureError::NoAnswer {
                waited: timeout,
                signal: self.signal.number(),
                is_replaced: self.signal.is_replaced(),
            }),
        }
    }
}

/// Waits for exclusive use of the requester. Returns `None` if that fails until `until`.
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

/// Waits for the answer, at most until `until`.
fn wait(request: &Pending<'_, Page>, until: Instant) {
    while request.answer(|_| ()).is_none() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        let left =
            Timespec { tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: left.subsec_nanos().into() };
        // Whatever the result is, the loop checks again.
        let _ = futex::wait(request.pending(), Flags::PRIVATE, PENDING, Some(&left));
    }
}

/// Wakes the requester. Fails only for an invalid address.
fn wake(pending: &'static AtomicU32) {
    let _ = futex::wake(pending, Flags::PRIVATE, 1);
}

/// The signal handler. COPIES-ONLY.
extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: every thread has an `errno`.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: it belongs to this thread.
    let saved = unsafe { *errno };
    if let Some(claim) = SHARED.get().and_then(|shared| shared.slot.claim(own_tid)) {
        // SAFETY: the kernel passes a valid context to every handler installed with SA_SIGINFO, as
        // this one is.
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
