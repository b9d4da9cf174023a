//! The thread that resolves stacks and writes to the application's log: incidents, findings, and
//! failures of the runtime itself.
//!
//! A stack is copied as raw memory; to *resolve* it means to find the functions and lines. Each
//! runtime has such a thread from its first incident, examination or failure on. The sentinel
//! starts it, since the sentinel never writes to a log itself: a subscriber may block for any time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use volt_diagnosis::doctor::course::Course;
use volt_stacks::{Marker, RawStack, Resolved, Resolver};
use volt_telemetry::incident::{Cause, CauseTime, Incident};

use super::black_box::Samples;
use crate::clock;
use crate::scheduler::shared::Shared;
use crate::scheduler::watch::doctor::Doctor;
use crate::scheduler::worker::Worker;
use crate::task::contain::contain;
use crate::task::header::{Place, Task};

/// How many incidents may wait for the thread.
const STACKS_WAITING_MAX: usize = 16;
/// How long the sentinel waits for a copy of a thread's stack, which takes about 20 µs if that
/// thread can run.
pub(super) const STACK_TIMEOUT: Duration = Duration::from_millis(2);
/// How long the thread that resolves stacks waits for a copy: where many threads want the same
/// processor, each of them takes a time slice first.
const STACK_LONG_TIMEOUT: Duration = Duration::from_millis(200);
/// How long the end of a runtime waits for the thread that resolves stacks.
const END_TIMEOUT: Duration = Duration::from_millis(100);

/// An incident that is to be logged after its stack is resolved.
pub(super) struct Job {
    pub(super) id: u64,
    /// The cause of the poll when the stack was taken.
    pub(super) cause: Cause,
    pub(super) stack: Stack,
    /// Whether the stack is not requested again if it was missed.
    pub(super) is_last: bool,
    /// The incident belongs to the poll of this number, on this worker.
    pub(super) slot: usize,
    pub(super) poll_seq: u64,
    /// `None` if the incident was logged before, and only needs the stack of another cause.
    pub(super) log: Option<Log>,
}

/// The data about an incident that only the log needs.
pub(super) struct Log {
    /// Where the incident's task was found in the registry.
    pub(super) place: Place,
    /// Whether polls as long as this one are usual in this runtime.
    pub(super) is_usual: bool,
}

/// The stack of an incident, before it is resolved.
pub(super) enum Stack {
    Copied(RawStack),
    /// The thread did not provide it in time.
    Missed,
    /// None is available, for this reason.
    None(String),
}

/// A piece of work for the thread.
enum Work {
    Read(Job),
    /// A failure is to be logged, or an examination is requested: see `Requests`.
    CheckRequests,
}

/// Requests to the thread that do not need a place in its queue each.
#[derive(Default)]
struct Requests {
    /// The doctor is to examine the runtime. Several requests before that lead to one examination.
    examination: AtomicBool,
    /// A `CheckRequests` is in the queue. There is only one, however many requests there are, so
    /// that incidents find room.
    is_queued: AtomicBool,
    /// The runtime was shut down: work that still waits is not needed any more.
    is_over: AtomicBool,
}

/// Resolves stacks, and logs incidents, findings and failures of the runtime (`failures`), on its
/// own thread. The sentinel keeps it with the state of the runtime (`Rounds`), and gives it up when
/// the runtime leaves.
pub(crate) struct Reader {
    jobs: SyncSender<Work>,
    requests: Arc<Requests>,
    /// Disconnected when the thread has exited.
    ended: Receiver<()>,
}

impl Reader {
    /// Starts the thread. It keeps the runtime's `Shared` alive.
    pub(super) fn start(shared: &Arc<Shared>) -> io::Result<Self> {
        let (jobs, waiting) = sync_channel::<Work>(STACKS_WAITING_MAX);
        let (shared, requests) = (shared.clone(), Arc::new(Requests::default()));
        let name = format!("{}-incidents", shared.config.thread_name);
        let seen = requests.clone();
        let (ends, ended) = channel();
        thread::Builder::new().name(name).spawn(move || {
            let _ends = ends;
            let (mut resolver, mut course, mut samples) = (Resolver::new(), Course::default(), Samples::default());
            for work in waiting {
                // ORDERING: Relaxed, both; no other data depends on the flags. A flag that is set
                // after this check is seen at the next piece of work.
                if seen.is_over.load(Ordering::Relaxed) {
                    contain(|| shared.failures().log_rest());
                    break;
                }
                // A subscriber that panics must not end this thread.
                contain(|| {
                    if let Work::Read(job) = work {
                        log_incident(&mut resolver, &shared, job);
                    }
                });
                // ORDERING: Acquire; pairs with the Release in `notify`: the requests before it are
                // seen below. A request after this puts its own `CheckRequests` into the queue.
                seen.is_queued.swap(false, Ordering::Acquire);
                contain(|| shared.failures().log(clock::now_ns()));
                // ORDERING: Relaxed; the Acquire above makes the request visible.
                if seen.examination.swap(false, Ordering::Relaxed) {
                    contain(|| {
                        let snapshot = shared.snapshot();
                        Doctor::log_changes(&snapshot, &shared.config, &mut course);
                        samples.write(&shared, snapshot);
                    });
                }
            }
        })?;
        Ok(Self { jobs, requests, ended })
    }

    /// Queues an incident, or returns why that is not possible.
    pub(super) fn take(&self, job: Job) -> Result<(), &'static str> {
        self.jobs.try_send(Work::Read(job)).map_err(|error| match error {
            TrySendError::Full(_) => "too many stacks were requested together",
            TrySendError::Disconnected(_) => "the thread that reads stacks has ended",
        })
    }

    /// Requests an examination by the doctor, after the current work.
    pub(super) fn examine(&self) {
        // ORDERING: Relaxed; `notify` publishes it.
        self.requests.examination.store(true, Ordering::Relaxed);
        self.notify();
    }

    /// Ends the thread, and waits until it has ended or `deadline` has passed, but at most for
    /// `END_TIMEOUT`. If it still waits for a subscriber, it ends when the subscriber returns.
    pub(crate) fn end(self, deadline: Option<Instant>) {
        self.request_end();
        let left = deadline.map_or(END_TIMEOUT, |deadline| deadline.saturating_duration_since(Instant::now()));
        let _ended_or_late = self.ended.recv_timeout(left.min(END_TIMEOUT));
    }

    /// Makes the thread check its `Requests`, after the current work.
    pub(super) fn notify(&self) {
        // ORDERING: Release; pairs with the Acquire in `start`. Both are swaps, so one of them sees
        // the value of the other: either the thread sees this request, or it has cleared the flag
        // before, and this puts a `CheckRequests` into the queue.
        if !self.requests.is_queued.swap(true, Ordering::Release) {
            // If the queue is full, the thread checks the requests after the work in it.
            let _is_sent = self.jobs.try_send(Work::CheckRequests);
        }
    }
}

impl Reader {
    fn request_end(&self) {
        // ORDERING: Relaxed; no other data depends on the flag. The piece of work below publishes
        // it. If the queue is full, the thread sees the flag after work that is in the queue, or
        // the end of the queue.
        self.requests.is_over.store(true, Ordering::Relaxed);
        // Wakes the thread, if it waits for work.
        let _is_sent = self.jobs.try_send(Work::CheckRequests);
    }
}

/// Ends the thread, without waiting for it: it may wait for a subscriber.
impl Drop for Reader {
    fn drop(&mut self) {
        self.request_end();
    }
}

fn log_incident(resolver: &mut Resolver, shared: &Shared, job: Job) {
    let read = match &job.stack {
        Stack::None(why) => Ok(without_stack(why)),
        Stack::Copied(stack) => read(resolver, shared, &job, Some(stack)),
        Stack::Missed => read(resolver, shared, &job, None),
    };
    let frames = match &read {
        Ok(resolved) if job.log.is_some() => resolved.frames.clone(),
        _ => Vec::new(),
    };
    match read {
        Ok(resolved) => shared.sentinel.incidents.fill_in(job.id, job.cause, resolved),
        Err(why) => shared.sentinel.incidents.miss(job.id, job.cause, why, job.is_last),
    }
    let Some(log) = job.log else { return };
    let Some(mut incident) = shared.sentinel.incidents.get(job.id) else { return };
    if incident.stack.is_empty() && incident.stack_error.is_none() {
        // Another cause has become the longest meanwhile, and its stack is not resolved yet; or the
        // stack was missed, and is requested again.
        (incident.cause, incident.stack) = (job.cause, frames);
    }
    if let Some(suppressed) = shared.sentinel.incidents.log(&incident, log.is_usual, clock::now_ns()) {
        let task = shared.workers.registry.get(incident.task_id, log.place);
        log_event(&shared.identity.name, &incident, suppressed, task.as_ref());
    }
}

/// Resolves a stack. If the copy did not arrive in time or is unusable, takes another one, as long
/// as the poll and its cause last. Returns an error if none arrived.
fn read(resolver: &mut Resolver, shared: &Shared, job: &Job, stack: Option<&RawStack>) -> Result<Resolved, String> {
    // The function at which the stack of a poll ends.
    let marker = Some(Marker::function(Worker::poll as *const ()));
    let first = stack.map(|stack| resolver.resolve(stack, marker));
    let first = match first {
        Some(resolved) if !resolved.is_lost => return Ok(resolved),
        Some(resolved) => Ok(resolved),
        None => Err("the poll ended or went on before its stack could be captured".to_owned()),
    };
    let remote = &shared.workers.remotes[job.slot];
    let goes_on =
        || remote.cells.poll_seq() == job.poll_seq && shared.sentinel.incidents.last_cause(job.id) == Some(job.cause);
    let again = match (&shared.sentinel.sampler, remote.stack_of()) {
        (Some(sampler), Some(thread)) if goes_on() => resolver.stack_of(sampler, &thread, marker, STACK_LONG_TIMEOUT),
        _ => return first,
    };
    match again {
        Ok(again) if goes_on() => Ok(again),
        Err(error) if goes_on() => first.map_err(|_| error.to_string()),
        _ => first,
    }
}

pub(super) fn without_stack(why: impl std::fmt::Display) -> Resolved {
    Resolved { error: Some(why.to_string()), ..Resolved::default() }
}

/// Writes an event to the application's log, in the span of the task if the task still exists.
fn log_event(runtime: &str, incident: &Incident, suppressed: u64, task: Option<&Task>) {
    let guilty = incident.guilty();
    let function = guilty.and_then(|frame| frame.function.as_deref());
    let line = guilty.and_then(|frame| Some(format!("{}:{}", frame.file.as_deref()?, frame.line?)));
    // What took most of the time may not be what the thread does now.
    let causes = incident.main_causes().iter().map(CauseTime::to_string).collect::<Vec<_>>().join(", ");
    let causes = Some(causes).filter(|causes| !causes.is_empty());
    let event = || {
        tracing::warn!(
            target: "volt::incident",
            runtime,
            incident = incident.id,
            worker = incident.worker,
            task = incident.task_id,
            name = incident.task_name.as_deref(),
            route = incident.route.as_deref(),
            spawn = %incident.spawned_at,
            cause = incident.cause.name(),
            causes = causes.as_deref(),
            for_ms = incident.for_ns / 1_000_000,
            function,
            line,
            remedy = incident.remedy.name(),
            suppressed,
            "a poll is stuck: the thread {}", incident.cause.explain()
        );
    };
    match task.and_then(|task| task.header().extra()) {
        Some(extra) => extra.span.in_scope(event),
        None => event(),
    }
}
