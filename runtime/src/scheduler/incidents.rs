//! Polls that do not end in time: what is written down of them, while they last and when they are over.
//!
//! Shape: the sentinel sees that a poll lasts, asks the kernel for the cause and the thread for a copy of its stack, and opens an incident here.
//! A thread of its own, started with the first incident, makes the copy readable, which takes long the first time, and tells the
//! application's log. When the sentinel sees that the poll is over, it closes the incident. The same thread tells what the doctor finds.
//!
//! Who writes: the sentinel and that thread, under one lock that no worker takes. Who reads: snapshots.
//!
//! Bounds: the latest `LATEST_MAX` incidents are kept, stacks of `STACK_FRAMES_MAX` frames, `STACKS_WAITING_MAX` stacks wait to be read. Of one spawn
//! location and cause one is written down in `QUIET_TIME`; the others are counted, and the next that is written down says how many they were. Of those
//! that are usual for the runtime one is written to the log in `USUAL_QUIET_TIME`.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use volt_telemetry::doctor::course::Course;
use volt_telemetry::incident::{Cause, Frame, Incident, Incidents, Remedy};

use super::shared::Shared;
use super::worker::Worker;
use crate::clock;
use crate::stacks::{Marker, RawStack, Resolved, Resolver};
use crate::task::contain::contain;
use crate::task::header::{Place, Task};

/// Incidents that are kept.
const LATEST_MAX: usize = 64;
/// Frames of a stack that are kept, from the innermost.
const STACK_FRAMES_MAX: usize = 64;
/// Stacks that wait to be made readable.
const STACKS_WAITING_MAX: usize = 16;
/// How long the sentinel waits for a thread's answer, which takes some 20 µs if it can run;
pub(super) const STACK_PATIENCE: Duration = Duration::from_millis(2);
/// and how long the thread that reads stacks does: where many threads want the same processor, it takes a slice of each.
const STACK_LONG_PATIENCE: Duration = Duration::from_millis(200);
/// How long the end of a runtime waits for the thread that reads stacks, and how often it looks meanwhile.
const END_PATIENCE: Duration = Duration::from_millis(100);
const END_PAUSE: Duration = Duration::from_micros(100);
/// Between two incidents of the same spawn location and cause that are written down.
const QUIET_TIME: Duration = Duration::from_secs(1);
/// Between two incidents of the same spawn location and cause that are written to the log, where polls as long are usual.
const USUAL_QUIET_TIME: Duration = Duration::from_secs(60);
/// Spawn locations and causes that this is known of.
const KINDS_MAX: usize = 256;

/// See the header of this file.
#[derive(Default)]
pub(crate) struct Log(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    counts: HashMap<Cause, u64>,
    suppressed: u64,
    evicted: u64,
    written: u64,
    latest: VecDeque<Kept>,
    kinds: HashMap<(String, Cause), Kind>,
}

/// An incident, and its stack apart: who reads takes that along under the lock without a copy, since the sentinel waits for the lock.
#[derive(Clone)]
struct Kept {
    incident: Incident,
    stack: Arc<[Frame]>,
}

impl Kept {
    fn into_whole(self) -> Incident {
        Incident { stack: self.stack.to_vec(), ..self.incident }
    }
}

/// What was seen of one spawn location and cause.
#[derive(Clone, Copy, Default)]
struct Kind {
    written_at_ns: u64,
    /// Since then.
    suppressed: u64,
    /// When one was last written to the log, and how many there were since.
    logged_at_ns: Option<u64>,
    unlogged: u64,
}

impl Log {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Counts an incident, and writes it down unless one like it was a moment ago. Returns its number if it was.
    pub(crate) fn open(&self, mut incident: Incident, now_ns: u64) -> Option<u64> {
        let mut entries = self.lock();
        let entries = &mut *entries;
        *entries.counts.entry(incident.cause).or_default() += 1;
        let key = (incident.spawned_at.clone(), incident.cause);
        if entries.kinds.len() >= KINDS_MAX && !entries.kinds.contains_key(&key) {
            // Those that were quiet for longest say nothing that is still wanted.
            let quiet_ns = clock::saturating_ns(QUIET_TIME);
            entries.kinds.retain(|_, kind| now_ns.saturating_sub(kind.written_at_ns) < quiet_ns);
        }
        let kind = entries.kinds.get(&key).copied();
        let is_like_one =
            kind.is_some_and(|kind| now_ns.saturating_sub(kind.written_at_ns) < clock::saturating_ns(QUIET_TIME));
        if let Some(kind) = entries.kinds.get_mut(&key) {
            kind.unlogged += 1;
        }
        if is_like_one || (kind.is_none() && entries.kinds.len() >= KINDS_MAX) {
            entries.suppressed += 1;
            if let Some(kind) = entries.kinds.get_mut(&key) {
                kind.suppressed += 1;
            }
            return None;
        }
        let (logged_at_ns, unlogged) = kind.map_or((None, 1), |kind| (kind.logged_at_ns, kind.unlogged + 1));
        entries.kinds.insert(key, Kind { written_at_ns: now_ns, suppressed: 0, logged_at_ns, unlogged });
        entries.written += 1;
        incident.id = entries.written;
        incident.suppressed = kind.map_or(0, |kind| kind.suppressed);
        if entries.latest.len() == LATEST_MAX {
            entries.latest.pop_front();
            entries.evicted += 1;
        }
        entries.latest.push_back(Kept { incident, stack: Arc::new([]) });
        Some(entries.written)
    }

    /// Whether an incident is to be written to the log, and if so, how many like it were not since the last one.
    fn log(&self, incident: &Incident, is_usual: bool, now_ns: u64) -> Option<u64> {
        let mut entries = self.lock();
        let key = (incident.spawned_at.clone(), incident.cause);
        // Its cause may be another one by now, of which nothing is known.
        let Some(kind) = entries.kinds.get_mut(&key) else { return Some(incident.suppressed) };
        let quiet_ns = clock::saturating_ns(USUAL_QUIET_TIME);
        if is_usual && kind.logged_at_ns.is_some_and(|at_ns| now_ns.saturating_sub(at_ns) < quiet_ns) {
            return None;
        }
        kind.logged_at_ns = Some(now_ns);
        Some(std::mem::take(&mut kind.unlogged).saturating_sub(1))
    }

    /// Changes an incident but for its stack, if it is still kept. Asked for at each look, so it copies nothing.
    pub(crate) fn change(&self, id: u64, change: impl FnOnce(&mut Incident)) {
        self.change_kept(id, |kept| change(&mut kept.incident));
    }

    fn change_kept(&self, id: u64, change: impl FnOnce(&mut Kept)) {
        let mut entries = self.lock();
        if let Some(kept) = entries.latest.iter_mut().rev().find(|kept| kept.incident.id == id) {
            change(kept);
        }
    }

    /// What was found out of its stack.
    fn fill_in(&self, id: u64, mut resolved: Resolved) {
        resolved.frames.truncate(STACK_FRAMES_MAX);
        let stack = Arc::from(resolved.frames);
        self.change_kept(id, |kept| {
            kept.stack = stack;
            kept.incident.stack_error = resolved.error;
        });
    }

    /// An incident as it is now, if it is still kept.
    pub(crate) fn get(&self, id: u64) -> Option<Incident> {
        let kept = self.lock().latest.iter().rev().find(|kept| kept.incident.id == id).cloned();
        kept.map(Kept::into_whole)
    }

    pub(crate) fn telemetry(&self) -> Incidents {
        let entries = self.lock();
        let told = Incidents {
            by_cause: Cause::ALL.iter().map(|cause| entries.counts.get(cause).copied().unwrap_or(0)).collect(),
            suppressed: entries.suppressed,
            evicted: entries.evicted,
            latest: Vec::new(),
        };
        let latest: Vec<_> = entries.latest.iter().cloned().collect();
        drop(entries);
        Incidents { latest: latest.into_iter().map(Kept::into_whole).collect(), ..told }
    }
}

/// An incident to be told, with its stack made readable first, and where it belongs.
pub(super) struct Job {
    pub(super) id: u64,
    pub(super) stack: Stack,
    /// Whose it is: the poll of this number, on this worker.
    pub(super) slot: usize,
    pub(super) poll_seq: u64,
    /// Where its task was seen in the registry.
    pub(super) place: Place,
    /// Polls as long as this one are usual in this runtime.
    pub(super) is_usual: bool,
}

/// What there is of a stack.
pub(super) enum Stack {
    Copied(RawStack),
    /// Its thread did not answer in time.
    Missed,
    /// There is none to be had, and why.
    None(String),
}

/// What the thread is for that reads stacks.
enum Work {
    Read(Job),
    /// There is something to be told, or an examination is wanted: see `Wishes`.
    Look,
}

/// What the thread looks at besides its queue.
#[derive(Default)]
struct Wishes {
    /// The doctor is to look; asked for again before that, it looks once.
    examination: AtomicBool,
    /// Work that says so is in the queue: one piece, however often it is asked for, so that incidents find room.
    is_asked: AtomicBool,
    /// The runtime has ended: what still waits is not wanted any more.
    is_over: AtomicBool,
}

/// The thread that makes stacks readable, and tells of incidents, of findings and of what the runtime cannot do (`troubles`). Owned by the sentinel, which never tells anything itself: who
/// listens may block, for as long as it likes.
pub(crate) struct Reader {
    jobs: SyncSender<Work>,
    wishes: Arc<Wishes>,
    thread: JoinHandle<()>,
}

impl Reader {
    /// For the incidents in `log`, which the thread reaches as long as the runtime is there.
    pub(super) fn start(shared: &Arc<Shared>) -> io::Result<Self> {
        let (jobs, waiting) = sync_channel::<Work>(STACKS_WAITING_MAX);
        let (shared, wishes) = (shared.clone(), Arc::new(Wishes::default()));
        let name = format!("{}-incidents", shared.config.thread_name);
        let seen = wishes.clone();
        let thread = thread::Builder::new().name(name).spawn(move || {
            let (mut resolver, mut course) = (Resolver::new(), Course::default());
            for work in waiting {
                // ORDERING: Relaxed, both; flags that are the whole message. What was set after this look is seen at the next piece of work.
                if seen.is_over.load(Ordering::Relaxed) {
                    break;
                }
                // A subscriber that panics must not take this thread along.
                contain(|| {
                    if let Work::Read(job) = work {
                        tell_of(&mut resolver, &shared, job);
                    }
                });
                // ORDERING: Relaxed; what is asked for from now on gets a piece of work of its own.
                seen.is_asked.store(false, Ordering::Relaxed);
                contain(|| shared.troubles.tell(clock::now_ns()));
                if seen.examination.swap(false, Ordering::Relaxed) {
                    contain(|| shared.sentinel.doctor.examine(&shared, &mut course));
                }
            }
        })?;
        Ok(Self { jobs, wishes, thread })
    }

    /// Hands over an incident, or says why not.
    pub(super) fn take(&self, job: Job) -> Result<(), &'static str> {
        self.jobs.try_send(Work::Read(job)).map_err(|error| match error {
            TrySendError::Full(_) => "too many stacks at once",
            TrySendError::Disconnected(_) => "the thread that reads stacks has ended",
        })
    }

    /// Has the doctor look, after what is being done.
    pub(super) fn examine(&self) {
        // ORDERING: Relaxed; the flag is the whole message.
        self.wishes.examination.store(true, Ordering::Relaxed);
        self.look();
    }

    /// Has the thread see what there is to be told, after what is being done.
    pub(super) fn look(&self) {
        // ORDERING: Relaxed; the flag is the whole message.
        if !self.wishes.is_asked.swap(true, Ordering::Relaxed) {
            // A full queue has work after which it looks.
            let _is_sent = self.jobs.try_send(Work::Look);
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // ORDERING: Relaxed; the flag is the whole message, and comes before the end of the queue or after it.
        self.wishes.is_over.store(true, Ordering::Relaxed);
        // Wakes it, if it waits for work.
        let _is_sent = self.jobs.try_send(Work::Look);
        let until = Instant::now() + END_PATIENCE;
        while !self.thread.is_finished() && Instant::now() < until {
            thread::sleep(END_PAUSE);
        }
        // One that waits for its subscriber ends when that lets it go.
    }
}

fn tell_of(resolver: &mut Resolver, shared: &Shared, job: Job) {
    let resolved = match &job.stack {
        Stack::None(why) => without_stack(why),
        Stack::Copied(stack) => read(resolver, shared, &job, Some(stack)),
        Stack::Missed => read(resolver, shared, &job, None),
    };
    shared.incidents.fill_in(job.id, resolved);
    let Some(incident) = shared.incidents.get(job.id) else { return };
    if let Some(suppressed) = shared.incidents.log(&incident, job.is_usual, clock::now_ns()) {
        let task = shared.registry.get(incident.task_id, job.place);
        tell(&shared.name, &incident, suppressed, task.as_ref());
    }
}

/// Makes a stack readable. One that did not come in time, or was taken at a bad moment, is taken again, as long as the poll goes on.
fn read(resolver: &mut Resolver, shared: &Shared, job: &Job, stack: Option<&RawStack>) -> Resolved {
    // Where the stack of a poll ends.
    let marker = Some(Marker::function(Worker::poll as *const ()));
    let first = stack.map(|stack| resolver.resolve(stack, marker));
    let first = match first {
        Some(resolved) if !resolved.is_lost => return resolved,
        Some(resolved) => Ok(resolved),
        None => Err("the poll was over before its thread could be asked"),
    };
    let remote = &shared.remotes[job.slot];
    let goes_on = || remote.cells.poll_seq() == job.poll_seq;
    let again = match (&shared.sampler, remote.stack_of()) {
        (Some(sampler), Some(thread)) if goes_on() => resolver.stack_of(sampler, &thread, marker, STACK_LONG_PATIENCE),
        _ => return first.unwrap_or_else(without_stack),
    };
    match again {
        Ok(again) if goes_on() => again,
        Err(error) if goes_on() => first.unwrap_or_else(|_| without_stack(error)),
        _ => first.unwrap_or_else(without_stack),
    }
}

fn without_stack(why: impl std::fmt::Display) -> Resolved {
    Resolved { error: Some(why.to_string()), ..Resolved::default() }
}

/// One event in the application's log, in the span of the task, if that is still there.
fn tell(runtime: &str, incident: &Incident, suppressed: u64, task: Option<&Task>) {
    let guilty = incident.guilty();
    let function = guilty.and_then(|frame| frame.function.as_deref());
    let line = guilty.and_then(|frame| Some(format!("{}:{}", frame.file.as_deref()?, frame.line?)));
    let event = || {
        tracing::warn!(
            target: "volt::incident",
            runtime,
            incident = incident.id,
            worker = incident.worker,
            task = incident.task_id,
            name = incident.task_name.as_deref(),
            spawn = %incident.spawned_at,
            cause = incident.cause.name(),
            for_ms = incident.for_ns / 1_000_000,
            function,
            line,
            remedy = incident.remedy.name(),
            suppressed,
            "a poll holds its worker: it {}", incident.cause.explain()
        );
    };
    match task.and_then(|task| task.header().extra()) {
        Some(extra) => extra.span.in_scope(event),
        None => event(),
    }
}

/// What was done about an incident, so far.
pub(crate) fn worse(before: Remedy, now: Remedy) -> Remedy {
    let rank = |remedy: Remedy| match remedy {
        Remedy::Replaced => 3,
        Remedy::Capped => 2,
        Remedy::Rescued => 1,
        _ => 0,
    };
    if rank(now) > rank(before) { now } else { before }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incident(spawned_at: &str, cause: Cause) -> Incident {
        Incident { spawned_at: spawned_at.to_owned(), cause, ..Incident::default() }
    }

    #[test]
    fn of_one_kind_one_a_second_is_written_down_and_the_others_are_counted() {
        let (log, second) = (Log::default(), 1_000_000_000);
        assert_eq!(log.open(incident("a:1", Cause::Sleep), second), Some(1));
        assert_eq!(log.open(incident("a:1", Cause::Sleep), second + 1), None);
        assert_eq!(log.open(incident("a:1", Cause::Sleep), second + 2), None);
        assert_eq!(log.open(incident("a:1", Cause::Lock), second + 2), Some(2), "another cause is another kind");
        assert_eq!(log.open(incident("b:1", Cause::Sleep), second + 2), Some(3));
        assert_eq!(log.open(incident("a:1", Cause::Sleep), 2 * second), Some(4));
        let told = log.telemetry();
        assert_eq!((told.total(), told.suppressed, told.evicted), (6, 2, 0));
        let suppressed: Vec<_> = told.latest.iter().map(|incident| incident.suppressed).collect();
        assert_eq!(suppressed, [0, 0, 0, 2]);
        assert_eq!(told.counts().find(|(cause, _)| *cause == Cause::Sleep), Some((Cause::Sleep, 5)));
    }

    #[test]
    fn usual_ones_are_all_counted_and_logged_once_a_minute() {
        let (log, second) = (Log::default(), 1_000_000_000);
        let mut logged = Vec::new();
        for n in 1..=150 {
            for soon in 0..3 {
                let now_ns = n * second + soon;
                let Some(id) = log.open(incident("a:1", Cause::Sleep), now_ns) else { continue };
                logged.extend(log.log(&log.get(id).unwrap(), true, now_ns).map(|suppressed| (n, suppressed)));
            }
        }
        assert_eq!(logged, [(1, 0), (61, 179), (121, 179)]);
        let told = log.telemetry();
        assert_eq!((told.total(), told.latest.len()), (450, LATEST_MAX), "the doctor sees one of each second");
        let unusual = log.open(incident("a:1", Cause::Sleep), 151 * second).unwrap();
        assert_eq!(log.log(&log.get(unusual).unwrap(), false, 151 * second), Some(89));
    }

    #[test]
    fn the_log_is_bounded_whatever_comes() {
        let log = Log::default();
        for n in 0..10_000_u64 {
            log.open(incident(&format!("file:{n}"), Cause::Cpu), n);
        }
        let told = log.telemetry();
        assert_eq!(told.latest.len(), LATEST_MAX);
        assert_eq!(told.total(), 10_000);
        assert_eq!(told.suppressed + told.evicted + LATEST_MAX as u64, 10_000);
        assert!(log.lock().kinds.len() <= KINDS_MAX);
    }

    #[test]
    fn an_incident_that_is_gone_is_not_changed() {
        let log = Log::default();
        let id = log.open(incident("a:1", Cause::Cpu), 1).unwrap();
        log.change(id, |incident| incident.is_over = true);
        let changed = log.get(id).unwrap();
        assert!(changed.is_over && log.telemetry().latest[0].is_over);
        log.change(id + 1, |_| unreachable!("there is none"));
        assert!(log.get(id + 1).is_none());
    }

    #[test]
    fn a_stack_is_kept_once_and_told_with_its_incident() {
        let log = Log::default();
        let id = log.open(incident("a:1", Cause::Cpu), 1).unwrap();
        let frames = vec![Frame { address: 5, ..Frame::default() }; STACK_FRAMES_MAX + 1];
        log.fill_in(id, Resolved { frames, error: Some("cut".to_owned()), ..Resolved::default() });
        let told = log.get(id).unwrap();
        assert_eq!((told.stack.len(), told.stack[0].address), (STACK_FRAMES_MAX, 5));
        assert_eq!(told.stack_error.as_deref(), Some("cut"));
        assert_eq!(log.telemetry().latest, [told]);
        assert_eq!(Arc::strong_count(&log.lock().latest[0].stack), 1, "who reads has copies of his own");
    }

    #[test]
    fn what_was_done_is_told_by_what_helped_most() {
        let all = [Remedy::Rescued, Remedy::None, Remedy::Capped, Remedy::Replaced, Remedy::Rescued];
        assert_eq!(all.into_iter().fold(Remedy::None, worse), Remedy::Replaced);
    }
}
