//! The protocol by which one thread requests the stack of another. The other thread answers from
//! inside a signal handler.
//!
//! The requester is a plain thread that needs the stack of a stuck worker. It cannot read that
//! stack while the worker runs, so it sends the worker a signal, and the worker's signal handler
//! copies the stack. A handler must not lock, allocate or wait. The two threads therefore share
//! only one atomic word and a few buffers that are allocated in advance.
//!
//! # One ordinary case
//!
//! The [`Requester`] prepares a [`Buffer`] and writes the worker's thread id into the word. Its
//! caller sends the worker a signal. The worker's handler finds its own id in the word and claims
//! the request by setting the id back to 0. It copies the stack into the buffer, marks the buffer
//! as written, and wakes the requester.
//!
//! # The race
//!
//! A handler may run late, after the requester has stopped waiting. Its copy must not end up in the
//! answer to the next request.
//!
//! # Shape
//!
//! The word [`Slot::request_word`] has two halves. The low half is the id of the thread that must
//! answer, or 0 for no thread. The high half is the number of the request. A [`Buffer`] consists of
//! the page that the answer is written to, and a word `answer`, which is PENDING from the request
//! to the answer.
//!
//! Writers: the requester, of which there is one, writes the word; the answering thread writes it
//! once, to set the id to 0. A page is written by the thread that claimed the request for which the
//! buffer was published. Reader: the requester reads the page after the answer.
//!
//! # Invariants
//!
//! * ONE-CLAIM: a request is removed from the word exactly once, by a compare-and-swap. Either the
//!   requested thread claims it, or the requester withdraws it.
//! * ONE-WRITER: a page is written only by the thread that claimed the one request for which its
//!   buffer was published, and only while the buffer is PENDING. A PENDING buffer is never
//!   published for another request.
//! * FOR-EVER: buffers are never freed, so a handler that runs late never accesses freed memory.
//!
//! # Protocol
//!
//! Ask, by the requester:
//! 1. a buffer that is not PENDING becomes PENDING;
//! 2. the slot points to it;
//! 3. the word is set to the id of the thread that must answer.
//!
//! Answer, by that thread, in a signal handler or when the thread ends, without a lock, an
//! allocation or a wait:
//! 1. read the word: if it contains another thread's id, or 0, there is nothing to do;
//! 2. read which buffer the slot points to;
//! 3. claim: exchange the word that was read for one with the id 0;
//! 4. write the page;
//! 5. the buffer is no longer PENDING; wake the requester.
//!
//! Withdraw, by a requester that stops waiting: exchange the word for one with the id 0. If that
//! succeeds, the buffer is free again. If it fails, the answer is under way, and the buffer stays
//! PENDING until the answer arrives, however long that takes.
//!
//! Answer (2) precedes (3): after the claim, the slot might already point to the buffer of a later
//! request. The request number ensures that nothing has changed between (1) and (3). It would have
//! to wrap around, after 2^32 requests, while one handler is suspended between these two steps.
//!
//! # Rejected alternatives
//!
//! A queue of requests: one stack at a time is enough. A buffer per thread, found through a
//! thread-local: a handler must not be the first to touch a thread-local, since in a library that
//! is loaded late this allocates.

use std::marker::PhantomData;

use volt_shim::{AtomicPtr, AtomicU32, AtomicU64, Ordering, UnsafeCell};

#[cfg(all(test, loom))]
mod loom_models;

/// Maximum number of buffers: one for the request, and a few for threads that were stopped while
/// they answered.
const BUFFERS_MAX: usize = 4;

/// The id in the word when no thread must answer.
const NO_THREAD: u32 = 0;

/// The buffer is unused, or its request was withdrawn.
const FREE: u32 = 0;
/// The buffer was published for a request that is not answered yet. The requester waits on this
/// value.
pub(crate) const PENDING: u32 = 1;
/// The page is written.
const WRITTEN: u32 = 2;
/// The requested thread ended without writing the page.
const ENDED: u32 = 3;

fn word(generation: u32, tid: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(tid)
}

fn tid(word: u64) -> u32 {
    word as u32
}

/// A page, and the word that indicates whether it is written.
pub(crate) struct Buffer<T> {
    answer: AtomicU32,
    page: UnsafeCell<T>,
}

// SAFETY: ONE-WRITER: at any time one thread accesses the page, so sharing the buffer amounts to
// sending a `T`. The word `answer` hands the page from one thread to the other.
unsafe impl<T: Send> Sync for Buffer<T> {}

/// The place where the requester publishes a request.
pub(crate) struct Slot<T: 'static> {
    request_word: AtomicU64,
    buffer: AtomicPtr<Buffer<T>>,
}

/// The requesting side of a [`Slot`]; there is one.
pub(crate) struct Requester<T: 'static> {
    generation: u32,
    buffers: Vec<&'static Buffer<T>>,
    blank: fn() -> T,
}

/// Creates a slot and its only requester. `blank` makes an empty page.
pub(crate) fn pair<T>(blank: fn() -> T) -> (Slot<T>, Requester<T>) {
    let slot = Slot { request_word: AtomicU64::new(word(0, NO_THREAD)), buffer: AtomicPtr::new(std::ptr::null_mut()) };
    (slot, Requester { generation: 0, buffers: Vec::new(), blank })
}

impl<T: Send> Requester<T> {
    /// Publishes a request (Ask) in `slot`, which must be the slot that this requester was made
    /// with: thread `tid` is to write a page. First passes that page to `prepare`. Returns `None`
    /// if all buffers are in use.
    pub(crate) fn send<'d>(
        &'d mut self,
        slot: &'d Slot<T>,
        tid: u32,
        prepare: impl FnOnce(&mut T),
    ) -> Option<Pending<'d, T>> {
        // Clears an earlier request that was never withdrawn, so that its claimer cannot take the
        // buffer of this one. ORDERING: Release; pairs with the Acquire in Answer (2) through the
        // store of the buffer below: a handler that loads this buffer also sees this store, so its
        // claim of the earlier request fails.
        slot.request_word.store(word(self.generation, NO_THREAD), Ordering::Release);
        // Ask (1)
        let buffer = self.free_buffer()?;
        buffer.page.with_mut(|page| {
            // SAFETY: ONE-WRITER: the buffer is not PENDING, and the requester is borrowed mutably,
            // so no other thread publishes it.
            prepare(unsafe { &mut *page })
        });
        // ORDERING: Relaxed; published by Ask (3).
        buffer.answer.store(PENDING, Ordering::Relaxed);
        // Ask (2) ORDERING: Release; pairs with the Acquire in Answer (2): a thread that sees this
        // buffer also sees that the previous request is over.
        slot.buffer.store(std::ptr::from_ref(buffer).cast_mut(), Ordering::Release);
        // Ask (3)
        self.generation = self.generation.wrapping_add(1);
        let word = word(self.generation, tid);
        // ORDERING: Release; pairs with the Acquire in Answer (1), publishes the buffer and its
        // page.
        slot.request_word.store(word, Ordering::Release);
        Some(Pending { slot, word, buffer, requester: PhantomData })
    }

    fn free_buffer(&mut self) -> Option<&'static Buffer<T>> {
        // ORDERING: Acquire; pairs with the Release in Answer (5), so that the claimer's writes to
        // the page happen before the page is reused.
        let free = self.buffers.iter().find(|buffer| buffer.answer.load(Ordering::Acquire) != PENDING);
        if let Some(buffer) = free {
            return Some(buffer);
        }
        if self.buffers.len() == BUFFERS_MAX {
            return None;
        }
        let buffer = Buffer { answer: AtomicU32::new(FREE), page: UnsafeCell::new((self.blank)()) };
        // FOR-EVER
        let buffer: &'static Buffer<T> = Box::leak(Box::new(buffer));
        self.buffers.push(buffer);
        Some(buffer)
    }
}

/// The result of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer<R> {
    /// The page was written; contains what the caller read from it.
    Written(R),
    /// The thread ended.
    Ended,
}

/// A published request. There is at most one, since it borrows the requester.
pub(crate) struct Pending<'d, T: 'static> {
    slot: &'d Slot<T>,
    word: u64,
    buffer: &'static Buffer<T>,
    requester: PhantomData<&'d mut Requester<T>>,
}

impl<T: Send> Pending<'_, T> {
    /// Returns the answer, if it has arrived. Passes the page to `read`.
    pub(crate) fn answer<R>(&self, read: impl FnOnce(&T) -> R) -> Option<Answer<R>> {
        // ORDERING: Acquire; pairs with the Release in Answer (5), publishes the page.
        match self.buffer.answer.load(Ordering::Acquire) {
            // SAFETY: ONE-WRITER: the claimer has finished with the page, and the buffer is not
            // published again while this request borrows the requester.
            WRITTEN => Some(Answer::Written(self.buffer.page.with(|page| read(unsafe { &*page })))),
            ENDED => Some(Answer::Ended),
            _ => None,
        }
    }

    /// Returns the word to wait on. It is [`PENDING`] until the answer arrives.
    pub(crate) fn pending(&self) -> &AtomicU32 {
        &self.buffer.answer
    }

    /// Withdraw: tries to take the request back, and returns whether that succeeded. If not, the
    /// answer has arrived or is under way.
    #[must_use = "if this returns false, wait for the answer: it has arrived or is under way"]
    pub(crate) fn withdraw(&self) -> bool {
        let released = self.word & !u64::from(u32::MAX);
        // ORDERING: Release; for the same reason as the first store in `send`: the next buffer is
        // published after it. Relaxed on failure: the answer is acquired from the buffer.
        let withdrawn =
            self.slot.request_word.compare_exchange(self.word, released, Ordering::Release, Ordering::Relaxed);
        if withdrawn.is_ok() {
            // ORDERING: Relaxed; only the requester reads it from now on.
            self.buffer.answer.store(FREE, Ordering::Relaxed);
        }
        withdrawn.is_ok()
    }
}

impl<T: Send> Slot<T> {
    /// Answer (1) to (3): claims the request if it is for the calling thread, whose id `current`
    /// returns. Returns `None` if there is nothing to answer.
    pub(crate) fn claim(&self, current: impl FnOnce() -> u32) -> Option<Claim<T>> {
        // Answer (1)
        // ORDERING: Acquire; pairs with the Release in Ask (3), publishes the buffer.
        let request_word = self.request_word.load(Ordering::Acquire);
        if tid(request_word) == NO_THREAD || tid(request_word) != current() {
            return None;
        }
        // Answer (2) ORDERING: Acquire; pairs with the Release in Ask (2): if this is the buffer of
        // a later request, the claim below sees the changed word and fails.
        let buffer = self.buffer.load(Ordering::Acquire);
        // Answer (3)
        let released = request_word & !u64::from(u32::MAX);
        // ORDERING: Acquire; keeps the writes to the page after the claim. Relaxed on failure:
        // nothing is accessed.
        self.request_word.compare_exchange(request_word, released, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // SAFETY: FOR-EVER: a word with a thread id in it was stored after the pointer to the
        // request's buffer.
        Some(Claim { buffer: unsafe { &*buffer } })
    }
}

/// A claimed request: only this thread answers it.
pub(crate) struct Claim<T: 'static> {
    buffer: &'static Buffer<T>,
}

impl<T: Send> Claim<T> {
    /// Answer (4) and (5): passes the page to `write`. Returns the word that the requester waits
    /// on; the caller must wake the requester.
    #[must_use = "the requester sleeps on it"]
    pub(crate) fn write(self, write: impl FnOnce(&mut T)) -> &'static AtomicU32 {
        // Answer (4)
        self.buffer.page.with_mut(|page| {
            // SAFETY: ONE-CLAIM, ONE-WRITER.
            write(unsafe { &mut *page })
        });
        self.finish(WRITTEN)
    }

    /// Answer (5) for a thread that ends without writing the page. Returns the same word as
    /// [`write`](Self::write).
    #[must_use = "the requester sleeps on it"]
    pub(crate) fn end(self) -> &'static AtomicU32 {
        self.finish(ENDED)
    }

    fn finish(self, answer: u32) -> &'static AtomicU32 {
        // Answer (5)
        // ORDERING: Release; pairs with the Acquire in `Pending::answer` and
        // `Requester::free_buffer`, publishes the page.
        self.buffer.answer.store(answer, Ordering::Release);
        &self.buffer.answer
    }
}
