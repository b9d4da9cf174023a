//! Records which task acquired the permits of a semaphore: *acquired by* in a dump.
//!
//! Many tasks may have permits of one semaphore, so a [`Holder`](super::Holder) in the semaphore is
//! not enough. Each thread has a *page* of records. A *record* is one acquisition: which semaphore,
//! how many permits, which task, where, and when. The permit contains a reference to its record.
//!
//! An ordinary case: task 1 acquires a permit. Its thread finds a free record in its page, writes
//! it, and the permit keeps it. The permit is moved to another thread and dropped there, which
//! clears the record before the permit returns to the semaphore. A dump reads all records, and
//! selects those of the semaphores that tasks wait for.
//!
//! The race: a dump reads a record while it is cleared and written again, and has words of two
//! acquisitions. So the dump reads each record twice, and leaves it out if a word has changed. If
//! none has, the words were in the record together, between the two reads. That is certain unless
//! words changed and changed back. Even then the task and the time are those of one poll, since a
//! task is polled only once at a time, and the task acquired permits in this poll.
//!
//! Protocol:
//! 1. Acquire: the thread checks a few records of its page, the one that it used last first. If one
//!    is free, it writes the task, the time and the line, and then the semaphore.
//! 2. Release: the owner of the permit clears the semaphore, before the permit is returned.
//! 3. Read: load the semaphore, then the other words; and all of them once more.
//!
//! Writers: the thread of the page, to free records only; the owner of the permit, to its own
//! record. So neither needs a read-modify-write. Readers: threads that list tasks or make dumps.
//!
//! Invariants:
//! * *Never outdated*: a record exists only while its permits do. It names the task that acquired
//!   them, which may have moved them to another task since. So reports say *acquired by*.
//! * *A record may be missing*: if the records that were checked are in use. Then nothing is
//!   reported about these permits.
//! * *Identity*: a semaphore has a number that is never used again, so a permit that was leaked
//!   cannot be attributed to a later semaphore at the same address.
//! * *Bounded*: one page per thread. A thread that ends leaves its page to the next one, with the
//!   records that are in use.
//!
//! Rejected: records in the semaphore, since several threads would contend for them by
//! read-modify-writes; a list of permits, which would have to stay where they are.

use std::cell::Cell;
use std::panic::Location;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, fence};

use crate::task::current;

/// The number of records in a page: more than the permits that a thread acquires and that exist at
/// the same time, in most programs.
const RECORDS: usize = 256;
/// The number of records that are checked for an acquisition.
const CHECKED_MAX: usize = 4;
/// The number of bits of `Record::what` with the number of permits.
const PERMITS_BITS: u32 = 24;
/// More permits than this are recorded as this number.
const PERMITS_MAX: u64 = (1 << PERMITS_BITS) - 1;

/// The number of a semaphore, which is assigned when it is needed first.
#[derive(Debug, Default)]
pub struct SemaphoreId(AtomicU64);

/// The record of permits, in these permits; empty if there is none. The owner must call
/// [`release`](Self::release) before it returns the permits.
#[derive(Debug, Default)]
pub struct Acquired(Option<&'static Record>);

/// An acquisition.
#[derive(Debug)]
struct Record {
    /// `| number of the semaphore 40 | number of permits 24 |`; 0 if the record is free.
    what: AtomicU64,
    /// The id of the task; 0 if that was no task.
    task: AtomicU64,
    /// When the task was woken for the poll in which it acquired the permits, ns.
    since_ns: AtomicU64,
    at: AtomicPtr<Location<'static>>,
}

/// The records of a thread.
struct Page {
    records: [Record; RECORDS],
    /// Whether a thread uses it.
    is_taken: AtomicBool,
    /// The page that was allocated before this one.
    next: Option<&'static Page>,
}

/// All pages, the last one first.
static PAGES: AtomicPtr<Page> = AtomicPtr::new(ptr::null_mut());

/// Stands for the record that was used last, in a thread that has no page. It is never free.
static NO_RECORD: Record = Record { what: AtomicU64::new(u64::MAX), ..Record::FREE };

thread_local! {
    // Without destructors, so that an access needs no check.
    /// The record that this thread used last.
    static LAST: Cell<&'static Record> = const { Cell::new(&NO_RECORD) };
    /// The page of this thread, and the record that is checked after `LAST`.
    static PAGE: Cell<(Option<&'static Page>, usize)> = const { Cell::new((None, 0)) };
    static LEAVE: Leave = const { Leave };
}

/// Leaves the page to another thread when this thread ends.
struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        LAST.set(&NO_RECORD);
        if let (Some(page), _) = PAGE.take() {
            // ORDERING: Release; pairs with the Acquire of the thread that takes the page: it sees
            // the records that this thread wrote.
            page.is_taken.store(false, Ordering::Release);
        }
    }
}

impl SemaphoreId {
    /// Returns the number of a new semaphore, which is not assigned yet.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Returns the number.
    #[inline]
    pub fn get(&self) -> u64 {
        // ORDERING: Relaxed; the number alone is the message.
        match self.0.load(Ordering::Relaxed) {
            0 => self.assign(),
            id => id,
        }
    }

    #[cold]
    fn assign(&self) -> u64 {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // ORDERING: Relaxed, all: only the values matter. Of threads that assign at the same time,
        // the first one wins.
        let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        self.0.compare_exchange(0, id, Ordering::Relaxed, Ordering::Relaxed).map_or_else(|first| first, |_| id)
    }
}

impl Acquired {
    /// Records that the calling task has acquired these permits, at the location `at`.
    #[inline]
    pub fn new(semaphore: u64, permits: usize, at: &'static Location<'static>) -> Self {
        let (task, since_ns) = current::with(|task| {
            task.map_or((0, 0), |task| (task.header().id.as_u64(), task.header().submitted_at_ns()))
        });
        Self(free_record().inspect(|record| record.fill(semaphore, permits as u64, task, since_ns, at)))
    }

    /// Records that the permits are about to be returned, or are forgotten.
    #[inline]
    pub fn release(&mut self) {
        if let Some(record) = self.0.take() {
            // ORDERING: Release; pairs with the Acquire in `free_record`: the thread that writes
            // the next acquisition sees all that was written for this one.
            record.what.store(0, Ordering::Release);
        }
    }

    /// Adds the permits of `other`. If they were acquired elsewhere, they are not attributed any
    /// more.
    pub fn merge(&mut self, mut other: Self) {
        match (&self.0, &other.0) {
            (None, _) => return std::mem::swap(self, &mut other),
            (Some(record), Some(added)) if record.source() == added.source() => {
                record.set_permits(record.permits().saturating_add(added.permits()));
            }
            _ => {}
        }
        other.release();
    }

    /// Takes up to this number of permits out of the record, for permits that are split.
    pub fn split(&mut self, permits: usize) -> Self {
        let Some(record) = self.0 else { return Self(None) };
        let taken = record.permits().min(permits as u64);
        let left = record.permits() - taken;
        if taken == 0 {
            return Self(None);
        }
        if left == 0 {
            return std::mem::take(self);
        }
        record.set_permits(left);
        let (task, at) = record.source();
        // ORDERING: Relaxed; this thread owns the permits, and so the record.
        let [what, since_ns] = [&record.what, &record.since_ns].map(|word| word.load(Ordering::Relaxed));
        // SAFETY: the record is in use, so `fill` has stored a `&'static Location`.
        let at = unsafe { &*at };
        Self(free_record().inspect(|record| record.fill(what >> PERMITS_BITS, taken, task, since_ns, at)))
    }
}

impl Record {
    const FREE: Self = Self {
        what: AtomicU64::new(0),
        task: AtomicU64::new(0),
        since_ns: AtomicU64::new(0),
        at: AtomicPtr::new(ptr::null_mut()),
    };

    #[inline]
    fn is_free(&self) -> bool {
        // ORDERING: Acquire; pairs with the Release in `Acquired::release`.
        self.what.load(Ordering::Acquire) == 0
    }

    /// Writes an acquisition. Only for the thread of the page, if the record is free.
    #[inline]
    fn fill(&self, semaphore: u64, permits: u64, task: u64, since_ns: u64, at: &'static Location<'static>) {
        // ORDERING: a Release fence; pairs with the Acquire fence in `read`: a reader that loads
        // one of the words below also sees that the record was free before.
        fence(Ordering::Release);
        // ORDERING: Relaxed; no other thread writes to a free record.
        self.task.store(task, Ordering::Relaxed);
        self.since_ns.store(since_ns, Ordering::Relaxed);
        self.at.store(ptr::from_ref(at).cast_mut(), Ordering::Relaxed);
        // ORDERING: Release; pairs with the Acquire in `words`: the words above are complete.
        self.what.store(semaphore << PERMITS_BITS | permits.min(PERMITS_MAX), Ordering::Release);
    }

    // ORDERING: Relaxed, in the next ones: the caller owns the permits, so no other thread writes.

    fn permits(&self) -> u64 {
        self.what.load(Ordering::Relaxed) & PERMITS_MAX
    }

    fn set_permits(&self, permits: u64) {
        let what = self.what.load(Ordering::Relaxed);
        // ORDERING: Release; pairs with the Acquire in `words`, as in `fill`, whose words the
        // owner of the permits has seen.
        self.what.store(what & !PERMITS_MAX | permits.min(PERMITS_MAX), Ordering::Release);
    }

    /// Returns the task and the location.
    fn source(&self) -> (u64, *const Location<'static>) {
        (self.task.load(Ordering::Relaxed), self.at.load(Ordering::Relaxed))
    }

    /// Loads all words. If `what` is not 0, the others are those of the same acquisition, or of
    /// later ones.
    fn words(&self) -> (u64, u64, u64, *const Location<'static>) {
        // ORDERING: Acquire; pairs with the Release in `fill`. The others are Relaxed: `read`
        // compares them.
        let what = self.what.load(Ordering::Acquire);
        let (task, since_ns) = (self.task.load(Ordering::Relaxed), self.since_ns.load(Ordering::Relaxed));
        (what, task, since_ns, self.at.load(Ordering::Relaxed))
    }

    /// Protocol (3).
    fn read(&self) -> Option<Acquisition> {
        let words = self.words();
        // ORDERING: an Acquire fence; pairs with the Release fence in `fill`. If a word is from a
        // later acquisition, the second load of `what` returns 0, or what that acquisition or a
        // later one stored. Then the other words are at least as late.
        fence(Ordering::Acquire);
        if words.0 == 0 || self.words() != words {
            return None;
        }
        let (what, task, since_ns, at) = words;
        // SAFETY: `fill` has stored a `&'static Location` before it stored `what`, and nothing else
        // is ever stored.
        let at = unsafe { at.as_ref() }?;
        let (task, since_ns) = ((task > 0).then_some(task), (task > 0).then_some(since_ns));
        Some(Acquisition { semaphore: what >> PERMITS_BITS, permits: what & PERMITS_MAX, task, at, since_ns })
    }
}

/// Returns a free record of this thread's page, if one of those that are checked is free.
#[inline]
fn free_record() -> Option<&'static Record> {
    // The permits that were acquired last are returned before the next acquisition, as a rule.
    let last = LAST.get();
    if last.is_free() { Some(last) } else { next_free_record() }
}

#[inline(never)]
fn next_free_record() -> Option<&'static Record> {
    let (page, first) = PAGE.get();
    let page = page.or_else(take_page)?;
    let mut records = (first..first + CHECKED_MAX).map(|index| &page.records[index % RECORDS]);
    let found = records.position(Record::is_free);
    PAGE.set((Some(page), (first + found.map_or(CHECKED_MAX, |checked| checked + 1)) % RECORDS));
    let record = &page.records[(first + found?) % RECORDS];
    LAST.set(record);
    Some(record)
}

/// Takes a page for this thread; `None` if the thread is ending.
#[cold]
fn take_page() -> Option<&'static Page> {
    // When this thread ends, it leaves the page.
    LEAVE.try_with(|_| ()).ok()?;
    // ORDERING: Acquire; pairs with the Release in `Leave`. Relaxed on failure: nothing is read.
    let take = |page: &&Page| page.is_taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
    let page = pages().find(take).unwrap_or_else(|| {
        let is_taken = AtomicBool::new(true);
        let page = Box::leak(Box::new(Page { records: [Record::FREE; RECORDS], is_taken, next: None }));
        // ORDERING: Acquire; pairs with the Release below: the next page is complete.
        let mut head = PAGES.load(Ordering::Acquire);
        loop {
            // SAFETY: null, or a page that was leaked.
            page.next = unsafe { head.as_ref() };
            // ORDERING: Release; pairs with the Acquire in `pages`: the page is complete. Acquire
            // on failure: as above.
            match PAGES.compare_exchange_weak(head, page, Ordering::Release, Ordering::Acquire) {
                Ok(_) => return page,
                Err(other) => head = other,
            }
        }
    });
    Some(page)
}

fn pages() -> impl Iterator<Item = &'static Page> {
    // ORDERING: Acquire; pairs with the Release in `take_page`.
    // SAFETY: null, or a page that was leaked.
    let first = unsafe { PAGES.load(Ordering::Acquire).as_ref() };
    std::iter::successors(first, |page| page.next)
}

/// A copy of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acquisition {
    /// The number of the semaphore.
    pub(crate) semaphore: u64,
    pub(crate) permits: u64,
    /// The task that acquired the permits; `None` if that was no task.
    pub(crate) task: Option<u64>,
    pub(crate) at: &'static Location<'static>,
    /// When the task was woken for the poll in which it acquired the permits, on the program's
    /// clock. `None` if it was no task.
    pub(crate) since_ns: Option<u64>,
}

/// Returns the permits of all semaphores that are in use and have a record.
pub(crate) fn acquisitions() -> impl Iterator<Item = Acquisition> {
    pages().flat_map(|page| &page.records).filter_map(Record::read)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const TURNS: u64 = if cfg!(miri) { 200 } else { 100_000 };

    /// Returns the permits of this semaphore; other tests acquire permits at the same time.
    fn permits_of(semaphore: &SemaphoreId) -> Vec<u64> {
        let of = |acquisition: &Acquisition| acquisition.semaphore == semaphore.get();
        let mut permits: Vec<_> = acquisitions().filter(of).map(|acquisition| acquisition.permits).collect();
        permits.sort_unstable();
        permits
    }

    #[test]
    fn a_record_exists_until_its_permits_are_released_anywhere() {
        let (semaphore, other) = (SemaphoreId::new(), SemaphoreId::new());
        let here = Location::caller();
        let mut moved = Acquired::new(semaphore.get(), 2, here);
        let mut kept = Acquired::new(semaphore.get(), 1, here);
        let mut others = Acquired::new(other.get(), 3, here);
        assert_eq!((permits_of(&semaphore), permits_of(&other)), (vec![1, 2], vec![3]));
        thread::spawn(move || moved.release()).join().unwrap();
        assert_eq!(permits_of(&semaphore), [1]);
        kept.release();
        kept.release();
        assert_eq!((permits_of(&semaphore), permits_of(&other)), (vec![], vec![3]));
        others.release();
    }

    #[test]
    fn a_leaked_record_is_not_of_a_later_semaphore() {
        let mut semaphore = SemaphoreId::new();
        let _leaked = Acquired::new(semaphore.get(), 1, Location::caller());
        // At the same address.
        semaphore = SemaphoreId::new();
        assert!(permits_of(&semaphore).is_empty());
    }

    #[test]
    fn split_permits_keep_their_source_and_merged_ones_may() {
        let semaphore = SemaphoreId::new();
        let (here, there) = (Location::caller(), Location::caller());
        let mut all = Acquired::new(semaphore.get(), 5, here);
        let mut part = all.split(2);
        assert_eq!(permits_of(&semaphore), [2, 3]);
        assert!(acquisitions().filter(|one| one.semaphore == semaphore.get()).all(|one| one.at == here));
        all.merge(part.split(1));
        assert_eq!(permits_of(&semaphore), [1, 4]);
        all.merge(part);
        assert_eq!(permits_of(&semaphore), [5]);
        all.merge(Acquired::new(semaphore.get(), 1, there));
        assert_eq!(permits_of(&semaphore), [5], "one is not attributed");
        let mut whole = all.split(7);
        assert_eq!(permits_of(&semaphore), [5]);
        all.release();
        assert_eq!(permits_of(&semaphore), [5], "the record was moved");
        let mut none = Acquired::default();
        none.merge(whole.split(5));
        none.release();
        assert!(permits_of(&semaphore).is_empty());
    }

    #[test]
    fn permits_beyond_the_page_have_no_record() {
        let semaphore = SemaphoreId::new();
        let in_thread = thread::spawn(move || {
            let acquire = || Acquired::new(semaphore.get(), 1, Location::caller());
            let mut many: Vec<_> = (0..2 * RECORDS).map(|_| acquire()).collect();
            // The former thread of the page may have leaked some.
            assert!((RECORDS / 2..=RECORDS).contains(&permits_of(&semaphore).len()));
            many.drain(..RECORDS).for_each(|mut acquired| acquired.release());
            assert!(permits_of(&semaphore).is_empty());
            many.push(acquire());
            assert_eq!(permits_of(&semaphore).len(), 1);
            many.iter_mut().for_each(Acquired::release);
        });
        in_thread.join().unwrap();
    }

    #[test]
    fn a_thread_that_ends_leaves_its_page_to_others() {
        let semaphore = SemaphoreId::new();
        let id = semaphore.get();
        let acquire = move || Acquired::new(id, 1, Location::caller());
        let mut kept = thread::spawn(acquire).join().unwrap();
        let begun = pages().count();
        for _ in 0..40 {
            thread::spawn(move || acquire().release()).join().unwrap();
        }
        assert_eq!(permits_of(&semaphore), [1]);
        // Other tests have threads, too.
        assert!(pages().count() < begun + 40, "{begun}");
        kept.release();
    }

    /// The words of each acquisition belong together.
    #[test]
    fn a_copy_never_mixes_two_acquisitions() {
        let semaphore = SemaphoreId::new();
        let id = semaphore.get();
        thread::scope(|scope| {
            let writers = [1, 2].map(|number| {
                scope.spawn(move || {
                    for turn in 0..TURNS {
                        let permits = 1 + turn % 9;
                        let record = free_record().unwrap();
                        record.fill(id, permits, number * permits, number, Location::caller());
                        Acquired(Some(record)).release();
                    }
                })
            });
            while !writers.iter().all(|writer| writer.is_finished()) {
                for found in acquisitions().filter(|acquisition| acquisition.semaphore == id) {
                    let number = found.since_ns.unwrap();
                    assert_eq!(found.task, Some(number * found.permits), "{found:?}");
                }
            }
        });
        assert!(permits_of(&semaphore).is_empty());
    }
}
