//! Collects the records of all lanes into a recording. A *lane* is the ring of one thread, which
//! overwrites its oldest records.
//!
//! A thread of an observer has a [`Drain`] and calls [`Drain::collect`] repeatedly while something
//! is recorded, every [`Drain::next_in`]. The result is a *flush*: the records since the previous
//! one. A drain since an earlier time begins with the records that are already in the rings. After
//! a trigger, its first flush must be collected immediately, since the events of interest are being
//! overwritten.
//!
//! An ordinary case: a worker has polled a new task twice since the previous flush. The drain
//! copies the four records from the worker's ring, looks up the spawn location and the name of the
//! task, and returns the records with these texts.
//!
//! The race: the worker goes on writing while its ring is copied, and may overwrite records before
//! they are copied. The ring's reader detects that and counts them as lost.
//!
//! Protocol:
//! 1. read the clock: events before that time are complete with this flush;
//! 2. copy every ring, as its reader does; no worker is stopped, and no lock is shared with one;
//! 3. look up the text of each number that is new;
//! 4. read all clocks, for the anchor.
//!
//! Invariants:
//! * *Once*: each record is in one flush of a drain.
//! * *Counted*: the number of records that a ring has lost to this drain is stored in the chunk
//!   before which they are missing.
//! * *Bounded*: a flush contains at most the contents of all rings, and the number of names looked
//!   up per flush is limited.

use std::time::Duration;

use volt_shim::Arc;
use volt_telemetry::recording::event::{Event, UNKNOWN_LOCATION};
use volt_telemetry::recording::flush::{Chunk, Flush, Table, Text, Track};

use super::anchor::anchor;
use super::lanes::Recorder;
use super::ring::{Ring, RingReader};
use crate::clock;

/// Names of tasks and processes that are looked up per flush. The others are looked up when those
/// tasks are polled again.
const NAMES_PER_FLUSH_MAX: usize = 256;
/// Places for tasks whose names were looked up, a power of two. If two tasks share a place, their
/// names may be written more than once.
const TASKS_SENT: usize = 16_384;
/// The same for processes.
const PROCESSES_SENT: usize = 1024;
/// Words of a bitmap with one bit per location number.
const LOCATION_WORDS: usize = (u16::MAX as usize + 1) / 64;
/// Shortest and longest wait between two flushes.
const WAIT: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));

/// Finds the texts for the numbers in records. Called on the observer's thread; must not delay a
/// worker for longer than a look-up.
pub(crate) trait Names {
    /// Returns a spawn location, `file:line:column`.
    fn location(&self, number: u16) -> Option<String>;
    /// Returns a task's name, if it has one and is alive.
    fn task(&self, id: u64) -> Option<String>;
    /// Returns an incident as one line of text.
    fn incident(&self, number: u64) -> Option<String>;
    /// Returns a process's name and kind, if it is alive.
    fn process(&self, _number: u64) -> Option<String> {
        None
    }
}

/// The position of one recording in all rings.
pub(crate) struct Drain {
    recorder: Arc<Recorder>,
    lanes: Vec<LaneDrain>,
    /// Older records are left out.
    from_ns: u64,
    collected_at_ns: Option<u64>,
    wait: Duration,
    /// The number of missed events of threads outside when this drain last read it. Each of several
    /// recordings counts them.
    outside_missed: u64,
    sent: Sent,
}

struct LaneDrain {
    track: Track,
    /// `None` while no thread has claimed the lane.
    reader: Option<RingReader>,
}

/// Numbers whose texts were already looked up. Read for every poll, so no hash is computed.
struct Sent {
    /// One bit per location.
    locations: Box<[u64]>,
    /// For each value of a task id's last bits, the task looked up last; 0 = none.
    tasks: Box<[u64]>,
    /// The same for processes, by the last bits of their index.
    processes: Box<[Option<u64>]>,
}

impl Drain {
    /// Creates a drain that begins with the records in the rings from `from_ns` on.
    pub(crate) fn since(recorder: &Arc<Recorder>, from_ns: u64) -> Self {
        // It is unknown when the missed events happened, so all since the recorder was switched on
        // count.
        Self::new(recorder, from_ns, RingReader::from_oldest, 0)
    }

    /// Creates a drain that begins now.
    pub(crate) fn from_now(recorder: &Arc<Recorder>) -> Self {
        Self::new(recorder, 0, RingReader::from_now, recorder.outside_missed())
    }

    fn new(recorder: &Arc<Recorder>, from_ns: u64, reader: fn(&Arc<Ring>) -> RingReader, outside_missed: u64) -> Self {
        let lanes = recorder.rings().map(|(track, ring)| LaneDrain { track, reader: ring.map(reader) }).collect();
        let (sent, recorder) = (Sent::new(), recorder.clone());
        Self { recorder, lanes, from_ns, collected_at_ns: None, wait: WAIT.0, outside_missed, sent }
    }

    /// Collects the records since the last call.
    pub(crate) fn collect(&mut self, names: &dyn Names) -> Flush {
        // (1)
        let complete_until_ns = clock::now_ns();
        // (2)
        let mut chunks = Vec::new();
        for (place, (lane, (_, ring))) in self.lanes.iter_mut().zip(self.recorder.rings()).enumerate() {
            let Some(ring) = ring else { continue };
            // A ring that was created after this drain: all of its records are new.
            let reader = lane.reader.get_or_insert_with(|| RingReader::from_start(ring));
            let mut records = Vec::new();
            let mut lost = reader.copy_into(&mut records).lost;
            if lane.track == Track::Outside {
                let missed = self.recorder.outside_missed();
                lost += missed.saturating_sub(std::mem::replace(&mut self.outside_missed, missed));
            }
            let old = records.iter().take_while(|record| record.at_ns() < self.from_ns).count();
            records.drain(..old);
            if !records.is_empty() || lost > 0 {
                chunks.push(Chunk { track: place as u32, lost, records });
            }
        }
        self.adapt_interval(complete_until_ns, &chunks);
        // (3)
        let texts = self.sent.texts(&chunks, names);
        // (4)
        let anchor = anchor();
        Flush { at_ns: anchor.at_ns, complete_until_ns, anchor: Some(anchor), texts, chunks, ..Flush::default() }
    }

    /// Returns how long the observer may wait before it collects again: until the busiest ring is
    /// half full at its last rate.
    pub(crate) fn next_in(&self) -> Duration {
        self.wait
    }

    fn adapt_interval(&mut self, now_ns: u64, chunks: &[Chunk]) {
        let half = self.lanes.iter().filter_map(|lane| lane.reader.as_ref()).map(RingReader::capacity).min();
        let half = half.unwrap_or(0) as u64 / 2;
        let most = chunks.iter().map(|chunk| chunk.records.len() as u64 + chunk.lost).max().unwrap_or(0);
        if let Some(before_ns) = self.collected_at_ns.replace(now_ns) {
            let passed = Duration::from_nanos(now_ns.saturating_sub(before_ns));
            let half_full = passed.saturating_mul(u32::try_from(half).unwrap_or(u32::MAX));
            let wait = match u32::try_from(most) {
                Ok(0) => WAIT.1,
                Ok(most) => half_full / most,
                Err(_) => WAIT.0,
            };
            self.wait = wait.clamp(WAIT.0, WAIT.1);
        }
    }
}

impl Sent {
    fn new() -> Self {
        Self {
            locations: vec![0; LOCATION_WORDS].into(),
            tasks: vec![0; TASKS_SENT].into(),
            processes: vec![None; PROCESSES_SENT].into(),
        }
    }

    /// Returns the texts of the numbers in these chunks that were not looked up before.
    fn texts(&mut self, chunks: &[Chunk], names: &dyn Names) -> Vec<Text> {
        let (mut texts, mut asked) = (Vec::new(), 0);
        for record in chunks.iter().flat_map(|chunk| &chunk.records) {
            match record.event() {
                Event::PollBegin { task, location, .. }
                | Event::PollEnd { task, location, .. }
                | Event::Spawn { task, location } => {
                    if self.is_new_location(location) {
                        let text = names.location(location);
                        texts.extend(text.map(|text| Text::new(Table::Location, location.into(), text)));
                    }
                    let place = &mut self.tasks[task as usize % TASKS_SENT];
                    if *place != task && asked < NAMES_PER_FLUSH_MAX {
                        *place = task;
                        asked += 1;
                        texts.extend(names.task(task).map(|text| Text::new(Table::Task, task, text)));
                    }
                }
                Event::ProcessStart { process, .. }
                | Event::ProcessEnd { process, .. }
                | Event::MessageLost { process, .. }
                | Event::ProcessRestart { supervisor: process } => {
                    let place = &mut self.processes[(process >> 32) as usize % PROCESSES_SENT];
                    if *place != Some(process) && asked < NAMES_PER_FLUSH_MAX {
                        *place = Some(process);
                        asked += 1;
                        texts.extend(names.process(process).map(|text| Text::new(Table::Process, process, text)));
                    }
                }
                Event::Stall { incident, .. } => {
                    texts.extend(names.incident(incident).map(|text| Text::new(Table::Incident, incident, text)));
                }
                _ => {}
            }
        }
        texts
    }

    fn is_new_location(&mut self, location: u16) -> bool {
        let (word, bit) = (&mut self.locations[usize::from(location / 64)], 1 << (location % 64));
        let is_new = location != UNKNOWN_LOCATION && *word & bit == 0;
        *word |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::io::Cursor;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use volt_recording::chrome_trace;
    use volt_recording::reader::Reader;
    use volt_recording::writer::{MIN_FILE_BYTES, Settings, Writer};
    use volt_telemetry::recording::event::Outcome;
    use volt_telemetry::recording::record::Record;

    use super::*;

    const FIRST: Track = Track::Worker { index: 0 };
    const SECOND: Track = Track::Worker { index: 1 };

    /// Returns a name for everything, and keeps a list of the look-ups.
    #[derive(Default)]
    struct AllNames(RefCell<Vec<String>>);

    impl AllNames {
        fn answer(&self, name: String) -> Option<String> {
            self.0.borrow_mut().push(name.clone());
            Some(name)
        }
    }

    impl Names for AllNames {
        fn location(&self, number: u16) -> Option<String> {
            self.answer(format!("src/{number}.rs:1:1"))
        }

        fn task(&self, id: u64) -> Option<String> {
            self.answer(format!("task {id}"))
        }

        fn incident(&self, number: u64) -> Option<String> {
            self.answer(format!("incident {number}"))
        }
    }

    fn numbers(flush: &Flush) -> Vec<(u32, Vec<u64>)> {
        let of = |chunk: &Chunk| (chunk.track, chunk.records.iter().map(|record| record.at_ns()).collect());
        flush.chunks.iter().map(of).collect()
    }

    #[test]
    fn a_flush_has_the_records_of_every_lane_since_the_last_one() {
        let recorder = Recorder::new(2, 0, 8, true);
        let first = recorder.claim(FIRST).unwrap();
        first.note(1, Event::SearchBegin);
        let (mut back, mut now) = (Drain::since(&recorder, 0), Drain::from_now(&recorder));
        first.note(2, Event::SearchBegin);
        let names = AllNames::default();
        // Claimed only now.
        let second = recorder.claim(SECOND).unwrap();
        second.note(3, Event::SearchBegin);
        assert_eq!(numbers(&back.collect(&names)), [(0, vec![1, 2]), (1, vec![3])]);
        assert_eq!(numbers(&now.collect(&names)), [(0, vec![2]), (1, vec![3])]);
        second.note(4, Event::SearchBegin);
        let flush = back.collect(&names);
        assert_eq!(numbers(&flush), [(1, vec![4])]);
        assert!(flush.complete_until_ns <= flush.at_ns && flush.anchor.is_some());
        assert!(numbers(&back.collect(&names)).is_empty());
    }

    #[test]
    fn a_drain_omits_records_before_its_window_and_counts_losses() {
        let recorder = Recorder::new(1, 0, 8, true);
        let writer = recorder.claim(FIRST).unwrap();
        (0..4).for_each(|at_ns| writer.note(at_ns, Event::SearchBegin));
        let mut drain = Drain::since(&recorder, 2);
        let flush = drain.collect(&AllNames::default());
        assert_eq!((numbers(&flush), flush.lost()), (vec![(0, vec![2, 3])], 0));
        (10..30).for_each(|at_ns| writer.note(at_ns, Event::SearchBegin));
        let flush = drain.collect(&AllNames::default());
        assert_eq!((flush.records(), flush.lost()), (7, 13));
    }

    #[test]
    fn losses_on_a_newly_claimed_lane_count_from_its_first_record() {
        let recorder = Recorder::new(1, 0, 8, true);
        let mut drain = Drain::from_now(&recorder);
        let writer = recorder.claim(FIRST).unwrap();
        (0..20).for_each(|at_ns| writer.note(at_ns, Event::SearchBegin));
        assert_eq!(drain.collect(&AllNames::default()).lost(), 13);
    }

    #[test]
    fn names_are_requested_once() {
        let recorder = Recorder::new(1, 0, 1024, true);
        let writer = recorder.claim(FIRST).unwrap();
        let (mut drain, names) = (Drain::from_now(&recorder), AllNames::default());
        for round in 0..3 {
            writer.poll_begin(round, 7, 3, round);
            writer.poll_end(round, 7, 3, Outcome::Pending, 1);
            writer.poll_begin(round, 8, UNKNOWN_LOCATION, round);
            let texts = drain.collect(&names).texts.len();
            assert_eq!(texts, if round == 0 { 3 } else { 0 });
        }
        assert_eq!(*names.0.borrow(), ["src/3.rs:1:1", "task 7", "task 8"]);
    }

    #[test]
    fn the_clocks_of_an_anchor_advance_together() {
        let (before, after) = (anchor(), anchor());
        assert!(before.at_ns <= after.at_ns && before.monotonic_ns <= after.monotonic_ns);
        assert!(before.unix_ns.is_some() && before.cycles <= after.cycles);
    }

    #[test]
    fn a_busy_ring_is_collected_more_often() {
        let recorder = Recorder::new(1, 0, 1024, true);
        let writer = recorder.claim(FIRST).unwrap();
        let mut drain = Drain::from_now(&recorder);
        let chunk = |count| [Chunk { track: 0, lost: 0, records: vec![Record::default(); count] }];
        drain.collect(&AllNames::default());
        drain.collected_at_ns = Some(0);
        drain.adapt_interval(10_000_000, &chunk(512));
        assert_eq!(drain.next_in(), Duration::from_millis(10));
        drain.adapt_interval(20_000_000, &chunk(2048));
        assert_eq!(drain.next_in(), Duration::from_micros(2_500));
        drain.adapt_interval(30_000_000, &chunk(1));
        assert_eq!(drain.next_in(), WAIT.1);
        drain.adapt_interval(30_000_000, &chunk(1_000));
        assert_eq!(drain.next_in(), WAIT.0);
        drop(writer);
    }

    /// Two workers that wake and poll as fast as they can, with a drain that writes to a file
    /// meanwhile.
    #[test]
    fn a_recording_of_running_workers_is_complete_and_exportable() {
        const POLLS: u64 = if cfg!(miri) { 20 } else { 20_000 };
        let recorder = Recorder::new(2, 0, 256, true);
        let path = std::env::temp_dir().join(format!("volt-drain-{}.voltrec", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let settings = Settings { path: path.clone(), max_file_bytes: 64 * MIN_FILE_BYTES, max_files: 1 };
        let mut file = Writer::create(settings, recorder.head("test", "main")).unwrap();
        let (mut drain, names, left) = (Drain::from_now(&recorder), AllNames::default(), AtomicBool::new(true));
        let mut noted = 0;
        thread::scope(|scope| {
            let workers = [FIRST, SECOND].map(|track| {
                let recorder = &recorder;
                scope.spawn(move || {
                    let writer = recorder.claim(track).unwrap();
                    for task in 0..POLLS {
                        let now_ns = clock::now_ns();
                        writer.note(now_ns, Event::Spawn { task, location: 1 });
                        writer.poll_begin(now_ns, task, 1, now_ns);
                        let end_ns = clock::now_ns();
                        writer.poll_end(end_ns, task, 1, Outcome::Completed, end_ns - now_ns);
                    }
                })
            });
            let left = &left;
            scope.spawn(move || {
                workers.into_iter().for_each(|worker| worker.join().unwrap());
                left.store(false, Ordering::Release);
            });
            loop {
                let is_last = !left.load(Ordering::Acquire);
                let flush = drain.collect(&names);
                noted += flush.records() + flush.lost();
                file.write(&flush).unwrap();
                if is_last {
                    break;
                }
            }
        });
        file.finish().unwrap();
        assert_eq!(noted, 2 * 3 * POLLS, "each event was recorded or counted");
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut reader = Reader::new(Cursor::new(bytes), "x").unwrap();
        let exported = chrome_trace::export(&mut reader, std::io::sink(), |_| {}).unwrap();
        assert!(exported.broke.is_none() && exported.polls > 0);
        let end = reader.end().expect("it was ended");
        assert_eq!(end.records + end.lost, noted);
    }
}
