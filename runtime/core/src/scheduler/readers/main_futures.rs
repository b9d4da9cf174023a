//! The futures of `block_on`, which a dump polls on their own threads.
//!
//! The *main future* of a `block_on` is not a task: it is on the stack of the thread that called
//! `block_on`, and only this thread may poll it. That of `main` accepts connections, or waits for a
//! signal, so it is of interest if a program does not start or stop. So each `block_on` *registers*
//! its main future while it runs.
//!
//! # One ordinary case
//!
//! The thread of `main` has polled its future, which accepts connections, and sleeps. A dump puts a
//! *request* into the registered main future, and wakes the thread as any waker of the future does.
//! The thread finds the request and polls its future with a traced waker (`task::waker`), so that
//! its stacks are recorded. It sends these to the dump. The future is still pending, and the thread
//! sleeps again.
//!
//! # The race
//!
//! The thread may poll the future, or return from `block_on`, when the request arrives. In the
//! first case the next poll serves the request: the wake-up that follows the request causes this
//! poll. In the second case the request is dropped with the entry, and the dump receives nothing.
//!
//! # Protocol
//!
//! 1. Register ([`MainFutures::register`]) before the first poll. The entry is removed when
//!    `block_on` returns or panics.
//! 2. Request ([`MainFutures::request`]): put the sender into the entry, set its flag, and wake the
//!    thread.
//! 3. Serve ([`Registered::poll`]): before each poll, take the request if the flag is set. With a
//!    request, poll with the traced waker, and send what was recorded.
//! 4. Receive: the dump waits for the replies for a short time, and reports a main future without
//!    a reply as being polled.
//!
//! # Invariants
//!
//! * *No wake-up is lost*: a request changes nothing but the waker of one poll. A wake-up that
//!   arrives together with a request leads to this poll, too.
//! * *A wait stays as old as it is*: a poll for a dump does not change how long the main future has
//!   waited.
//! * *Bounded*: an entry has at most one request; a dump makes at most [`MAX_BLOCK_ON`] of them.
//! * *No lock while polling*: the list and the slot are locked for a few instructions. No lock is
//!   held while a request is dropped, since that may wake the dump.
//! * *Not in a forked child*: there, the locks may be held by threads that do not exist.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use volt_stacks::fork::Home;
use volt_stacks::{Recorded, Tape};
use volt_telemetry::dump::MAX_BLOCK_ON;

use crate::clock;
use crate::task::resources;
use crate::task::waker;

/// In place of the time since which the main future waits: it is being polled, or was not polled
/// yet.
const POLLED: u64 = 0;

thread_local! {
    /// Whether an operation that awaits a dump was pending in the present poll of this thread.
    static AWAITS_DUMP: Cell<bool> = const { Cell::new(false) };
}

/// Records that a pending operation awaits a dump.
pub(crate) fn note_dump() {
    AWAITS_DUMP.set(true);
}

/// The main futures of a runtime.
pub(crate) struct MainFutures {
    home: Home,
    calls: Mutex<Calls>,
}

/// The present calls of `block_on`, by their numbers.
#[derive(Default)]
struct Calls {
    next: u64,
    entries: BTreeMap<u64, Arc<Entry>>,
}

/// A main future, as a dump sees it.
struct Entry {
    called_at: &'static Location<'static>,
    waker: Waker,
    /// When its last poll that was not for a dump returned, ns on the program's clock, or
    /// [`POLLED`].
    waits_since_ns: AtomicU64,
    /// Whether it awaits a dump, so that it is left out.
    awaits_dump: AtomicBool,
    is_requested: AtomicBool,
    request: Mutex<Option<Request>>,
}

/// A dump's request for a traced poll.
struct Request {
    /// The index of the main future in the [`Requested`].
    index: usize,
    replies: SyncSender<(usize, Traced)>,
}

/// What a traced poll has recorded.
pub(in crate::scheduler) struct Traced {
    /// Whether it still waits.
    pub(in crate::scheduler) still_waits: bool,
    pub(in crate::scheduler) recorded: Recorded,
    /// Whether it awaits a dump.
    pub(in crate::scheduler) awaits_dump: bool,
}

/// A main future of which a dump has requested a poll.
pub(in crate::scheduler) struct Target {
    pub(in crate::scheduler) called_at: &'static Location<'static>,
    /// `None` if it was being polled when the request was made, also for an earlier dump, or if it
    /// was not polled yet.
    pub(in crate::scheduler) waits_since_ns: Option<u64>,
}

/// The requests of a dump.
pub(in crate::scheduler) struct Requested {
    pub(in crate::scheduler) targets: Vec<Target>,
    /// The number of main futures that were left out because there are too many.
    pub(in crate::scheduler) left_out: usize,
    /// Replies, with the index of the main future. Disconnected after the last one.
    pub(in crate::scheduler) replies: Receiver<(usize, Traced)>,
}

impl MainFutures {
    /// Creates the list of a runtime that is built in this process.
    pub(super) fn new() -> Self {
        Self { home: Home::here(), calls: Mutex::default() }
    }

    /// Protocol (1). `waker` wakes the thread that polls the main future.
    pub(crate) fn register(&self, called_at: &'static Location<'static>, waker: Waker) -> Registered<'_> {
        let entry = Arc::new(Entry {
            called_at,
            waker,
            waits_since_ns: AtomicU64::new(POLLED),
            awaits_dump: AtomicBool::new(false),
            is_requested: AtomicBool::new(false),
            request: Mutex::new(None),
        });
        let mut calls = self.lock();
        let number = calls.next;
        calls.next += 1;
        calls.entries.insert(number, entry.clone());
        drop(calls);
        Registered { all: self, number, entry }
    }

    /// Protocol (2).
    pub(in crate::scheduler) fn request(&self) -> Requested {
        let (entries, left_out): (Vec<Arc<Entry>>, usize) = {
            let calls = self.lock();
            // ORDERING: Relaxed; only decides whether this dump includes the main future. If that
            // awaits the dump of another client, it is left out here, and the next dump includes
            // it.
            let others = || calls.entries.values().filter(|entry| !entry.awaits_dump.load(Ordering::Relaxed));
            (others().take(MAX_BLOCK_ON).cloned().collect(), others().count().saturating_sub(MAX_BLOCK_ON))
        };
        // Room for all replies, so that no thread waits for the dump.
        let (sender, replies) = sync_channel(entries.len());
        let targets = entries.iter().enumerate().map(|(index, entry)| {
            // ORDERING: Relaxed; a time for a report, which publishes nothing.
            let waits_since_ns = entry.waits_since_ns.load(Ordering::Relaxed);
            entry.request(Request { index, replies: sender.clone() });
            Target { called_at: entry.called_at, waits_since_ns: Some(waits_since_ns).filter(|&since| since != POLLED) }
        });
        Requested { targets: targets.collect(), left_out, replies }
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn slot(&self) -> MutexGuard<'_, Option<Request>> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn request(&self, request: Request) {
        let former = self.slot().replace(request);
        drop(former);
        // ORDERING: Relaxed; the wake-up below publishes it: the poll that this wake-up causes sees
        // the flag.
        self.is_requested.store(true, Ordering::Relaxed);
        self.waker.wake_by_ref();
    }

    fn take_request(&self, home: Home) -> Option<Request> {
        // ORDERING: Relaxed, both; see `request`. A poll that misses the flag is followed by the
        // poll that the request's wake-up causes. The lock publishes the request.
        if !self.is_requested.load(Ordering::Relaxed) || !home.is_here() {
            return None;
        }
        self.is_requested.store(false, Ordering::Relaxed);
        self.slot().take()
    }
}

/// A main future that is registered until this is dropped.
pub(crate) struct Registered<'a> {
    all: &'a MainFutures,
    number: u64,
    entry: Arc<Entry>,
}

impl Registered<'_> {
    /// Polls the main future. Protocol (3).
    pub(crate) fn poll<F: Future>(&self, future: Pin<&mut F>) -> Poll<F::Output> {
        let entry = &*self.entry;
        let request = entry.take_request(self.all.home);
        // ORDERING: Relaxed, all of this function; see `MainFutures::request`.
        let since_ns = entry.waits_since_ns.swap(POLLED, Ordering::Relaxed);
        // A task that was polled on this thread may have set it.
        AWAITS_DUMP.set(false);
        let (polled, traced) = match &request {
            None => (future.poll(&mut Context::from_waker(&entry.waker)), None),
            Some(_) => poll_traced(future, &entry.waker),
        };
        if polled.is_pending() {
            let is_same_wait = traced.as_ref().is_some_and(|traced| traced.still_waits) && since_ns != POLLED;
            entry.waits_since_ns.store(if is_same_wait { since_ns } else { clock::now_ns() }, Ordering::Relaxed);
            entry.awaits_dump.store(AWAITS_DUMP.get(), Ordering::Relaxed);
        }
        if let (Some(Request { index, replies }), Some(traced)) = (request, traced) {
            // Fails only if the dump has ended.
            let _is_sent = replies.try_send((index, traced));
        }
        polled
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        if !self.all.home.is_here() {
            return;
        }
        let entry = self.all.lock().entries.remove(&self.number);
        // The dump may still have the entry.
        let request = self.entry.slot().take();
        drop((entry, request));
    }
}

#[cold]
fn poll_traced<F: Future>(future: Pin<&mut F>, waker: &Waker) -> (Poll<F::Output>, Option<Traced>) {
    let mut tape = Tape::new();
    let (mut future, mut polled) = (Some(future), None);
    let traced = waker::Traced::new(waker);
    resources::recorded_in(|| {
        let waker = traced.waker();
        tape.record(&mut || polled = future.take().map(|future| poll_future(future, &waker)));
    });
    let polled = polled.expect("`record` calls the closure once");
    let still_waits = polled.is_pending() && !traced.is_woken();
    (polled, Some(Traced { still_waits, recorded: tape.take(), awaits_dump: AWAITS_DUMP.get() }))
}

/// Its frame, and those outside of it, are left out of the chain: see `dump::chain`.
#[inline(never)]
fn poll_future<F: Future>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

#[cfg(test)]
mod tests {
    use std::future;
    use std::pin::pin;
    use std::sync::mpsc::TryRecvError;

    use super::*;

    #[test]
    fn a_request_is_served_by_the_next_poll_and_only_by_it() {
        let all = MainFutures::new();
        let registered = all.register(Location::caller(), Waker::noop().clone());
        let mut future = pin!(future::pending::<()>());
        assert!(registered.poll(future.as_mut()).is_pending());
        let requested = all.request();
        let since_ns = requested.targets[0].waits_since_ns.expect("it waits");
        assert!(registered.poll(future.as_mut()).is_pending());
        let (index, traced) = requested.replies.try_recv().expect("a reply");
        assert_eq!((index, traced.still_waits, traced.awaits_dump), (0, true, false));
        assert_eq!(requested.replies.try_recv().err(), Some(TryRecvError::Disconnected));
        assert_eq!(all.request().targets[0].waits_since_ns, Some(since_ns), "a wait stays as old as it is");
        assert!(registered.poll(future.as_mut()).is_pending());
        assert!(all.request().targets[0].waits_since_ns >= Some(since_ns));
    }

    #[test]
    fn a_main_future_that_yields_does_not_wait() {
        let all = MainFutures::new();
        let registered = all.register(Location::caller(), Waker::noop().clone());
        let requested = all.request();
        let mut future = pin!(future::poll_fn::<(), _>(|cx| {
            cx.waker().wake_by_ref();
            Poll::Pending
        }));
        assert!(registered.poll(future.as_mut()).is_pending());
        assert!(!requested.replies.try_recv().expect("a reply").1.still_waits);
    }

    #[test]
    fn a_main_future_that_awaits_a_dump_is_left_out() {
        let all = MainFutures::new();
        let registered = all.register(Location::caller(), Waker::noop().clone());
        let mut awaits = true;
        let mut future = pin!(future::poll_fn::<(), _>(move |_| {
            if std::mem::take(&mut awaits) {
                note_dump();
            }
            Poll::Pending
        }));
        assert!(registered.poll(future.as_mut()).is_pending());
        assert!(all.request().targets.is_empty());
        assert!(registered.poll(future.as_mut()).is_pending());
        assert_eq!(all.request().targets.len(), 1);
    }

    #[test]
    fn a_request_ends_with_its_block_on() {
        let all = MainFutures::new();
        let registered = all.register(Location::caller(), Waker::noop().clone());
        let requested = all.request();
        assert!(requested.targets[0].waits_since_ns.is_none(), "it was not polled yet");
        assert_eq!(requested.replies.try_recv().err(), Some(TryRecvError::Empty));
        drop(registered);
        assert_eq!(requested.replies.try_recv().err(), Some(TryRecvError::Disconnected));
        assert!(all.request().targets.is_empty());
    }

    #[test]
    fn a_panic_in_a_traced_poll_ends_the_request() {
        let all = MainFutures::new();
        let registered = all.register(Location::caller(), Waker::noop().clone());
        let requested = all.request();
        let mut future = pin!(future::poll_fn::<(), _>(|_| std::panic::resume_unwind(Box::new("on purpose"))));
        let poll = std::panic::AssertUnwindSafe(|| registered.poll(future.as_mut()));
        assert!(std::panic::catch_unwind(poll).is_err());
        assert_eq!(requested.replies.try_recv().err(), Some(TryRecvError::Disconnected));
        assert!(!resources::is_traced());
    }

    #[test]
    fn requests_are_limited_to_the_size_of_a_dump() {
        let all = MainFutures::new();
        let registered: Vec<_> =
            (0..MAX_BLOCK_ON + 3).map(|_| all.register(Location::caller(), Waker::noop().clone())).collect();
        let requested = all.request();
        assert_eq!((requested.targets.len(), requested.left_out), (MAX_BLOCK_ON, 3));
        drop(registered);
    }
}
