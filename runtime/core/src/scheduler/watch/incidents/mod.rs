//! The log of incidents: polls that last too long, recorded while they last and when they are over.
//!
//! The sentinel finds a long poll, gets its cause from the kernel and a copy of its stack from its
//! thread, and opens an incident here. Another thread (`sentinel::reader`) resolves the stack,
//! which takes long the first time, and writes the incident to the application's log. When the
//! sentinel finds that the poll is over, it closes the incident. The same thread logs the doctor's
//! findings.
//!
//! The sentinel and that thread write here, under one lock that no worker takes. Snapshots read.
//!
//! A poll may have several causes, one after the other: it waits for a lock, and then sleeps. Its
//! incident has the time of each, and one of them is that of the incident (`stalls::times`). The
//! first stack of each cause is kept, since the incident's cause may change until the poll is over.
//! A reader gets the stack of the incident's cause, and the suspect line of each other one. A stack
//! that was missed counts as not read yet while it may be requested again: as long as its cause is
//! that of the last sample, a limited number of times.
//!
//! Bounds: the latest `LATEST_MAX` incidents are kept, with a few stacks (`stalls::times`) of
//! `STACK_FRAMES_MAX` frames; `STACKS_WAITING_MAX` stacks may wait to be resolved. For each *kind*,
//! that is, each spawn location and cause, one incident is recorded per `QUIET_TIME`. The others
//! are only counted, and the next recorded incident includes their number. Of the incidents that
//! are usual for the runtime, one is logged per `USUAL_QUIET_TIME`. An incident that was only
//! counted is recorded late if it lasts, again one per kind and `QUIET_TIME`.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use volt_stacks::Resolved;
use volt_telemetry::finding::Place;
use volt_telemetry::incident::{Cause, Frame, Incident, Incidents, Remedy};

use crate::clock;

/// How many incidents are kept.
const LATEST_MAX: usize = 64;
/// How many frames of a stack are kept, from the innermost on.
const STACK_FRAMES_MAX: usize = 64;
/// The minimum time between two recorded incidents of the same spawn location and cause.
const QUIET_TIME: Duration = Duration::from_secs(1);
/// The minimum time between two logged incidents of the same spawn location and cause, if polls as
/// long are usual.
const USUAL_QUIET_TIME: Duration = Duration::from_secs(60);
/// For how many spawn locations and causes the limits are tracked.
const KINDS_MAX: usize = 256;

/// The incidents of a runtime: see the module documentation.
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

/// An incident with its stacks stored separately. A reader clones only references to the frames
/// while it holds the lock, since the sentinel waits for the lock.
#[derive(Clone)]
struct Kept {
    incident: Incident,
    /// The cause of the last sample.
    last: Cause,
    stacks: Vec<CauseStack>,
}

/// The first stack with a cause, or why there is none.
#[derive(Clone)]
struct CauseStack {
    cause: Cause,
    frames: Arc<[Frame]>,
    error: Option<String>,
    /// Whether the thread did not provide it in time, and it can be requested again while the poll
    /// has this cause.
    is_missed: bool,
}

impl Kept {
    fn into_whole(self) -> Incident {
        let (mut incident, last) = (self.incident, self.last);
        for CauseStack { cause, frames, error, is_missed } in self.stacks {
            let guilty = frames.iter().find(|frame| frame.is_user_code);
            if let Some(part) = incident.causes.iter_mut().find(|part| part.cause == cause) {
                part.at = guilty.map(|frame| Place::of_frame(frame).at().to_owned());
            }
            if cause == incident.cause {
                // Only the stack of the present cause is requested again.
                let error = error.filter(|_| !is_missed || incident.is_over || cause != last);
                (incident.stack, incident.stack_error) = (frames.to_vec(), error);
            }
        }
        incident
    }
}

/// The state of one spawn location and cause.
#[derive(Clone, Copy, Default)]
struct Kind {
    written_at_ns: u64,
    /// When an incident that was first only counted was last recorded late.
    late_at_ns: Option<u64>,
    /// How many were only counted since one was recorded.
    suppressed: u64,
    /// When one was last written to the log, and how many there were since.
    logged_at_ns: Option<u64>,
    unlogged: u64,
}

impl Kind {
    /// When one was last recorded, late or not.
    fn last_at_ns(&self) -> u64 {
        self.written_at_ns.max(self.late_at_ns.unwrap_or(0))
    }
}

impl Entries {
    fn write_down(&mut self, incident: Incident) -> u64 {
        self.written += 1;
        if self.latest.len() == LATEST_MAX {
            self.latest.pop_front();
            self.evicted += 1;
        }
        let last = incident.cause;
        let incident = Incident { id: self.written, ..incident };
        self.latest.push_back(Kept { incident, last, stacks: Vec::new() });
        self.written
    }
}

impl Log {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Counts an incident, and records it unless one of the same kind was recorded a moment ago.
    /// Returns its number if it was recorded.
    pub(crate) fn open(&self, mut incident: Incident, now_ns: u64) -> Option<u64> {
        let mut entries = self.lock();
        let entries = &mut *entries;
        *entries.counts.entry(incident.cause).or_default() += 1;
        let key = (incident.spawned_at.clone(), incident.cause);
        if entries.kinds.len() >= KINDS_MAX && !entries.kinds.contains_key(&key) {
            // Kinds that have been quiet for `QUIET_TIME` are no longer needed.
            let quiet_ns = clock::saturating_ns(QUIET_TIME);
            entries.kinds.retain(|_, kind| now_ns.saturating_sub(kind.last_at_ns()) < quiet_ns);
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
        let kind = kind.unwrap_or_default();
        incident.suppressed = kind.suppressed;
        let unlogged = kind.unlogged + 1;
        entries.kinds.insert(key, Kind { written_at_ns: now_ns, suppressed: 0, unlogged, ..kind });
        Some(entries.write_down(incident))
    }

    /// Records an incident that was only counted so far, as `counted_as`, and still lasts, unless
    /// one of the same kind was recorded late a moment ago. Returns its number if it was recorded.
    pub(crate) fn open_late(&self, mut incident: Incident, counted_as: Cause, now_ns: u64) -> Option<u64> {
        let mut entries = self.lock();
        let entries = &mut *entries;
        let key = (incident.spawned_at.clone(), incident.cause);
        // Its cause may have changed to one for which nothing is tracked.
        if entries.kinds.len() >= KINDS_MAX && !entries.kinds.contains_key(&key) {
            return None;
        }
        let kind = entries.kinds.entry(key.clone()).or_default();
        let is_like_one = |at_ns: u64| now_ns.saturating_sub(at_ns) < clock::saturating_ns(QUIET_TIME);
        if kind.late_at_ns.is_some_and(is_like_one) {
            return None;
        }
        kind.late_at_ns = Some(now_ns);
        // Without this incident, which was counted under its earlier cause.
        if let Some(counted) = entries.kinds.get_mut(&(key.0.clone(), counted_as)) {
            counted.suppressed = counted.suppressed.saturating_sub(1);
        }
        incident.suppressed = entries.kinds.get_mut(&key).map_or(0, |kind| std::mem::take(&mut kind.suppressed));
        Some(entries.write_down(incident))
    }

    /// Returns whether an incident is to be written to the log, and if so, how many of the same
    /// kind were not since the last one.
    pub(in crate::scheduler) fn log(&self, incident: &Incident, is_usual: bool, now_ns: u64) -> Option<u64> {
        let mut entries = self.lock();
        let key = (incident.spawned_at.clone(), incident.cause);
        // Its cause may have changed to one for which nothing is tracked.
        let Some(kind) = entries.kinds.get_mut(&key) else { return Some(incident.suppressed) };
        let quiet_ns = clock::saturating_ns(USUAL_QUIET_TIME);
        if is_usual && kind.logged_at_ns.is_some_and(|at_ns| now_ns.saturating_sub(at_ns) < quiet_ns) {
            return None;
        }
        kind.logged_at_ns = Some(now_ns);
        Some(std::mem::take(&mut kind.unlogged).saturating_sub(1))
    }

    /// Changes an incident, except for its stack, if it is still kept. Called at each check, so it
    /// copies nothing.
    pub(crate) fn change(&self, id: u64, change: impl FnOnce(&mut Incident)) {
        self.change_kept(id, |kept| change(&mut kept.incident));
    }

    /// Changes an incident after a sample, and notes the sample's cause.
    pub(crate) fn sample(&self, id: u64, cause: Cause, change: impl FnOnce(&mut Incident)) {
        self.change_kept(id, |kept| {
            kept.last = cause;
            change(&mut kept.incident);
        });
    }

    /// Returns the cause of the last sample, if the incident is still kept.
    pub(in crate::scheduler) fn last_cause(&self, id: u64) -> Option<Cause> {
        self.lock().latest.iter().rev().find(|kept| kept.incident.id == id).map(|kept| kept.last)
    }

    fn change_kept(&self, id: u64, change: impl FnOnce(&mut Kept)) {
        let mut entries = self.lock();
        if let Some(kept) = entries.latest.iter_mut().rev().find(|kept| kept.incident.id == id) {
            change(kept);
        }
    }

    /// Adds the resolved stack of a cause to an incident.
    pub(in crate::scheduler) fn fill_in(&self, id: u64, cause: Cause, mut resolved: Resolved) {
        resolved.frames.truncate(STACK_FRAMES_MAX);
        let frames = Arc::from(resolved.frames);
        self.put(id, CauseStack { cause, frames, error: resolved.error, is_missed: false });
    }

    /// Notes that the stack of a cause was missed. It can be requested again, unless this was the
    /// last request.
    pub(in crate::scheduler) fn miss(&self, id: u64, cause: Cause, why: String, is_last: bool) {
        self.put(id, CauseStack { cause, frames: Arc::from([]), error: Some(why), is_missed: !is_last });
    }

    fn put(&self, id: u64, stack: CauseStack) {
        self.change_kept(id, |kept| {
            kept.stacks.retain(|other| other.cause != stack.cause);
            kept.stacks.push(stack);
        });
    }

    /// Returns whether the stack of a cause was missed and can be requested again. It is not missed
    /// any more until it is missed again.
    pub(crate) fn take_missed(&self, id: u64, cause: Cause) -> bool {
        let mut was_missed = false;
        self.change_kept(id, |kept| {
            let stacks = kept.stacks.len();
            kept.stacks.retain(|stack| stack.cause != cause || !stack.is_missed);
            was_missed = kept.stacks.len() < stacks;
        });
        was_missed
    }

    /// Notes that no stack of an incident is requested again: the errors of those that were missed
    /// are final.
    pub(crate) fn end_requests(&self, id: u64) {
        self.change_kept(id, |kept| kept.stacks.iter_mut().for_each(|stack| stack.is_missed = false));
    }

    /// Returns an incident as it is now, if it is still kept.
    pub(crate) fn get(&self, id: u64) -> Option<Incident> {
        let kept = self.lock().latest.iter().rev().find(|kept| kept.incident.id == id).cloned();
        kept.map(Kept::into_whole)
    }

    pub(crate) fn telemetry(&self) -> Incidents {
        let entries = self.lock();
        let reported = Incidents {
            by_cause: Cause::ALL.iter().map(|cause| entries.counts.get(cause).copied().unwrap_or(0)).collect(),
            suppressed: entries.suppressed,
            evicted: entries.evicted,
            latest: Vec::new(),
        };
        let latest: Vec<_> = entries.latest.iter().cloned().collect();
        drop(entries);
        Incidents { latest: latest.into_iter().map(Kept::into_whole).collect(), ..reported }
    }
}

/// Returns the stronger of two remedies.
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
mod tests;
