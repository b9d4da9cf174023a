//! The clock of the program, read from the processor's cycle counter where that can be trusted.
//!
//! Terms. The *counter* is the processor's cycle counter (`rdtsc`). Reading it costs a third of
//! `Instant::now`, and the clock is read at each poll of a task. The *system clock* is `Instant`,
//! in ns; it is the authority. A *segment* defines how the clock is read for the next millisecond:
//! from the counter, as the straight line that starts at `begin_ns` at `begin_cycles`, or from the
//! system clock.
//!
//! An ordinary case. A worker reads the clock. The counter is inside the present segment, so the
//! time is `begin_ns + (cycles − begin_cycles) · rate`. A moment later another worker reads a
//! counter value after the segment's end. It takes the writer's lock, reads both clocks, finds that
//! the counter still runs as it did, and publishes the next segment, which starts at the system
//! clock's time.
//!
//! The race. A reader may still use a segment while another thread publishes the next one, or even
//! the next but one, into the same slot. Between these two threads, time must not go backwards.
//!
//! A writer may lose its processor while it has the lock, for any length of time. Then readers
//! *overtake* it: they return the system clock's time, and make sure that the writer's segment,
//! which began before the time that they returned, is never published.
//!
//! Shape. There are two slots, used in turn. The low bit of `current`, the *generation*, names the
//! slot in use. Slots are written under the writer's lock, which is only ever tried, and read by
//! all threads by loads. The generation grows by one when a segment is published. It grows by two,
//! which names the same slot, when a reader overtakes.
//!
//! Read, by any thread:
//! 1. load the generation, and its slot;
//! 2. read the counter;
//! 3. if the counter is inside the segment and the generation is still the same, return the time;
//! 4. otherwise, if the lock is free, take it and renew. If another thread has it, return the
//!    segment's end, for at most `OVERTAKE_AFTER_NS` on the system clock; after that, overtake.
//!
//! A thread that reads often keeps the generation and the words of (1), and begins with (2) until
//! (3) fails. That is a Read whose step (1) came long before: (3) fails as soon as the kept
//! generation is over.
//!
//! Overtake, by a reader whose segment is over while another thread has the lock:
//! 1. read the system clock;
//! 2. compare-exchange the generation of Read (1) for the one after next; if the generation is
//!    another one by now, read again;
//! 3. return the time of (1).
//!
//! Renew, under the lock:
//! 1. read both clocks, as close together as possible;
//! 2. examine: since the last measurement the counter advanced as the rate predicts. The tolerance
//!    is 1/512, four times what an NTP daemon may slew a clock by. Measure the rate anew over the
//!    last 10 ms or more, so that the clock follows a slew;
//! 3. make the next segment. It does not begin before the end of the former one (*Ordered*). If
//!    that end is ahead of the system clock, the new segment runs slower, so that both meet at its
//!    end;
//! 4. write it to the other slot, then compare-exchange the former generation for the next one;
//! 5. if that fails, the writer was overtaken. Write a segment that reads the system clock for the
//!    next millisecond to the same slot, which no generation has named yet, and compare-exchange
//!    the generation that was found for the next one. If that fails too, another reader overtook in
//!    between and may have returned more than the segment's end, so repeat. After `LATE_TRIES`,
//!    publish a segment that is long over, which gives no time at all.
//!
//! Faults. The counter may step back (a suspended machine, a restored checkpoint), jump ahead (a
//! virtual machine that was moved to another host), stop, or lose the kernel's trust. After a step
//! back or ahead the counter is outside the segment, so the next reader detects it at Read (3). A
//! counter that stops stays inside the segment. Only the system clock reveals that, so `check`
//! compares the two. `check` is called at events that do not depend on this clock: each turn of the
//! driver, each park, every few ticks of a worker (`CLOCK_CHECK_TICKS`), each check of the
//! sentinel. After a fault the system clock is read, and the counter is measured anew. It is used
//! again, unless the measurement fails or more than [`MAX_FAULTS`] faults have not expired. One
//! fault expires every [`FAULT_EXPIRY_NS`], so a machine that is suspended now and then keeps its
//! counter. A counter that the kernel does not trust is not used again. Each fault is counted and
//! reported.
//!
//! Invariants:
//! * *Ordered*: a segment returns no time after its end, and the next one returns none before that
//!   end. So threads that read different segments agree, whatever the counter did between them. The
//!   time that an overtaking reader returns is after the end of its segment. It is also before the
//!   times that later readers return. The reason: Renew (4) fails for a segment of the counter that
//!   was made before the overtaking, and the system clock does not go back.
//! * *Whole*: no thread uses a mixture of two segments. A thread that reads a word of the
//!   generation after next sees at Read (3) that its own generation is over.
//! * *Per thread*: a thread keeps the latest time that it has returned, and returns no earlier one.
//!   So the clock of one thread never goes backwards, also if the counter steps back by less than
//!   the segment's age, or if the thread moves to a processor whose counter is behind.
//! * *Near*: the clock is within a microsecond of the system clock while the counter runs as it
//!   did, and within two milliseconds as soon as a fault is detected.
//! * *Never waits*: no reader waits for another thread. A writer that loses its processor stops the
//!   clock at the end of the segment for at most two milliseconds.
//!
//! Bounds. Within one segment the clock is as monotone as the counter. Two processors may differ by
//! the difference of their counters and by how far they reorder the reading: some tens of ns. If a
//! counter steps back by less than the segment's age, a thread returns the same time until the
//! counter has caught up, for at most a millisecond; another thread may return times that are
//! earlier by up to a millisecond.
//!
//! Trust. The counter is trusted on x86-64 if the processor reports that it runs at one speed in
//! all power states, and if the kernel itself keeps time by it. The kernel does so only after it
//! has compared the counters of all processors.
//!
//! Rejected:
//! * `quanta`, which calibrates once, for up to 200 ms of the program's start, and then drifts by
//!   its initial error.
//! * A line for seconds instead of a segment for a millisecond. It has to be corrected while
//!   readers use it, and the effect of a fault lasts as long as the line.
//! * A seqlock of one slot: readers would wait for a writer that lost its processor.
//! * The greatest time returned so far, in a word that all threads write: exact, but a shared cache
//!   line at each poll.

use volt_shim::{AtomicU8, AtomicU64, CachePadded, Ordering, const_new};

pub(crate) mod source;

pub(crate) mod segment;
mod writer;

use segment::{Kept, NEVER, SEGMENT_NS, Segment, Slot, line};
use source::Source;

#[cfg(all(test, loom))]
mod loom_models;
#[cfg(all(test, not(loom)))]
mod tests;

/// How far the system clock is past the end of a segment when readers overtake a writer.
const OVERTAKE_AFTER_NS: u64 = 2 * SEGMENT_NS;
/// When the kernel is first queried whether it trusts the counter. A shorter program never queries
/// it.
const QUERY_AFTER_NS: u64 = 10_000_000;
/// How long after one query the next one follows.
const QUERY_EVERY_NS: u64 = 10_000_000_000;
/// In `writer`: no thread has the lock.
const UNLOCKED: u64 = 0;

/// A fault of the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Fault {
    SteppedBack = 1,
    /// It stopped, or ran slower.
    FellBehind,
    RanAhead,
    /// The kernel keeps time by another counter, or does not report which.
    Distrusted,
    /// Its measured speed is not one that a counter can have.
    Unusable,
}

impl Fault {
    const ALL: [Self; 5] = [Self::SteppedBack, Self::FellBehind, Self::RanAhead, Self::Distrusted, Self::Unusable];

    /// Returns the text for the log.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::SteppedBack => "the counter stepped back",
            Self::FellBehind => "the counter stopped, or fell behind the system clock",
            Self::RanAhead => "the counter jumped ahead of the system clock",
            Self::Distrusted => "the kernel no longer keeps time by the counter",
            Self::Unusable => "the counter stands still, or has no speed that a counter can have",
        }
    }
}

/// Whether the counter may be used. Written under the lock, except for the result of a query to the
/// kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Trust {
    /// The kernel was not queried yet.
    Unknown,
    Granted,
    /// The counter was trusted, and the kernel no longer trusts it. The next renewal treats that as
    /// a fault.
    Withdrawn,
    /// The counter is not used again.
    Denied,
}

/// See the header of this file.
#[repr(C, align(64))]
pub(crate) struct Clock<S> {
    /// The generation.
    current: AtomicU64,
    slots: [Slot; 2],
    /// The lock: `UNLOCKED` if it is free, otherwise 1 + the number of forks of its holder's
    /// program. On another cache line than the fields above, which all threads read.
    writer: CachePadded<AtomicU64>,
    /// Under the lock: the reading that the rate is measured from; a width of `NEVER` means none.
    measured_cycles: AtomicU64,
    measured_ns: AtomicU64,
    measured_width: AtomicU64,
    /// Under the lock: ns per cycle, times 2^24, as last measured; 0 if not measured yet.
    rate: AtomicU64,
    trust: AtomicU8,
    /// When to query the kernel next, on the system clock.
    query_at_ns: AtomicU64,
    faults: AtomicU64,
    /// Under the lock: the number of faults that have not expired as of `faults_at_ns`.
    strikes: AtomicU64,
    /// Under the lock: when strikes were last counted, on the system clock.
    faults_at_ns: AtomicU64,
    last_fault: AtomicU8,
    source: S,
}

impl<S: Source> Clock<S> {
    const_new! {
        pub(crate) fn new(source: S) -> Self {
            Self {
                current: AtomicU64::new(0),
                slots: [Slot::new(), Slot::new()],
                writer: CachePadded(AtomicU64::new(UNLOCKED)),
                measured_cycles: AtomicU64::new(0),
                measured_ns: AtomicU64::new(0),
                measured_width: AtomicU64::new(NEVER),
                rate: AtomicU64::new(0),
                trust: AtomicU8::new(Trust::Unknown as u8),
                query_at_ns: AtomicU64::new(QUERY_AFTER_NS),
                faults: AtomicU64::new(0),
                strikes: AtomicU64::new(0),
                faults_at_ns: AtomicU64::new(0),
                last_fault: AtomicU8::new(0),
                source,
            }
        }
    }

    /// Returns the present time, ns.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        // Read (1)
        // ORDERING: Acquire; pairs with the Release in `publish`, which publishes the slot.
        let generation = self.current.load(Ordering::Acquire);
        let [begin_cycles, begin_ns, pace] = self.slot(generation).words();
        if pace != 0 {
            // Read (2)
            let since = self.source.cycles().wrapping_sub(begin_cycles);
            // Read (3)
            // ORDERING: Relaxed; after the Acquires in `words`, see there.
            if since < u64::from(pace as u32) && self.current.load(Ordering::Relaxed) == generation {
                return begin_ns + line(since, pace >> 32);
            }
        }
        self.now_ns_outside()
    }

    /// Returns the present time, ns, as [`now_ns`](Self::now_ns) does, from the segment that the
    /// calling thread has kept. Takes half of the instructions.
    #[inline]
    pub(crate) fn now_ns_by(&self, kept: &Kept) -> u64 {
        match self.now_ns_of(kept) {
            Some(now_ns) => now_ns,
            None => self.now_ns_anew(kept),
        }
    }

    /// Returns the present time, ns, unless the kept segment is over. Calls no function, so the
    /// caller need not save registers.
    #[inline]
    pub(crate) fn now_ns_of(&self, kept: &Kept) -> Option<u64> {
        // Read (2)
        let since = self.source.cycles().wrapping_sub(kept.begin_cycles.get());
        // Read (3)
        // ORDERING: Relaxed; after the Acquires in `words`, see there. As a later load of this
        // thread it returns no older generation than the one that was kept.
        if since < kept.cycles.get() && self.current.load(Ordering::Relaxed) == kept.generation.get() {
            return Some(kept.show(kept.begin_ns.get() + line(since, kept.rate.get())));
        }
        None
    }

    /// Reads the time, and keeps the present segment.
    #[cold]
    #[inline(never)]
    fn now_ns_anew(&self, kept: &Kept) -> u64 {
        let now_ns = self.now_ns();
        // Read (1)
        // ORDERING: Acquire; as in `now_ns`.
        let generation = self.current.load(Ordering::Acquire);
        kept.keep(generation, self.slot(generation).words());
        kept.show(now_ns)
    }

    /// The rare cases of `now_ns`: a generation that has changed, the system clock, a segment that
    /// is over.
    #[cold]
    #[inline(never)]
    fn now_ns_outside(&self) -> u64 {
        // The loop repeats only after another thread's publication, of which there is one per
        // millisecond, or after another thread's overtaking, and that thread has returned its time
        // by then.
        loop {
            // Read (1)
            // ORDERING: Acquire; as in `now_ns`.
            let generation = self.current.load(Ordering::Acquire);
            let segment = self.slot(generation).read();
            // Read (2)
            let shown_ns = segment.show(&self.source);
            // Read (3)
            if !self.is_current(generation) {
                continue;
            }
            if let Some(shown_ns) = shown_ns {
                return shown_ns;
            }
            // Read (4)
            match self.write() {
                None => {
                    let end_ns = segment.end_ns();
                    // Overtake (1)
                    let system_ns = self.source.system_ns();
                    if system_ns.saturating_sub(end_ns) <= OVERTAKE_AFTER_NS {
                        return end_ns;
                    }
                    // Overtake (2)
                    if self.overtake(generation) {
                        // Overtake (3)
                        return system_ns;
                    }
                }
                Some(writer) if self.is_current(generation) => return writer.renew(generation),
                Some(_has_renewed) => {}
            }
        }
    }

    /// Compares both clocks, and from time to time queries the kernel whether it trusts the
    /// counter. Returns the present time, ns, as [`now_ns_by`](Self::now_ns_by) does.
    ///
    /// To be called at events that do not depend on this clock.
    pub(crate) fn check_by(&self, kept: &Kept) -> u64 {
        kept.show(self.check())
    }

    fn check(&self) -> u64 {
        let (shown_ns, system_ns) = (self.now_ns(), self.source.system_ns());
        // ORDERING: Relaxed; only the value counts.
        if system_ns >= self.query_at_ns.load(Ordering::Relaxed) {
            self.query(system_ns);
        }
        if system_ns.saturating_sub(shown_ns) <= SEGMENT_NS {
            return shown_ns;
        }
        // Either this thread lost its processor between the two readings, or the counter stands
        // still.
        if let Some(writer) = self.write() {
            writer.suspect();
        }
        self.now_ns()
    }

    /// Queries the kernel whether it trusts the counter. The result takes effect at the next
    /// renewal.
    #[cold]
    fn query(&self, system_ns: u64) {
        // ORDERING: Relaxed; two threads that both query get the same result.
        self.query_at_ns.store(system_ns.saturating_add(QUERY_EVERY_NS), Ordering::Relaxed);
        let (from, to) = match (self.trust(), self.source.is_trusted()) {
            (Trust::Unknown, true) => (Trust::Unknown, Trust::Granted),
            (Trust::Unknown, false) => (Trust::Unknown, Trust::Denied),
            (Trust::Granted, false) => (Trust::Granted, Trust::Withdrawn),
            (Trust::Granted, true) => return,
            (Trust::Withdrawn | Trust::Denied, _) => {
                // ORDERING: Relaxed; only the value counts.
                self.query_at_ns.store(NEVER, Ordering::Relaxed);
                return;
            }
        };
        // ORDERING: Relaxed, both; only the value counts. The exchange fails if a renewal has
        // denied trust for good meanwhile.
        let _ = self.trust.compare_exchange(from as u8, to as u8, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns whether the clock is read from the counter at present.
    pub(crate) fn is_fast(&self) -> bool {
        // ORDERING: Acquire; as in `now_ns`. For telemetry, so an older generation does no harm.
        matches!(self.slot(self.current.load(Ordering::Acquire)).read(), Segment::Counter { .. })
    }

    /// Returns how often the counter failed while it was used, or while it was measured to be used.
    #[inline]
    pub(crate) fn faults(&self) -> u64 {
        // ORDERING: Relaxed; a plain count.
        self.faults.load(Ordering::Relaxed)
    }

    /// Returns the last fault, and whether the clock stopped using the counter because of it.
    pub(crate) fn last_fault(&self) -> Option<(Fault, bool)> {
        // ORDERING: Relaxed; only reported.
        let last = self.last_fault.load(Ordering::Relaxed);
        let fault = Fault::ALL.into_iter().find(|fault| *fault as u8 == last)?;
        Some((fault, self.trust() == Trust::Denied))
    }

    /// Makes the next `check` query the kernel.
    #[cfg(test)]
    pub(crate) fn query_again(&self) {
        // ORDERING: Relaxed; only the value counts.
        self.query_at_ns.store(0, Ordering::Relaxed);
    }

    #[inline]
    fn slot(&self, generation: u64) -> &Slot {
        &self.slots[generation as usize & 1]
    }

    /// Read (3), the generation.
    fn is_current(&self, generation: u64) -> bool {
        // ORDERING: Relaxed; after the Acquires in `words`, see there.
        self.current.load(Ordering::Relaxed) == generation
    }

    /// Overtake (2).
    fn overtake(&self, generation: u64) -> bool {
        let after_next = generation.wrapping_add(2);
        // ORDERING: AcqRel; the Release pairs with the Acquire in Read (1) of the thread that
        // renews next, whose reading of the clocks comes after the caller's. As a read-modify-write
        // it leaves the slot published. Relaxed if the generation is over: it is read again.
        self.current.compare_exchange(generation, after_next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn trust(&self) -> Trust {
        // ORDERING: Relaxed; only the value counts.
        let trust = self.trust.load(Ordering::Relaxed);
        let all = [Trust::Unknown, Trust::Granted, Trust::Withdrawn];
        all.into_iter().find(|known| *known as u8 == trust).unwrap_or(Trust::Denied)
    }
}
