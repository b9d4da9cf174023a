//! What the sentinel knows of a poll that lasts: what its thread does, why, and where it is in the
//! code.
//!
//! Two samples of a thread, a millisecond or more apart, say what it does (`kernel::cause`). A poll
//! that has lasted for `incident_after` becomes an incident: its thread is asked for a copy of its
//! stack, and all of it is written down (`incidents`), whatever is usual for this runtime. Of many
//! of one kind in a second one is written down and the others are counted; one that goes on is
//! written down late, with its own stack, so that every outage has its own stack. What is
//! *usual*, `P99_MULTIPLE` times what all but one in a hundred polls take, is written to the log
//! less often: adaptation limits the volume of the log, and nothing else.
//!
//! Who writes: the sentinel's thread.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use volt_stacks::kernel::cause::classify;
use volt_stacks::kernel::cgroup::{Cgroup, CgroupSample};
use volt_stacks::kernel::host;
use volt_stacks::kernel::thread::{ThreadProbe, ThreadSample};
use volt_telemetry::Histogram;
use volt_telemetry::incident::{Cause, Incident, Remedy};
use volt_telemetry::recording::event::Event;
use volt_telemetry::recording::flush::Track;

use super::incidents::worse;
use super::reader::{Job, Reader, STACK_PATIENCE, Stack};
use crate::clock;
use crate::recorder::lanes::RecorderHandle;
use crate::scheduler::shared::Shared;
use crate::task::header::Place;

/// A poll that lasts no longer than so many times the 99th percentile is usual for this program;
const P99_MULTIPLE: u64 = 4;
/// unless it lasts for so many times `incident_after`: of what is that long the log is to have each
/// second's.
const USUAL_MAX_MULTIPLE: u64 = 10;
/// Of fewer polls, one in a hundred is the longest that there was: the first stall of a program
/// would make those after it usual.
const USUAL_FROM_POLLS: u64 = 1_000;
/// An incident that was counted only is written down when it has lasted for so many times
/// `incident_after`: 100 ms by default, which the doctor calls an outage.
const LATE_MULTIPLE: u64 = 10;
/// How long that percentile is taken for true.
const P99_AGE_MAX: Duration = Duration::from_secs(1);
/// Two samples of a thread that are closer than this say nothing.
const SAMPLES_APART_NS: u64 = 1_000_000;

/// See [`Groups`].
const GROUPS_GOOD_FOR_NS: u64 = 10_000_000;

/// What a stuck thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// It is blocked, or nobody knows.
    Blocks,
    Burns,
    /// It could run, and the kernel runs others; or there was only one sample so far.
    Waits,
    /// It is stopped, or its control group has no time left.
    Held,
}

/// See the header of this file.
pub(super) struct Witness<'a> {
    shared: &'a Arc<Shared>,
    watched: Vec<Watched>,
    groups: Groups,
    /// The runtime's p99, times [`P99_MULTIPLE`], and when it was read.
    usual: Option<(u64, u64)>,
    reader: Option<Reader>,
    has_news: bool,
    /// The sentinel's lane of the flight recorder.
    pub(super) recorder: RecorderHandle,
}

/// One worker.
#[derive(Default)]
struct Watched {
    /// Holds up to four descriptors, so it is given up when the poll is over.
    thread: Option<ThreadProbe>,
    /// Of the poll of this number.
    poll_seq: u64,
    /// The sample that the next is compared with.
    last: Option<Sample>,
    newest: Option<Sample>,
    open: Option<Open>,
}

/// A sample of a thread.
struct Sample {
    at_ns: u64,
    thread: ThreadSample,
    /// Of a thread that can run and does not; of others it would say nothing, and takes 20 µs a
    /// level.
    cgroup: Option<CgroupSample>,
}

impl Sample {
    fn new(thread: ThreadSample, at_ns: u64, groups: &mut Groups) -> Self {
        let may_be_throttled = !thread.is_on_cpu && !thread.is_blocked();
        Self { at_ns, thread, cgroup: if may_be_throttled { groups.sample(at_ns) } else { None } }
    }
}

/// The last sample of the control groups, and when it was. It is good for a while: the kernel
/// counts with its ticks, 4 ms apart as a rule, and on a machine that is busy there is a thread
/// that waits in nearly every sample.
#[derive(Default)]
struct Groups(Option<(u64, Option<CgroupSample>)>);

impl Groups {
    fn sample(&mut self, now_ns: u64) -> Option<CgroupSample> {
        match self.0 {
            Some((at_ns, sample)) if now_ns.saturating_sub(at_ns) < GROUPS_GOOD_FOR_NS => sample,
            _ => {
                let sample = host::cgroup().map(Cgroup::sample);
                self.0 = Some((now_ns, sample));
                sample
            }
        }
    }
}

/// An incident that is not over.
struct Open {
    /// `None` = it was counted only, so far.
    id: Option<u64>,
    began_at_ns: u64,
    /// The cause under which it was counted.
    counted_as: Cause,
    is_usual: bool,
    /// When it has lasted for so long the kernel is asked again: a thread may have waited for its
    /// processor first, and sleep only now.
    asked_again_after_ns: u64,
}

impl<'a> Witness<'a> {
    pub(super) fn new(shared: &'a Arc<Shared>) -> Self {
        Self {
            shared,
            watched: shared.remotes.iter().map(|_| Watched::default()).collect(),
            groups: Groups::default(),
            usual: None,
            reader: None,
            has_news: false,
            recorder: shared.recorder.handle(Track::Sentinel),
        }
    }

    /// The machine stood still until now, while an incident was open: that is not its poll's doing.
    pub(super) fn excuse(&mut self, slot: usize, paused_ns: u64, now_ns: u64) {
        if paused_ns == 0 {
            return;
        }
        let Some(open) = &mut self.watched[slot].open else { return };
        open.began_at_ns = (open.began_at_ns + paused_ns).min(now_ns);
        let began_at_ns = open.began_at_ns;
        if let Some(id) = open.id {
            self.shared.incidents.change(id, |incident| incident.began_at_ns = began_at_ns);
        }
    }

    /// The worker is in the poll of this number now, if it is odd: an incident of another one is
    /// over.
    pub(super) fn goes_on(&mut self, slot: usize, poll_seq: u64, now_ns: u64) {
        let watched = &mut self.watched[slot];
        if watched.poll_seq == poll_seq {
            return;
        }
        watched.poll_seq = poll_seq;
        self.ends(slot, now_ns);
    }

    /// What was going on there is over, and what comes is sampled anew.
    pub(super) fn ends(&mut self, slot: usize, now_ns: u64) {
        let watched = &mut self.watched[slot];
        (watched.thread, watched.last, watched.newest) = (None, None, None);
        if let Some(Open { id: Some(id), began_at_ns, .. }) = watched.open.take() {
            self.shared.incidents.change(id, |incident| {
                incident.is_over = true;
                incident.for_ns = now_ns.saturating_sub(began_at_ns);
            });
        }
    }

    /// What the thread has done since it was last asked, in this poll.
    pub(super) fn doing(&mut self, slot: usize, now_ns: u64) -> Doing {
        match self.cause(slot, now_ns) {
            Some(Cause::Cpu) => Doing::Burns,
            Some(Cause::NotScheduled) => Doing::Waits,
            Some(Cause::Throttled | Cause::Stopped) => Doing::Held,
            Some(_) => Doing::Blocks,
            // One sample shows whether it is blocked, at least.
            None => match &self.watched[slot].last {
                Some(sample) if !sample.thread.is_blocked() => Doing::Waits,
                _ => Doing::Blocks,
            },
        }
    }

    /// Why the thread does not get on: `None` for the first sample.
    fn cause(&mut self, slot: usize, now_ns: u64) -> Option<Cause> {
        let id = self.shared.remotes[slot].cells.thread_id.get();
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
            // Whether it was the quota, two samples of the group tell: this is the first.
            watched.last = Some(sample);
        } else {
            watched.newest = Some(sample);
        }
        Some(cause)
    }

    /// A poll is stuck, for `for_ns` so far, that left out for which the machine stood still: an
    /// incident, if that is long.
    pub(super) fn see(&mut self, slot: usize, for_ns: u64, now_ns: u64) {
        let shared = self.shared;
        let Some(after_ns) = shared.config.incident_after_ns else { return };
        if self.watched[slot].open.is_some() {
            self.ask_again(slot, for_ns, now_ns);
            return;
        }
        if 2 * for_ns < after_ns {
            return;
        }
        // From half of the time on, so that there are two samples when it is up.
        let Some(cause) = self.cause(slot, now_ns) else { return };
        if for_ns < after_ns {
            return;
        }
        let is_usual = for_ns < self.usual_ns(now_ns).min(USUAL_MAX_MULTIPLE.saturating_mul(after_ns));
        let poll_seq = self.watched[slot].poll_seq;
        let Some((incident, place)) = self.incident(slot, cause, for_ns, now_ns) else { return };
        if let Some((culprit, _)) = shared.remotes[slot].cells.culprit_of(poll_seq) {
            shared.sentinel.blame.count_stall(culprit);
        }
        let began_at_ns = incident.began_at_ns;
        self.has_news = true;
        let id = shared.incidents.open(incident, now_ns);
        // Whether one that was counted only goes on, nobody needs to know sooner.
        let asked_again_after_ns = if id.is_some() { 2 * for_ns } else { LATE_MULTIPLE.saturating_mul(after_ns) };
        self.watched[slot].open = Some(Open { id, began_at_ns, counted_as: cause, is_usual, asked_again_after_ns });
        if let Some(id) = id {
            self.have_told(slot, id, place, is_usual);
        }
    }

    /// An incident was written down: adds its stack, and has it told.
    fn have_told(&mut self, slot: usize, id: u64, place: Place, is_usual: bool) {
        let shared = self.shared;
        let (remote, poll_seq) = (&shared.remotes[slot], self.watched[slot].poll_seq);
        self.recorder.note(clock::now_ns, || Event::Stall { incident: id, worker: slot as u16 });
        let stack = self.take_stack(slot);
        // Of the next poll, perhaps.
        let stack = if remote.cells.poll_seq() == poll_seq { stack } else { Stack::Missed };
        let job = Job { id, stack, slot, poll_seq, place, is_usual };
        let is_taken = match self.reader() {
            Ok(reader) => reader.take(job).map_err(str::to_owned),
            Err(error) => Err(format!("no thread could be started to read it: {error}")),
        };
        if let Err(why) = is_taken {
            // Not told, since whoever listens may block; it is shown all the same.
            shared.incidents.change(id, |incident| incident.stack_error = Some(why));
        }
    }

    /// The poll that goes on, as an incident, and where its task was seen. `None`: it is over.
    fn incident(&self, slot: usize, cause: Cause, for_ns: u64, now_ns: u64) -> Option<(Incident, Place)> {
        let (remote, watched) = (&self.shared.remotes[slot], &self.watched[slot]);
        // What was asked of the kernel took its time: the poll may be over, and the next one
        // innocent.
        let (poll, place) = remote.cells.in_flight_of(watched.poll_seq, now_ns)?;
        let task_name = self.shared.registry.name_of(poll.task_id, place);
        let wait_channel = watched.newest.as_ref().and_then(|sample| sample.thread.wait_channel);
        let incident = Incident {
            began_at_ns: now_ns.saturating_sub(for_ns),
            for_ns,
            worker: slot as u32,
            task_id: poll.task_id,
            task_name,
            spawned_at: poll.spawned_at,
            cause,
            wait_channel: wait_channel.map(|channel| channel.as_str().to_owned()),
            waiting: remote.queued() as u64,
            ..Incident::default()
        };
        Some((incident, place))
    }

    /// The cause of an incident that goes on may be another one by now, what was counted stays
    /// counted; and one that was counted only is written down.
    fn ask_again(&mut self, slot: usize, for_ns: u64, now_ns: u64) {
        let watched = &mut self.watched[slot];
        let Some(Open { id, asked_again_after_ns, counted_as, is_usual, .. }) = &mut watched.open else { return };
        if for_ns < *asked_again_after_ns {
            return;
        }
        *asked_again_after_ns = 2 * for_ns;
        let (id, counted_as, is_usual) = (*id, *counted_as, *is_usual);
        watched.last = watched.newest.take().or(watched.last.take());
        let Some(cause) = self.cause(slot, now_ns) else { return };
        let Some(id) = id else {
            let Some((incident, place)) = self.incident(slot, cause, for_ns, now_ns) else { return };
            let id = self.shared.incidents.open_late(incident, counted_as, now_ns);
            if let (Some(open), Some(new)) = (&mut self.watched[slot].open, id) {
                open.id = id;
                self.has_news = true;
                self.have_told(slot, new, place, is_usual);
            }
            return;
        };
        let channel = self.watched[slot].newest.as_ref().and_then(|sample| sample.thread.wait_channel);
        self.shared.incidents.change(id, |incident| {
            incident.cause = cause;
            incident.wait_channel = channel.map(|channel| channel.as_str().to_owned());
        });
    }

    /// A copy of the poll's stack, if its thread gives one at once.
    fn take_stack(&self, slot: usize) -> Stack {
        let Some(sampler) = &self.shared.sampler else { return Stack::None("stacks are off".to_owned()) };
        let Some(thread) = self.shared.remotes[slot].stack_of() else {
            return Stack::None("the worker's thread could not be registered".to_owned());
        };
        // The one that reads it asks again, and has more time.
        sampler.capture(&thread, STACK_PATIENCE).map_or(Stack::Missed, Stack::Copied)
    }

    /// The thread that reads stacks, started if it is not there yet.
    fn reader(&mut self) -> io::Result<&Reader> {
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => Reader::start(self.shared)?,
        };
        Ok(self.reader.insert(reader))
    }

    /// Whether that thread was started, which nobody needs before there is something to read or to
    /// examine.
    #[cfg(test)]
    pub(super) fn has_reader(&self) -> bool {
        self.reader.is_some()
    }

    /// Has the doctor examine the runtime.
    pub(super) fn have_examined(&mut self) {
        self.has_news = false;
        if let Ok(reader) = self.reader() {
            reader.examine();
        }
    }

    /// Has told what the runtime cannot do. `false` = no thread can be had for that either: it is
    /// told when one can.
    pub(super) fn have_troubles_told(&mut self) -> bool {
        self.reader().inspect(|reader| reader.notify()).is_ok()
    }

    /// Whether there was an incident since the doctor last examined the runtime.
    pub(super) fn has_news(&self) -> bool {
        self.has_news
    }

    /// Something was done about the poll.
    pub(super) fn note(&mut self, slot: usize, remedy: Remedy) {
        if let Some(Open { id: Some(id), .. }) = &self.watched[slot].open {
            self.shared.incidents.change(*id, |incident| incident.remedy = worse(incident.remedy, remedy));
        }
    }

    /// What the incidents that are not over have lasted so far.
    pub(super) fn age(&self, now_ns: u64) {
        for open in self.watched.iter().filter_map(|watched| watched.open.as_ref()) {
            if let Some(id) = open.id {
                self.shared.incidents.change(id, |incident| incident.for_ns = now_ns.saturating_sub(open.began_at_ns));
            }
        }
    }

    fn usual_ns(&mut self, now_ns: u64) -> u64 {
        if let Some((ns, at_ns)) = self.usual
            && now_ns.saturating_sub(at_ns) < clock::saturating_ns(P99_AGE_MAX)
        {
            return ns;
        }
        let mut polls = Histogram::default();
        self.shared.remotes_in_use().iter().for_each(|remote| polls.merge(&remote.cells.poll_time.read()));
        let ns = usual_ns(&polls);
        self.usual = Some((ns, now_ns));
        ns
    }
}

/// What polls may last where these were.
fn usual_ns(polls: &Histogram) -> u64 {
    if polls.count() < USUAL_FROM_POLLS {
        return 0;
    }
    polls.quantile_ns(0.99).unwrap_or(0).saturating_mul(P99_MULTIPLE)
}

#[cfg(test)]
mod tests;
