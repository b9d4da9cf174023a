//! How one thread asks another for its stack, and the other answers from inside a signal handler: one word, and sheets
//! of paper.
//!
//! Shape. The word [`Slot::asked`]: who is asked, the thread's number in the low half (0 = nobody), and the number of
//! the request in the high half. A [`Sheet`]: the page that the answer is written on, and a word `answer` beside it:
//! PENDING from the request to the answer.
//!
//! Who writes: the word, one asker, who owns the [`Desk`]; and who answers, once, to nobody. A page, whoever claimed
//! the request that it was put down for. Who reads: a page, the asker, after the answer.
//!
//! Invariants.
//! * ONE-CLAIM: a request leaves the word once, by a compare-and-swap: into the hands of the thread that was asked, or
//!   back to the asker.
//! * ONE-WRITER: a page is written by the claimer of the one request it was put down for, while its sheet is PENDING; a
//!   sheet that is PENDING is never put down for another request.
//! * FOR-EVER: sheets are never freed, so a handler that comes late never looks at memory that is gone.
//!
//! Protocol. Ask, by the owner of the desk:
//! 1. a sheet that is not PENDING becomes PENDING;
//! 2. the slot points to it;
//! 3. the word says who is asked.
//!
//! Answer, by the thread that is asked, in a signal handler or at its end, without a lock, an allocation or a wait:
//! 1. read the word: it is another's, or nobody's → nothing to do;
//! 2. read which sheet it is;
//! 3. claim: the word that was read → nobody;
//! 4. write the page;
//! 5. the sheet is no longer PENDING; wake the asker.
//!
//! Withdraw, by the asker whose patience is over: the word → nobody. Succeeds: the sheet is free again. Fails: the
//! answer is under way, and the sheet is left to it, however long that takes.
//!
//! Answer (2) comes before (3): claimed later, it might be the sheet of a request that came after. A request number
//! makes sure that nothing has changed between (1) and (3); it would have to come round, 2^32 requests, while a handler
//! stands still in between.
//!
//! Rejected: a queue of requests, since one stack at a time is enough; a sheet a thread, which is found through a
//! thread-local that a handler may not touch first (in a library loaded late, touching it allocates).

use std::marker::PhantomData;

use volt_shim::{AtomicPtr, AtomicU32, AtomicU64, Ordering, UnsafeCell};

#[cfg(all(test, loom))]
mod loom_models;

/// Sheets that may be under way at once: one in use, and a few left to threads that were stopped while they answered.
const SHEETS_MAX: usize = 4;

/// Nobody is asked.
const NOBODY: u32 = 0;

/// The sheet lies there unused, or its answer was withdrawn.
const FREE: u32 = 0;
/// It was put down for a request that is not answered yet. What the asker waits on.
pub(crate) const PENDING: u32 = 1;
/// The page is written.
const WRITTEN: u32 = 2;
/// The thread that was asked ends, and has not written.
const ENDED: u32 = 3;

fn word(generation: u32, tid: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(tid)
}

fn tid(word: u64) -> u32 {
    word as u32
}

/// A page, and what became of it.
pub(crate) struct Sheet<T> {
    answer: AtomicU32,
    page: UnsafeCell<T>,
}

// SAFETY: ONE-WRITER: the page goes from hand to hand, as a `T` that is sent; the word beside it hands it over.
unsafe impl<T: Send> Sync for Sheet<T> {}

/// Where a request is put down.
pub(crate) struct Slot<T: 'static> {
    asked: AtomicU64,
    sheet: AtomicPtr<Sheet<T>>,
}

/// The asker's side of a [`Slot`]; there is one.
pub(crate) struct Desk<T: 'static> {
    generation: u32,
    sheets: Vec<&'static Sheet<T>>,
    blank: fn() -> T,
}

/// A slot, and the only desk for it. `blank` makes an empty page.
pub(crate) fn pair<T>(blank: fn() -> T) -> (Slot<T>, Desk<T>) {
    let slot = Slot { asked: AtomicU64::new(word(0, NOBODY)), sheet: AtomicPtr::new(std::ptr::null_mut()) };
    (slot, Desk { generation: 0, sheets: Vec::new(), blank })
}

impl<T: Send> Desk<T> {
    /// Ask: thread `tid` is asked, through the slot that this desk was made with, to write a page that `prepare` was
    /// called with. `None` if all sheets are under way.
    pub(crate) fn ask<'d>(
        &'d mut self,
        slot: &'d Slot<T>,
        tid: u32,
        prepare: impl FnOnce(&mut T),
    ) -> Option<Asked<'d, T>> {
        // A request that was forgotten, so that its claimer cannot take the sheet of this one. ORDERING: Release; pairs
        // with the Acquire in Answer (2) through the store of the sheet below, after which a claim fails.
        slot.asked.store(word(self.generation, NOBODY), Ordering::Release);
        // Ask (1)
        let sheet = self.free_sheet()?;
        sheet.page.with_mut(|page| {
            // SAFETY: ONE-WRITER: it is not PENDING, and the desk is borrowed mutably, so nobody else puts it down.
            prepare(unsafe { &mut *page })
        });
        // ORDERING: Relaxed; published by Ask (3).
        sheet.answer.store(PENDING, Ordering::Relaxed);
        // Ask (2) ORDERING: Release; pairs with the Acquire in Answer (2): who sees this sheet sees that the request
        // before it is over.
        slot.sheet.store(std::ptr::from_ref(sheet).cast_mut(), Ordering::Release);
        // Ask (3)
        self.generation = self.generation.wrapping_add(1);
        let word = word(self.generation, tid);
        // ORDERING: Release; pairs with the Acquire in Answer (1), publishes the sheet and its page.
        slot.asked.store(word, Ordering::Release);
        Some(Asked { slot, word, sheet, desk: PhantomData })
    }

    fn free_sheet(&mut self) -> Option<&'static Sheet<T>> {
        // ORDERING: Acquire; pairs with the Release in Answer (5), so that what the claimer wrote is over.
        let free = self.sheets.iter().find(|sheet| sheet.answer.load(Ordering::Acquire) != PENDING);
        if let Some(sheet) = free {
            return Some(sheet);
        }
        if self.sheets.len() == SHEETS_MAX {
            return None;
        }
        let sheet = Sheet { answer: AtomicU32::new(FREE), page: UnsafeCell::new((self.blank)()) };
        // FOR-EVER
        let sheet: &'static Sheet<T> = Box::leak(Box::new(sheet));
        self.sheets.push(sheet);
        Some(sheet)
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

/// A request that was put down. There is one at a time, since it borrows the desk.
pub(crate) struct Asked<'d, T: 'static> {
    slot: &'d Slot<T>,
    word: u64,
    sheet: &'static Sheet<T>,
    desk: PhantomData<&'d mut Desk<T>>,
}

impl<T: Send> Asked<'_, T> {
    /// The answer, if it has come; `read` is given the page.
    pub(crate) fn answer<R>(&self, read: impl FnOnce(&T) -> R) -> Option<Answer<R>> {
        // ORDERING: Acquire; pairs with the Release in Answer (5), publishes the page.
        match self.sheet.answer.load(Ordering::Acquire) {
            // SAFETY: ONE-WRITER: the claimer is done with it, and it is not put down again while this request borrows
            // the desk.
            WRITTEN => Some(Answer::Written(self.sheet.page.with(|page| read(unsafe { &*page })))),
            ENDED => Some(Answer::Ended),
            _ => None,
        }
    }

    /// The word that is [`PENDING`] until the answer, to be waited on.
    pub(crate) fn pending(&self) -> &AtomicU32 {
        &self.sheet.answer
    }

    /// Withdraw: whether the request is taken back. If not, its answer has come or is under way.
    #[must_use = "an answer that is under way can be waited for"]
    pub(crate) fn withdraw(&self) -> bool {
        let nobody = self.word & !u64::from(u32::MAX);
        // ORDERING: Release; as the first store of `ask`: the next sheet is put down after it. Relaxed if it fails: the
        // answer is acquired from the sheet.
        let withdrawn = self.slot.asked.compare_exchange(self.word, nobody, Ordering::Release, Ordering::Relaxed);
        if withdrawn.is_ok() {
            // ORDERING: Relaxed; only the desk reads it from now on.
            self.sheet.answer.store(FREE, Ordering::Relaxed);
        }
        withdrawn.is_ok()
    }
}

impl<T: Send> Slot<T> {
    /// Answer (1) to (3), by the thread `tid` itself, which `current` finds out: what it was asked, if it was.
    pub(crate) fn claim(&self, current: impl FnOnce() -> u32) -> Option<Claim<T>> {
        // Answer (1)
        // ORDERING: Acquire; pairs with the Release in Ask (3), publishes the sheet.
        let asked = self.asked.load(Ordering::Acquire);
        if tid(asked) == NOBODY || tid(asked) != current() {
            return None;
        }
        // Answer (2) ORDERING: Acquire; pairs with the Release in Ask (2): if this is the sheet of a later request, the
        // claim sees that and fails.
        let sheet = self.sheet.load(Ordering::Acquire);
        // Answer (3)
        let nobody = asked & !u64::from(u32::MAX);
        // ORDERING: Acquire; keeps the writing of the page after it. Relaxed if it fails: nothing is done.
        self.asked.compare_exchange(asked, nobody, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // SAFETY: FOR-EVER: a word that names somebody was stored after the pointer to the request's sheet.
        Some(Claim { sheet: unsafe { &*sheet } })
    }
}

/// A request that this thread, and nobody else, answers.
pub(crate) struct Claim<T: 'static> {
    sheet: &'static Sheet<T>,
}

impl<T: Send> Claim<T> {
    /// Answer (4) and (5): `write` is given the page. The asker sleeps on the word returned and is to be woken.
    #[must_use = "somebody sleeps on it"]
    pub(crate) fn write(self, write: impl FnOnce(&mut T)) -> &'static AtomicU32 {
        // Answer (4)
        self.sheet.page.with_mut(|page| {
            // SAFETY: ONE-CLAIM, ONE-WRITER.
            write(unsafe { &mut *page })
        });
        self.finish(WRITTEN)
    }

    /// Answer (5) of a thread that ends. As [`write`](Self::write).
    #[must_use = "somebody sleeps on it"]
    pub(crate) fn end(self) -> &'static AtomicU32 {
        self.finish(ENDED)
    }

    fn finish(self, answer: u32) -> &'static AtomicU32 {
        // Answer (5)
        // ORDERING: Release; pairs with the Acquire in `Asked::answer` and `Desk::free_sheet`, publishes the page.
        self.sheet.answer.store(answer, Ordering::Release);
        &self.sheet.answer
    }
}
