//! Merges the records of all tracks into one order: that of time.
//!
//! Each worker of a recorded runtime writes its own track, and a flush contains records of several
//! tracks. The export and the console's list of events need them in one order.
//!
//! # Protocol
//!
//! 1. A flush is added: its records are appended to the queues of their tracks.
//! 2. The earliest record of all tracks is returned, if the flushes are complete up to its time.
//!    Then no record of an earlier time follows, except one that arrived late (see *As made*).
//! 3. When the recording is over, the remaining records are returned, and then the numbers of those
//!    that are missing at the ends of tracks.
//!
//! Of two records with the same time, the begin of a poll comes last. A wake-up thus precedes the
//! poll that it led to.
//!
//! # Invariants
//!
//! * *Never backwards on a track*: a record whose time is before that of its predecessor on the
//!   track gets the predecessor's time.
//! * *As made*: on a track, records are returned in the order in which they were made. Between
//!   tracks, a record that arrived late may follow one with a later time; see COMPLETE UNTIL in
//!   `volt_telemetry::recording::flush`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::io::{Read, Seek};

use volt_telemetry::recording::event::Event;
use volt_telemetry::recording::flush::{Anchor, Flush, Mark};
use volt_telemetry::recording::record::Record;
use volt_telemetry::snapshot::Snapshot;

use crate::error::RecordingError;
use crate::reader::{Reader, Texts};

/// Maximum number of records and marks that wait for flushes to become complete. Beyond it, the
/// earliest item is returned nevertheless.
const MAX_HELD: usize = 8_000_000;
/// The same for snapshots. Usually one or two wait. A file can contain snapshots of 2 KB that take
/// 17 MB in memory.
const MAX_HELD_SNAPSHOTS: usize = 16;

/// One event of a recording, or a gap, snapshot or mark.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// The time, ns on the recorded program's clock.
    pub at_ns: u64,
    /// What happened.
    pub what: What,
}

/// The content of an [`Item`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum What {
    /// An event of a track.
    Event {
        /// The track: its index in
        /// [`Head::tracks`](volt_telemetry::recording::flush::Head::tracks).
        track: u32,
        /// What happened.
        event: Event,
    },
    /// Events of a track are missing here.
    Lost {
        /// The track.
        track: u32,
        /// How many are missing.
        count: u64,
    },
    /// The state of the runtime.
    Snapshot(Box<Snapshot>),
    /// Why this was recorded.
    Mark(Mark),
}

/// Merges flushes into one order. For flushes that arrive live; [`Timeline`] reads them from a
/// file.
#[derive(Debug, Default)]
pub struct Merge {
    lanes: BTreeMap<u32, Lane>,
    /// The first record of each lane that is not empty: time, whether it begins a poll, lane.
    firsts: BinaryHeap<Reverse<(u64, bool, u32)>>,
    /// Snapshots and marks, by time.
    others: BTreeMap<(u64, u64), What>,
    others_made: u64,
    complete_until_ns: u64,
    /// The end of the recording, once it is over.
    end_ns: Option<u64>,
    /// The number of records and marks that wait.
    held: usize,
    /// The number of snapshots that wait.
    held_snapshots: usize,
}

#[derive(Debug, Default)]
struct Lane {
    records: VecDeque<Entry>,
    last_ns: u64,
    /// Number of records lost since the last record.
    lost: u64,
}

#[derive(Debug)]
struct Entry {
    at_ns: u64,
    record: Record,
    /// Number of records lost before this one.
    lost: u64,
}

impl Lane {
    fn first(&self) -> Option<(u64, bool)> {
        let entry = self.records.front()?;
        Some((entry.at_ns, matches!(entry.record.event(), Event::PollBegin { .. })))
    }
}

impl Merge {
    /// Adds a flush. Flushes must be added in the order in which they were made.
    pub fn add(&mut self, flush: Flush) {
        for chunk in flush.chunks {
            let lane = self.lanes.entry(chunk.track).or_default();
            lane.lost = lane.lost.saturating_add(chunk.lost);
            let was_empty = lane.records.is_empty();
            self.held += chunk.records.len();
            for record in chunk.records {
                lane.last_ns = lane.last_ns.max(record.at_ns());
                let lost = std::mem::take(&mut lane.lost);
                lane.records.push_back(Entry { at_ns: lane.last_ns, record, lost });
            }
            if was_empty && let Some((at_ns, is_poll)) = lane.first() {
                self.firsts.push(Reverse((at_ns, is_poll, chunk.track)));
            }
        }
        self.held += flush.marks.len();
        self.held_snapshots += usize::from(flush.snapshot.is_some());
        let snapshot = flush.snapshot.map(|snapshot| (snapshot.at_ns, What::Snapshot(snapshot)));
        let marks = flush.marks.into_iter().map(|mark| (mark.at_ns, What::Mark(mark)));
        for (at_ns, what) in marks.chain(snapshot) {
            self.others.insert((at_ns, self.others_made), what);
            self.others_made += 1;
        }
        self.complete_until_ns = self.complete_until_ns.max(flush.complete_until_ns);
    }

    /// Returns the next item, if the flushes are complete up to its time, or if too many items
    /// wait.
    pub fn next_item(&mut self) -> Option<Item> {
        let is_full = self.held > MAX_HELD || self.held_snapshots > MAX_HELD_SNAPSHOTS;
        let until_ns = if is_full { u64::MAX } else { self.complete_until_ns };
        let first = self.firsts.peek().map(|Reverse(first)| *first);
        let other_ns = self.others.first_key_value().map(|((at_ns, _), _)| *at_ns);
        if let Some(other_ns) = other_ns
            && other_ns <= until_ns
            && first.is_none_or(|(at_ns, ..)| other_ns <= at_ns)
        {
            let ((at_ns, _), what) = self.others.pop_first()?;
            match what {
                What::Snapshot(_) => self.held_snapshots -= 1,
                _ => self.held -= 1,
            }
            return Some(Item { at_ns, what });
        }
        if first.is_none() {
            return self.lost_at_the_end();
        }
        let (at_ns, _, track) = first.filter(|(at_ns, ..)| *at_ns <= until_ns)?;
        let lane = self.lanes.get_mut(&track)?;
        let entry = lane.records.front_mut()?;
        let count = std::mem::take(&mut entry.lost);
        if count > 0 {
            // The record itself comes next, since its place in `firsts` is unchanged.
            return Some(Item { at_ns, what: What::Lost { track, count } });
        }
        let event = entry.record.event();
        lane.records.pop_front();
        self.held -= 1;
        self.firsts.pop();
        if let Some((at_ns, is_poll)) = lane.first() {
            self.firsts.push(Reverse((at_ns, is_poll, track)));
        }
        Some(Item { at_ns, what: What::Event { track, event } })
    }

    /// Returns the gap at the end of a track, if the recording is over.
    fn lost_at_the_end(&mut self) -> Option<Item> {
        let at_ns = self.end_ns?;
        while let Some((track, Lane { lost: count, .. })) = self.lanes.pop_first() {
            if count > 0 {
                return Some(Item { at_ns, what: What::Lost { track, count } });
            }
        }
        None
    }

    /// Ends the recording: no item has to wait any more.
    pub fn finish(&mut self) {
        let lanes = self.lanes.values().map(|lane| lane.last_ns);
        let others = self.others.last_key_value().map(|((at_ns, _), _)| *at_ns);
        let last_ns = lanes.chain(others).max().unwrap_or(0);
        self.end_ns.get_or_insert(last_ns.max(self.complete_until_ns));
        self.complete_until_ns = u64::MAX;
    }
}

/// The items of a recording in order of time, from the position of its reader on.
///
/// ```no_run
/// use volt_recording::reader::Reader;
/// use volt_recording::timeline::Timeline;
///
/// let mut reader = Reader::open("stall.voltrec".as_ref())?;
/// let mut timeline = Timeline::new(&mut reader);
/// while let Some(item) = timeline.next_item() {
///     println!("{} {:?}", item.at_ns, item.what);
/// }
/// if let Some(error) = timeline.broke() {
///     eprintln!("{error}");
/// }
/// # Ok::<(), volt_recording::error::RecordingError>(())
/// ```
#[derive(Debug)]
pub struct Timeline<'a, R> {
    reader: &'a mut Reader<R>,
    merge: Merge,
    is_over: bool,
    broke: Option<RecordingError>,
    first_anchor: Option<Anchor>,
    last_anchor: Option<Anchor>,
    last_ns: u64,
}

impl<'a, R: Read + Seek> Timeline<'a, R> {
    /// Creates a timeline from the reader's current position on.
    pub fn new(reader: &'a mut Reader<R>) -> Self {
        let first_anchor = reader.head().anchor;
        Self {
            reader,
            merge: Merge::default(),
            is_over: false,
            broke: None,
            first_anchor,
            last_anchor: None,
            last_ns: 0,
        }
    }

    /// Returns the next item. `None` at the end, or where the file is truncated or damaged: see
    /// [`broke`](Self::broke).
    pub fn next_item(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.merge.next_item() {
                self.last_ns = self.last_ns.max(item.at_ns);
                return Some(item);
            }
            if self.is_over {
                return None;
            }
            match self.reader.next_flush() {
                Ok(Some(flush)) => {
                    self.last_anchor = flush.anchor.or(self.last_anchor);
                    self.first_anchor = self.first_anchor.or(flush.anchor);
                    self.merge.add(flush);
                    continue;
                }
                Ok(None) => {}
                Err(error) => self.broke = Some(error),
            }
            self.is_over = true;
            self.merge.finish();
        }
    }

    /// Returns the texts for the numbers in the items returned so far.
    pub fn texts(&self) -> &Texts {
        self.reader.texts()
    }

    /// Returns how much of the file was read, 0..=1.
    pub fn progress_ratio(&self) -> f64 {
        self.reader.progress_ratio()
    }

    /// Returns the error if reading ended before the end of the recording.
    pub fn broke(&self) -> Option<&RecordingError> {
        self.broke.as_ref()
    }

    /// Returns the readings of the clocks at the beginning and at the end, as far as the file was
    /// read.
    pub fn anchors(&self) -> (Option<Anchor>, Option<Anchor>) {
        (self.first_anchor, self.last_anchor)
    }

    /// Returns the latest time of the items returned so far, ns.
    pub fn last_ns(&self) -> u64 {
        self.last_ns
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use volt_telemetry::recording::flush::Chunk;

    use super::*;

    fn hit(at_ns: u64, task: u64) -> Record {
        Record::new(at_ns, Event::LifoHit { task })
    }

    fn chunk(track: u32, lost: u64, records: impl IntoIterator<Item = Record>) -> Chunk {
        Chunk { track, lost, records: records.into_iter().collect() }
    }

    fn flush(complete_until_ns: u64, chunks: impl IntoIterator<Item = Chunk>) -> Flush {
        Flush { complete_until_ns, chunks: chunks.into_iter().collect(), ..Flush::default() }
    }

    fn times(merge: &mut Merge) -> Vec<u64> {
        std::iter::from_fn(|| merge.next_item()).map(|item| item.at_ns).collect()
    }

    #[test]
    fn events_that_others_may_precede_wait() {
        let mut merge = Merge::default();
        merge.add(flush(10, [chunk(0, 0, [hit(5, 1), hit(12, 2)]), chunk(1, 0, [hit(4, 3)])]));
        assert_eq!(times(&mut merge), [4, 5]);
        merge.add(flush(20, [chunk(1, 0, [hit(11, 4)])]));
        assert_eq!(times(&mut merge), [11, 12]);
        merge.add(flush(20, [chunk(1, 0, [hit(21, 5)])]));
        assert_eq!(merge.next_item(), None);
        merge.finish();
        assert_eq!(times(&mut merge), [21]);
    }

    #[test]
    fn a_wake_up_precedes_the_poll_at_the_same_time() {
        let begin = Record::new(7, Event::PollBegin { task: 1, location: 0, delay_ns: 0 });
        let wake =
            Record::new(7, Event::Wake { task: 1, location: 0, by: volt_telemetry::recording::event::Waker::Task });
        let mut merge = Merge::default();
        merge.add(flush(9, [chunk(0, 0, [begin]), chunk(1, 0, [wake])]));
        let first = merge.next_item().unwrap().what;
        assert!(matches!(first, What::Event { track: 1, event: Event::Wake { .. } }), "{first:?}");
    }

    #[test]
    fn a_record_with_an_earlier_time_gets_its_predecessors_time() {
        let mut merge = Merge::default();
        merge.add(flush(99, [chunk(0, 0, [hit(7, 1), hit(3, 2), hit(8, 3)])]));
        assert_eq!(times(&mut merge), [7, 7, 8]);
    }

    #[test]
    fn losses_are_reported_at_their_position() {
        let mut merge = Merge::default();
        merge.add(flush(9, [chunk(3, 2, [])]));
        merge.add(flush(9, [chunk(3, 1, [hit(5, 1)]), chunk(4, 6, [])]));
        let lost = |at_ns, track, count| Item { at_ns, what: What::Lost { track, count } };
        let items: Vec<_> = std::iter::from_fn(|| merge.next_item()).collect();
        assert_eq!((items.len(), &items[0]), (2, &lost(5, 3, 3)));
        merge.add(flush(9, [chunk(3, 7, [])]));
        assert_eq!(merge.next_item(), None, "more records of the track may follow");
        merge.finish();
        let items: Vec<_> = std::iter::from_fn(|| merge.next_item()).collect();
        assert_eq!(items, [lost(9, 3, 7), lost(9, 4, 6)]);
    }

    #[test]
    fn very_many_tracks_end_in_gaps_after_all_other_items() {
        const TRACKS: u32 = 100_000;
        let mut merge = Merge::default();
        let marks = vec![Mark { at_ns: 12, ..Mark::default() }];
        merge.add(Flush { marks, ..flush(9, (0..TRACKS).map(|track| chunk(track, 1, []))) });
        merge.finish();
        merge.finish();
        assert_eq!(times(&mut merge), vec![12; 1 + TRACKS as usize]);
    }

    #[test]
    fn snapshots_and_marks_have_their_place_too() {
        let mut merge = Merge::default();
        let snapshot = Some(Box::new(Snapshot { at_ns: 6, ..Snapshot::default() }));
        let marks = vec![Mark { at_ns: 4, ..Mark::default() }];
        merge.add(Flush { snapshot, marks, ..flush(9, [chunk(0, 0, [hit(5, 1), hit(7, 2)])]) });
        assert_eq!(times(&mut merge), [4, 5, 6, 7]);
    }

    #[test]
    fn snapshots_of_flushes_that_never_complete_do_not_pile_up() {
        let (mut merge, mut waiting) = (Merge::default(), 0);
        for at_ns in 0..4 * MAX_HELD_SNAPSHOTS as u64 {
            let snapshot = Some(Box::new(Snapshot { at_ns: 1_000 + at_ns, ..Snapshot::default() }));
            merge.add(Flush { snapshot, ..Flush::default() });
            waiting = waiting + 1 - times(&mut merge).len();
            assert!(waiting <= MAX_HELD_SNAPSHOTS, "{waiting} snapshots wait");
        }
        merge.finish();
        assert_eq!(times(&mut merge).len(), waiting);
    }

    proptest! {
        // A failing case is printed; no file is written.
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn merged_records_keep_their_track_order_and_never_go_back(
            tracks in prop::collection::vec(prop::collection::vec(0_u64..50, 0..30), 1..5),
            cuts in prop::collection::vec(0_u64..60, 0..6),
        ) {
            // The times of each track, in the order of writing. A few equal their predecessor.
            let mut left: Vec<VecDeque<(u64, u64)>> = tracks.iter().map(|steps| {
                let mut at_ns = 0;
                steps.iter().enumerate().map(|(index, step)| {
                    at_ns = if step % 7 == 0 { at_ns } else { at_ns + step % 5 };
                    (at_ns, index as u64)
                }).collect()
            }).collect();
            let (mut cuts, mut merge, mut items) = (cuts, Merge::default(), Vec::new());
            cuts.sort_unstable();
            for cut_ns in cuts {
                // Complete until the cut, and one more record of each track.
                let chunks: Vec<_> = left.iter_mut().enumerate().map(|(track, queue)| {
                    let early = queue.iter().filter(|(at_ns, _)| *at_ns <= cut_ns).count();
                    let taken = queue.drain(..(early + 1).min(queue.len()));
                    chunk(track as u32, 0, taken.map(|(at_ns, task)| hit(at_ns, task)))
                }).collect();
                merge.add(flush(cut_ns, chunks));
                items.extend(std::iter::from_fn(|| merge.next_item()));
            }
            let rest = left.iter().enumerate().map(|(track, queue)| {
                chunk(track as u32, 0, queue.iter().map(|(at_ns, task)| hit(*at_ns, *task)))
            }).collect::<Vec<_>>();
            merge.add(flush(0, rest));
            merge.finish();
            items.extend(std::iter::from_fn(|| merge.next_item()));

            prop_assert!(items.is_sorted_by_key(|item| item.at_ns), "{items:?}");
            let mut next = vec![0; tracks.len()];
            for item in items {
                let What::Event { track, event: Event::LifoHit { task } } = item.what else { panic!("{item:?}") };
                prop_assert_eq!(task, next[track as usize]);
                next[track as usize] += 1;
            }
            prop_assert_eq!(next, tracks.iter().map(|steps| steps.len() as u64).collect::<Vec<_>>());
        }
    }
}
