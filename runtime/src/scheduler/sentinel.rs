//! The sentinel: a thread that looks after the workers while any of them is awake, so that one task that blocks holds up no other.
//!
//! A look compares what each worker does with what it did at the look before. *Long* is a poll that has lasted for `STUCK_AFTER`; *stuck* a
//! worker that was in the same long poll at both looks, or that has said that it blocks. What is done about it, in this order:
//!
//! 1. Nobody attends timers and I/O, since the worker that sat in the driver left it for a task that takes long: a parked worker is woken.
//! 2. Somebody is parked, and the stuck worker holds tasks: a parked worker is woken, and takes them (*rescue*); those that it may not take, since
//!    stealing is off or the LIFO slot is to be left alone for longer, go to the global queue.
//! 3. Nobody is parked, and work waits or nobody moves: the poll is asked to yield at its next operation (*preempt*), and the kernel is asked what
//!    the thread does. It blocks: it is declared away at once. It burns processor time: after `BURN_AFTER`, and only so many at a time, since
//!    more threads than processors help nobody for long. It could run and the kernel runs others: as one that burns, after `WAIT_AFTER`, since it
//!    may burn all it gets. It is stopped, or its quota is spent: not at all, since a spare would be no better off.
//! 4. Fewer are able than there are workers, and nobody is parked: a spare is called, or it is counted that there was none (*capped*).
//! 5. What a worker holds that is away goes to the global queue, at each look, since a stuck poll may wake tasks.
//!
//! A spare stays for `SPARE_LINGER` after the last stall, since who blocks once blocks again. Then as many leave as are too many.
//!
//! Each poll that is stuck is also looked into, and written down if it lasts: see `witness`. Once a second the doctor is asked: see `doctor`.
//!
//! Looks follow each other at `sentinel_interval`; while spares linger, at `SUSPICIOUS_INTERVAL`, and while a poll is long too, which doubles if
//! nothing has to be done. A block that was announced may last for hours: as long as somebody is parked beside it, it is looked at as a long poll is.
//! A look that comes late by `PAUSE` says that the machine stood still, not the tasks (`lateness`): then all that was seen before is
//! forgotten, and polls that were going on are not charged with that time, as long as they last.
//!
//! Who writes: its own thread. It owns nothing of the workers': it takes from their queues as thieves do, and calls spares by `staff`.
//! How it sleeps stands in `doze`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use volt_telemetry::incident::{Cause, Remedy};
use volt_telemetry::recording::event::Event;

use super::doctor::Doctor;
use super::doze::Doze;
use super::lateness::{Lateness, Pause};
use super::shared::{Remote, Shared};
use super::staff::Duty;
use super::witness::{Doing, Witness};
use crate::clock;
use crate::config::{BURN_AFTER, DOCTOR_INTERVAL, SPARE_LINGER, STUCK_AFTER, SUSPICIOUS_INTERVAL, WAIT_AFTER};
use crate::queue::ring::{Producer, Steal, ring};
use crate::stats::blame::BlameTable;
use crate::stats::cells::Counter;
use crate::task::header::Notified;

/// Suspicious looks in a row for which nothing had to be done, after which they are spaced out.
const PATIENCE: u32 = 8;
/// Looks in a row that found all at rest, after which it dozes. To rouse it costs the worker that gets up a wake-up of 4 µs before it runs its
/// task; so a runtime that is woken now and then, more often than five times a second, does not pay for it.
const QUIET_LOOKS: u32 = 20;
/// Workers that burn processor time and are replaced at a time, at least; else a quarter of the workers.
const MIN_BURNING: usize = 2;

/// What others see of the sentinel.
pub(crate) struct Sentinel {
    doze: Doze,
    is_over: AtomicBool,
    looks: Counter,
    rescues: Counter,
    tasks_rescued: Counter,
    preempts: Counter,
    replacements: Counter,
    capped: Counter,
    pauses: Counter,
    /// What held it up, the last time.
    last_pause: Mutex<Option<Cause>>,
    blocks: AtomicU64,
    pub(super) doctor: Doctor,
    /// Delays that it has seen, and stalls.
    pub(super) blame: BlameTable,
}

impl Sentinel {
    pub(crate) fn new() -> Self {
        Self {
            doze: Doze::new(),
            is_over: AtomicBool::new(false),
            looks: Counter::default(),
            rescues: Counter::default(),
            tasks_rescued: Counter::default(),
            preempts: Counter::default(),
            replacements: Counter::default(),
            capped: Counter::default(),
            pauses: Counter::default(),
            last_pause: Mutex::default(),
            blocks: AtomicU64::new(0),
            doctor: Doctor::default(),
            blame: BlameTable::default(),
        }
    }

    /// The sentinel's thread, until [`end`](Self::end).
    pub(crate) fn run(&self, shared: &Arc<Shared>, interval: Duration) {
        let mut rounds = Rounds::new(shared, interval);
        let mut pause = interval;
        // ORDERING: Acquire; pairs with the Release in `end`. The token that `end` leaves ends any sleep that began before.
        while !self.is_over.load(Ordering::Acquire) {
            let is_at_rest = || rounds.quiet_looks >= QUIET_LOOKS && is_at_rest(shared);
            let was_timed = self.doze.sleep(&shared.idle, is_at_rest, pause);
            pause = rounds.look(was_timed.then_some(pause));
        }
    }

    /// A worker that got up has found a task.
    #[inline]
    pub(crate) fn rouse(&self, shared: &Shared) {
        self.doze.rouse(&shared.idle);
    }

    /// A worker has said that it will block.
    pub(crate) fn count_block(&self) {
        // ORDERING: Relaxed; only counted.
        self.blocks.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends its thread.
    pub(crate) fn end(&self) {
        // ORDERING: Release; pairs with the Acquire in `run`.
        self.is_over.store(true, Ordering::Release);
        self.doze.end();
    }

    pub(crate) fn telemetry(&self, shared: &Shared) -> volt_telemetry::Sentinel {
        let (spare_calls, spare_failures) = shared.spares.counts();
        volt_telemetry::Sentinel {
            looks: self.looks.get(),
            rescues: self.rescues.get(),
            tasks_rescued: self.tasks_rescued.get(),
            preempts: self.preempts.get(),
            replacements: self.replacements.get(),
            capped: self.capped.get(),
            pauses: self.pauses.get(),
            last_pause: *self.last_pause.lock().unwrap_or_else(PoisonError::into_inner),
            // ORDERING: Relaxed; only counted.
            blocks: self.blocks.load(Ordering::Relaxed),
            spare_calls,
            spare_failures,
            spares_on_duty: shared.staff.on_duty().saturating_sub(shared.config.workers) as u64,
            max_spares: shared.config.max_spare_workers as u64,
        }
    }
}

/// Whether all who are on duty are parked, one of them in the driver, no spare is left over, and nothing is to be told.
pub(super) fn is_at_rest(shared: &Shared) -> bool {
    let on_duty = shared.staff.on_duty();
    on_duty == shared.config.workers
        && shared.idle.parked_count() == on_duty
        && shared.driver.owner().is_some()
        && !shared.troubles.has_news()
}

/// What the sentinel's thread knows from one look to the next.
struct Rounds<'a> {
    shared: &'a Arc<Shared>,
    interval: Duration,
    seen: Vec<Seen>,
    looked_at_ns: u64,
    /// When somebody was last stuck and something had to be done about it.
    stalled_at_ns: Option<u64>,
    /// Suspicious looks in a row for which nothing had to be done.
    idle_looks: u32,
    /// Looks in a row that found all at rest.
    quiet_looks: u32,
    /// When the doctor was last asked, or the sentinel began.
    examined_at_ns: u64,
    /// Where a thief needs a ring of its own.
    basket: Producer<Notified>,
    witness: Witness<'a>,
    lateness: Lateness,
}

/// A worker at the last look.
#[derive(Default)]
struct Seen {
    /// Odd: in a poll.
    poll_seq: u64,
    /// For how long the machine stood still in this poll; all of it, up to the end of a block that was announced.
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
            looked_at_ns: clock::now_ns(),
            stalled_at_ns: None,
            idle_looks: 0,
            quiet_looks: 0,
            examined_at_ns: clock::now_ns(),
            basket: ring(shared.config.local_queue_capacity).0,
            witness: Witness::new(shared),
            lateness: Lateness::new(),
        }
    }

    /// One look, after a sleep that was to last for `slept`, if it was not to last until somebody gets up. Returns how long the next is to be.
    fn look(&mut self, slept: Option<Duration>) -> Duration {
        let (shared, now_ns) = (self.shared, clock::tend());
        shared.sentinel.looks.add(1);
        let since_ns = now_ns.saturating_sub(self.looked_at_ns);
        self.looked_at_ns = now_ns;
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
        let has_woken = self.attend_driver(now_ns);
        let has_acted = self.relieve(&stuck, moving, now_ns) || has_woken;
        self.dismiss(now_ns);
        self.quiet_looks = if is_at_rest(shared) { self.quiet_looks.saturating_add(1) } else { 0 };
        self.consult(now_ns);
        if shared.troubles.is_due(now_ns) {
            self.witness.have_troubles_told();
        }
        self.pause(is_suspicious || !stuck.is_empty(), has_acted)
    }

    /// Asks the doctor now and then, and before there is nobody left to ask.
    fn consult(&mut self, now_ns: u64) {
        let shared = self.shared;
        let is_due = now_ns.saturating_sub(self.examined_at_ns) >= clock::saturating_ns(DOCTOR_INTERVAL);
        let is_leaving = self.quiet_looks == QUIET_LOOKS;
        let is_asked = is_due || is_leaving && (self.witness.has_news() || shared.sentinel.doctor.is_unwell());
        if is_asked {
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
                // Said beforehand, and others do its work: no stall. A stall before it ends here, and what comes after it is a new one.
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
    fn attend_driver(&self, now_ns: u64) -> bool {
        let shared = self.shared;
        let interval_ns = clock::saturating_ns(self.interval);
        let is_unattended =
            shared.driver.owner().is_none() && now_ns.saturating_sub(shared.driver.last_turn_ns()) >= interval_ns;
        let has_woken = is_unattended && shared.wake_one();
        shared.sentinel.rescues.add(u64::from(has_woken));
        has_woken
    }

    /// Does what there is to do about those that are stuck, beside `moving` ones. Returns whether that was anything.
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
        self.witness.pen.note(clock::now_ns, || Event::Retire { worker: stuck.slot as u16 });
        shared.sentinel.replacements.add(1);
        true
    }

    /// Takes what a worker holds that is stuck, and hands it on. Returns whether there was anything.
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
            self.idle_looks = 0;
        } else {
            self.idle_looks += 1;
        }
        if self.stalled_at_ns.is_some() {
            return SUSPICIOUS_INTERVAL.min(self.interval);
        }
        if !is_suspicious {
            self.idle_looks = 0;
            return self.interval;
        }
        let doublings = self.idle_looks.saturating_sub(PATIENCE).min(16);
        (SUSPICIOUS_INTERVAL * (1 << doublings)).min(self.interval)
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use super::Rounds;
    use crate::Builder;
    use crate::kernel::thread::{ThreadTimes, own_id};

    /// Prints what a look takes, the wake-up before it left out:
    /// `cargo test --release -p volt-runtime --lib a_look_takes -- --nocapture`.
    #[test]
    fn a_look_takes_microseconds() {
        const LOOKS: u32 = 2_000;
        let interval = Duration::from_millis(10);
        let runtime = Builder::new_multi_thread().worker_threads(2).sentinel_interval(None).build().unwrap();
        let (open, is_open) = mpsc::channel::<()>();
        let is_over = Arc::new(AtomicBool::new(false));
        let yields = is_over.clone();
        let busy = runtime.spawn(async move {
            // ORDERING: Relaxed; the flag alone is the message.
            while !yields.load(Ordering::Relaxed) {
                crate::task::yield_now().await;
            }
        });
        let mut rounds = Rounds::new(runtime.handle().shared(), interval);
        let mut look_us = |looks: u32| {
            let ran_ns = || ThreadTimes::now_of(own_id().unwrap()).unwrap().run_ns;
            let before_ns = ran_ns();
            for _ in 0..looks {
                rounds.look(None);
            }
            (ran_ns() - before_ns) as f64 / 1e3 / f64::from(looks)
        };
        let at_ease = look_us(LOOKS);
        let stuck = runtime.spawn(async move { assert!(is_open.recv().is_err(), "nobody sends") });
        std::thread::sleep(2 * interval);
        let while_stuck = look_us(LOOKS);
        println!("a look takes {at_ease:.1} µs while polls are short, {while_stuck:.1} µs while one is stuck");
        // ORDERING: Relaxed; the flag alone is the message.
        is_over.store(true, Ordering::Relaxed);
        drop(open);
        runtime.block_on(async { (busy.await.unwrap(), stuck.await.unwrap()) });
        // Some ten times what it is in a release build.
        assert!(at_ease < 50.0 && while_stuck < 500.0, "{at_ease} {while_stuck}");
    }
}
