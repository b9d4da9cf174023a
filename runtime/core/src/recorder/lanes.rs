//! The lanes of a runtime's flight recorder: one ring for each thread that runs tasks, and the
//! functions by which such a thread records its events.
//!
//! There is a *lane* for each worker and for each spare thread, one for all threads that are not
//! workers, and one for the sentinel. A spare has its own lane because the stuck worker for which
//! it stands in continues to write to its own, and the two polls must not mix. A lane's ring is
//! created when its writer is claimed, on the thread that will write it.
//!
//! Each lane is written by its thread. The lane for the other threads is written by any thread that
//! gets its lock without waiting. `drain` reads them.
//!
//! Invariants:
//! * *Off costs a load*: every function that records first loads one flag of the runtime, and a
//!   ring takes no memory until a thread records into it.
//! * *No thread waits*: a thread without a lane that finds the lock taken counts the event as
//!   missed and continues.
//! * *Its own clock*: times are those of the caller, which has read the clock anyway.
//! * *On while needed*: the recorder is on if it was switched on, or if a recording keeps it on.

use std::cell::{Cell, OnceCell};
use std::sync::OnceLock;

use volt_shim::{Arc, AtomicBool, AtomicU64, CachePadded, Mutex, Ordering};
use volt_telemetry::recording::black_box::Layout;
use volt_telemetry::recording::event::{Event, Outcome, ParkTarget, Reason};
use volt_telemetry::recording::flush::{Head, Track};
use volt_telemetry::recording::record::{Record, saturating_u32};

use super::anchor::anchor;
use super::black_box::space::BlackBox;
use super::ring::{Ring, RingWriter};
use crate::stats::counting;

/// Whether a runtime records events. Every writer loads this flag first.
#[derive(Clone)]
pub(crate) struct Flag(Arc<CachePadded<AtomicBool>>);

impl Flag {
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        // ORDERING: Relaxed; a switch, which publishes nothing.
        counting::IS_ON && self.0.load(Ordering::Relaxed)
    }
}

/// See the header of this file.
pub(crate) struct Recorder {
    flag: Flag,
    lanes: Box<[Lane]>,
    capacity: usize,
    outside: Mutex<Option<LaneWriter>>,
    outside_missed: AtomicU64,
    wanted: Mutex<Wanted>,
    /// The file that contains the rings and the cells; `None` = they are on the heap.
    black_box: Option<Arc<BlackBox>>,
}

/// The reasons to record events.
struct Wanted {
    is_switched_on: bool,
    holds: u32,
}

/// Keeps a recorder on until it is dropped.
pub(crate) struct Hold(Arc<Recorder>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.want(|wanted| wanted.holds -= 1);
    }
}

/// The records of one thread.
struct Lane {
    track: Track,
    /// Created by the first claim.
    ring: OnceLock<Arc<Ring>>,
}

impl Recorder {
    /// Creates the lanes of `workers` workers and `spares` spare threads, with `capacity` records
    /// each.
    #[cfg(test)]
    pub(crate) fn new(workers: usize, spares: usize, capacity: usize, is_on: bool) -> Arc<Self> {
        Self::placed(Layout { workers, spares, ring_records: capacity }, is_on, None)
    }

    /// Creates the lanes of this many workers and spares. Their rings are in the black box, if
    /// there is one.
    pub(crate) fn placed(layout: Layout, is_on: bool, black_box: Option<Arc<BlackBox>>) -> Arc<Self> {
        let tracks = Track::all(layout.workers, layout.spares);
        Arc::new(Self {
            black_box,
            flag: Flag(Arc::new(CachePadded(AtomicBool::new(is_on)))),
            lanes: tracks.map(|track| Lane { track, ring: OnceLock::new() }).collect(),
            capacity: layout.ring_records,
            outside: Mutex::new(None),
            outside_missed: AtomicU64::new(0),
            wanted: Mutex::new(Wanted { is_switched_on: is_on, holds: 0 }),
        })
    }

    /// Returns the handle of one thread.
    pub(crate) fn handle(self: &Arc<Self>, track: Track) -> RecorderHandle {
        RecorderHandle { flag: self.flag(), recorder: self.clone(), track, writer: OnceCell::new() }
    }

    /// Returns the file with the cells and the rings, if one is wanted.
    pub(crate) fn black_box(&self) -> Option<&Arc<BlackBox>> {
        self.black_box.as_ref()
    }

    /// Returns the number of records per lane.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns whether events are recorded.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.flag.is_on()
    }

    /// Returns the flag, for threads that check it often.
    pub(crate) fn flag(&self) -> Flag {
        self.flag.clone()
    }

    /// Switches all lanes on or off, at any time; each thread sees the change soon. The lanes stay
    /// on while a recording keeps them on.
    pub(crate) fn switch(&self, is_on: bool) {
        self.want(|wanted| wanted.is_switched_on = is_on);
    }

    /// Keeps the recorder on until the hold is dropped. It then stays on if there is another
    /// reason.
    pub(crate) fn hold(self: &Arc<Self>) -> Hold {
        self.want(|wanted| wanted.holds += 1);
        Hold(self.clone())
    }

    fn want(&self, change: impl FnOnce(&mut Wanted)) {
        let mut wanted = self.wanted.lock();
        change(&mut wanted);
        let is_on = wanted.is_switched_on || wanted.holds > 0;
        if is_on && !self.is_on() {
            // ORDERING: Relaxed; a plain count. No thread reads it meanwhile, since a recording
            // keeps the recorder on.
            self.outside_missed.store(0, Ordering::Relaxed);
        }
        // ORDERING: Relaxed; a switch. Stored under the lock, so that the last change prevails.
        self.flag.0.store(is_on, Ordering::Relaxed);
    }

    /// Claims the writer of a lane, for the lane's thread. Returns `None` if there is no such lane,
    /// or if its writer is in use.
    pub(crate) fn claim(&self, track: Track) -> Option<LaneWriter> {
        let (index, lane) = self.lanes.iter().enumerate().find(|(_, lane)| lane.track == track)?;
        let writer = Ring::claim(lane.ring.get_or_init(|| self.new_ring(index)))?;
        Some(LaneWriter { flag: self.flag(), writer, parked_at_ns: Cell::new(0) })
    }

    fn new_ring(&self, lane: usize) -> Arc<Ring> {
        let placed = self.black_box.as_ref().and_then(|black_box| black_box.ring(lane));
        placed.map_or_else(|| Ring::new(self.capacity), |words| Ring::placed(words, self.capacity))
    }

    /// Records an event of a thread without a lane. Never waits: an event that comes while another
    /// thread records is counted as missed.
    pub(crate) fn note_outside(&self, at_ns: u64, event: Event) {
        if !self.is_on() {
            return;
        }
        match self.outside.try_lock() {
            Some(mut outside) => {
                if outside.is_none() {
                    *outside = self.claim(Track::Outside);
                }
                outside.iter().for_each(|writer| writer.note(at_ns, event));
            }
            None => {
                // ORDERING: Relaxed; a plain count.
                self.outside_missed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns how many events of threads outside were missed since the recorder was switched on.
    pub(super) fn outside_missed(&self) -> u64 {
        // ORDERING: Relaxed; a plain count.
        self.outside_missed.load(Ordering::Relaxed)
    }

    /// Returns the lanes with their rings, as far as these exist.
    pub(super) fn rings(&self) -> impl Iterator<Item = (Track, Option<&Arc<Ring>>)> {
        self.lanes.iter().map(|lane| (lane.track, lane.ring.get()))
    }

    /// Returns the head of a recording of these lanes.
    pub(crate) fn head(&self, program: &str, runtime: &str) -> Head {
        Head {
            pid: std::process::id(),
            program: program.to_owned(),
            runtime: runtime.to_owned(),
            volt: env!("CARGO_PKG_VERSION").to_owned(),
            tracks: self.lanes.iter().map(|lane| lane.track).collect(),
            ring_capacity: u32::try_from(self.capacity.next_power_of_two()).unwrap_or(u32::MAX),
            anchor: Some(anchor()),
            ..Head::default()
        }
    }
}

/// Records the events of one thread.
pub(crate) struct LaneWriter {
    flag: Flag,
    writer: RingWriter,
    /// When the present sleep began.
    parked_at_ns: Cell<u64>,
}

impl LaneWriter {
    /// Records what happened at `at_ns`. If the kind of the event is a constant, this is a load, a
    /// branch and four stores.
    #[inline(always)]
    pub(crate) fn note(&self, at_ns: u64, event: Event) {
        if self.flag.is_on() {
            self.writer.push(Record::new(at_ns, event));
        }
    }

    /// Records the begin of a poll.
    ///
    /// `submitted_at_ns` is when the task was woken or spawned. It is the same reading of the clock
    /// as in the record of that wake-up, by which a reader matches the two. If `now_ns` was read
    /// before it (at the end of the previous poll), the begin is moved to `submitted_at_ns`.
    #[inline]
    pub(crate) fn poll_begin(&self, now_ns: u64, task: u64, location: u16, submitted_at_ns: u64) {
        let at_ns = now_ns.max(submitted_at_ns);
        let delay_ns = saturating_u32(at_ns - submitted_at_ns);
        self.note(at_ns, Event::PollBegin { task, location, delay_ns });
    }

    /// Records the end of a poll that lasted `took_ns`.
    #[inline]
    pub(crate) fn poll_end(&self, now_ns: u64, task: u64, location: u16, outcome: Outcome, took_ns: u64) {
        self.note(now_ns, Event::PollEnd { task, location, outcome, took_ns: saturating_u32(took_ns) });
    }

    /// Records that the thread goes to sleep.
    pub(crate) fn park(&self, now_ns: u64, target: ParkTarget) {
        self.parked_at_ns.set(now_ns);
        self.note(now_ns, Event::Park { target });
    }

    /// Records that the thread is awake again.
    pub(crate) fn unpark(&self, now_ns: u64, reason: Reason) {
        let slept_ns = match self.parked_at_ns.take() {
            // It went to sleep before anything was recorded.
            0 => 0,
            parked_at_ns => saturating_u32(now_ns.saturating_sub(parked_at_ns)),
        };
        self.note(now_ns, Event::Unpark { reason, slept_ns });
    }
}

/// A thread's access to its lane, which it claims when there is something to record.
pub(crate) struct RecorderHandle {
    flag: Flag,
    recorder: Arc<Recorder>,
    track: Track,
    writer: OnceCell<LaneWriter>,
}

impl RecorderHandle {
    /// Returns whether events are recorded.
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.flag.is_on()
    }

    /// Returns the writer while events are recorded; `None` also if another thread has it.
    #[inline(always)]
    pub(crate) fn get(&self) -> Option<&LaneWriter> {
        if self.is_on() { self.writer() } else { None }
    }

    #[inline]
    fn writer(&self) -> Option<&LaneWriter> {
        self.writer.get().or_else(|| self.claim())
    }

    #[cold]
    fn claim(&self) -> Option<&LaneWriter> {
        let writer = self.recorder.claim(self.track)?;
        Some(self.writer.get_or_init(|| writer))
    }

    /// Records an event of this moment, if events are recorded at all.
    #[inline(always)]
    pub(crate) fn note(&self, at_ns: impl FnOnce() -> u64, event: impl FnOnce() -> Event) {
        if let Some(writer) = self.get() {
            writer.note(at_ns(), event());
        }
    }

    /// Records that the thread goes to sleep.
    pub(crate) fn park(&self, now_ns: impl FnOnce() -> u64, target: ParkTarget) {
        match self.get() {
            Some(writer) => writer.park(now_ns(), target),
            // It will wake up from a sleep whose begin was not recorded.
            None => _ = self.writer.get().map(|writer| writer.parked_at_ns.set(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use volt_telemetry::recording::event::Waker;

    use super::super::drain::{Drain, Names};
    use super::super::ring::RingReader;
    use super::*;

    const FIRST: Track = Track::Worker { index: 0 };

    struct Nameless;

    impl Names for Nameless {
        fn location(&self, _number: u16) -> Option<String> {
            None
        }

        fn task(&self, _id: u64) -> Option<String> {
            None
        }

        fn incident(&self, _number: u64) -> Option<String> {
            None
        }
    }

    fn ring_of(recorder: &Recorder, track: Track) -> Arc<Ring> {
        recorder.rings().find(|(found, _)| *found == track).and_then(|(_, ring)| ring.cloned()).expect("claimed")
    }

    fn events(recorder: &Recorder, track: Track) -> Vec<(u64, Event)> {
        let mut records = Vec::new();
        RingReader::from_oldest(&ring_of(recorder, track)).copy_into(&mut records);
        records.iter().map(|record| (record.at_ns(), record.event())).collect()
    }

    #[test]
    fn nothing_is_recorded_while_the_recorder_is_off() {
        let recorder = Recorder::new(1, 0, 8, false);
        let writer = recorder.claim(FIRST).unwrap();
        writer.note(1, Event::SearchBegin);
        recorder.note_outside(1, Event::SearchBegin);
        recorder.switch(true);
        assert!(recorder.is_on());
        writer.note(2, Event::SearchBegin);
        recorder.switch(false);
        writer.note(3, Event::SearchBegin);
        assert_eq!(events(&recorder, FIRST), [(2, Event::SearchBegin)]);
        assert!(recorder.rings().all(|(track, ring)| ring.is_some() == (track == FIRST)), "no ring for nothing");
    }

    #[test]
    fn a_lane_has_one_writer_and_can_be_claimed_again() {
        let recorder = Recorder::new(2, 1, 8, true);
        let writer = recorder.claim(FIRST).unwrap();
        assert!(recorder.claim(FIRST).is_none());
        assert!(recorder.claim(Track::Spare { index: 0 }).is_some());
        assert!(recorder.claim(Track::Spare { index: 1 }).is_none(), "there is no such lane");
        writer.note(1, Event::SearchBegin);
        drop(writer);
        recorder.claim(FIRST).unwrap().note(2, Event::SearchEnd { is_hit: true });
        assert_eq!(events(&recorder, FIRST).len(), 2);
    }

    #[test]
    fn a_poll_does_not_begin_before_the_task_was_submitted() {
        let recorder = Recorder::new(1, 0, 8, true);
        let writer = recorder.claim(FIRST).unwrap();
        writer.poll_begin(100, 7, 1, 60);
        writer.poll_begin(100, 7, 1, 105);
        writer.poll_begin(u64::MAX, 7, 1, 0);
        let begin = |delay_ns| Event::PollBegin { task: 7, location: 1, delay_ns };
        assert_eq!(events(&recorder, FIRST), [(100, begin(40)), (105, begin(0)), (u64::MAX, begin(u32::MAX))]);
    }

    #[test]
    fn a_sleep_event_has_its_duration() {
        let recorder = Recorder::new(1, 0, 8, true);
        let writer = recorder.claim(FIRST).unwrap();
        writer.park(100, ParkTarget::Futex);
        writer.unpark(350, Reason::Notified);
        assert_eq!(events(&recorder, FIRST)[1].1, Event::Unpark { reason: Reason::Notified, slept_ns: 250 });
    }

    #[test]
    fn a_handle_claims_its_lane_with_the_first_event() {
        let recorder = Recorder::new(1, 0, 8, false);
        let handle = recorder.handle(FIRST);
        handle.park(|| 100, ParkTarget::Futex);
        handle.note(|| 100, || Event::SearchBegin);
        assert!(recorder.rings().all(|(_, ring)| ring.is_none()), "no ring for nothing");
        recorder.switch(true);
        handle.park(|| 200, ParkTarget::Futex);
        recorder.switch(false);
        handle.park(|| 300, ParkTarget::Futex);
        recorder.switch(true);
        handle.writer().unwrap().unpark(400, Reason::Notified);
        assert_eq!(events(&recorder, FIRST)[1].1, Event::Unpark { reason: Reason::Notified, slept_ns: 0 });
        assert!(recorder.handle(FIRST).get().is_none(), "the lane has its writer");
    }

    #[test]
    fn a_recorder_is_on_while_a_client_needs_it() {
        let recorder = Recorder::new(1, 0, 8, false);
        let (first, second) = (recorder.hold(), recorder.hold());
        drop(first);
        assert!(recorder.is_on());
        recorder.switch(false);
        assert!(recorder.is_on(), "a recording goes on");
        recorder.switch(true);
        drop(second);
        assert!(recorder.is_on(), "it was switched on meanwhile");
        recorder.switch(false);
        assert!(!recorder.is_on());
    }

    #[test]
    fn threads_outside_share_a_lane_and_do_not_wait_for_each_other() {
        let recorder = Recorder::new(1, 0, 1024, true);
        let wake = |task| Event::Wake { task, location: 0, by: Waker::Outside };
        recorder.note_outside(5, wake(1));
        let held = recorder.outside.lock();
        recorder.note_outside(6, wake(2));
        drop(held);
        let [mut first, mut second] = [(); 2].map(|()| Drain::since(&recorder, 0));
        let mut late = Drain::from_now(&recorder);
        for drain in [&mut first, &mut second] {
            let flush = drain.collect(&Nameless);
            assert_eq!((flush.records(), flush.lost()), (1, 1), "each recording is told");
        }
        assert_eq!([&mut first, &mut late].map(|drain| drain.collect(&Nameless).lost()), [0, 0]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..100).for_each(|n| recorder.note_outside(n, wake(n))));
            }
        });
        let noted = events(&recorder, Track::Outside).len() as u64;
        assert_eq!(noted + recorder.outside_missed(), 402);
    }

    #[test]
    fn a_head_names_the_lanes_in_their_order() {
        let recorder = Recorder::new(2, 1, 5000, true);
        let head = recorder.head("server", "main");
        let expected = [FIRST, Track::Worker { index: 1 }, Track::Spare { index: 0 }, Track::Outside, Track::Sentinel];
        assert_eq!((head.tracks.as_slice(), head.ring_capacity), (&expected[..], 8192));
        assert!(head.anchor.is_some_and(|anchor| anchor.unix_ns.is_some()));
    }
}
