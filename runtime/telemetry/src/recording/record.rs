//! The 24-byte encoding of one event.
//!
//! A [`Record`] consists of three words. All records have the same size, so a ring of them needs no
//! bookkeeping, and the position of a half-written record is known:
//!
//! ```text
//! word 0   at_ns                                      64 bits: ns on the program's monotonic clock
//! word 1   subject                                    64 bits: a task's id, an incident's, a count
//! word 2   kind 8 | detail 8 | index 16 | amount 32   the kind; an enum that depends on the kind; a location or a worker;
//!                                                     ns or a count
//! ```
//!
//! An amount that does not fit is `u32::MAX`: 4.29 s *or more*. Index 0 is "unknown" for a
//! location.
//!
//! The workers create records with [`Record::new`], which the compiler reduces to three stores. The
//! thread that drains the rings reads them, and so do readers of recordings. [`Record::event`]
//! never fails: an unknown kind is [`Event::Unknown`].
//!
//! Invariant: NUMBERS ARE PERMANENT. The number of a kind is never reused for another kind, because
//! files contain it.
//!
//! Rejected:
//! * 16 bytes, with 32 bits of time and an additional record whenever these wrap. A window whose
//!   wrap record was overwritten cannot be read, and a poll has no room for its schedule delay. The
//!   saving is not measurable: a push takes about 1 ns either way, in rings of 16 KiB to 2 MiB.
//! * 32 bytes: a third more memory, with no additional field that is needed.
//! * Time in cycles: every reader would need the scale at every moment.

use super::event::{Ending, Event, Loss, Outcome, ParkTarget, Reason, Waker};

/// Number of words of a record.
pub const WORDS: usize = 3;
/// Number of bytes of a record.
pub const RECORD_BYTES: usize = WORDS * 8;

/// One event and its time.
///
/// ```
/// use volt_telemetry::recording::event::Event;
/// use volt_telemetry::recording::record::Record;
/// let record = Record::new(1_000, Event::Steal { victim: 3, count: 12 });
/// assert_eq!((record.at_ns(), record.event()), (1_000, Event::Steal { victim: 3, count: 12 }));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Record([u64; WORDS]);
/// The numbers of the kinds.
mod kind {
    pub(super) const POLL_BEGIN: u8 = 1;
    pub(super) const POLL_END: u8 = 2;
    pub(super) const WAKE: u8 = 3;
    pub(super) const SPAWN: u8 = 4;
    pub(super) const TASK_END: u8 = 5;
    pub(super) const LIFO_HIT: u8 = 6;
    pub(super) const LIFO_FLUSH: u8 = 7;
    pub(super) const STEAL: u8 = 8;
    pub(super) const STEAL_MISS: u8 = 9;
    pub(super) const SEARCH_BEGIN: u8 = 10;
    pub(super) const SEARCH_END: u8 = 11;
    pub(super) const PARK: u8 = 12;
    pub(super) const UNPARK: u8 = 13;
    pub(super) const GLOBAL_FETCH: u8 = 14;
    pub(super) const OVERFLOW: u8 = 15;
    pub(super) const BUDGET_EXHAUSTED: u8 = 16;
    pub(super) const COOP_YIELD: u8 = 17;
    pub(super) const DRIVER_IN: u8 = 18;
    pub(super) const DRIVER_OUT: u8 = 19;
    pub(super) const STALL: u8 = 20;
    pub(super) const REPLACE: u8 = 21;
    pub(super) const RETIRE: u8 = 22;
    pub(super) const RETURN: u8 = 23;
    pub(super) const PROCESS_START: u8 = 24;
    pub(super) const PROCESS_END: u8 = 25;
    pub(super) const MESSAGE_LOST: u8 = 26;
    pub(super) const PROCESS_RESTART: u8 = 27;
}

/// The fields of words 1 and 2.
#[derive(Clone, Copy)]
struct Fields {
    kind: u8,
    detail: u8,
    index: u16,
    amount: u32,
    subject: u64,
}

impl Fields {
    #[inline(always)]
    const fn of(kind: u8) -> Self {
        Self { kind, detail: 0, index: 0, amount: 0, subject: 0 }
    }
}

impl Event {
    /// Always inlined: where the variant is known, the compiler removes the match.
    #[inline(always)]
    fn fields(self) -> Fields {
        match self {
            Event::PollBegin { task, location, delay_ns } => {
                Fields { index: location, amount: delay_ns, subject: task, ..Fields::of(kind::POLL_BEGIN) }
            }
            Event::PollEnd { task, location, outcome, took_ns } => {
                Fields { kind: kind::POLL_END, detail: outcome as u8, index: location, amount: took_ns, subject: task }
            }
            Event::Wake { task, location, by } => {
                Fields { detail: by as u8, index: location, subject: task, ..Fields::of(kind::WAKE) }
            }
            Event::Spawn { task, location } => Fields { index: location, subject: task, ..Fields::of(kind::SPAWN) },
            Event::TaskEnd { task, outcome } => {
                Fields { detail: outcome as u8, subject: task, ..Fields::of(kind::TASK_END) }
            }
            Event::LifoHit { task } => Fields { subject: task, ..Fields::of(kind::LIFO_HIT) },
            Event::LifoFlush { task } => Fields { subject: task, ..Fields::of(kind::LIFO_FLUSH) },
            Event::Steal { victim, count } => Fields { index: victim, amount: count, ..Fields::of(kind::STEAL) },
            Event::StealMiss { victims } => Fields { amount: victims, ..Fields::of(kind::STEAL_MISS) },
            Event::SearchBegin => Fields::of(kind::SEARCH_BEGIN),
            Event::SearchEnd { is_hit } => Fields { detail: is_hit as u8, ..Fields::of(kind::SEARCH_END) },
            Event::Park { target } => Fields { detail: target as u8, ..Fields::of(kind::PARK) },
            Event::Unpark { reason, slept_ns } => {
                Fields { detail: reason as u8, amount: slept_ns, ..Fields::of(kind::UNPARK) }
            }
            Event::GlobalFetch { count } => Fields { amount: count, ..Fields::of(kind::GLOBAL_FETCH) },
            Event::Overflow { count } => Fields { amount: count, ..Fields::of(kind::OVERFLOW) },
            Event::BudgetExhausted => Fields::of(kind::BUDGET_EXHAUSTED),
            Event::CoopYield { task } => Fields { subject: task, ..Fields::of(kind::COOP_YIELD) },
            Event::DriverIn => Fields::of(kind::DRIVER_IN),
            Event::DriverOut { events, timers } => {
                Fields { amount: timers, subject: events, ..Fields::of(kind::DRIVER_OUT) }
            }
            Event::Stall { incident, worker } => Fields { index: worker, subject: incident, ..Fields::of(kind::STALL) },
            Event::Replace { worker } => Fields { index: worker, ..Fields::of(kind::REPLACE) },
            Event::Retire { worker } => Fields { index: worker, ..Fields::of(kind::RETIRE) },
            Event::Return => Fields::of(kind::RETURN),
            Event::ProcessStart { process, parent } => {
                Fields { amount: parent, subject: process, ..Fields::of(kind::PROCESS_START) }
            }
            Event::ProcessEnd { process, ending, steps } => {
                Fields { detail: ending as u8, amount: steps, subject: process, ..Fields::of(kind::PROCESS_END) }
            }
            Event::MessageLost { process, loss } => {
                Fields { detail: loss as u8, subject: process, ..Fields::of(kind::MESSAGE_LOST) }
            }
            Event::ProcessRestart { supervisor } => Fields { subject: supervisor, ..Fields::of(kind::PROCESS_RESTART) },
            Event::Unknown { kind, subject } => Fields { subject, ..Fields::of(kind) },
        }
    }
}

impl Record {
    /// Creates the record of an `event` that happened at `at_ns`.
    #[inline(always)]
    pub fn new(at_ns: u64, event: Event) -> Self {
        let Fields { kind, detail, index, amount, subject } = event.fields();
        let rest = u64::from(kind) | u64::from(detail) << 8 | u64::from(index) << 16 | u64::from(amount) << 32;
        Self([at_ns, subject, rest])
    }

    /// Returns the words, as stored in a ring.
    #[inline(always)]
    pub const fn words(self) -> [u64; WORDS] {
        self.0
    }

    /// Creates a record from its [`words`](Self::words).
    #[inline]
    pub const fn from_words(words: [u64; WORDS]) -> Self {
        Self(words)
    }

    /// Returns the bytes, as stored in a file: the words in little-endian order.
    pub fn to_bytes(self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        for (to, word) in bytes.chunks_exact_mut(8).zip(self.0) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Creates a record from its [bytes](Self::to_bytes).
    pub fn from_bytes(bytes: [u8; RECORD_BYTES]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        Self(std::array::from_fn(|index| u64::from_le_bytes(words[index])))
    }

    /// Returns when it happened: ns on the program's monotonic clock.
    #[inline]
    pub const fn at_ns(self) -> u64 {
        self.0[0]
    }

    /// Returns the event.
    pub fn event(self) -> Event {
        let [_, subject, rest] = self.0;
        let (kind, detail, index, amount) = (rest as u8, (rest >> 8) as u8, (rest >> 16) as u16, (rest >> 32) as u32);
        match kind {
            kind::POLL_BEGIN => Event::PollBegin { task: subject, location: index, delay_ns: amount },
            kind::POLL_END => {
                let outcome = Outcome::from_number(detail);
                Event::PollEnd { task: subject, location: index, outcome, took_ns: amount }
            }
            kind::WAKE => Event::Wake { task: subject, location: index, by: Waker::from_number(detail) },
            kind::SPAWN => Event::Spawn { task: subject, location: index },
            kind::TASK_END => Event::TaskEnd { task: subject, outcome: Outcome::from_number(detail) },
            kind::LIFO_HIT => Event::LifoHit { task: subject },
            kind::LIFO_FLUSH => Event::LifoFlush { task: subject },
            kind::STEAL => Event::Steal { victim: index, count: amount },
            kind::STEAL_MISS => Event::StealMiss { victims: amount },
            kind::SEARCH_BEGIN => Event::SearchBegin,
            kind::SEARCH_END => Event::SearchEnd { is_hit: detail != 0 },
            kind::PARK => Event::Park { target: ParkTarget::from_number(detail) },
            kind::UNPARK => Event::Unpark { reason: Reason::from_number(detail), slept_ns: amount },
            kind::GLOBAL_FETCH => Event::GlobalFetch { count: amount },
            kind::OVERFLOW => Event::Overflow { count: amount },
            kind::BUDGET_EXHAUSTED => Event::BudgetExhausted,
            kind::COOP_YIELD => Event::CoopYield { task: subject },
            kind::DRIVER_IN => Event::DriverIn,
            kind::DRIVER_OUT => Event::DriverOut { events: subject, timers: amount },
            kind::STALL => Event::Stall { incident: subject, worker: index },
            kind::REPLACE => Event::Replace { worker: index },
            kind::RETIRE => Event::Retire { worker: index },
            kind::RETURN => Event::Return,
            kind::PROCESS_START => Event::ProcessStart { process: subject, parent: amount },
            kind::PROCESS_END => {
                Event::ProcessEnd { process: subject, ending: Ending::from_number(detail), steps: amount }
            }
            kind::MESSAGE_LOST => Event::MessageLost { process: subject, loss: Loss::from_number(detail) },
            kind::PROCESS_RESTART => Event::ProcessRestart { supervisor: subject },
            kind => Event::Unknown { kind, subject },
        }
    }
}

/// Converts a time or a count to the width of a record: `u32::MAX` if it is that or more.
#[inline(always)]
pub const fn saturating_u32(value: u64) -> u32 {
    if value > u32::MAX as u64 { u32::MAX } else { value as u32 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Generates any event of any kind.
    fn any_event() -> impl Strategy<Value = Event> {
        let (word, index, amount) = (any::<u64>(), any::<u16>(), any::<u32>());
        let outcome = || prop::sample::select(Outcome::ALL);
        let polls = prop_oneof![
            (word, index, amount).prop_map(|(task, location, delay_ns)| Event::PollBegin { task, location, delay_ns }),
            (word, index, outcome(), amount).prop_map(|(task, location, outcome, took_ns)| Event::PollEnd {
                task,
                location,
                outcome,
                took_ns
            }),
            (word, index, prop::sample::select(Waker::ALL)).prop_map(|(task, location, by)| Event::Wake {
                task,
                location,
                by
            }),
            (word, index).prop_map(|(task, location)| Event::Spawn { task, location }),
            (word, outcome()).prop_map(|(task, outcome)| Event::TaskEnd { task, outcome }),
            word.prop_map(|task| Event::LifoHit { task }),
            word.prop_map(|task| Event::LifoFlush { task }),
            word.prop_map(|task| Event::CoopYield { task }),
        ];
        let work = prop_oneof![
            (index, amount).prop_map(|(victim, count)| Event::Steal { victim, count }),
            amount.prop_map(|victims| Event::StealMiss { victims }),
            Just(Event::SearchBegin),
            any::<bool>().prop_map(|is_hit| Event::SearchEnd { is_hit }),
            amount.prop_map(|count| Event::GlobalFetch { count }),
            amount.prop_map(|count| Event::Overflow { count }),
            Just(Event::BudgetExhausted),
        ];
        let sleep = prop_oneof![
            prop::sample::select(ParkTarget::ALL).prop_map(|target| Event::Park { target }),
            (prop::sample::select(Reason::ALL), amount)
                .prop_map(|(reason, slept_ns)| Event::Unpark { reason, slept_ns }),
            Just(Event::DriverIn),
            (word, amount).prop_map(|(events, timers)| Event::DriverOut { events, timers }),
        ];
        let stuck = prop_oneof![
            (word, index).prop_map(|(incident, worker)| Event::Stall { incident, worker }),
            index.prop_map(|worker| Event::Replace { worker }),
            index.prop_map(|worker| Event::Retire { worker }),
            Just(Event::Return),
        ];
        let processes =
            prop_oneof![
                (word, amount).prop_map(|(process, parent)| Event::ProcessStart { process, parent }),
                (word, prop::sample::select(Ending::ALL), amount)
                    .prop_map(|(process, ending, steps)| Event::ProcessEnd { process, ending, steps }),
                (word, prop::sample::select(Loss::ALL))
                    .prop_map(|(process, loss)| Event::MessageLost { process, loss }),
                word.prop_map(|supervisor| Event::ProcessRestart { supervisor }),
            ];
        prop_oneof![polls, work, sleep, stuck, processes]
    }

    proptest! {
        // proptest prints the failing case; it must not leave a file behind.
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn an_event_comes_back_as_it_was(at_ns: u64, event in any_event()) {
            let record = Record::new(at_ns, event);
            prop_assert_eq!((record.at_ns(), record.event()), (at_ns, event));
            prop_assert_eq!(Record::from_bytes(record.to_bytes()), record);
            prop_assert_eq!(Record::from_words(record.words()), record);
        }

        #[test]
        fn arbitrary_words_decode_to_an_event(words: [u64; WORDS]) {
            let record = Record::from_words(words);
            prop_assert_eq!(record.at_ns(), words[0]);
            // Decoding does not panic, and encoding the event again does not change it.
            let event = record.event();
            prop_assert_eq!(Record::new(words[0], event).event(), event);
        }
    }

    #[test]
    fn the_bytes_of_a_record_follow_the_documented_layout() {
        let event = Event::PollEnd { task: 7, location: 0x0102, outcome: Outcome::Woken, took_ns: 0x0a0b_0c0d };
        let bytes = Record::new(5, event).to_bytes();
        assert_eq!(bytes[..16], [5, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[16..], [2, 2, 0x02, 0x01, 0x0d, 0x0c, 0x0b, 0x0a]);
    }

    #[test]
    fn kinds_of_a_newer_version_are_unknown_and_kept() {
        let record = Record::from_words([1, 9, 200]);
        assert_eq!(record.event(), Event::Unknown { kind: 200, subject: 9 });
    }

    #[test]
    fn a_value_out_of_range_becomes_the_largest() {
        assert_eq!(saturating_u32(u64::from(u32::MAX) - 1), u32::MAX - 1);
        assert_eq!(saturating_u32(u64::from(u32::MAX) + 1), u32::MAX);
    }
}
