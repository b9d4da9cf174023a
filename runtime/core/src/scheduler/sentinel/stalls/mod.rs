//! Examines a long poll: the state of its thread, the cause of that state, and the location in the
//! code.
//!
//! Two samples of a thread, at least a millisecond apart, show what it does (`kernel::cause`). A
//! poll that has lasted for `incident_after` becomes an incident: a copy of its thread's stack is
//! taken, and the incident is recorded (`watch::incidents`), even if such polls are usual for this
//! runtime. Of many incidents of one kind within a second, one is recorded and the others are
//! counted. One that lasts is recorded late, with its own stack, so that every outage has a stack.
//!
//! The cause may change while the poll lasts: it waits for a lock, and then sleeps while it holds
//! the lock. So the thread is sampled again every 10 ms, and less often when the poll lasts: each
//! time that it has lasted longer by 1/64. [`Times`] sums how long each cause has lasted. The cause
//! of the incident is the longest so far, or the longest of the program if that of the machine
//! would hide it. Its stack is the first one that was captured with this cause. A change of the
//! cause counts from the next sample, so the times are wrong by up to 10 ms or 1/64 of the poll.
//!
//! A poll is *usual* if it lasts no longer than `P99_MULTIPLE` times the 99th percentile of polls.
//! Usual incidents are written to the log less often; this limits the volume of the log, and
//! nothing else.
//!
//! Only the sentinel's thread uses this module, until the runtime leaves the sentinel's list. The
//! thread that shuts the runtime down then ends the thread that resolves stacks.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use volt_stacks::kernel::cause::classify;
use volt_stacks::kernel::thread::ThreadProbe;
use volt_telemetry::Histogram;
use volt_telemetry::incident::{Cause, CauseTime, Incident, Remedy};
use volt_telemetry::recording::event::Event;
use volt_telemetry::recording::flush::Track;

use self::sample::{Groups, Sample};
use self::times::{Times, step_ns};
use super::reader::{Job, Log, Reader, STACK_TIMEOUT, Stack, without_stack};
use crate::clock;
use crate::recorder::lanes::RecorderHandle;
use crate::scheduler::shared::Shared;
use crate::scheduler::watch::incidents::worse;
use crate::task::header::Place;

mod sample;
mod times;

/// A poll is usual for this program if it lasts no longer than this multiple of the 99th
/// percentile.
const P99_MULTIPLE: u64 = 4;
/// A poll is never usual if it lasts for this multiple of `incident_after`: of such polls one per
/// second is logged.
const USUAL_MAX_MULTIPLE: u64 = 10;
/// The number of polls from which the percentile is used. With fewer polls, one in a hundred is
/// simply the longest: the first stall of a program would make the following ones usual.
const USUAL_FROM_POLLS: u64 = 1_000;
/// An incident that was only counted is recorded once it has lasted for this multiple of
/// `incident_after`: 100 ms by default, the duration from which the doctor reports an outage.
const LATE_MULTIPLE: u64 = 10;
/// For how long a computed percentile is used.
const P99_AGE_MAX: Duration = Duration::from_secs(1);
/// The minimum time between two samples of a thread; samples that are closer together show nothing.
const SAMPLES_APART_NS: u64 = 1_000_000;
/// For how long a copy of a stack can take: `STACK_TIMEOUT`, and the time for a reply that is then
/// under way.
const STACK_WAIT_MAX: Duration = Duration::from_millis(8);

/// The state of the thread of a stuck worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// It is blocked, or its state is unknown.
    Blocks,
    Burns,
    /// It could run, but the kernel runs other threads; or there was only one sample so far, in
    /// which it was not blocked.
    Waits,
    /// It is stopped, or its control group has no time left.
    Held,
}

/// The state of the watched workers: see the module documentation.
pub(super) struct Stalls {
    shared: Arc<Shared>,
    watched: Vec<Watched>,
    groups: Groups,
    /// The runtime's 99th percentile times [`P99_MULTIPLE`], and when it was read.
    usual: Option<(u64, u64)>,
    reader: Option<Reader>,
    has_news: bool,
    /// See [`Stalls::take_waited`].
    waited: Duration,
    /// The sentinel's lane of the flight recorder.
    pub(super) recorder: RecorderHandle,
}

/// The state of one worker.
#[derive(Default)]
struct Watched {
    /// Holds up to four file descriptors, so it is dropped when the poll is over.
    thread: Option<ThreadProbe>,
    /// The number of the poll that the samples belong to.
    poll_seq: u64,
    /// The sample with which the next one is compared.
    last: Option<Sample>,
    newest: Option<Sample>,
    open: Option<Open>,
}

/// An incident that is not over.
struct Open {
    /// `None` = it was only counted so far.
    id: Option<u64>,
    began_at_ns: u64,
    /// The cause under which it was counted.
    counted_as: Cause,
    is_usual: bool,
    times: Times,
    /// Once it has lasted for this time, its thread is sampled again: the thread may have waited
    /// for a processor first, and may sleep only now.
    sampled_again_after_ns: u64,
    /// Once it has lasted for this time, it is recorded if it was only counted.
    late_after_ns: u64,
}

impl Open {
    fn for_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.began_at_ns)
    }
}

impl Stalls {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: shared.clone(),
            watched: shared.workers.remotes.iter().map(|_| Watched::default()).collect(),
            groups: Groups::default(),
            usual: None,
            reader: None,
            has_news: false,
            waited: Duration::ZERO,
            recorder: shared.recorder.handle(Track::Sentinel),
        }
    }

    /// Accounts for a pause of the machine that ended now: its time is not charged to an open
    /// incident, and the samples before it are discarded, since a difference to them would include
    /// it.
    pub(super) fn excuse(&mut self, slot: usize, paused_ns: u64, now_ns: u64) {
        if paused_ns == 0 {
            return;
        }
        (self.watched[slot].last, self.watched[slot].newest) = (None, None);
        let Some(open) = &mut self.watched[slot].open else { return };
        open.began_at_ns = (open.began_at_ns + paused_ns).min(now_ns);
        let began_at_ns = open.began_at_ns;
        if let Some(id) = open.id {
            self.shared.sentinel.incidents.change(id, |incident| incident.began_at_ns = began_at_ns);
        }
    }

    /// Notes that the worker is now in the poll of this number, if it is odd. An incident of
    /// another poll is over.
    pub(super) fn enter_poll(&mut self, slot: usize, poll_seq: u64, now_ns: u64) {
        let watched = &mut self.watched[slot];
        if watched.poll_seq == poll_seq {
            return;
        }
        watched.poll_seq = poll_seq;
        self.close(slot, now_ns);
    }

    /// Closes the worker's incident. Later polls are sampled from the beginning.
    pub(super) fn close(&mut self, slot: usize, now_ns: u64) {
        let watched = &mut self.watched[slot];
        (watched.thread, watched.last, watched.newest) = (None, None, None);
        if let Some(mut open) = watched.open.take()
            && let Some(id) = open.id
        {
            open.times.advance(open.for_ns(now_ns));
            self.shared.sentinel.incidents.change(id, |incident| {
                incident.is_over = true;
                open.times.write_to(incident);
            });
        }
    }

    /// Returns what the thread has done since the last sample, in this poll.
    pub(super) fn doing(&mut self, slot: usize, now_ns: u64) -> Doing {
        match self.cause(slot, now_ns) {
            Some(Cause::Cpu) => Doing::Burns,
            Some(Cause::NotScheduled) => Doing::Waits,
            Some(Cause::Throttled | Cause::Stopped) => Doing::Held,
            Some(_) => Doing::Blocks,
            // A single sample shows at least whether the thread is blocked.
            None => match &self.watched[slot].last {
                Some(sample) if !sample.thread.is_blocked() => Doing::Waits,
                _ => Doing::Blocks,
            },
        }
    }

    /// Returns the cause of the stall. Returns `None` for the first sample, for one that is less
    /// than `SAMPLES_APART_NS` after it, and if the thread cannot be sampled.
    fn cause(&mut self, slot: usize, now_ns: u64) -> Option<Cause> {
        let id = self.shared.workers.remotes[slot].cells.thread_id.get();
        let (watched, tid) = (&mut self.watched[slot], u32::try_from(id).ok()?);
        let probe = watched.thread.get_or_insert_with(|| ThreadProbe::new(tid));
        let sample = Sample::new(probe.sample()?, now_ns, &mut self.groups);
        let Some(last) = &watched.last else {
            watched.last = Some(sample);
            return None;
        };
        let apart_ns = now_ns.saturating_sub(last.at_ns);
        if apart_ns < SAMPLES_APART_NS {
            return None;
        }
        let cause = classify(&last.thread, &sample.thread, last.cgroup.as_ref(), sample.cgroup.as_ref(), apart_ns);
        if cause == Cause::NotScheduled && last.cgroup.is_none() && sample.cgroup.is_some() {
            // Two samples of the control group show whether the quota was the cause. This one is
            // the first.
            watched.last = Some(sample);
        } else {
            watched.newest = Some(sample);
        }
        Some(cause)
    }

    /// Handles a poll that has been stuck for `for_ns`, without the time for which the machine
    /// stood still: opens an incident if that is long enough.
    pub(super) fn handle_stuck(&mut self, slot: usize, for_ns: u64, now_ns: u64) {
        let shared = &self.shared.clone();
        let Some(after_ns) = shared.config.incident_after_ns else { return };
        if self.watched[slot].open.is_some() {
            self.sample_again(slot, for_ns, now_ns);
            return;
        }
        if 2 * for_ns < after_ns {
            return;
        }
        // From half of the time on, so that there are two samples when the time is over.
        let Some(cause) = self.cause(slot, now_ns) else { return };
        if for_ns < after_ns {
            return;
        }
        let is_usual = for_ns < self.usual_ns(now_ns).min(USUAL_MAX_MULTIPLE.saturating_mul(after_ns));
        let poll_seq = self.watched[slot].poll_seq;
        let Some((incident, place)) = self.incident(slot, cause, for_ns, now_ns) else { return };
        if let Some((culprit, _)) = shared.workers.remotes[slot].cells.culprit_of(poll_seq) {
            shared.sentinel.blame().count_stall(culprit);
        }
        self.has_news = true;
        let began_at_ns = incident.began_at_ns;
        let id = shared.sentinel.incidents.open(incident, now_ns);
        self.watched[slot].open = Some(Open {
            id,
            began_at_ns,
            counted_as: cause,
            is_usual,
            times: Times::new(cause, for_ns, after_ns),
            sampled_again_after_ns: sampled_again_after_ns(for_ns),
            late_after_ns: LATE_MULTIPLE.saturating_mul(after_ns),
        });
        if let Some(id) = id {
            self.have_logged(slot, id, Log { place, is_usual });
        }
    }

    /// Takes the stack of an incident that was recorded, and queues the incident to be logged. If
    /// that is not possible, it is not logged, since a subscriber may block; snapshots include it
    /// all the same.
    fn have_logged(&mut self, slot: usize, id: u64, log: Log) {
        self.recorder.note(clock::now_ns, || Event::Stall { incident: id, worker: slot as u16 });
        self.take_first_stack(slot, id, Some(log));
    }

    /// Takes the stack of the stuck poll, and queues it to be resolved, if it is the first with the
    /// cause of the last sample, or if that was missed and may be requested again.
    fn take_first_stack(&mut self, slot: usize, id: u64, log: Option<Log>) {
        let shared = &self.shared.clone();
        let Some(Open { times, .. }) = &mut self.watched[slot].open else { return };
        let cause = times.last();
        match times.request_stack() {
            Ok(true) => {}
            Ok(false) if times.may_retry() && shared.sentinel.incidents.take_missed(id, cause) => times.retry(),
            // Stacks of other causes may have used up the retries.
            Ok(false) if !times.can_retry() => return shared.sentinel.incidents.end_requests(id),
            Ok(false) => return,
            Err(why) => return shared.sentinel.incidents.fill_in(id, cause, without_stack(why)),
        }
        let is_last = !times.can_retry();
        if let Err(why) = self.queue(slot, id, cause, is_last, log) {
            shared.sentinel.incidents.miss(id, cause, why, is_last);
        }
    }

    fn queue(&mut self, slot: usize, id: u64, cause: Cause, is_last: bool, log: Option<Log>) -> Result<(), String> {
        let shared = &self.shared.clone();
        let (remote, poll_seq) = (&shared.workers.remotes[slot], self.watched[slot].poll_seq);
        let stack = self.take_stack(slot);
        // The stack may be that of the next poll.
        let stack = if remote.cells.poll_seq() == poll_seq { stack } else { Stack::Missed };
        let job = Job { id, cause, stack, is_last, slot, poll_seq, log };
        match self.reader() {
            Ok(reader) => reader.take(job).map_err(str::to_owned),
            Err(error) => Err(format!("no thread could be started to read it: {error}")),
        }
    }

    /// Returns the current poll as an incident, and where its task was found; `None` if the poll is
    /// over.
    fn incident(&self, slot: usize, cause: Cause, for_ns: u64, now_ns: u64) -> Option<(Incident, Place)> {
        let (remote, watched) = (&self.shared.workers.remotes[slot], &self.watched[slot]);
        // The calls into the kernel took time: the poll may be over, and the next one is not at
        // fault.
        let (poll, keys) = remote.cells.in_flight_of(watched.poll_seq, now_ns)?;
        let poll = self.shared.named(poll, keys);
        let incident = Incident {
            began_at_ns: now_ns.saturating_sub(for_ns),
            for_ns,
            worker: slot as u32,
            task_id: poll.task_id,
            task_name: poll.task_name,
            spawned_at: poll.spawned_at,
            route: poll.route,
            cause,
            causes: vec![CauseTime { cause, for_ns, at: None }],
            wait_channel: watched.newest.as_ref().and_then(Sample::wait_channel).map(str::to_owned),
            waiting: remote.queued() as u64,
            ..Incident::default()
        };
        Some((incident, Place::from_u64(keys.place)))
    }

    /// Updates the causes of an incident that still lasts, without changing the counts; or records
    /// it, if it was only counted so far.
    fn sample_again(&mut self, slot: usize, for_ns: u64, now_ns: u64) {
        let watched = &mut self.watched[slot];
        if watched.open.as_ref().is_none_or(|open| for_ns < open.sampled_again_after_ns) {
            return;
        }
        watched.last = watched.newest.take().or(watched.last.take());
        let Some(cause) = self.cause(slot, now_ns) else { return };
        let watched = &mut self.watched[slot];
        let channel = watched.newest.as_ref().and_then(Sample::wait_channel);
        let Some(open) = &mut watched.open else { return };
        open.sampled_again_after_ns = sampled_again_after_ns(for_ns);
        open.times.sample(cause, open.for_ns(now_ns));
        let Some(id) = open.id else {
            if for_ns >= open.late_after_ns {
                open.late_after_ns = 2 * for_ns;
                self.record_late(slot, for_ns, now_ns);
            }
            return;
        };
        self.shared.sentinel.incidents.sample(id, cause, |incident| {
            open.times.write_to(incident);
            if incident.cause == cause && incident.wait_channel.as_deref() != channel {
                incident.wait_channel = channel.map(str::to_owned);
            }
        });
        self.take_first_stack(slot, id, None);
    }

    /// Records an incident that was only counted so far, unless there are too many.
    fn record_late(&mut self, slot: usize, for_ns: u64, now_ns: u64) {
        let Some(Open { times, counted_as, is_usual, .. }) = &self.watched[slot].open else { return };
        let (last, counted_as, is_usual) = (times.last(), *counted_as, *is_usual);
        let Some((mut incident, place)) = self.incident(slot, last, for_ns, now_ns) else { return };
        let Some(open) = &mut self.watched[slot].open else { return };
        incident.causes.clear();
        open.times.write_to(&mut incident);
        let Some(id) = self.shared.sentinel.incidents.open_late(incident, counted_as, now_ns) else { return };
        open.id = Some(id);
        self.has_news = true;
        for cause in open.times.without_stack().filter(|cause| *cause != last) {
            let why = "its time was over before the poll was recorded";
            self.shared.sentinel.incidents.fill_in(id, cause, without_stack(why));
        }
        self.shared.sentinel.incidents.sample(id, last, |_| ());
        self.have_logged(slot, id, Log { place, is_usual });
    }

    /// Returns a copy of the poll's stack, if its thread provides one in time.
    fn take_stack(&mut self, slot: usize) -> Stack {
        let shared = &self.shared.clone();
        let Some(sampler) = &shared.sentinel.sampler else { return Stack::None("stacks are off".to_owned()) };
        let Some(thread) = shared.workers.remotes[slot].stack_of() else {
            return Stack::None("the worker's thread could not be registered".to_owned());
        };
        let began_at_ns = clock::now_ns();
        // The thread that resolves stacks tries again, and waits longer.
        let stack = sampler.capture(&thread, STACK_TIMEOUT).map_or(Stack::Missed, Stack::Copied);
        let took = Duration::from_nanos(clock::now_ns().saturating_sub(began_at_ns));
        // If it took longer, the machine did not run this thread.
        self.waited += took.min(STACK_WAIT_MAX);
        stack
    }

    /// Returns for how long the sentinel has waited for stacks since the last call, without the
    /// time for which the machine stood still meanwhile.
    pub(super) fn take_waited(&mut self) -> Duration {
        std::mem::take(&mut self.waited)
    }

    /// Returns the thread that resolves stacks; starts it if necessary.
    fn reader(&mut self) -> io::Result<&Reader> {
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => Reader::start(&self.shared)?,
        };
        Ok(self.reader.insert(reader))
    }

    /// Returns whether that thread was started; it is not needed before there is a stack to resolve
    /// or an examination to make.
    #[cfg(test)]
    pub(super) fn has_reader(&self) -> bool {
        self.reader.is_some()
    }

    /// Requests an examination by the doctor.
    pub(super) fn request_examination(&mut self) {
        self.has_news = false;
        if let Ok(reader) = self.reader() {
            reader.examine();
        }
    }

    /// Has the failures of the runtime logged. Returns `false` if no thread could be started for
    /// that; they are logged once one can be.
    pub(super) fn have_failures_logged(&mut self) -> bool {
        self.reader().inspect(|reader| reader.notify()).is_ok()
    }

    /// Returns the thread that resolves stacks, if it was started.
    pub(super) fn into_reader(self) -> Option<Reader> {
        self.reader
    }

    /// Returns whether there was an incident since the last examination was requested.
    pub(super) fn has_news(&self) -> bool {
        self.has_news
    }

    /// Adds a remedy to the incident of the worker's poll.
    pub(super) fn add_remedy(&mut self, slot: usize, remedy: Remedy) {
        if let Some(Open { id: Some(id), .. }) = &self.watched[slot].open {
            self.shared.sentinel.incidents.change(*id, |incident| incident.remedy = worse(incident.remedy, remedy));
        }
    }

    /// Updates how long the open incidents have lasted.
    pub(super) fn update_durations(&mut self, now_ns: u64) {
        for open in self.watched.iter_mut().filter_map(|watched| watched.open.as_mut()) {
            let Some(id) = open.id else { continue };
            open.times.advance(open.for_ns(now_ns));
            self.shared.sentinel.incidents.change(id, |incident| open.times.write_to(incident));
        }
    }

    fn usual_ns(&mut self, now_ns: u64) -> u64 {
        if let Some((ns, at_ns)) = self.usual
            && now_ns.saturating_sub(at_ns) < clock::saturating_ns(P99_AGE_MAX)
        {
            return ns;
        }
        let mut polls = Histogram::default();
        self.shared.workers.remotes_in_use().iter().for_each(|remote| polls.merge(&remote.cells.poll_time.read()));
        let ns = usual_ns(&polls);
        self.usual = Some((ns, now_ns));
        ns
    }
}

/// Returns after which duration of a poll its thread is sampled again.
fn sampled_again_after_ns(for_ns: u64) -> u64 {
    for_ns.saturating_add(step_ns(for_ns))
}

/// Returns how long a poll may last to be usual, given the times of earlier polls.
fn usual_ns(polls: &Histogram) -> u64 {
    if polls.count() < USUAL_FROM_POLLS {
        return 0;
    }
    polls.quantile_ns(0.99).unwrap_or(0).saturating_mul(P99_MULTIPLE)
}

#[cfg(test)]
mod tests;
