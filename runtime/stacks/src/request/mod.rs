//! How one thread requests the stack of another, which answers from inside a signal handler: one
//! word, and a few buffers.
//!
//! For a newcomer. The [`Requester`] writes a thread's number into a word, and its caller sends
//! that thread a signal. The signal handler claims the request, copies the stack into a [`Buffer`],
//! and wakes the requester. The race is between a handler that runs late and a requester that has
//! stopped waiting: the late copy must not end up in the answer to the next request.
//!
//! Shape. The word [`Slot::asked`]: which thread is asked, by its number, in the low half (0 =
//! nobody), and the number of the request in the high half. A [`Buffer`]: the page that the answer
//! is written to, and a word `answer` beside it: PENDING from the request to the answer.
//!
//! Who writes: the word, the requester, of which there is one; and the thread that answers, once,
//! to nobody. A page, the thread that claimed the request for which the buffer was published. Who
//! reads: a page, the requester, after the answer.
//!
//! Invariants.
//! * ONE-CLAIM: a request leaves the word once, by a compare-and-swap: it is claimed by the thread
//!   that was asked, or withdrawn by the requester.
//! * ONE-WRITER: a page is written by the thread that claimed the one request for which its buffer
//!   was published, while the buffer is PENDING; a buffer that is PENDING is never published for
//!   another request.
//! * FOR-EVER: buffers are never freed, so a handler that comes late never reads freed memory.
//!
//! Protocol. Ask, by the requester:
//! 1. a buffer that is not PENDING becomes PENDING;
//! 2. the slot points to it;
//! 3. the word names the thread that is asked.
//!
//! Answer, by the thread that is asked, in a signal handler or at its end, without a lock, an
//! allocation or a wait:
//! 1. read the word: it names another thread, or nobody → nothing to do;
//! 2. read which buffer it is;
//! 3. claim: the word that was read → nobody;
//! 4. write the page;
//! 5. the buffer is no longer PENDING; wake the requester.
//!
//! Withdraw, by a requester that stops waiting: the word → nobody. Succeeds: the buffer is free
//! again. Fails: the answer is under way, and the buffer stays PENDING until it arrives, however
//! long that takes.
//!
//! Answer (2) comes before (3): if it came later, it might read the buffer of a request that came
//! after. A request number makes sure that nothing has changed between (1) and (3); it would have
//! to come round, 2^32 requests, while a handler stands still in between.
//!
//! Rejected: a queue of requests, since one stack at a time is enough; a buffer for each thread,
//! found through a thread-local, which a handler may not touch first (in a library loaded late,
//! touching it allocates).

use std::marker::PhantomData;

use volt_shim::{AtomicPtr, AtomicU32, AtomicU64, Ordering, UnsafeCell};

#[cfg(all(test, loom))]
mod loom_models;

/// Buffers that may be in use at once: one for the request, and a few for threads that were stopped
/// while they answered.
const BUFFERS_MAX: usize = 4;

/// Nobody is asked.
const NOBODY: u32 = 0;

/// The buffer is unused, or its request was withdrawn.
const FREE: u32 = 0;
/// It was published for a request that is not answered yet. The requester waits on this value.
pub(crate) const PENDING: u32 = 1;
/// The page is written.
const WRITTEN: u32 = 2;
/// The thread that was asked ends, and has not written the page.
const ENDED: u32 = 3;

fn word(generation: u32, tid: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(tid)
}

fn tid(word: u64) -> u32 {
    word as u32
}

/// A page, and the word that says whether it is written.
pub(crate) struct Buffer<T> {
    answer: AtomicU32,
    page: UnsafeCell<T>,
}

// SAFETY: ONE-WRITER: the page goes from hand to hand, as a `T` that is sent; the word beside it
// hands it over.
unsafe impl<T: Send> Sync for Buffer<T> {}

/// Where the requester publishes a request.
pub(crate) struct Slot<T: 'static> {
    asked: AtomicU64,
    buffer: AtomicPtr<Buffer<T>>,
}

/// The requesting side of a [`Slot`]; there is one.
pub(crate) struct Requester<T: 'static> {
    generation: u32,
    buffers: Vec<&'static Buffer<T>>,
    blank: fn() -> T,
}

/// Creates a slot and the only requester for it. `blank` makes an empty page.
pub(crate) fn pair<T>(blank: fn() -> T) -> (Slot<T>, Requester<T>) {
    let slot = Slot { asked: AtomicU64::new(word(0, NOBODY)), buffer: AtomicPtr::new(std::ptr::null_mut()) };
    (slot, Requester { generation: 0, buffers: Vec::new(), blank })
}

impl<T: Send> Requester<T> {
    /// Ask: asks thread `tid`, through the slot that this requester was made with, to write a page
    /// that `prepare` was called with. Returns `None` if all buffers are in use.
    pub(crate) fn ask<'d>(
        &'d mut self,
        slot: &'d Slot<T>,
        tid: u32,
        prepare: impl FnOnce(&mut T),
    ) -> Option<Asked<'d, T>> {
        // An earlier request that was never withdrawn, so that its claimer cannot take the buffer
        // of this one. ORDERING: Release; pairs with the Acquire in Answer (2) through the store of
        // the buffer below, after which a claim fails.
        slot.asked.store(word(self.generation, NOBODY), Ordering::Release);
        // Ask (1)
        let buffer = self.free_buffer()?;
        buffer.page.with_mut(|page| {
            // SAFETY: ONE-WRITER: it is not PENDING, and the requester is borrowed mutably, so
            // nobody else publishes it.
            prepare(unsafe { &mut *page })
        });
        // ORDERING: Relaxed; published by Ask (3).
        buffer.answer.store(PENDING, Ordering::Relaxed);
        // Ask (2) ORDERING: Release; pairs with the Acquire in Answer (2): a thread that sees this
        // buffer sees that the request before it is over.
        slot.buffer.store(std::ptr::from_ref(buffer).cast_mut(), Ordering::Release);
        // Ask (3)
        self.generation = self.generation.wrapping_add(1);
        let word = word(self.generation, tid);
        // ORDERING: Release; pairs with the Acquire in Answer (1), publishes the buffer and its
        // page.
        slot.asked.store(word, Ordering::Release);
        Some(Asked { slot, word, buffer, requester: PhantomData })
    }

    fn free_buffer(&mut self) -> Option<&'static Buffer<T>> {
        // ORDERING: Acquire; pairs with the Release in Answer (5), so that what the claimer wrote
        // is over.
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

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer<R> {
    /// The page was written, and this read from it.
    Written(R),
    /// The thread ends.
    Ended,
}

/// A request that was published. There is one at a time, since it borrows the requester.
pub(crate) struct Asked<'d, T: 'static> {
    slot: &'d Slot<T>,
    word: u64,
    buffer: &'static Buffer<T>,
    requester: PhantomData<&'d mut Requester<T>>,
}

impl<T: Send> Asked<'_, T> {
    /// The answer, if it has come; `read` is given the page.
    pub(crate) fn answer<R>(&self, read: impl FnOnce(&T) -> R) -> Option<Answer<R>> {
        // ORDERING: Acquire; pairs with the Release in Answer (5), publishes the page.
        match self.buffer.answer.load(Ordering::Acquire) {
            // SAFETY: ONE-WRITER: the claimer is done with it, and it is not published again while
            // this request borrows the requester.
            WRITTEN => Some(Answer::Written(self.buffer.page.with(|page| read(unsafe { &*page })))),
            ENDED => Some(Answer::Ended),
            _ => None,
        }
    }

    /// The word that is [`PENDING`] until the answer, to be waited on.
    pub(crate) fn pending(&self) -> &AtomicU32 {
        &self.buffer.answer
    }

    /// Withdraw: whether the request is taken back. If not, its answer has come or is under way.
    #[must_use = "an answer that is under way can be waited for"]
    pub(crate) fn withdraw(&self) -> bool {
        let nobody = self.word & !u64::from(u32::MAX);
        // ORDERING: Release; as the first store of `ask`: the next buffer is published after it.
        // Relaxed if it fails: the answer is acquired from the buffer.
        let withdrawn = self.slot.asked.compare_exchange(self.word, nobody, Ordering::Release, Ordering::Relaxed);
        if withdrawn.is_ok() {
            // ORDERING: Relaxed; only the requester reads it from now on.
            self.buffer.answer.store(FREE, Ordering::Relaxed);
        }
        withdrawn.is_ok()
    }
}

impl<T: Send> Slot<T> {
    /// Answer (1) to (3), by the thread `tid` itself, which `current` finds out: what it was asked,
    /// if it was.
    pub(crate) fn claim(&self, current: impl FnOnce() -> u32) -> Option<Claim<T>> {
        // Answer (1)
        // ORDERING: Acquire; pairs with the Release in Ask (3), publishes the buffer.
        let asked = self.asked.load(Ordering::Acquire);
        if tid(asked) == NOBODY || tid(asked) != current() {
            return None;
        }
        // Answer (2) ORDERING: Acquire; pairs with the Release in Ask (2): if this is the buffer of
        // a later request, the claim sees that and fails.
        let buffer = self.buffer.load(Ordering::Acquire);
        // Answer (3)
        let nobody = asked & !u64::from(u32::MAX);
        // ORDERING: Acquire; keeps the writing of the page after it. Relaxed if it fails: nothing
        // is done.
        self.asked.compare_exchange(asked, nobody, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // SAFETY: FOR-EVER: a word that names somebody was stored after the pointer to the
        // request's buffer.
        Some(Claim { buffer: unsafe { &*buffer } })
    }
}

/// A request that this thread, and nobody else, answers.
pub(crate) struct Claim<T: 'static> {
    buffer: &'static Buffer<T>,
}

impl<T: Send> Claim<T> {
    /// Answer (4) and (5): `write` is given the page. The requester sleeps on the word returned and
    /// is to be woken.
    #[must_use = "the requester sleeps on it"]
    pub(crate) fn write(self, write: impl FnOnce(&mut T)) -> &'static AtomicU32 {
        // Answer (4)
        self.buffer.page.with_mut(|page| {
            // SAFETY: ONE-CLAIM, ONE-WRITER.
            write(unsafe { &mut *page })
        });
        self.finish(WRITTEN)
    }

    /// Answer (5) of a thread that ends. As [`write`](Self::write).
    #[must_use = "the requester sleeps on it"]
    pub(crate) fn end(self) -> &'static AtomicU32 {
        self.finish(ENDED)
    }

    fn finish(self, answer: u32) -> &'static AtomicU32 {
        // Answer (5)
        // ORDERING: Release; pairs with the Acquire in `Asked::answer` and
        // `Requester::free_buffer`, publishes the page.
        self.buffer.answer.store(answer, Ordering::Release);
        &self.buffer.answer
    }
}
