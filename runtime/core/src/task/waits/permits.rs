//! Records which task acquired the permits of a semaphore: *acquired by* in a dump.
//!
//! Many tasks may have permits of one semaphore, so a [`Holder`](super::Holder) in the semaphore is
//! not enough. Each thread has a *page* of records. A *record* is one acquisition: which semaphore,
//! how many permits, which task, where, and when. The permit contains a reference to its record.
//!
//! An ordinary case: task 1 acquires a permit. Its thread checks a few records of its page, the one
//! that it used last first. It writes the first free one, and the permit keeps it. The permit is
//! moved to another thread and dropped there, which clears the record before the permit returns to
//! the semaphore. A dump reads all records, and selects those of the semaphores that tasks wait
//! for.
//!
//! `record` has the race of a dump with these threads, and the protocol.
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
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use super::record::{Acquisition, Record};
use crate::task::current;

/// The number of records in a page: more than the permits that a thread acquires and that exist at
/// the same time, in most programs.
const RECORDS: usize = 256;
/// The number of neighbouring records that are checked at a place in the page.
const CHECKED_MAX: usize = 4;
/// The number of places that are checked for an acquisition, and their distance.
const PLACES: usize = 3;
const STEP: usize = 90;

/// The number of a semaphore, which is assigned when it is needed first.
#[derive(Debug, Default)]
pub struct SemaphoreId(AtomicU64);

/// The record of permits, in these permits; empty if there is none. The owner must call
/// [`release`](Self::release) before it returns the permits.
#[derive(Debug, Default)]
pub struct Acquired(Option<&'static Record>);

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
static NO_RECORD: Record = Record::never_free();

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
            record.clear();
        }
    }

    /// Adds the permits of `other`. If they were acquired elsewhere, they are not attributed any
    /// more.
    pub fn merge(&mut self, mut other: Self) {
        match (&self.0, &other.0) {
            (None, _) => return std::mem::swap(self, &mut other),
            (Some(record), Some(added)) if record.has_source_of(added) => {
                if added.is_older_than(record) {
                    std::mem::swap(self, &mut other);
                    return self.merge(other);
                }
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
        Self(free_record().inspect(|free| record.copy_to(free, taken)))
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
    // Permits that were acquired one after the other, and are kept, are neighbours in the page. So
    // the search goes on elsewhere.
    let checked = (0..PLACES).flat_map(|place| (0..CHECKED_MAX).map(move |next| first + place * STEP + next));
    let found = checked.map(|index| index % RECORDS).find(|&index| page.records[index].is_free());
    PAGE.set((Some(page), found.map_or(first + STEP / 2, |index| index + 1) % RECORDS));
    let record = &page.records[found?];
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
        let page = Box::leak(Box::new(Page { records: [const { Record::new() }; RECORDS], is_taken, next: None }));
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

/// Returns the permits of all semaphores that are in use and have a record.
pub(crate) fn acquisitions() -> impl Iterator<Item = Acquisition> {
    pages().flat_map(|page| &page.records).filter_map(Record::read)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const TURNS: u64 = if cfg!(miri) { 200 } else { 100_000 };
    /// Acquisitions beside permits that are kept; each is looked for in all pages.
    const NEXT: usize = if cfg!(miri) { 8 } else { 4 * RECORDS };

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
    fn merged_permits_have_the_time_of_the_oldest() {
        let (semaphore, here) = (SemaphoreId::new(), Location::caller());
        let acquired = |since_ns| {
            let record = free_record().unwrap();
            record.fill(semaphore.get(), 1, 9, since_ns, here);
            Acquired(Some(record))
        };
        for [first, second] in [[50, 70], [70, 50]] {
            let mut all = acquired(first);
            all.merge(acquired(second));
            let found: Vec<_> = acquisitions().filter(|one| one.semaphore == semaphore.get()).collect();
            assert_eq!((found.len(), found[0].permits, found[0].since_ns), (1, 2, Some(50)));
            all.release();
        }
    }

    #[test]
    fn permits_that_are_kept_do_not_hide_the_next_ones() {
        let semaphore = SemaphoreId::new();
        let in_thread = thread::spawn(move || {
            let acquire = || Acquired::new(semaphore.get(), 1, Location::caller());
            let mut kept: Vec<_> = (0..RECORDS / 3).map(|_| acquire()).collect();
            let recorded = permits_of(&semaphore).len();
            let mut missed = 0;
            for _ in 0..NEXT {
                let mut next = acquire();
                missed += usize::from(permits_of(&semaphore).len() == recorded);
                // So that the search goes on, as by a thread that alternates.
                LAST.set(&NO_RECORD);
                next.release();
            }
            assert!(missed <= 8, "{missed}");
            kept.iter_mut().for_each(Acquired::release);
        });
        in_thread.join().unwrap();
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
