//! How a worker polls the driver between two polls of tasks, and wakes the tasks whose timers are
//! due or whose sockets are ready.
//!
//! The driver is the I/O backend with the timers; one worker at a time has its *turn*.

use std::mem;

use volt_telemetry::Phase;
use volt_telemetry::recording::event::{Event, Waker as By};

use super::{Worker, events};
use crate::clock;
use crate::driver::turn::{self, Wait};
use crate::failures::Failure;
use crate::scheduler::core::Destination;
use crate::task::contain::contain;
use crate::task::current::wake_as;

impl Worker {
    /// Polls the driver, without waiting, if no worker has done so for `interval_ns`: fires due
    /// timers and takes I/O events. Any worker may do this, so that timers do not depend on one
    /// worker. If all workers that are awake are stuck, the sentinel wakes another one.
    #[inline]
    pub(super) fn poll_driver_if_due(&self, interval_ns: u64) {
        let now_ns = self.now_ns.get();
        let is_recent = now_ns.saturating_sub(self.shared.workers.driver.last_turn_ns()) < interval_ns;
        if !is_recent {
            self.poll_driver_if_free();
        }
    }

    /// Polls the driver, without waiting, unless another thread has its turn.
    pub(super) fn poll_driver_if_free(&self) {
        if self.shared.workers.driver.owner().is_none() {
            self.turn_driver_now();
        }
    }

    #[cold]
    fn turn_driver_now(&self) {
        let mut core = self.core.borrow_mut();
        let Some(mut turn) = self.shared.workers.driver.try_turn(self.index) else { return };
        self.cells().enter_phase(Phase::Maintenance, self.now_ns.get());
        self.recorder.note(|| self.now_ns.get(), || Event::DriverIn);
        let polled = turn.poll(Wait::No, &mut core.wakers);
        drop(turn);
        core.io_wakers = polled.as_ref().map_or(0, |polled| polled.io_wakers);
        self.now_ns.set(clock::now_ns());
        self.recorder.note(|| self.now_ns.get(), || events::driver_out(&polled));
        self.cells().enter_phase(Phase::Busy, self.now_ns.get());
        drop(core);
        self.wake_collected();
        // After the wake-ups: writing the log may block, and there is a pause after a failure.
        self.report(&polled);
        self.hand_driver_on();
    }

    /// Hand-off (3), if it is eager. This worker goes on to poll tasks. Another worker may have
    /// failed to get the driver turn because of it, or may have relied on it.
    pub(super) fn hand_driver_on(&self) {
        if self.shared.config.eager_driver_handoff {
            self.count_wakes(usize::from(self.shared.workers.wake_for_driver()));
        }
    }

    /// Reports a fault of the clock, or an I/O backend that fails; after a turn of the driver and
    /// its wake-ups. After a failure it also pauses, so that the worker does not spin on the error.
    pub(super) fn report(&self, polled: &std::io::Result<turn::Polled>) {
        let has_clock_news = self.shared.workers.driver.has_clock_news();
        if polled.is_err() || has_clock_news {
            self.report_now(polled, has_clock_news);
        }
    }

    #[cold]
    fn report_now(&self, polled: &std::io::Result<turn::Polled>, has_clock_news: bool) {
        // It may take a while until this worker runs what it has just woken, so another worker is
        // woken for that. This worker also leaves the searchers: while there is a searcher, no
        // worker is woken for new work.
        self.leave_search(&mut self.core.borrow_mut());
        self.count_wakes(usize::from(self.shared.workers.wake_one()));
        if has_clock_news {
            self.shared.workers.driver.report_clock();
        }
        if let Err(error) = polled {
            self.shared.failures().note(Failure::DriverFailed, error);
            std::thread::sleep(turn::ERROR_PAUSE);
        }
    }

    /// Calls the wakers that the driver has collected. Their tasks go to the ring; then workers are
    /// woken, as many as there are tasks that this worker does not run next.
    pub(super) fn wake_collected(&self) {
        let (mut wakers, of_io) = {
            let mut core = self.core.borrow_mut();
            if core.wakers.is_empty() {
                return;
            }
            core.destination = Destination::Ring { pushed: 0 };
            (mem::take(&mut core.wakers), core.io_wakers)
        };
        let former = wake_as(By::Io);
        for (index, waker) in wakers.drain(..).enumerate() {
            if index == of_io {
                wake_as(By::Timer);
            }
            // A foreign waker that panics must not unwind through the worker.
            contain(|| waker.wake());
        }
        wake_as(former);
        let mut core = self.core.borrow_mut();
        // The time that it took to wake many tasks belongs to no poll and to no task's wait.
        self.now_ns.set(clock::now_ns());
        // By the number of tasks, not of wakers: a foreign waker may have started any number of
        // tasks, or none.
        let destination = mem::replace(&mut core.destination, Destination::Lifo);
        core.wakers = wakers;
        if let Some(clock) = &self.shared.workers.driver.test_clock {
            clock.end_wakes();
        }
        if let Destination::Ring { pushed } = destination {
            self.wake_for_surplus(&core, pushed);
        }
    }
}
