//! The sentinel: a thread that watches the workers while any of them is awake, so that a task that
//! blocks its worker delays no other task.
//!
//! A worker polls one task at a time. While a poll lasts, the tasks in the worker's queues wait,
//! and so do timers and sockets if all workers are stuck. No worker can detect that about itself.
//!
//! An ordinary case: a task on worker 1 sleeps in its thread for 200 ms. Two checks in a row find
//! worker 1 in the same poll. If worker 2 is parked, the sentinel wakes it, and it steals the tasks
//! of worker 1. If worker 2 is in a poll, too, and tasks wait, the sentinel declares worker 1
//! *stuck* and calls a *spare*, a worker with a separate thread (`slots`), which runs the waiting
//! tasks. When the poll ends, worker 1 continues, and the spare leaves after a while.
//!
//! The race: the poll ends, and the worker begins another one, while the sentinel still acts on the
//! poll that it saw. No lock prevents that, since it would cost every poll. Instead, each poll has
//! a number (`poll_seq`), and no action does harm if it comes too late:
//!
//! * *Declare stuck*: the sentinel changes the slot of the worker, and compares the number after
//!   that. If it is another one, the sentinel takes the declaration back. If the poll ends later,
//!   the worker sees the declaration and returns: see `slots`.
//! * *Preempt*: the request contains the number, and other polls ignore it.
//! * *Take tasks*: the sentinel takes them out of the queues as a thief does. So each task is taken
//!   once, by the sentinel or by the worker.
//! * *Blame*: a delay is charged to the task of the poll only if that poll still lasts.
//!
//! An action in vain costs a wake-up, or a surplus thread for a while.
//!
//! Each check compares what each worker does with what it did at the previous check. A poll is
//! *long* if it has lasted for `STUCK_AFTER`. A worker is *stuck* if both checks found it in the
//! same poll and that poll is long, or if it has announced that it blocks. The sentinel reacts as
//! follows, in this order:
//!
//! 1. No worker polls timers and I/O, because the worker that was in the driver left it for a task
//!    that takes long: wake a parked worker.
//! 2. A worker is parked, and the stuck worker holds tasks (*rescue*): wake a parked worker, which
//!    steals them. Tasks that it may not steal, because stealing is off or the LIFO slot is
//!    protected for longer, go to the global queue.
//! 3. No worker is parked, and work waits or all workers are stuck: find out from the kernel what
//!    the thread does. If it blocks, make the poll yield at its next operation (*preempt*), and
//!    declare it stuck immediately. If it burns processor time, make the poll yield, and declare it
//!    stuck after `BURN_AFTER`, and only a limited number at a time: more threads than processors
//!    do not help for long. If it could run but the kernel runs other threads, the poll is not the
//!    cause, and a yield would not help. After `WAIT_AFTER`, treat it like one that burns, since it
//!    may burn all the time that it gets; but make it yield only if work waits. If it is stopped,
//!    or its quota is spent, make it yield in the same case, but do not replace it: a spare would
//!    get no processor time either. The thread of a current-thread runtime is never replaced: no
//!    other thread may run its tasks.
//! 4. A worker was declared stuck, or blocks: move the tasks that it holds to the global queue, at
//!    each check, since its poll may wake more tasks.
//! 5. Fewer workers are *able*, that is, neither stuck nor blocking, than the runtime has, no
//!    worker is parked, and work waits or no worker is left that could run it: call a spare, or
//!    count that none was available (*capped*).
//!
//! A spare stays for `SPARE_LINGER` after the last stall, since a task that blocked once often
//! blocks again. Then the surplus spares leave.
//!
//! Each stuck poll is also examined, and recorded as an incident if it lasts: see `stalls`. Once a
//! second the sentinel requests an examination by the doctor: see `watch::doctor`. If tasks seem to
//! wait for each other, or wait for a lock that a task holds, it stays awake for a few seconds: a
//! program in a deadlock is idle.
//!
//! The time between two checks is `sentinel_interval`, or `SUSPICIOUS_INTERVAL` while spares linger
//! or a poll is long. In the latter case, after `FAST_CHECKS` checks that required no action, the
//! time doubles with each further check, up to `sentinel_interval`. A block that was announced may
//! last for hours: as long as a worker is parked, it is checked like a long poll. A check that is
//! late by `PAUSE` means that the machine stood still, not the tasks (`lateness`). Then all earlier
//! observations are discarded, and the current polls are not charged with that time.
//!
//! The sentinel owns none of the workers' state: its thread takes tasks from their queues as
//! thieves do, and calls spares through `slots`. There is one thread for all runtimes of the
//! program (`program`); `watch::suspension` describes how it sleeps and how it suspends its checks.
//! This file has the checks of one runtime.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use volt_telemetry::incident::Remedy;
use volt_telemetry::recording::event::Event;

use self::black_box::Heartbeat;
use self::lateness::Pause;
use self::stalls::{Doing, Stalls};
use super::remote::Remote;
use super::shared::Shared;
use super::slots::SlotState;
use super::watch::doctor::Doctor;
use crate::clock;
use crate::config::{BURN_AFTER, DOCTOR_INTERVAL, SPARE_LINGER, STUCK_AFTER, SUSPICIOUS_INTERVAL, WAIT_AFTER};
use crate::queue::ring::{Producer, Steal, ring};
use crate::task::header::Notified;

mod black_box;
mod lateness;
mod reader;
mod stalls;

pub(crate) mod program;

/// After this many suspicious checks in a row without any action, checks are made less often.
const FAST_CHECKS: u32 = 8;
/// After this many checks in a row that found all workers at rest, the sentinel suspends its
/// checks. To resume them costs the worker that wakes up 4 µs before it runs its task. So a runtime
/// that is woken more than five times a second, which prevents the suspension, does not pay for it.
const QUIET_CHECKS: u32 = 20;
/// For how long the sentinel stays awake for tasks that seem to wait for each other: four
/// examinations by the doctor. The second reports a deadlock if it is certain, the third any other,
/// and the fourth a lock that is held for long.
const SUSPICION: Duration = Duration::from_millis(3500);
/// How many workers that burn processor time are replaced at a time, at least; more if a quarter of
/// the workers is more.
const MIN_BURNING: usize = 2;

/// The state that the sentinel keeps of one runtime, from one check to the next.
struct Rounds {
    shared: Arc<Shared>,
    interval: Duration,
    seen: Vec<Seen>,
    /// When a worker was last stuck and this required an action.
    stalled_at_ns: Option<u64>,
    /// Suspicious checks in a row that required no action.
    idle_checks: u32,
    /// Checks in a row that found all workers at rest.
    quiet_checks: u32,
    /// The cycles of tasks that seem to wait for each other, and the locks that tasks wait for, and
    /// until when the sentinel does not suspend its checks for them.
    suspicion: Option<(u64, u64)>,
    /// When the doctor's examination was last requested, or the sentinel started.
    examined_at_ns: u64,
    /// The ring that stolen tasks pass through.
    transfer: Producer<Notified>,
    stalls: Stalls,
    heartbeat: Heartbeat,
}

/// The state of a worker at the last check.
#[derive(Default)]
struct Seen {
    /// Odd while the worker is in a poll.
    poll_seq: u64,
    /// For how long the machine stood still during this poll. After an announced block: the whole
    /// time of the poll up to the end of the block.
    excused_ns: u64,
    /// The poll for which the worker was declared stuck.
    stuck_seq: u64,
    is_burning: bool,
}

/// A stuck worker.
struct Stuck {
    slot: usize,
    poll_seq: u64,
    for_ns: u64,
    state: SlotState,
}

impl Rounds {
    fn new(shared: &Arc<Shared>, interval: Duration) -> Self {
        Self {
            shared: shared.clone(),
            interval,
            seen: shared.workers.remotes.iter().map(|_| Seen::default()).collect(),
            stalled_at_ns: None,
            idle_checks: 0,
            quiet_checks: 0,
            suspicion: None,
            examined_at_ns: clock::now_ns(),
            transfer: ring(shared.config.local_queue_capacity).0,
            stalls: Stalls::new(shared),
            heartbeat: Heartbeat::default(),
        }
    }

    /// Makes one check. `pause` is the pause of the machine that has just ended, if there was one.
    /// Returns how long the time to the next check is to be.
    fn check(&mut self, now_ns: u64, pause: Option<Pause>) -> Duration {
        let shared = &self.shared.clone();
        shared.sentinel.checks.add(1);
        if let Some(Pause { cause, .. }) = pause {
            *shared.sentinel.last_pause.lock().unwrap_or_else(PoisonError::into_inner) = Some(cause);
            shared.sentinel.pauses.add(1);
        }
        self.heartbeat.beat(shared, now_ns);
        let was_paused = pause.is_some();
        let (stuck, moving, is_suspicious) = self.compare(now_ns, pause);
        // A block that was announced is no stall.
        for stuck in stuck.iter().filter(|stuck| stuck.state != SlotState::Blocking && !was_paused) {
            self.stalls.handle_stuck(stuck.slot, stuck.for_ns, now_ns);
        }
        self.stalls.update_durations(now_ns);
        let has_woken = self.check_driver(now_ns);
        let has_acted = self.handle_stuck_workers(&stuck, moving, now_ns) || has_woken;
        self.release_spares(now_ns);
        self.quiet_checks = if shared.workers.are_at_rest() { self.quiet_checks.saturating_add(1) } else { 0 };
        self.request_examination_if_due(now_ns);
        if shared.failures().is_due(now_ns) {
            let _are_logged = self.stalls.have_failures_logged();
        }
        self.pause(is_suspicious || !stuck.is_empty(), has_acted)
    }

    /// Returns whether the sentinel must not suspend its checks yet, although all workers are at
    /// rest: tasks seem to wait for each other or for a lock that a task holds, and only several
    /// examinations can confirm that. A suspicion that is still not reported after `SUSPICION` may
    /// be wrong.
    fn must_keep_checking(&mut self, now_ns: u64) -> bool {
        if self.quiet_checks < QUIET_CHECKS
            || !Doctor::is_wanted(&self.shared.config, self.shared.recorder.black_box().is_some())
        {
            return false;
        }
        let until_ns =
            self.shared.readers.deadlocks.suspicion(&self.shared.workers.registry).map(|cycles| match self.suspicion {
                Some((known, until_ns)) if known == cycles => (cycles, until_ns),
                _ => (cycles, now_ns.saturating_add(clock::saturating_ns(SUSPICION))),
            });
        self.suspicion = until_ns;
        until_ns.is_some_and(|(_, until_ns)| now_ns < until_ns)
    }

    /// Requests an examination by the doctor at intervals and before the sentinel suspends its
    /// checks, if its result can be read.
    fn request_examination_if_due(&mut self, now_ns: u64) {
        let shared = &self.shared.clone();
        let has_black_box = shared.recorder.black_box().is_some();
        let interval = shared.recorder.black_box().map_or(DOCTOR_INTERVAL, |black_box| black_box.sample_interval());
        let is_due = now_ns.saturating_sub(self.examined_at_ns) >= clock::saturating_ns(interval);
        let is_leaving = self.quiet_checks == QUIET_CHECKS;
        let is_examined = is_due
            || is_leaving
                && (has_black_box
                    || self.stalls.has_news()
                    || shared.sentinel.doctor.has_open_finding()
                    || self.must_keep_checking(now_ns));
        if is_examined && Doctor::is_wanted(&shared.config, has_black_box) {
            self.examined_at_ns = now_ns;
            self.stalls.request_examination();
        }
    }

    /// Returns the stuck workers, the number of other workers, and whether any of their polls is
    /// long.
    fn compare(&mut self, now_ns: u64, pause: Option<Pause>) -> (Vec<Stuck>, usize, bool) {
        let shared = &self.shared;
        let paused_ns = pause.map_or(0, |pause| pause.late_ns);
        // A poll is not excused for time before it began.
        let since_ns = pause.map_or(0, |pause| now_ns.saturating_sub(pause.until_ns));
        let (mut stuck, mut moving, mut is_suspicious) = (Vec::new(), 0, false);
        for (slot, remote) in shared.workers.remotes_in_use().iter().enumerate() {
            let seen = &mut self.seen[slot];
            let mut state = shared.workers.slots.state(slot);
            seen.is_burning &= state == SlotState::Stuck;
            let poll_seq = remote.cells.poll_seq();
            self.stalls.excuse(slot, paused_ns, now_ns);
            self.stalls.enter_poll(slot, poll_seq, now_ns);
            if state == SlotState::Stuck && poll_seq != seen.stuck_seq {
                // That poll has ended, but the worker has not noticed yet that it was declared
                // stuck.
                shared.workers.slots.take_back(slot);
                state = shared.workers.slots.state(slot);
            }
            let is_same = std::mem::replace(&mut seen.poll_seq, poll_seq) == poll_seq;
            let excused_ns = if is_same { seen.excused_ns } else { 0 };
            let for_ns = remote.cells.poll_for_ns(now_ns).unwrap_or(0).saturating_sub(excused_ns);
            let excused_now_ns = match state {
                // The block was announced, and other workers do the work: no stall. A stall before
                // the block ends here, and one after the block is a new stall.
                SlotState::Blocking => {
                    self.stalls.close(slot, now_ns);
                    for_ns
                }
                _ => paused_ns.min(for_ns.saturating_sub(since_ns)),
            };
            seen.excused_ns = excused_ns + excused_now_ns;
            let for_ns = for_ns - excused_now_ns;
            let is_long = for_ns >= clock::saturating_ns(STUCK_AFTER);
            match state {
                SlotState::Off => {}
                SlotState::Blocking | SlotState::Stuck => stuck.push(Stuck { slot, poll_seq, for_ns, state }),
                SlotState::Present if is_long && is_same && paused_ns == 0 => {
                    stuck.push(Stuck { slot, poll_seq, for_ns, state })
                }
                SlotState::Present => {
                    is_suspicious |= is_long;
                    moving += 1;
                }
            }
        }
        (stuck, moving, is_suspicious)
    }

    /// Returns whether a worker had to be woken for timers and I/O.
    fn check_driver(&self, now_ns: u64) -> bool {
        let shared = &self.shared;
        let interval_ns = clock::saturating_ns(self.interval);
        let is_overdue = !shared.workers.is_undriven()
            && shared.workers.driver.owner().is_none()
            && now_ns.saturating_sub(shared.workers.driver.last_turn_ns()) >= interval_ns;
        let has_woken = is_overdue && shared.workers.wake_one();
        shared.sentinel.rescues.add(u64::from(has_woken));
        has_woken
    }

    /// Takes the actions that the stuck workers require, while `moving` others are not stuck.
    /// Returns whether there were any.
    fn handle_stuck_workers(&mut self, stuck: &[Stuck], mut moving: usize, now_ns: u64) -> bool {
        let shared = &self.shared.clone();
        let sentinel = &shared.sentinel;
        let mut has_acted = false;
        for stuck in stuck {
            let remote = &shared.workers.remotes[stuck.slot];
            let is_present = stuck.state == SlotState::Present;
            if is_present && !shared.workers.idle.is_none_parked() {
                let do_thieves_take =
                    shared.config.enable_stealing && stuck.for_ns >= shared.config.lifo_steal_after_ns;
                let is_rescued = if do_thieves_take {
                    remote.queued() > 0 && shared.workers.wake_one()
                } else {
                    self.hand_over_tasks(stuck, now_ns)
                };
                if is_rescued {
                    sentinel.rescues.add(1);
                    self.stalls.add_remedy(stuck.slot, Remedy::Rescued);
                    has_acted = true;
                }
                continue;
            }
            let does_work_wait = self.does_work_wait();
            if is_present && (moving == 0 || does_work_wait) {
                let doing = self.stalls.doing(stuck.slot, now_ns);
                let is_to_yield = match doing {
                    Doing::Blocks | Doing::Burns => true,
                    Doing::Waits | Doing::Held => does_work_wait && stuck.for_ns >= clock::saturating_ns(WAIT_AFTER),
                };
                if is_to_yield && remote.cells.request_yield(stuck.poll_seq) {
                    sentinel.preempts.add(1);
                }
                // No other thread may run the tasks of a current-thread runtime.
                if shared.workers.shared_core.is_some()
                    || !self.is_to_be_replaced(stuck, doing)
                    || !self.declare_stuck(stuck)
                {
                    continue;
                }
                has_acted = true;
            }
            if !is_present || shared.workers.slots.state(stuck.slot) != SlotState::Present {
                has_acted |= self.hand_over_tasks(stuck, now_ns);
            }
        }
        let mut remedy = Remedy::Replaced;
        let is_to_be_watched = |stuck: &Stuck| match stuck.state {
            SlotState::Stuck => true,
            // The tasks that it wakes go to other workers; if one of these is parked, no spare is
            // needed.
            SlotState::Blocking => shared.workers.idle.is_none_parked(),
            SlotState::Present | SlotState::Off => false,
        };
        if has_acted || stuck.iter().any(is_to_be_watched) {
            self.stalled_at_ns = Some(now_ns);
        }
        while shared.workers.slots.able() < shared.config.workers
            && shared.workers.idle.is_none_parked()
            && (moving == 0 || self.does_work_wait())
        {
            // The spare stays until no worker has been stuck for a while.
            shared.workers.slots.set_keep(usize::MAX);
            if !shared.call_spare() {
                sentinel.capped.add(1);
                remedy = Remedy::Capped;
                break;
            }
            moving += 1;
            has_acted = true;
        }
        for stuck in stuck.iter().filter(|stuck| shared.workers.slots.state(stuck.slot) == SlotState::Stuck) {
            self.stalls.add_remedy(stuck.slot, remedy);
        }
        has_acted
    }

    /// Returns whether any queue holds a task.
    fn does_work_wait(&self) -> bool {
        self.shared.workers.injector.len() > 0
            || self.shared.workers.remotes_in_use().iter().any(|remote| remote.queued() > 0)
    }

    fn is_to_be_replaced(&mut self, stuck: &Stuck, doing: Doing) -> bool {
        let after = match doing {
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
    fn declare_stuck(&mut self, stuck: &Stuck) -> bool {
        let shared = &self.shared;
        let cells = &shared.workers.remotes[stuck.slot].cells;
        if !shared.workers.slots.replace(stuck.slot, || cells.poll_seq() == stuck.poll_seq) {
            return false;
        }
        self.seen[stuck.slot].stuck_seq = stuck.poll_seq;
        self.stalls.recorder.note(clock::now_ns, || Event::Retire { worker: stuck.slot as u16 });
        shared.sentinel.replacements.add(1);
        true
    }

    /// Moves the tasks of a stuck worker to the global queue. Returns whether there were any.
    fn hand_over_tasks(&mut self, stuck: &Stuck, now_ns: u64) -> bool {
        let remote = &self.shared.workers.remotes[stuck.slot];
        let mut tasks: Vec<_> = remote.lifo.take().into_iter().collect();
        for steal in Remote::STEALS {
            while let Steal::Taken { next, .. } = steal(remote, &mut self.transfer) {
                tasks.push(next);
                tasks.extend(std::iter::from_fn(|| self.transfer.pop()));
            }
        }
        remote.inbox.pop_batch(usize::MAX, |task| tasks.push(task));
        if let Some((culprit, began_at_ns)) = remote.cells.culprit_of(stuck.poll_seq) {
            for task in &tasks {
                let task = task.header();
                let waited_ns = now_ns.saturating_sub(task.submitted_at_ns().max(began_at_ns));
                self.shared.sentinel.blame().charge(culprit, task.location(), waited_ns);
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

    /// Lets spares leave once no worker has been stuck for a while.
    fn release_spares(&mut self, now_ns: u64) {
        let shared = &self.shared;
        let linger_ns = clock::saturating_ns(SPARE_LINGER);
        if self.stalled_at_ns.is_some_and(|at_ns| now_ns.saturating_sub(at_ns) < linger_ns) {
            return;
        }
        self.stalled_at_ns = None;
        shared.workers.slots.set_keep(shared.config.workers);
        if shared.workers.slots.has_too_many() {
            // Spares that are awake notice it themselves.
            (shared.config.workers..shared.workers.slots.in_use())
                .for_each(|slot| _ = shared.workers.wake_worker(slot));
        }
    }

    /// Returns how long the time to the next check is to be.
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
        let doublings = self.idle_checks.saturating_sub(FAST_CHECKS).min(16);
        (SUSPICIOUS_INTERVAL * (1 << doublings)).min(self.interval)
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests;
