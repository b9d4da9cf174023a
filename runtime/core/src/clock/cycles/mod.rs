//! The process's clock, read from the processor's cycle counter where that can be trusted.
//!
//! Terms. The *counter* is the processor's cycle counter (`rdtsc`); reading it costs a third of
//! `Instant::now`, and the clock is read at each poll. The *system clock* is `Instant`, in ns; it
//! is the authority. A *segment* says how the clock is read for the next millisecond: from the
//! counter, as the straight line that starts at `begin_ns` at `begin_cycles`, or from the system
//! clock.
//!
//! An ordinary case. A worker reads the clock. The counter lies inside the present segment, so the
//! time is `begin_ns + (cycles − begin_cycles) · rate`. A moment later another worker reads a value
//! behind the segment's end. It takes the writer's lock, reads both clocks, sees that the counter
//! still does what it did, and publishes the next segment, which starts at the system clock's time.
//!
//! The race. A reader may hold a segment while another thread publishes the next one, even the
//! next but one, into the same slot. And between the two threads, none may see time go backwards.
//!
//! A writer may lose its processor while it has the lock, for as long as the kernel likes. Then
//! readers *overtake* it: they show the system clock, and see to it that its segment, which began
//! before what they have shown, is never published.
//!
//! Shape. Two slots, used in turn; the low bit of `current`, the generation, names the one in use.
//! Written under the writer's lock, which is only ever tried; read by everybody, by loads. The
//! generation goes on by one when a segment is published, and by two, which names the same slot,
//! when a reader overtakes.
//!
//! Read, by any thread:
//! 1. load the generation, and its slot;
//! 2. read the counter;
//! 3. inside the segment, and the generation is still the same: done;
//! 4. else, if nobody has the lock: take it and renew. If somebody has it: the segment's end, for
//!    `OVERTAKE_AFTER_NS` on the system clock; after that Overtake.
//!
//! Overtake, by a reader of a segment that is over, while somebody has the lock:
//! 1. read the system clock;
//! 2. exchange the generation, if it is still the one of Read (1), for the one after next; if it is
//!    not, read again;
//! 3. show what (1) read.
//!
//! Renew, under the lock:
//! 1. read both clocks, as close together as can be;
//! 2. examine: since the last measurement the counter went as far as the rate says. The tolerance
//!    is 1/512, four times what an NTP daemon may slew a clock by. Measure the rate anew over the
//!    last 10 ms or more, so that the clock follows a slew;
//! 3. make the next segment. It does not begin before the end of the former one (*Ordered*). If
//!    that is ahead of the system clock, it runs slower, so that both meet at its end;
//! 4. write it to the other slot, then exchange the generation that it follows for the next one;
//! 5. if that fails, the writer was overtaken: write to the same slot, which nobody has been led to
//!    yet, that the system clock is read for a millisecond from now, and exchange the generation
//!    that was found for the next one. If that fails too, a reader overtook in between and may have
//!    shown more than the segment's end, so do it again; after `LATE_TRIES` with a segment that is
//!    long over, which shows nothing.
//!
//! A fault. The counter may step back (a suspended machine, a checkpoint restored), jump ahead (a
//! virtual machine on another host), stop, or lose the kernel's trust. A step back or ahead leaves
//! the segment, so the next reader finds it at Read (3). A counter that stops leaves nothing; only
//! the system clock can tell, so `check` compares the two. Who calls it goes by events, not by this
//! clock: each turn of the driver, each park, every few ticks of a worker (`CLOCK_CHECK_TICKS`),
//! each check of the sentinel. After a fault the system clock is read; the counter is measured
//! anew, and used again unless it fails the measurement, or has failed more than [`MAX_FAULTS`]
//! times of which none is forgiven; one is every [`FORGIVE_NS`], so a machine that is suspended now
//! and then keeps its counter. A counter that the kernel does not trust is not used again. Each
//! fault is counted and reported.
//!
//! Invariants.
//! *Ordered*: a segment shows no time behind its end, and the next one none before that end. So
//! threads that read different segments agree, whatever the counter did between them. What a reader
//! shows that overtakes lies behind the end of its segment, and before what any later one shows: a
//! segment of the counter that is published after it was made after it, since Renew (4) fails for
//! those that were not, and the system clock does not go back.
//! *Whole*: nobody uses a mixture of two segments: whoever reads a word of the generation after
//! next sees at Read (3) that its own is over.
//! *Near*: within a microsecond of the system clock, while the counter does what it did; after a
//! fault, within two milliseconds as soon as it is found.
//! *Never waits*: no reader waits for another thread. A writer that loses its processor holds the
//! clock at the end of the segment for two milliseconds at most.
//!
//! Bounds. Within one segment the clock is as monotone as the counter: two processors may differ by
//! what their counters do, and by how far they reorder the reading, some tens of ns. A counter that
//! steps back by less than the segment's age shows up to a millisecond again, until the segment
//! ends.
//!
//! Trusted: on x86-64, if the processor says that the counter runs at one speed in all its states,
//! and if the kernel itself keeps time by it, which it does only after it has compared the counters
//! of all processors.
//!
//! Rejected: `quanta`, which calibrates once, for up to 200 ms of the program's start, and then
//! drifts by whatever the error was. A line for seconds instead of a segment for a millisecond: it
//! has to be corrected under its readers, and a fault is shown for as long as it holds. A seqlock
//! of one slot: readers would wait for a writer that lost its processor. The greatest time shown,
//! in a word that all threads write: exact, and a shared cache line at each poll.

use volt_shim::{AtomicU8, AtomicU64, Ordering, const_new};

mod segment;
pub(crate) mod source;
mod writer;

use segment::{NEVER, SEGMENT_NS, Segment, Slot, line};
use source::Source;

#[cfg(all(test, loom))]
mod loom_models;
#[cfg(all(test, not(loom)))]
mod tests;

/// How far behind the end of its segment the system clock is when readers overtake a writer.
const OVERTAKE_AFTER_NS: u64 = 2 * SEGMENT_NS;
/// When the kernel is asked first whether it trusts the counter; short programs never ask.
const ASK_AFTER_NS: u64 = 10_000_000;
/// How long after an answer it is asked again.
const ASK_EVERY_NS: u64 = 10_000_000_000;
/// "Nobody" in `writer`.
const NOBODY: u64 = 0;

/// What was wrong with the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Fault {
    SteppedBack = 1,
    /// It stopped, or ran slower.
    FellBehind,
    RanAhead,
    /// The kernel keeps time by another one, or does not say.
    Distrusted,
    /// It has no speed that a counter can have.
    Unusable,
}

impl Fault {
    const ALL: [Self; 5] = [Self::SteppedBack, Self::FellBehind, Self::RanAhead, Self::Distrusted, Self::Unusable];

    /// For the log.
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

/// Whether the counter may be used. Written under the lock, but for what the kernel answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Trust {
    /// The kernel was not asked yet.
    Unknown,
    Granted,
    /// It was granted, and the kernel takes it back. At the next renewal that is a fault.
    Withdrawn,
    /// For good.
    Denied,
}

/// See the header of this file.
#[repr(C, align(64))]
pub(crate) struct Clock<S> {
    /// The generation.
    current: AtomicU64,
    slots: [Slot; 2],
    /// The lock: who writes, as the number of forks before it + 1.
    writer: AtomicU64,
    /// Under the lock: the reading that the rate is measured from; a width of `NEVER` = none.
    measured_cycles: AtomicU64,
    measured_ns: AtomicU64,
    measured_width: AtomicU64,
    /// Under the lock: ns a cycle, times 2^24, as last measured; 0 = it was not measured yet.
    rate: AtomicU64,
    trust: AtomicU8,
    /// When the kernel is to be asked, on the system clock.
    ask_at_ns: AtomicU64,
    faults: AtomicU64,
    /// Under the lock: of these, the ones that are not forgiven at `struck_at_ns`.
    strikes: AtomicU64,
    /// Under the lock: when strikes were last counted, on the system clock.
    struck_at_ns: AtomicU64,
    last_fault: AtomicU8,
    source: S,
}

impl<S: Source> Clock<S> {
    const_new! {
        pub(crate) fn new(source: S) -> Self {
            Self {
                current: AtomicU64::new(0),
                slots: [Slot::new(), Slot::new()],
                writer: AtomicU64::new(NOBODY),
                measured_cycles: AtomicU64::new(0),
                measured_ns: AtomicU64::new(0),
                measured_width: AtomicU64::new(NEVER),
                rate: AtomicU64::new(0),
                trust: AtomicU8::new(Trust::Unknown as u8),
                ask_at_ns: AtomicU64::new(ASK_AFTER_NS),
                faults: AtomicU64::new(0),
                strikes: AtomicU64::new(0),
                struck_at_ns: AtomicU64::new(0),
                last_fault: AtomicU8::new(0),
                source,
            }
        }
    }

    /// Now, ns.
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

    /// The same with the cases that are rare: another generation, the system clock, a segment that
    /// is over.
    #[cold]
    #[inline(never)]
    fn now_ns_outside(&self) -> u64 {
        // Each further round is another thread's publication, of which there is one a millisecond,
        // or another thread that overtook, which has shown its time by then.
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

    /// Compares both clocks, and asks the kernel from time to time whether it trusts the counter.
    /// Returns now, ns.
    ///
    /// To be called by whoever comes by, at events that do not hang on this clock.
    pub(crate) fn check(&self) -> u64 {
        let (shown_ns, system_ns) = (self.now_ns(), self.source.system_ns());
        // ORDERING: Relaxed; only the value counts.
        if system_ns >= self.ask_at_ns.load(Ordering::Relaxed) {
            self.ask(system_ns);
        }
        if system_ns.saturating_sub(shown_ns) <= SEGMENT_NS {
            return shown_ns;
        }
        // This thread lost its processor between the two, or the counter stands still.
        if let Some(writer) = self.write() {
            writer.suspect();
        }
        self.now_ns()
    }

    /// Asks the kernel whether it trusts the counter. What it says holds from the next renewal on.
    #[cold]
    fn ask(&self, system_ns: u64) {
        // ORDERING: Relaxed; two threads that both ask get the same answer.
        self.ask_at_ns.store(system_ns.saturating_add(ASK_EVERY_NS), Ordering::Relaxed);
        let (from, to) = match (self.trust(), self.source.is_trusted()) {
            (Trust::Unknown, true) => (Trust::Unknown, Trust::Granted),
            (Trust::Unknown, false) => (Trust::Unknown, Trust::Denied),
            (Trust::Granted, false) => (Trust::Granted, Trust::Withdrawn),
            (Trust::Granted, true) => return,
            (Trust::Withdrawn | Trust::Denied, _) => {
                // ORDERING: Relaxed; only the value counts.
                self.ask_at_ns.store(NEVER, Ordering::Relaxed);
                return;
            }
        };
        // ORDERING: Relaxed, both; only the value counts. It fails if a renewal has denied it
        // meanwhile, for good.
        let _ = self.trust.compare_exchange(from as u8, to as u8, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whether the clock is read from the counter now.
    pub(crate) fn is_fast(&self) -> bool {
        // ORDERING: Acquire; as in `now_ns`. Told to people: a generation too old is none too few.
        matches!(self.slot(self.current.load(Ordering::Acquire)).read(), Segment::Counter { .. })
    }

    /// How often something was wrong with the counter while it was used, or measured to be used.
    #[inline]
    pub(crate) fn faults(&self) -> u64 {
        // ORDERING: Relaxed; only counted.
        self.faults.load(Ordering::Relaxed)
    }

    /// What was wrong last, and whether that was the end of it.
    pub(crate) fn last_fault(&self) -> Option<(Fault, bool)> {
        // ORDERING: Relaxed; told to people.
        let last = self.last_fault.load(Ordering::Relaxed);
        let fault = Fault::ALL.into_iter().find(|fault| *fault as u8 == last)?;
        Some((fault, self.trust() == Trust::Denied))
    }

    /// Has the kernel asked at the next occasion.
    #[cfg(test)]
    pub(crate) fn ask_again(&self) {
        // ORDERING: Relaxed; only the value counts.
        self.ask_at_ns.store(0, Ordering::Relaxed);
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
