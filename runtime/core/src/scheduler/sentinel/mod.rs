//! The sentinel: a thread that watches the workers while any of them is awake, so that a task that
//! blocks delays no other.
//!
//! A check compares what each worker does with what it did at the check before. *Long* is a poll
//! that has lasted for `STUCK_AFTER`; *stuck* a worker that was in the same long poll at both
//! checks, or that has said that it blocks. What is done about it, in this order:
//!
//! 1. Nobody polls timers and I/O, since the worker that was in the driver left it for a task that
//!    takes long: a parked worker is woken.
//! 2. Somebody is parked, and the stuck worker holds tasks: a parked worker is woken, and takes
//!    them (*rescue*); those that it may not take, since stealing is off or the LIFO slot is to be
//!    left alone for longer, go to the global queue.
//! 3. Nobody is parked, and work waits or nobody moves: the poll is asked to yield at its next
//!    operation (*preempt*), and the kernel is asked what the thread does. It blocks: it is
//!    declared away at once. It burns processor time: after `BURN_AFTER`, and only so many at a
//!    time, since more threads than processors help nobody for long. It could run and the kernel
//!    runs others: as one that burns, after `WAIT_AFTER`, since it may burn all it gets. It is
//!    stopped, or its quota is spent: not at all, since a spare would be no better off.
//! 4. Fewer are able than there are workers, and nobody is parked: a spare is called, or it is
//!    counted that there was none (*capped*).
//! 5. What a worker holds that is away goes to the global queue, at each check, since a stuck poll
//!    may wake tasks.
//!
//! A spare stays for `SPARE_LINGER` after the last stall, since who blocks once blocks again. Then
//! as many leave as are too many.
//!
//! Each poll that is stuck is also examined, and recorded if it lasts: see `witness`. Once a second
//! the doctor is asked: see `doctor`.
//!
//! Checks follow each other at `sentinel_interval`; while spares linger, at `SUSPICIOUS_INTERVAL`,
//! and while a poll is long too, which doubles if nothing has to be done. A block that was
//! announced may last for hours: as long as somebody is parked beside it, it is checked as a long
//! poll is. A check that comes late by `PAUSE` says that the machine stood still, not the tasks
//! (`lateness`): then all that was seen before is forgotten, and polls that were going on are not
//! charged with that time, as long as they last.
//!
//! Who writes: its own thread. It owns nothing of the workers': it takes from their queues as
//! thieves do, and calls spares by `staff`. How it sleeps stands in `doze`.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use volt_telemetry::incident::Remedy;
use volt_telemetry::recording::event::Event;

use self::lateness::{Lateness, Pause};
use self::witness::{Doing, Witness};
use super::doctor::Doctor;
use super::remote::Remote;
use super::shared::Shared;
use super::staff::Duty;
use crate::clock;
use crate::config::{BURN_AFTER, DOCTOR_INTERVAL, SPARE_LINGER, STUCK_AFTER, SUSPICIOUS_INTERVAL, WAIT_AFTER};
use crate::queue::ring::{Producer, Steal, ring};
use crate::task::header::Notified;

pub(crate) mod counts;
pub(crate) mod doze;
pub(crate) mod incidents;
mod lateness;
mod reader;
mod witness;

/// Suspicious checks in a row for which nothing had to be done, after which they are spaced out.
const PATIENCE: u32 = 8;
/// Checks in a row that found all at rest, after which it dozes. To rouse it costs the worker that
/// wakes up a wake-up of 4 µs before it runs its task; so a runtime that is woken now and then,
/// more often than five times a second, does not pay for it.
const QUIET_CHECKS: u32 = 20;
/// Workers that burn processor time and are replaced at a time, at least; else a quarter of the
/// workers.
const MIN_BURNING: usize = 2;

/// The sentinel's thread, until it is told to end.
pub(crate) fn run(shared: &Arc<Shared>, interval: Duration) {
    let sentinel = &shared.sentinel;
    let mut rounds = Rounds::new(shared, interval);
    let mut pause = interval;
    // ORDERING: Acquire; pairs with the Release in `end`. The token that `end` leaves ends any
    // sleep that began before.
    while !sentinel.is_over.load(Ordering::Acquire) {
        let is_at_rest = || rounds.quiet_checks >= QUIET_CHECKS && shared.is_at_rest();
        let was_timed = sentinel.doze.sleep(&shared.idle, is_at_rest, pause);
        pause = rounds.check(was_timed.then_some(pause));
    }
    shared.troubles.leave();
    if shared.troubles.has_news() && !rounds.witness.have_troubles_told() {
        // No worker is left that would have to wait for this thread.
        shared.troubles.tell_rest();
    }
}

/// What the sentinel's thread knows from one check to the next.
struct Rounds<'a> {
    shared: &'a Arc<Shared>,
    interval: Duration,
    seen: Vec<Seen>,
    checked_at_ns: u64,
    /// When somebody was last stuck and something had to be done about it.
    stalled_at_ns: Option<u64>,
    /// Suspicious checks in a row for which nothing had to be done.
    idle_checks: u32,
    /// Checks in a row that found all at rest.
    quiet_checks: u32,
    /// When the doctor was last asked, or the sentinel began.
    examined_at_ns: u64,
    /// Where a thief needs a ring of its own.
    basket: Producer<Notified>,
    witness: Witness<'a>,
    lateness: Lateness,
}

/// A worker at the last check.
#[derive(Default)]
struct Seen {
    /// Odd: in a poll.
    poll_seq: u64,
    /// For how long the machine stood still in this poll; all of it, up to the end of a block that
    /// was announced.
    excused_ns: u64,
    /// The poll for which it was declared away.
    away_seq: u64,
    is_burning: bool,
}

/// A worker that is stuck.
struct Stuck {
    slot: usize,
    poll_seq: u64,
    for_ns: u64,
    duty: Duty,
}

impl<'a> Rounds<'a> {
    fn new(shared: &'a Arc<Shared>, interval: Duration) -> Self {
        Self {
            shared,
            interval,
            seen: shared.remotes.iter().map(|_| Seen::default()).collect(),
            checked_at_ns: clock::now_ns(),
            stalled_at_ns: None,
            idle_checks: 0,
            quiet_checks: 0,
            examined_at_ns: clock::now_ns(),
            basket: ring(shared.config.local_queue_capacity).0,
            witness: Witness::new(shared),
            lateness: Lateness::new(),
        }
    }

    /// One check, after a sleep that was to last for `slept`, if it was not to last until a worker
    /// wakes up. Returns how long the next is to be.
    fn check(&mut self, slept: Option<Duration>) -> Duration {
        let (shared, now_ns) = (self.shared, clock::check());
        shared.sentinel.checks.add(1);
        let since_ns = now_ns.saturating_sub(self.checked_at_ns);
        self.checked_at_ns = now_ns;
        let pause = slept.and_then(|slept| self.lateness.pause(slept, since_ns));
        if let Some(Pause { cause, .. }) = pause {
            *shared.sentinel.last_pause.lock().unwrap_or_else(PoisonError::into_inner) = Some(cause);
            shared.sentinel.pauses.add(1);
        }
        let was_paused = pause.is_some();
        let (stuck, moving, is_suspicious) = self.compare(now_ns, pause.map_or(0, |pause| pause.late_ns));
        // A block that was announced is none to be wondered at.
        for stuck in stuck.iter().filter(|stuck| stuck.duty != Duty::Blocking && !was_paused) {
            self.witness.see(stuck.slot, stuck.for_ns, now_ns);
        }
        self.witness.age(now_ns);
        let has_woken = self.check_driver(now_ns);
        let has_acted = self.relieve(&stuck, moving, now_ns) || has_woken;
        self.dismiss(now_ns);
        self.quiet_checks = if shared.is_at_rest() { self.quiet_checks.saturating_add(1) } else { 0 };
        self.consult(now_ns);
        if shared.troubles.is_due(now_ns) {
            let _is_told = self.witness.have_troubles_told();
        }
        self.pause(is_suspicious || !stuck.is_empty(), has_acted)
    }

    /// Has the runtime examined now and then, and before the sentinel dozes, if that can be read.
    fn consult(&mut self, now_ns: u64) {
        let shared = self.shared;
        let is_due = now_ns.saturating_sub(self.examined_at_ns) >= clock::saturating_ns(DOCTOR_INTERVAL);
        let is_leaving = self.quiet_checks == QUIET_CHECKS;
        let is_asked = is_due || is_leaving && (self.witness.has_news() || shared.sentinel.doctor.is_unwell());
        if is_asked && Doctor::is_wanted(&shared.config) {
            self.examined_at_ns = now_ns;
            self.witness.have_examined();
        }
    }

    /// Who is stuck, how many others there are, and whether any poll is long.
    fn compare(&mut self, now_ns: u64, paused_ns: u64) -> (Vec<Stuck>, usize, bool) {
        let shared = self.shared;
        let (mut stuck, mut moving, mut is_suspicious) = (Vec::new(), 0, false);
        for (slot, remote) in shared.remotes_in_use().iter().enumerate() {
            let seen = &mut self.seen[slot];
            let mut duty = shared.staff.duty(slot);
            seen.is_burning &= duty == Duty::Away;
            let poll_seq = remote.cells.poll_seq();
            self.witness.excuse(slot, paused_ns, now_ns);
            self.witness.goes_on(slot, poll_seq, now_ns);
            if duty == Duty::Away && poll_seq != seen.away_seq {
                // It has come back, and has not noticed that it was away.
                shared.staff.take_back(slot);
                duty = shared.staff.duty(slot);
            }
            let is_same = std::mem::replace(&mut seen.poll_seq, poll_seq) == poll_seq;
            let excused_ns = if is_same { seen.excused_ns } else { 0 };
            let for_ns = remote.cells.poll_for_ns(now_ns).unwrap_or(0).saturating_sub(excused_ns);
            let excused_now_ns = match duty {
                // Said beforehand, and others do its work: no stall. A stall before it ends here,
                // and what comes after it is a new one.
                Duty::Blocking => {
                    self.witness.ends(slot, now_ns);
                    for_ns
                }
                _ => paused_ns.min(for_ns),
            };
            seen.excused_ns = excused_ns + excused_now_ns;
            let for_ns = for_ns - excused_now_ns;
            let is_long = for_ns >= clock::saturating_ns(STUCK_AFTER);
            match duty {
                Duty::Off => {}
                Duty::Blocking | Duty::Away => stuck.push(Stuck { slot, poll_seq, for_ns, duty }),
                Duty::Present if is_long && is_same && paused_ns == 0 => {
                    stuck.push(Stuck { slot, poll_seq, for_ns, duty })
                }
                Duty::Present => {
                    is_suspicious |= is_long;
                    moving += 1;
                }
            }
        }
        (stuck, moving, is_suspicious)
    }

    /// Whether a worker had to be woken for timers and I/O.
    fn check_driver(&self, now_ns: u64) -> bool {
        let shared = self.shared;
        let interval_ns = clock::saturating_ns(self.interval);
        let is_overdue =
            shared.driver.owner().is_none() && now_ns.saturating_sub(shared.driver.last_turn_ns()) >= interval_ns;
        let has_woken = is_overdue && shared.wake_one();
        shared.sentinel.rescues.add(u64::from(has_woken));
        has_woken
    }

    /// Does what there is to do about those that are stuck, beside `moving` ones. Returns whether
    /// that was anything.
    fn relieve(&mut self, stuck: &[Stuck], mut moving: usize, now_ns: u64) -> bool {
        let (shared, sentinel) = (self.shared, &self.shared.sentinel);
        let mut has_acted = false;
        for stuck in stuck {
            let remote = &shared.remotes[stuck.slot];
            let is_present = stuck.duty == Duty::Present;
            if is_present && !shared.idle.is_nobody_parked() {
                let do_thieves_take =
                    shared.config.enable_stealing && stuck.for_ns >= shared.config.lifo_steal_after_ns;
                let is_rescued =
                    if do_thieves_take { remote.queued() > 0 && shared.wake_one() } else { self.empty(stuck, now_ns) };
                if is_rescued {
                    sentinel.rescues.add(1);
                    self.witness.note(stuck.slot, Remedy::Rescued);
                    has_acted = true;
                }
                continue;
            }
            if is_present && (moving == 0 || self.does_work_wait()) {
                if remote.cells.ask_to_yield(stuck.poll_seq) {
                    sentinel.preempts.add(1);
                }
                if !self.is_to_be_replaced(stuck, now_ns) || !self.declare_away(stuck) {
                    continue;
                }
                has_acted = true;
            }
            if !is_present || shared.staff.duty(stuck.slot) != Duty::Present {
                has_acted |= self.empty(stuck, now_ns);
            }
        }
        let mut remedy = Remedy::Replaced;
        let is_to_be_watched = |stuck: &Stuck| match stuck.duty {
            Duty::Away => true,
            // What it wakes goes to others, and if one of them is parked nobody waits for a spare.
            Duty::Blocking => shared.idle.is_nobody_parked(),
            Duty::Present | Duty::Off => false,
        };
        if has_acted || stuck.iter().any(is_to_be_watched) {
            self.stalled_at_ns = Some(now_ns);
        }
        while shared.staff.able() < shared.config.workers
            && shared.idle.is_nobody_parked()
            && (moving == 0 || self.does_work_wait())
        {
            // It stays until nobody has been stuck for a while.
            shared.staff.set_keep(usize::MAX);
            if !shared.call_spare() {
                sentinel.capped.add(1);
                remedy = Remedy::Capped;
                break;
            }
            moving += 1;
            has_acted = true;
        }
        for stuck in stuck.iter().filter(|stuck| shared.staff.duty(stuck.slot) == Duty::Away) {
            self.witness.note(stuck.slot, remedy);
        }
        has_acted
    }

    /// Whether any queue holds a task.
    fn does_work_wait(&self) -> bool {
        self.shared.injector.len() > 0 || self.shared.remotes_in_use().iter().any(|remote| remote.queued() > 0)
    }

    fn is_to_be_replaced(&mut self, stuck: &Stuck, now_ns: u64) -> bool {
        let after = match self.witness.doing(stuck.slot, now_ns) {
            Doing::Blocks => return true,
            Doing::Burns => BURN_AFTER,
            Doing::Waits => WAIT_AFTER,
            Doing::Held => return false,
        };
        let burning = self.seen.iter().filter(|seen| seen.is_burning).count();
        let may =
            stuck.for_ns >= clock::saturating_ns(after) && burning < MIN_BURNING.max(self.shared.config.workers / 4);
        self.seen[stuck.slot].is_burning = may;
        may
    }

    /// Replace (1) and (2).
    fn declare_away(&mut self, stuck: &Stuck) -> bool {
        let shared = self.shared;
        if !shared.staff.declare_away(stuck.slot) {
            return false;
        }
        if shared.remotes[stuck.slot].cells.poll_seq() != stuck.poll_seq {
            shared.staff.take_back(stuck.slot);
            return false;
        }
        self.seen[stuck.slot].away_seq = stuck.poll_seq;
        self.witness.recorder.note(clock::now_ns, || Event::Retire { worker: stuck.slot as u16 });
        shared.sentinel.replacements.add(1);
        true
    }

    /// Takes what a worker holds that is stuck, and hands it on. Returns whether there was
    /// anything.
    fn empty(&mut self, stuck: &Stuck, now_ns: u64) -> bool {
        let remote = &self.shared.remotes[stuck.slot];
        let mut tasks: Vec<_> = remote.lifo.take().into_iter().collect();
        for steal in Remote::STEALS {
            while let Steal::Taken { next, .. } = steal(remote, &mut self.basket) {
                tasks.push(next);
                tasks.extend(std::iter::from_fn(|| self.basket.pop()));
            }
        }
        remote.inbox.pop_batch(usize::MAX, |task| tasks.push(task));
        if let Some((culprit, began_at_ns)) = remote.cells.culprit_of(stuck.poll_seq) {
            for task in &tasks {
                let task = task.header();
                let waited_ns = now_ns.saturating_sub(task.submitted_at_ns().max(began_at_ns));
                self.shared.sentinel.blame.charge(culprit, task.location(), waited_ns);
            }
        }
        let count = tasks.len();
        if count > 0 {
            remote.cells.note_charged(now_ns);
        }
        self.shared.sentinel.tasks_rescued.add(count as u64);
        self.shared.hand_over(tasks, now_ns);
        count > 0
    }

    /// Lets spares go when nobody has been stuck for a while.
    fn dismiss(&mut self, now_ns: u64) {
        let shared = self.shared;
        let linger_ns = clock::saturating_ns(SPARE_LINGER);
        if self.stalled_at_ns.is_some_and(|at_ns| now_ns.saturating_sub(at_ns) < linger_ns) {
            return;
        }
        self.stalled_at_ns = None;
        shared.staff.set_keep(shared.config.workers);
        if shared.staff.has_too_many() {
            // Those that are awake see it by themselves.
            (shared.config.workers..shared.staff.in_use()).for_each(|slot| _ = shared.wake_worker(slot));
        }
    }

    /// How long to sleep.
    fn pause(&mut self, is_suspicious: bool, has_acted: bool) -> Duration {
        if has_acted {
            self.idle_checks = 0;
        } else {
            self.idle_checks += 1;
        }
        if self.stalled_at_ns.is_some() {
            return SUSPICIOUS_INTERVAL.min(self.interval);
        }
        if !is_suspicious {
            self.idle_checks = 0;
            return self.interval;
        }
        let doublings = self.idle_checks.saturating_sub(PATIENCE).min(16);
        (SUSPICIOUS_INTERVAL * (1 << doublings)).min(self.interval)
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests;
