//! The idle set: which workers are parked, how many search for work, and the protocol that loses no
//! wake-up between them.
//!
//! A worker without a task sleeps, so that an idle program uses no processor time. A new task must
//! then wake a worker: a wake-up too few, and the task waits for ever. A wake-up costs more than a
//! short poll, so one too many wastes time. This module decides which worker is woken, and when.
//!
//! A worker that finds no task *parks*: it sets its bit in the idle set and sleeps. A thread that
//! publishes new work *submits* it: it *claims* one parked worker, by clearing that worker's bit,
//! and gives it a *token*, which ends its sleep. A *searcher* is a worker that is searching for
//! work, or that was claimed in order to do so. While there is a searcher, a submitter does not
//! wake another worker, since the searcher will find the new work. A worker *retracts* when it
//! takes back its own bit. Workers call this module through `parking`; submitters call it through
//! `Workers::wake_one` and its relatives.
//!
//! An ordinary case: worker 3 finds no task, sets its bit, checks all queues once more, and sleeps.
//! A thread spawns a task: it pushes the task to a queue, sees that there are no searchers and that
//! bit 3 is set, clears the bit, raises the number of searchers and unparks worker 3. Worker 3
//! wakes up, finds its bit cleared, and searches. It finds the task, leaves the searchers, and runs
//! the task.
//!
//! The race: worker 3 finds all queues empty; then the task is pushed; then the submitter sees no
//! parked worker, because bit 3 is not set yet. The worker would sleep although there is a task.
//! The protocol prevents that: each side first publishes (the task, the bit), then executes a
//! SeqCst fence, and then checks what the other side publishes. At least one of the two sees the
//! other.
//!
//! # Shape
//!
//! ```text
//! parked     one bit per worker, 64 per word, each word on its own cache line; the worker sets its
//!            bit, and either a claimer or the worker itself clears it, whichever is first
//! searching  how many workers search for work, or were woken to do so
//! spinner    a hint: the worker that is parked but not yet asleep, if there is one
//! ```
//! The number of parked workers is the number of set bits; no separate counter can drift from it.
//! In the scheduler, `fence(SeqCst)` is used only here.
//!
//! # Protocol
//!
//! Submit, by a thread that makes work visible to others:
//! 1. publish the work: in a ring, a queue, an inbox, a flag;
//! 2. `fence(SeqCst)`;
//! 3. if there is no searcher and some worker is parked: claim one, and unpark it.
//!
//! Park, by a worker that found no work:
//! 1. leave the searchers if it was one, then publish "parked" by setting the bit; each of the two
//!    is a read-modify-write;
//! 2. `fence(SeqCst)`;
//! 3. check everything once more: the inbox, ring and batch of each worker, the global queue, a
//!    wake-up of the main future (`worker::main_future`), shutdown. With stealing off, the queues
//!    of other workers are left out. Timers are not checked: the worker that has the driver turn
//!    handles them. On a hit: retract, become a searcher ([`Idle::start_searching`]), search.
//!    Otherwise sleep; after waking up, for whatever reason, retract.
//!
//! Spin, by a worker that has parked and found no work, before it sleeps:
//! 1. if no other worker spins, enter its index in `spinner`; otherwise sleep;
//! 2. check its own park word for a while (`Parker::has_token`), but do not take the token;
//! 3. clear `spinner`. If a token came: continue as after a sleep. If not: sleep.
//!
//! To all other threads a spinning worker is parked: its bit is set, it is not a searcher, and a
//! claimer gives it a token as usual. It is only cheaper to wake, and therefore the first to be
//! claimed.
//!
//! Claim: clear a set bit with a read-modify-write; if it was already clear, try another one; then
//! `searching += 1`, on behalf of the claimed worker; then give it its token, by `Parker::unpark`.
//!
//! Retract: clear the own bit with a read-modify-write. If it was set, the worker was not claimed:
//! it resets its park word (`Parker::take_token`) and is not a searcher. If it was clear, a claimer
//! has cleared it: the worker waits for the token (`Parker::wait_token`) and is a searcher, already
//! counted by the claimer.
//!
//! Search: a searcher that finds work leaves the searchers *before* it runs the work. If it was the
//! last one, it continues as in Submit from step 2 on, for any work that is visible: a fence, a
//! check of everything, and a claim if there is work (the chain).
//!
//! # Invariants
//!
//! * ONE-TOKEN: each cleared bit is followed by exactly one token and counts exactly one searcher.
//!   The claimer that cleared the bit provides both. A bit that its own worker clears implies
//!   neither.
//! * COUNTED-ONCE: a worker is counted as a searcher at most once. It leaves the searchers before
//!   it sets its bit and may be claimed; the claimer raises `searching` before it gives the token;
//!   and the worker that received the token lowers `searching`.
//! * NO-TASK-WAITS: when every worker sleeps, no submitted work is left.
//!
//! # Proof of NO-TASK-WAITS
//!
//! Let S be the fence of a submit, let W be any worker that sleeps later, and let P be the fence of
//! that park. The two fences are ordered.
//!
//! * P after S: the work published before S is visible to the check that follows P.
//! * P before S: the bit that was set before P is visible to the loads that follow S, unless the
//!   bit was cleared again. In that case W was woken or woke up, and it will park once more, with a
//!   later P.
//!
//! So if no sleeping worker saw the work, a set bit was visible to Submit (3), and there are two
//! cases.
//!
//! * The submitter claimed a worker. That worker wakes up and searches. It either finds the work or
//!   parks with a P after the claim.
//! * The submitter saw `searching > 0`. Each searcher counted there leaves later in the
//!   modification order of `searching`, and the last one to leave executes a fence and then checks.
//!   The submitter's load read the value from before that departure, so S comes before that fence,
//!   and the check sees the work.
//!
//! # Surplus
//!
//! A worker runs its own ring empty before it parks, so NO-TASK-WAITS requires nothing for the
//! tasks that it pushes there. But no worker should sleep while another one has *surplus*: more
//! tasks, in ring and LIFO slot together, than the one that it runs next. The push to the ring that
//! creates surplus is a Submit. The push after it is a Submit too, because a put into the empty
//! LIFO slot can create surplus from one task in the ring, and such a put is not a Submit. Later
//! pushes, while there is surplus, check the bits without the fence:
//! [`Idle::is_any_parked_for_surplus`].
//!
//! Let S be the fence of the push that created the surplus, and P the fence of a park. P before S:
//! that submit saw the bit. P after S: the check sees the ring as it was at S, or newer, and the
//! ring is never empty while there is surplus: the owner leaves one task when it takes one of two,
//! and a thief takes half, rounded up, of two or more. That the check sees this much follows from
//! TAIL-NOT-OLDER of `ring`. There is one exception: a thief that does not see the latest push yet
//! may take the task that appears to it to be the last. That thief is awake, and checks again after
//! one poll. The next push sees any bit that was missed in this way.
//!
//! # Which worker is claimed
//!
//! The spinning worker first: it is awake. Otherwise the lowest set bit, found with one
//! count-trailing-zeros per word, so that the same few workers stay warm. The worker that sleeps in
//! the I/O driver (`keep_last`) is claimed only if no other worker is parked: it polls sockets and
//! timers, and the kernel wakes it for these in any case.
//!
//! # Rejected
//!
//! * Checking before publishing "parked": in between, a submitter sees no parked worker, and no
//!   worker checks again.
//! * Only the last searcher checks again: with one worker, with stealing off, or after a refusal by
//!   the limit on searchers, no worker checks at all.
//! * A Release store and a SeqCst load in place of the fences: 1.2 % of wake-ups lost on hardware.
//! * Ignoring the result of the retract: a worker that was claimed while its sleep timed out stays
//!   counted as a searcher for ever, and no worker is woken again.
//! * Calling [`Idle::try_start_searching`] after a hit: a worker that is refused parks, hits and is
//!   refused again, in an endless loop.
//! * Spinning as a searcher, without the bit: then no other worker is woken during the spin. The
//!   spinning worker alone must find all submitted work, by checking all queues again and again
//!   instead of one word that belongs to it.
//! * A summary word above the words: there are few words, one for 64 workers and spares, so a scan
//!   is as fast, and there is no additional state to keep consistent.

use volt_shim::{AtomicU64, AtomicUsize, CachePadded, Ordering, fence};

pub(crate) mod parking;

#[cfg(all(test, loom))]
mod loom_models;

/// Workers per word.
const WORD: usize = u64::BITS as usize;

/// The idle set of one runtime.
pub(crate) struct Idle {
    parked: Box<[CachePadded<AtomicU64>]>,
    searching: CachePadded<AtomicUsize>,
    /// The index of the spinning worker plus one; 0 if there is none.
    spinner: CachePadded<AtomicUsize>,
    workers: usize,
    slots: usize,
}

impl Idle {
    /// Creates the set for workers 0 to `workers - 1` followed by `spares`; none of them is parked.
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

    /// Submit (2) and (3), after work was published: claims a parked worker if there is no
    /// searcher. The caller must unpark it.
    ///
    /// `keep_last` is claimed only if no other worker is parked.
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

    /// Submit (2), and the check that usually completes Submit (3): returns whether any worker is
    /// parked, after work was published. If so, the caller continues as for
    /// [`claim_for_submit`](Self::claim_for_submit).
    #[inline]
    pub(crate) fn is_any_parked(&self) -> bool {
        // Submit (2)
        // ORDERING: SeqCst fence; pairs with the fence in `begin_park`: see the proof.
        fence(Ordering::SeqCst);
        // Submit (3)
        !self.is_none_parked()
    }

    /// Returns whether there is a parked worker to claim for surplus, after `pushed` tasks were
    /// pushed to a ring and `queued` tasks are in the ring and the LIFO slot together. See
    /// "Surplus".
    #[inline]
    pub(crate) fn is_any_parked_for_surplus(&self, queued: usize, pushed: usize) -> bool {
        // Two tasks that were already queued may be one in the ring and one that was put into the
        // LIFO slot, which is not a Submit.
        let is_new = queued <= pushed + 2;
        if is_new { self.is_any_parked() } else { !self.is_none_parked() }
    }

    /// Like [`claim_for_submit`](Self::claim_for_submit), but also while there are searchers: for
    /// the second and later tasks of a batch, and for the chain.
    #[must_use = "a claimed worker waits for its token"]
    pub(crate) fn claim_any(&self, keep_last: Option<usize>) -> Option<usize> {
        // Submit (2)
        // ORDERING: SeqCst fence; pairs with the fence in `begin_park`: see the proof.
        fence(Ordering::SeqCst);
        // Submit (3)
        self.claim(keep_last)
    }

    /// Like [`claim_any`](Self::claim_any), but for this worker only: for work that only this
    /// worker checks, or that every worker must see.
    #[must_use = "a claimed worker waits for its token"]
    pub(crate) fn claim_worker(&self, worker: usize) -> bool {
        // Submit (2)
        // ORDERING: SeqCst fence; pairs with the fence in `begin_park`: see the proof.
        fence(Ordering::SeqCst);
        // Submit (3)
        self.is_parked(worker) && self.claim_bit(worker).0
    }

    /// Park (1) and (2): publishes that `worker` is parked; it may be claimed from now on. The
    /// caller then checks everything, Park (3).
    pub(crate) fn begin_park(&self, worker: usize, was_searching: bool) {
        let (word, bit) = self.place(worker);
        // Park (1)
        if was_searching {
            self.leave_searchers();
        }
        // ORDERING: AcqRel; the Release pairs with the Acquire in `claim_bit`, so that the token
        // comes after the reset of the park word that ended the previous sleep.
        let before = word.fetch_or(bit, Ordering::AcqRel);
        debug_assert_eq!(before & bit, 0, "worker {worker} parks twice");
        // Park (2)
        // ORDERING: SeqCst fence; pairs with the fence of every claim: see the proof.
        fence(Ordering::SeqCst);
    }

    /// Retract: returns whether `worker`'s bit was still set. If not, a claimer has cleared it: a
    /// token follows, and the worker is counted as a searcher.
    #[must_use = "false means that a token is on its way, and that this worker is a searcher"]
    pub(crate) fn retract(&self, worker: usize) -> bool {
        let (word, bit) = self.place(worker);
        // ORDERING: AcqRel; pairs with the same orderings of the other changes of the word. Since
        // all of these are read-modify-writes, exactly one of this and a claim finds the bit set.
        word.fetch_and(!bit, Ordering::AcqRel) & bit != 0
    }

    /// Spin (1): tries to enter `worker`, which is parked and may be claimed, as the spinner.
    /// Returns whether it did; there is one spinner at a time.
    #[must_use = "false means that another worker is the spinner"]
    pub(crate) fn begin_spin(&self, worker: usize) -> bool {
        // ORDERING: Relaxed, both: only a hint to claimers, which clear the bit in any case.
        self.spinner.compare_exchange(0, worker + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Spin (3), by the worker that is entered as the spinner.
    pub(crate) fn end_spin(&self) {
        // ORDERING: Relaxed: as in `begin_spin`.
        self.spinner.store(0, Ordering::Relaxed);
    }

    /// Makes the caller a searcher, unless half of the workers already are: a heuristic against
    /// stampedes.
    #[must_use = "false means that the caller is not a searcher"]
    pub(crate) fn try_start_searching(&self) -> bool {
        let may = 2 * self.searching() < self.workers;
        if may {
            self.start_searching();
        }
        may
    }

    /// Makes the caller a searcher unconditionally: after a hit in Park (3) if it was not claimed
    /// meanwhile.
    pub(crate) fn start_searching(&self) {
        // ORDERING: Relaxed: the proof needs only the modification order of this word.
        self.searching.fetch_add(1, Ordering::Relaxed);
    }

    /// Search: leaves the searchers, before running the work that was found. Returns `true` if the
    /// caller was the last searcher: it then checks everything, and claims one more worker if there
    /// is work ([`claim_any`](Self::claim_any)).
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

    /// Returns how many workers search, or were woken to do so.
    #[inline]
    pub(crate) fn searching(&self) -> usize {
        // ORDERING: Relaxed: where the order matters, a fence precedes it; elsewhere this is a
        // hint.
        self.searching.load(Ordering::Relaxed)
    }

    /// Returns the bitmap of the first `slots` workers, with worker 0 in the lowest bit of the
    /// first word.
    pub(crate) fn parked_words(&self, slots: usize) -> Vec<u64> {
        self.words().take(slots.div_ceil(WORD)).collect()
    }

    /// Returns whether `worker` is parked and not claimed.
    pub(crate) fn is_parked(&self, worker: usize) -> bool {
        let (word, bit) = self.place(worker);
        // ORDERING: Relaxed: as in `searching`.
        word.load(Ordering::Relaxed) & bit != 0
    }

    /// Returns how many workers are parked and not claimed.
    pub(crate) fn parked_count(&self) -> usize {
        self.words().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns the number of workers and spares.
    #[cfg(all(test, loom))]
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// Returns whether no worker is parked.
    #[inline]
    pub(crate) fn is_none_parked(&self) -> bool {
        // ORDERING: Relaxed, both: as in `searching`. There is a first word, and few runtimes have
        // more.
        let is_empty = |word: &AtomicU64| word.load(Ordering::Relaxed) == 0;
        let [first, others @ ..] = &*self.parked else { return true };
        is_empty(first) && (others.is_empty() || others.iter().all(|word| is_empty(word)))
    }

    /// Executes the fence of protocols in other modules that rely on a worker's bit or on a submit:
    /// see `watch::suspension`, `spares` and `Shared::next_at_rest`.
    #[inline]
    pub(crate) fn fence(&self) {
        // ORDERING: SeqCst fence; pairs with the other side's call of this function, or with the
        // fence of its park or claim.
        fence(Ordering::SeqCst);
    }

    /// Claims the spinner or the lowest parked worker; `keep_last` only if no other worker is
    /// parked.
    fn claim(&self, keep_last: Option<usize>) -> Option<usize> {
        // ORDERING: Relaxed: a hint. The worker may have stopped spinning or been claimed; its bit
        // decides.
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
                // Another thread cleared the bit first: try again with the current bits.
                parked = before & others;
            }
        }
        keep_last.filter(|&kept| self.is_parked(kept) && self.claim_bit(kept).0)
    }

    /// Claim: clears `worker`'s bit. Returns whether this call cleared it, and the word's value
    /// before.
    fn claim_bit(&self, worker: usize) -> (bool, u64) {
        let (word, bit) = self.place(worker);
        // ORDERING: AcqRel; the Acquire pairs with the Release in `begin_park`.
        let before = word.fetch_and(!bit, Ordering::AcqRel);
        let is_mine = before & bit != 0;
        if is_mine {
            // COUNTED-ONCE: this comes before the token, which the claimed worker waits for.
            self.start_searching();
        }
        (is_mine, before)
    }

    /// `searching -= 1`; returns whether it is 0 now.
    fn leave_searchers(&self) -> bool {
        // ORDERING: AcqRel; the Acquire pairs with the Release of earlier departures: a searcher
        // that leaves after others sees what they had published when they left.
        let before = self.searching.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before != 0, "COUNTED-ONCE: left the searchers without being one");
        before == 1
    }

    fn place(&self, worker: usize) -> (&AtomicU64, u64) {
        debug_assert!(worker < self.slots, "worker {worker} of {}", self.slots);
        (&self.parked[worker / WORD].0, 1 << (worker % WORD))
    }

    fn words(&self) -> impl Iterator<Item = u64> {
        // ORDERING: Relaxed: as in `searching`; a claim checks each bit again.
        self.parked.iter().map(|word| word.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
