//! The rings of a runtime, one a thread that runs tasks, and what such a thread notes down in its
//! own.
//!
//! Shape: a lane a worker, a lane a spare thread (a worker that is stuck goes on writing to its own
//! while a spare stands in for it, so that the two polls do not mix), one for threads that are no
//! workers, one for the sentinel. A lane's ring is made when its writer is claimed, on the thread
//! that will write it.
//!
//! Who writes: each lane, its thread; the lane of the others, whoever gets its lock at once. Who
//! reads: `drain`.
//!
//! Invariants: *Off costs a load*: every note first loads one flag of the runtime's, and a ring
//! that nobody has noted anything down in takes no memory. *Nobody waits*: a thread outside that
//! finds the lock taken counts what it did not note, and goes on. *Its own clock*: times are those
//! of the caller, which has read the clock anyway. *On while anybody wants it*: because it was
//! switched on, or because a recording holds it on.

use std::cell::{Cell, OnceCell};
use std::sync::OnceLock;

use volt_shim::{Arc, AtomicBool, AtomicU64, CachePadded, Mutex, Ordering};
use volt_telemetry::recording::event::{Event, Outcome, ParkTarget, Reason};
use volt_telemetry::recording::flush::{Head, Track};
use volt_telemetry::recording::record::{Record, saturating_u32};

use super::anchor::anchor;
use super::ring::{Ring, RingWriter};
use crate::stats::counting;

/// Whether a runtime notes anything down. The flag that every writer loads first.
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
}

/// Who wants that things are noted down.
struct Wanted {
    is_switched_on: bool,
    holds: u32,
}

/// Keeps a recorder on while it lives.
pub(crate) struct Hold(Arc<Recorder>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.want(|wanted| wanted.holds -= 1);
    }
}

/// One thread's records.
struct Lane {
    track: Track,
    /// Made by the first claim.
    ring: OnceLock<Arc<Ring>>,
}

impl Recorder {
    /// The lanes of so many workers and spare threads, `capacity` records each.
    pub(crate) fn new(workers: usize, spares: usize, capacity: usize, is_on: bool) -> Arc<Self> {
        let index = |index: usize| u16::try_from(index).expect("config::MAX_WORKERS is far below");
        let tracks = (0..workers).map(|at| Track::Worker { index: index(at) });
        let tracks = tracks.chain((0..spares).map(|at| Track::Spare { index: index(at) }));
        let tracks = tracks.chain([Track::Outside, Track::Sentinel]);
        Arc::new(Self {
            flag: Flag(Arc::new(CachePadded(AtomicBool::new(is_on)))),
            lanes: tracks.map(|track| Lane { track, ring: OnceLock::new() }).collect(),
            capacity,
            outside: Mutex::new(None),
            outside_missed: AtomicU64::new(0),
            wanted: Mutex::new(Wanted { is_switched_on: is_on, holds: 0 }),
        })
    }

    /// The handle of one thread.
    pub(crate) fn handle(self: &Arc<Self>, track: Track) -> RecorderHandle {
        RecorderHandle { flag: self.flag(), recorder: self.clone(), track, writer: OnceCell::new() }
    }

    /// Records that each lane holds.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether anything is noted down.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.flag.is_on()
    }

    /// The same, for who asks often.
    pub(crate) fn flag(&self) -> Flag {
        self.flag.clone()
    }

    /// Switches all lanes on or off, at any time; each thread sees it soon. While a recording holds
    /// them on they stay on.
    pub(crate) fn switch(&self, is_on: bool) {
        self.want(|wanted| wanted.is_switched_on = is_on);
    }

    /// On, until the hold is dropped and nobody else wants it.
    pub(crate) fn hold(self: &Arc<Self>) -> Hold {
        self.want(|wanted| wanted.holds += 1);
        Hold(self.clone())
    }

    fn want(&self, change: impl FnOnce(&mut Wanted)) {
        let mut wanted = self.wanted.lock();
        change(&mut wanted);
        let is_on = wanted.is_switched_on || wanted.holds > 0;
        if is_on && !self.is_on() {
            // ORDERING: Relaxed; only counted. Nobody reads it meanwhile: a recording holds the
            // recorder on.
            self.outside_missed.store(0, Ordering::Relaxed);
        }
        // ORDERING: Relaxed; a switch. Under the lock, so that the last change is the one that
        // stays.
        self.flag.0.store(is_on, Ordering::Relaxed);
    }

    /// The writer of a lane, for the thread that it is of; `None` if there is no such lane, or its
    /// writer is in use.
    pub(crate) fn claim(&self, track: Track) -> Option<LaneWriter> {
        let lane = self.lanes.iter().find(|lane| lane.track == track)?;
        let writer = Ring::claim(lane.ring.get_or_init(|| Ring::new(self.capacity)))?;
        Some(LaneWriter { flag: self.flag(), writer, parked_at_ns: Cell::new(0) })
    }

    /// For threads that have no lane. Never waits: what comes while another thread notes something
    /// down is counted instead.
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
                // ORDERING: Relaxed; only counted.
                self.outside_missed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// What threads outside did not note down, since the recorder is on.
    pub(super) fn outside_missed(&self) -> u64 {
        // ORDERING: Relaxed; only counted.
        self.outside_missed.load(Ordering::Relaxed)
    }

    /// The rings by track, as far as there are any.
    pub(super) fn rings(&self) -> impl Iterator<Item = (Track, Option<&Arc<Ring>>)> {
        self.lanes.iter().map(|lane| (lane.track, lane.ring.get()))
    }

    /// What a recording of these lanes begins with.
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

/// What a thread notes down its events with.
pub(crate) struct LaneWriter {
    flag: Flag,
    writer: RingWriter,
    /// When the sleep that is going on began.
    parked_at_ns: Cell<u64>,
}

impl LaneWriter {
    /// Notes down what happened at `at_ns`. Where the event's kind is known to the compiler, what
    /// is left is a load, a branch and four stores.
    #[inline(always)]
    pub(crate) fn note(&self, at_ns: u64, event: Event) {
        if self.flag.is_on() {
            self.writer.push(Record::new(at_ns, event));
        }
    }

    /// A poll begins. `submitted_at_ns` is when the task was woken or spawned, by the same reading
    /// of the clock that its wake-up was noted down with: a reader finds the two together by
    /// it. A begin that was read before that (the end of the poll before) is moved behind it.
    #[inline]
    pub(crate) fn poll_begin(&self, now_ns: u64, task: u64, location: u16, submitted_at_ns: u64) {
        let at_ns = now_ns.max(submitted_at_ns);
        let delay_ns = saturating_u32(at_ns - submitted_at_ns);
        self.note(at_ns, Event::PollBegin { task, location, delay_ns });
    }

    /// A poll ends that lasted `took_ns`.
    #[inline]
    pub(crate) fn poll_end(&self, now_ns: u64, task: u64, location: u16, outcome: Outcome, took_ns: u64) {
        self.note(now_ns, Event::PollEnd { task, location, outcome, took_ns: saturating_u32(took_ns) });
    }

    /// The thread goes to sleep.
    pub(crate) fn park(&self, now_ns: u64, target: ParkTarget) {
        self.parked_at_ns.set(now_ns);
        self.note(now_ns, Event::Park { target });
    }

    /// It is awake again.
    pub(crate) fn unpark(&self, now_ns: u64, reason: Reason) {
        let slept_ns = match self.parked_at_ns.take() {
            // It went to sleep before anything was noted down.
            0 => 0,
            parked_at_ns => saturating_u32(now_ns.saturating_sub(parked_at_ns)),
        };
        self.note(now_ns, Event::Unpark { reason, slept_ns });
    }
}

/// A thread's way into its lane, which is claimed when there is something to note down.
pub(crate) struct RecorderHandle {
    flag: Flag,
    recorder: Arc<Recorder>,
    track: Track,
    writer: OnceCell<LaneWriter>,
}

impl RecorderHandle {
    /// Whether anything is noted down.
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.flag.is_on()
    }

    /// The writer, while anything is noted down; `None` also if another thread has it.
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

    /// Notes down what happens now, if anything is noted down at all.
    #[inline(always)]
    pub(crate) fn note(&self, at_ns: impl FnOnce() -> u64, event: impl FnOnce() -> Event) {
        if let Some(writer) = self.get() {
            writer.note(at_ns(), event());
        }
    }

    /// The thread goes to sleep.
    pub(crate) fn park(&self, now_ns: impl FnOnce() -> u64, target: ParkTarget) {
        match self.get() {
            Some(writer) => writer.park(now_ns(), target),
            // It wakes up from a sleep whose begin nobody noted down.
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
    fn nothing_is_noted_down_while_it_is_off() {
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
    fn a_sleep_says_how_long_it_lasted() {
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
    fn a_recorder_is_on_while_anybody_wants_it() {
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
        let [mut first, mut second] = [(); 2].map(|()| Drain::look_back(&recorder, 0));
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
