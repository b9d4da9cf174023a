//! Who sleeps and who searches: the idle set, and the protocol by which no wake-up is lost.
//!
//! # Shape
//!
//! ```text
//! parked     one bit a worker, 64 a word, each word on a line of its own; set by its worker, cleared by whoever gets there first
//! searching  how many search for work, or were woken to do so
//! spinner    the one that is parked and not asleep yet, if any: a hint
//! ```
//! How many are parked is the bits' population; there is no counter beside it that could drift.
//! This is the only place with `fence(SeqCst)`.
//!
//! # Protocol
//!
//! Submit, by whoever has made work visible to others:
//! 1. publish the work: in a ring, a queue, an inbox, a flag;
//! 2. `fence(SeqCst)`;
//! 3. if nobody searches and somebody is parked: claim one, and unpark it.
//!
//! Park, by a worker that found nothing:
//! 1. leave the searchers if it was one, and publish "parked", by setting the bit; each a
//!    read-modify-write;
//! 2. `fence(SeqCst)`;
//! 3. check everything once more: inbox, every ring and batch, the global queue, shutdown; not
//!    timers, which are the business of whoever has the driver turn. On a hit: retract, become a
//!    searcher ([`Idle::start_searching`]), search. Else sleep; on waking up, for whatever cause,
//!    retract.
//!
//! Spin, by a worker that has parked and found nothing, before it sleeps:
//! 1. if nobody else spins, say so in `spinner`; else sleep, or spin untold;
//! 2. check the own park word for a while (`Parker::has_token`), and take nothing;
//! 3. take back what (1) said, if it did. A token was there: as after a sleep. None: sleep.
//!
//! For everybody else it is parked: its bit is set, it is no searcher, and who claims it gives it a
//! token as always. It is only cheaper to wake, and so the first to be claimed.
//!
//! Claim: clear a set bit with a read-modify-write; if it was clear already, take another; then
//! `searching += 1`, for the one that was claimed; then its token, by `Parker::unpark`.
//!
//! Retract: clear the own bit with a read-modify-write. It was set: nobody has claimed me, I reset
//! my park word (`Parker::take_token`) and am not a searcher. It was clear: somebody has, I wait
//! for the token (`Parker::wait_token`), and am a searcher, counted by the claimer.
//!
//! Search: a searcher that finds work leaves the searchers *before* it runs it. If it was the last
//! it does as Submit from step 2 on, for whatever work it sees: a fence, a check of everything, and
//! if something is there, a claim (the chain).
//!
//! # Invariants
//!
//! * ONE-TOKEN: a cleared bit is a promise of exactly one token, and of one searcher. Whoever
//!   clears it makes it true, or is its worker.
//! * COUNTED-ONCE: a worker is counted as a searcher at most once: it leaves before its bit says
//!   that it may be claimed, `searching` is raised before the token is given, and the one that got
//!   the token lowers it.
//! * NOBODY-WAITS: when every worker sleeps, nothing that was submitted is left.
//!
//! # Proof of NOBODY-WAITS
//!
//! Let S be the fence of a submit and take any worker that sleeps later, P the fence of that park.
//! The two fences are ordered. P after S: what S publishes is visible to the check that follows P.
//! P before S: the bit that was set before P is visible to what follows S, unless it was cleared
//! again, that is, unless that worker was woken or woke up and will park once more, with a later P.
//! So if all that sleep did not see the work, then Submit (3) saw a bit, and there are two cases.
//! It claimed one: that one wakes up, searches, and either finds the work or parks with a P after
//! the claim. Or it saw `searching > 0`: each searcher counted there leaves later in the order in
//! which that word changes, and the last one to leave does so followed by a fence and a check;
//! since the load before saw the word as it was before that, S comes before that fence, and the
//! check sees the work.
//!
//! # Surplus
//!
//! A worker comes to its own ring before it parks, so NOBODY-WAITS asks nothing of what it pushes
//! there. But nobody is to sleep while a worker holds surplus: more than the one task that it runs
//! next, in ring and LIFO slot together. The push to the ring that makes surplus is a Submit, and
//! so is the one after it, since a put into the empty slot makes surplus of one in the ring and is
//! none. As long as there is more, those that follow check the bits without the fence,
//! [`Idle::is_anybody_parked_for_surplus`].
//!
//! Let S be the fence of the push that made it, and P that of a park. P before S: that submit saw
//! the bit. P after S: the check sees the ring as it was at S, or newer, and until there is no
//! surplus any more it is never empty: the owner leaves one when it takes one of two, and a thief
//! takes half, rounded up, of two or more. The check sees as much by TAIL-NOT-OLDER of `ring`. Only
//! a thief that does not see yet what was pushed last takes what is to it the last one; it is
//! awake, and comes back after a poll. The push that follows sees any bit that was missed so.
//!
//! # Which one
//!
//! The one that spins: it is awake. Else the lowest bit, one count-trailing-zeros a word, so that
//! the same few workers stay warm; but the one that sits in the I/O driver (`keep_last`) only if
//! nobody else is parked: it polls sockets and timers, and the kernel wakes it beside its waker.
//!
//! # Rejected
//!
//! * Checking before publishing "parked": between the two a submitter sees nobody parked and nobody
//!   checks again.
//! * Only the last searcher checks again: with one worker, with stealing off, or after a refusal by
//!   the limit, nobody does.
//! * A Release store and a SeqCst load in place of the fences: 1.2 % of wake-ups lost on hardware.
//! * Ignoring what retract found: a worker that was claimed while it timed out is counted as a
//!   searcher for ever, and nobody is woken again.
//! * Asking [`Idle::try_start_searching`] after a hit: a worker that is refused parks, hits and is
//!   refused again, in a circle.
//! * Spinning as a searcher, without the bit: then nobody is woken while it spins, and it alone has
//!   to find whatever is submitted, by checking all queues again and again, instead of at one word
//!   of its own.
//! * A summary word above the words: with 16 words at most the scan is as fast, and there is
//!   nothing to keep consistent.

use volt_shim::{AtomicU64, AtomicUsize, CachePadded, Ordering, fence};

#[cfg(all(test, loom))]
mod loom_models;

/// Workers a word.
const WORD: usize = u64::BITS as usize;

/// The idle set of one runtime.
pub(crate) struct Idle {
    parked: Box<[CachePadded<AtomicU64>]>,
    searching: CachePadded<AtomicUsize>,
    /// The worker that spins, one more than its index; 0 = nobody.
    spinner: CachePadded<AtomicUsize>,
    workers: usize,
    slots: usize,
}

impl Idle {
    /// For workers 0 to `workers - 1`, and after them `spares`, none of them parked.
    pub(crate) fn new(workers: usize, spares: usize) -> Self {
        let slots = workers + spares;
        Self {
            parked: (0..slots.div_ceil(WORD)).map(|_| CachePadded(AtomicU64::new(0))).collect(),
            searching: CachePadded(AtomicUsize::new(0)),
            spinner: CachePadded(AtomicUsize::new(0)),
            workers,
            slots,
        }
    }

    /// Submit (2) and (3), after work was published: claims a parked worker if nobody searches. The
    /// caller unparks it, always.
    ///
    /// `keep_last` is claimed only if it is the only one parked.
    #[must_use = "a claimed worker waits for its token"]
    pub(crate) fn claim_for_submit(&self, keep_last: Option<usize>) -> Option<usize> {
        // Submit (2)
        // ORDERING: SeqCst fence; pairs with the fence in `begin_park` and `stop_searching`: see
        // the proof.
        fence(Ordering::SeqCst);
        // Submit (3)
        if self.searching() > 0 {
            return None;
        }
        self.claim(keep_last)
    }

    /// Submit (2), and the part of Submit (3) that mostly ends it: whether anybody is parked, after
    /// work was published. If so, the caller goes on as for
    /// [`claim_for_submit`](Self::claim_for_submit).
    #[inline]
    pub(crate) fn is_anybody_parked(&self) -> bool {
        // Submit (2)
        // ORDERING: SeqCst fence; pairs with the fence in `begin_park`: see the proof.
        fence(Ordering::SeqCst);
        // Submit (3)
        !self.is_nobody_parked()
    }

    /// Whether somebody is parked who is to be claimed for surplus, after `pushed` tasks were
    /// pushed to a ring, and `queued` are in it and in the LIFO slot: see "Surplus".
    #[inline]
    pub(crate) fn is_anybody_parked_for_surplus(&self, queued: usize, pushed: usize) -> bool {
        // Two that were there already may be one in the ring and one that was put into the slot,
        // which is no Submit.
        let is_new = queued <= pushed + 2;
        if is_new { self.is_anybody_parked() } else { !self.is_nobody_parked() }
    }

    /// As [`claim_for_submit`](Self::claim_for_submit), whether or not somebody searches: for the
    /// second and later of a batch, and for the chain.
    #[must_use = "a claimed worker waits for its token"]
    pub(crate) fn claim_any(&self, keep_last: Option<usize>) -> Option<usize> {
        // Submit (2)
        // ORDERING: SeqCst fence; pairs with the fence in `begin_park`: see the proof.
        fence(Ordering::SeqCst);
        // Submit (3)
        self.claim(keep_last)
    }

    /// As [`claim_any`](Self::claim_any), for this worker only: after something was published that
    /// only it checks, or that all are to see.
    #[must_use = "a claimed worker waits for its token"]
    pub(crate) fn claim_worker(&self, worker: usize) -> bool {
        // Submit (2)
        // ORDERING: SeqCst fence; pairs with the fence in `begin_park`: see the proof.
        fence(Ordering::SeqCst);
        // Submit (3)
        self.is_parked(worker) && self.claim_bit(worker).0
    }

    /// Park (1) and (2): from here on `worker` may be claimed. The caller then checks everything,
    /// Park (3).
    pub(crate) fn begin_park(&self, worker: usize, was_searching: bool) {
        let (word, bit) = self.place(worker);
        // Park (1)
        if was_searching {
            self.leave_searchers();
        }
        // ORDERING: AcqRel; the Release pairs with the Acquire in `claim_bit`, so that the token
        // comes after the reset of the park word that ended the former sleep.
        let before = word.fetch_or(bit, Ordering::AcqRel);
        debug_assert_eq!(before & bit, 0, "worker {worker} parks twice");
        // Park (2)
        // ORDERING: SeqCst fence; pairs with the fence of every claim: see the proof.
        fence(Ordering::SeqCst);
    }

    /// Retract: whether `worker`'s bit was still set. If not, a claimer owns it: its token comes,
    /// and it is counted as a searcher.
    #[must_use = "false means that a token is on its way, and that this worker is a searcher"]
    pub(crate) fn retract(&self, worker: usize) -> bool {
        let (word, bit) = self.place(worker);
        // ORDERING: AcqRel; pairs with the other changes of the word; exactly one of this and a
        // claim finds the bit set.
        word.fetch_and(!bit, Ordering::AcqRel) & bit != 0
    }

    /// Spin (1): whether it is told that `worker`, which is parked and may be claimed, spins; it is
    /// of one at a time.
    #[must_use = "false means that it is told of somebody else"]
    pub(crate) fn begin_spin(&self, worker: usize) -> bool {
        // ORDERING: Relaxed, both: a hint to claims, which clear the bit all the same.
        self.spinner.compare_exchange(0, worker + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Spin (3), by the one that it is told of.
    pub(crate) fn end_spin(&self) {
        // ORDERING: Relaxed: as `begin_spin`.
        self.spinner.store(0, Ordering::Relaxed);
    }

    /// Becomes a searcher, unless half of the workers are already: a heuristic against stampedes.
    #[must_use = "false means that the caller is not a searcher"]
    pub(crate) fn try_start_searching(&self) -> bool {
        let may = 2 * self.searching() < self.workers;
        if may {
            self.start_searching();
        }
        may
    }

    /// Becomes a searcher in any case: after a hit in Park (3) that nobody's claim overtook.
    pub(crate) fn start_searching(&self) {
        // ORDERING: Relaxed: the proof needs the order of the changes of this word only.
        self.searching.fetch_add(1, Ordering::Relaxed);
    }

    /// Search: leaves the searchers, before running what was found. `true` = it was the last: the
    /// caller checks everything, and if something is there, claims one more
    /// ([`claim_any`](Self::claim_any)).
    #[must_use = "the last searcher wakes the next"]
    pub(crate) fn stop_searching(&self) -> bool {
        let was_last = self.leave_searchers();
        if was_last {
            // Submit (2)
            // ORDERING: SeqCst fence; pairs with the fence in `claim_for_submit`, whose caller may
            // have relied on this searcher.
            fence(Ordering::SeqCst);
        }
        was_last
    }

    /// How many search, or were woken to do so.
    #[inline]
    pub(crate) fn searching(&self) -> usize {
        // ORDERING: Relaxed: ordered by the fence before it where that matters, a hint elsewhere.
        self.searching.load(Ordering::Relaxed)
    }

    /// The bitmap of the first so many, worker 0 in the lowest bit of the first word.
    pub(crate) fn parked_words(&self, slots: usize) -> Vec<u64> {
        self.words().take(slots.div_ceil(WORD)).collect()
    }

    /// Whether `worker` is parked and not claimed.
    pub(crate) fn is_parked(&self, worker: usize) -> bool {
        let (word, bit) = self.place(worker);
        // ORDERING: Relaxed: as `searching`.
        word.load(Ordering::Relaxed) & bit != 0
    }

    /// How many are parked and not claimed.
    pub(crate) fn parked_count(&self) -> usize {
        self.words().map(|word| word.count_ones() as usize).sum()
    }

    /// Workers and spares.
    #[cfg(all(test, loom))]
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// Whether no worker is parked.
    #[inline]
    pub(crate) fn is_nobody_parked(&self) -> bool {
        self.words().all(|word| word == 0)
    }

    /// Between a change of a worker's bit and a check of whether the sentinel dozes, and the other
    /// way round: see `sentinel`.
    #[inline]
    pub(crate) fn fence(&self) {
        // ORDERING: SeqCst fence; pairs with itself on the other side.
        fence(Ordering::SeqCst);
    }

    /// Claims the lowest parked worker, `keep_last` only if there is no other.
    fn claim(&self, keep_last: Option<usize>) -> Option<usize> {
        // ORDERING: Relaxed: a hint; whoever it names may be gone, or claimed, and the bit says so.
        if let Some(spinner) = self.spinner.load(Ordering::Relaxed).checked_sub(1)
            && self.is_parked(spinner)
            && self.claim_bit(spinner).0
        {
            return Some(spinner);
        }
        for (index, word) in self.words().enumerate() {
            let others = match keep_last {
                Some(kept) if kept / WORD == index => !(1 << (kept % WORD)),
                _ => u64::MAX,
            };
            let mut parked = word & others;
            while parked != 0 {
                let worker = index * WORD + parked.trailing_zeros() as usize;
                let (is_mine, before) = self.claim_bit(worker);
                if is_mine {
                    return Some(worker);
                }
                // Somebody else was there first: once more, with what is there now.
                parked = before & others;
            }
        }
        keep_last.filter(|&kept| self.is_parked(kept) && self.claim_bit(kept).0)
    }

    /// Claim: whether this cleared `worker`'s bit, and its word before that.
    fn claim_bit(&self, worker: usize) -> (bool, u64) {
        let (word, bit) = self.place(worker);
        // ORDERING: AcqRel; the Acquire pairs with the Release in `begin_park`.
        let before = word.fetch_and(!bit, Ordering::AcqRel);
        let is_mine = before & bit != 0;
        if is_mine {
            // COUNTED-ONCE: before the token, which is what the claimed worker waits for.
            self.start_searching();
        }
        (is_mine, before)
    }

    /// `searching -= 1`; whether it is 0 now.
    fn leave_searchers(&self) -> bool {
        // ORDERING: AcqRel; a searcher that leaves after others sees what they had published when
        // they left.
        let before = self.searching.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before != 0, "COUNTED-ONCE: left the searchers without being one");
        before == 1
    }

    fn place(&self, worker: usize) -> (&AtomicU64, u64) {
        debug_assert!(worker < self.slots, "worker {worker} of {}", self.slots);
        (&self.parked[worker / WORD].0, 1 << (worker % WORD))
    }

    fn words(&self) -> impl Iterator<Item = u64> {
        // ORDERING: Relaxed: as `searching`; a claim checks each bit again.
        self.parked.iter().map(|word| word.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
