//! How the worker of a runtime with a seed runs: one poll at a time, in an order that is
//! chosen from the seed, on a simulated clock.
//!
//! `core/seeded` chooses. Here, the worker offers it everything that is ready, and polls what it
//! has chosen:
//!
//! 1. Wake the tasks whose timers are due on the simulated clock.
//! 2. Move the tasks that were submitted from outside into the ring. The ring then has all tasks
//!    that are ready. The main future counts as one more if it was woken.
//! 3. Choose one of them, and poll it.
//! 4. If none is ready, advance the clock to the next timer, and begin again.
//!
//! If no timer is armed either, nothing can ever wake a task: there is no I/O, no other thread, and
//! blocking jobs run as tasks. `block_on` then panics, instead of waiting for ever, and names the
//! tasks that wait. This is how a lost wake-up in the program shows.
//!
//! No decision depends on the program's clock: there are no ticks, no interval after which the
//! global queue is checked, and no sentinel that makes a poll yield. The readings of that clock
//! here are only for the metrics.
//!
//! An ordinary runtime never executes this code. Its `block_on` reads once whether it has a seed.

use volt_telemetry::Phase;
use volt_telemetry::text::counted;

use super::main_future::Main;
use super::{Tick, Worker};
use crate::clock;
use crate::queue::ring::Producer;
use crate::scheduler::core::seeded::Seeded;
use crate::task::header::Notified;

/// The most waiting tasks that a message names.
const NAMED_MAX: usize = 8;

/// The future to poll next.
enum Next {
    Main,
    Task(Notified),
    /// Nothing is ready.
    Nothing,
}

impl Worker {
    /// Runs tasks and the main future until `poll_main` returns `true`, or until the runtime cannot
    /// continue. In that case the reason is stored in `seeded`.
    pub(super) fn run_seeded(&self, seeded: &Seeded, main: &Main, poll_main: &mut dyn FnMut() -> bool) {
        loop {
            match self.choose(seeded, Some(main)) {
                Next::Main => {
                    main.take_woken();
                    let budget = seeded.draw_budget(self.shared.config.coop_budget);
                    if self.poll_main(main, poll_main, budget) {
                        return;
                    }
                }
                Next::Task(task) => self.poll_alone(task),
                Next::Nothing => {
                    if let Err(reason) = self.advance_clock() {
                        return seeded.stop(&reason);
                    }
                }
            }
            if let Some(limit) = seeded.reached_limit() {
                return seeded.stop(&format!(
                    "the runtime has made {limit} polls and its main future is not ready: the program may be in a loop. \
                     Otherwise raise Builder::poll_limit"
                ));
            }
        }
    }

    /// Polls one task of a runtime with a seed that is shut down. Returns `false` if this runtime
    /// has no seed, or no task is ready.
    pub(super) fn run_one_seeded(&self) -> bool {
        let Some(seeded) = &self.shared.seeded else { return false };
        let Next::Task(task) = self.choose(seeded, None) else { return false };
        self.poll_alone(task);
        true
    }

    /// Steps 1 to 3, without the poll.
    fn choose(&self, seeded: &Seeded, main: Option<&Main>) -> Next {
        let driver = &self.shared.workers.driver;
        let now_ns = driver.now_ns();
        if driver.timers.next_deadline_ns() <= now_ns {
            driver.fire_due();
        }
        let mut core = self.core.borrow_mut();
        let ring = &mut core.ring;
        self.shared.workers.injector.pop_batch(ring.free(), |task| {
            let pushed = ring.push(task);
            debug_assert!(pushed.is_ok(), "never more than fits");
        });
        let queued = ring.len();
        let mut ready: Vec<u64> = (0..queued).filter_map(|_| rotate(ring)).collect();
        let main = main.filter(|main| main.is_woken());
        ready.extend(main.map(|main| main.id.as_u64()));
        if ready.is_empty() {
            return Next::Nothing;
        }
        let chosen = seeded.choose(&ready, now_ns);
        self.begin_work_if_needed(&mut core);
        self.cells().ensure_phase(Phase::Busy, self.now_ns.get());
        if main.is_some() && chosen + 1 == ready.len() {
            return Next::Main;
        }
        (0..chosen).for_each(|_| _ = rotate(&mut core.ring));
        let task = core.ring.pop();
        // The others are in the order in which they were woken again.
        (chosen + 1..queued).for_each(|_| _ = rotate(&mut core.ring));
        task.map_or(Next::Nothing, Next::Task)
    }

    /// Polls a task in a tick of one poll.
    fn poll_alone(&self, task: Notified) {
        let cells = self.cells();
        cells.ticks.add(1);
        let mut tick = Tick { budget_left: 0, driver_interval_ns: u64::MAX, busy_ns: 0, last: None };
        self.poll(cells, task, &mut tick);
        tick.count_last(cells);
    }

    /// Step 4. Returns an error if the clock has no timer to advance to.
    fn advance_clock(&self) -> Result<(), String> {
        self.now_ns.set(clock::check());
        let driver = &self.shared.workers.driver;
        let clock = driver.test_clock.as_ref().expect("a runtime with a seed has a test clock");
        if !clock.is_paused() {
            return Err(
                "the clock of a runtime with a seed was resumed, so the order of polls would depend on the real time: \
                        do not call `time::resume`"
                    .to_owned(),
            );
        }
        let next_ns = driver.timers.next_deadline_ns();
        if next_ns == u64::MAX {
            return Err(self.describe_deadlock());
        }
        clock.advance_to(next_ns);
        driver.fire_due();
        Ok(())
    }

    fn describe_deadlock(&self) -> String {
        let (alive, named) = self.shared.remaining_tasks(NAMED_MAX);
        let mut text =
            "deadlock: the main future waits, no task is ready and no timer is armed, so nothing can wake any of \
                        them"
                .to_owned();
        if alive > 0 {
            text += &format!(". {} left: {}", counted(alive, "task"), named.join(", "));
        }
        if alive > named.len() as u64 {
            text += ", …";
        }
        text
    }
}

/// Moves the first task of the ring to its end, and returns its id. No other thread takes tasks
/// from the ring of a runtime with a seed.
fn rotate(ring: &mut Producer<Notified>) -> Option<u64> {
    let task = ring.pop()?;
    let id = task.header().id.as_u64();
    let pushed = ring.push(task);
    debug_assert!(pushed.is_ok(), "it has just left a slot");
    Some(id)
}
