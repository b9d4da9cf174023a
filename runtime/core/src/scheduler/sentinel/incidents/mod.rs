//! Polls that do not end in time: what is written down of them, while they last and when they are
//! over.
//!
//! Shape: the sentinel sees that a poll lasts, asks the kernel for the cause and the thread for a
//! copy of its stack, and opens an incident here. A thread of its own, started with the first
//! incident, makes the copy readable, which takes long the first time, and tells the application's
//! log. When the sentinel sees that the poll is over, it closes the incident. The same thread tells
//! what the doctor finds.
//!
//! Who writes: the sentinel and that thread, under one lock that no worker takes. Who reads:
//! snapshots.
//!
//! Bounds: the latest `LATEST_MAX` incidents are kept, stacks of `STACK_FRAMES_MAX` frames,
//! `STACKS_WAITING_MAX` stacks wait to be read. Of one spawn location and cause one is written down
//! in `QUIET_TIME`; the others are counted, and the next that is written down says how many they
//! were. Of those that are usual for the runtime one is written to the log in `USUAL_QUIET_TIME`.
//! One that was counted and lasts is written down late, of a location and cause again one in
//! `QUIET_TIME`.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use volt_stacks::Resolved;
use volt_telemetry::incident::{Cause, Frame, Incident, Incidents, Remedy};

use crate::clock;

/// Incidents that are kept.
const LATEST_MAX: usize = 64;
/// Frames of a stack that are kept, from the innermost.
const STACK_FRAMES_MAX: usize = 64;
/// Between two incidents of the same spawn location and cause that are written down.
const QUIET_TIME: Duration = Duration::from_secs(1);
/// Between two incidents of the same spawn location and cause that are written to the log, where
/// polls as long are usual.
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

/// An incident, and its stack apart: who reads takes that along under the lock without a copy,
/// since the sentinel waits for the lock.
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
    /// When one that was counted first was last written down late.
    late_at_ns: Option<u64>,
    /// Counted only since one was written down.
    suppressed: u64,
    /// When one was last written to the log, and how many there were since.
    logged_at_ns: Option<u64>,
    unlogged: u64,
}

impl Kind {
    /// When one was last written down, late or not.
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
        self.latest.push_back(Kept { incident: Incident { id: self.written, ..incident }, stack: Arc::new([]) });
        self.written
    }
}

impl Log {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Counts an incident, and writes it down unless one like it was a moment ago. Returns its
    /// number if it was.
    pub(crate) fn open(&self, mut incident: Incident, now_ns: u64) -> Option<u64> {
        let mut entries = self.lock();
        let entries = &mut *entries;
        *entries.counts.entry(incident.cause).or_default() += 1;
        let key = (incident.spawned_at.clone(), incident.cause);
        if entries.kinds.len() >= KINDS_MAX && !entries.kinds.contains_key(&key) {
            // Those that were quiet for longest say nothing that is still wanted.
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

    /// Writes down an incident that was counted only, as `counted_as`, and goes on, unless one like
    /// it was a moment ago. Returns its number if it was.
    pub(crate) fn open_late(&self, mut incident: Incident, counted_as: Cause, now_ns: u64) -> Option<u64> {
        let mut entries = self.lock();
        let entries = &mut *entries;
        let key = (incident.spawned_at.clone(), incident.cause);
        // Its cause may be another one by now, of which nothing is known.
        if entries.kinds.len() >= KINDS_MAX && !entries.kinds.contains_key(&key) {
            return None;
        }
        let kind = entries.kinds.entry(key.clone()).or_default();
        let is_like_one = |at_ns: u64| now_ns.saturating_sub(at_ns) < clock::saturating_ns(QUIET_TIME);
        if kind.late_at_ns.is_some_and(is_like_one) {
            return None;
        }
        kind.late_at_ns = Some(now_ns);
        // Without this one, which was counted under the cause that it had then.
        if let Some(counted) = entries.kinds.get_mut(&(key.0.clone(), counted_as)) {
            counted.suppressed = counted.suppressed.saturating_sub(1);
        }
        incident.suppressed = entries.kinds.get_mut(&key).map_or(0, |kind| std::mem::take(&mut kind.suppressed));
        Some(entries.write_down(incident))
    }

    /// Whether an incident is to be written to the log, and if so, how many like it were not since
    /// the last one.
    pub(super) fn log(&self, incident: &Incident, is_usual: bool, now_ns: u64) -> Option<u64> {
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

    /// Changes an incident but for its stack, if it is still kept. Asked for at each check, so it
    /// copies nothing.
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
    pub(super) fn fill_in(&self, id: u64, mut resolved: Resolved) {
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
mod tests;
