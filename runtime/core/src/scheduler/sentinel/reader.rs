//! The thread that makes stacks readable and writes to the application's log: incidents, findings,
//! and what the runtime itself cannot do.
//!
//! Owned by the sentinel, which never writes to a log: a subscriber may block for as long as it
//! likes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use volt_diagnosis::doctor::course::Course;
use volt_stacks::{Marker, RawStack, Resolved, Resolver};
use volt_telemetry::incident::Incident;

use crate::clock;
use crate::scheduler::doctor::Doctor;
use crate::scheduler::shared::Shared;
use crate::scheduler::worker::Worker;
use crate::task::contain::contain;
use crate::task::header::{Place, Task};

/// Stacks that wait to be made readable.
const STACKS_WAITING_MAX: usize = 16;
/// How long the sentinel waits for a thread's answer, which takes some 20 µs if it can run;
pub(super) const STACK_PATIENCE: Duration = Duration::from_millis(2);
/// and how long the thread that reads stacks does: where many threads want the same processor, it
/// takes a slice of each.
const STACK_LONG_PATIENCE: Duration = Duration::from_millis(200);
/// How long the end of a runtime waits for the thread that reads stacks, and how often it checks
/// meanwhile.
const END_PATIENCE: Duration = Duration::from_millis(100);
const END_PAUSE: Duration = Duration::from_micros(100);
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
    CheckWishes,
}

/// What the thread checks besides its queue.
#[derive(Default)]
struct Wishes {
    /// The doctor is to examine the runtime; asked for again before that, it does so once.
    examination: AtomicBool,
    /// Work that says so is in the queue: one piece, however often it is asked for, so that
    /// incidents find room.
    is_asked: AtomicBool,
    /// The runtime has ended: what still waits is not wanted any more.
    is_over: AtomicBool,
}

/// The thread that makes stacks readable, and tells of incidents, of findings and of what the
/// runtime cannot do (`troubles`). Owned by the sentinel, which never tells anything itself: who
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
                // ORDERING: Relaxed, both; flags that are the whole message. What is set after this
                // check is seen at the next piece of work.
                if seen.is_over.load(Ordering::Relaxed) {
                    contain(|| shared.troubles.tell_rest());
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
                    contain(|| Doctor::tell_news(&shared.snapshot(), &shared.config, &mut course));
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

    /// Has the doctor examine the runtime, after what is being done.
    pub(super) fn examine(&self) {
        // ORDERING: Relaxed; the flag is the whole message.
        self.wishes.examination.store(true, Ordering::Relaxed);
        self.notify();
    }

    /// Has the thread check its `Wishes`, after what is being done.
    pub(super) fn notify(&self) {
        // ORDERING: Relaxed; the flag is the whole message.
        if !self.wishes.is_asked.swap(true, Ordering::Relaxed) {
            // A full queue has work after which the thread checks them.
            let _is_sent = self.jobs.try_send(Work::CheckWishes);
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // ORDERING: Relaxed; the flag is the whole message, and comes before the end of the queue
        // or after it.
        self.wishes.is_over.store(true, Ordering::Relaxed);
        // Wakes it, if it waits for work.
        let _is_sent = self.jobs.try_send(Work::CheckWishes);
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

/// Makes a stack readable. One that did not come in time, or was taken at a bad moment, is taken
/// again, as long as the poll goes on.
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
            "a poll blocks its worker: the thread {}", incident.cause.explain()
        );
    };
    match task.and_then(|task| task.header().extra()) {
        Some(extra) => extra.span.in_scope(event),
        None => event(),
    }
}
