//! Records the events of a worker for the flight recorder, where this takes more than one line: see
//! `recorder`.
//!
//! While the recorder is off, a poll costs one load of its flag, and so does each wake-up; no
//! function of this module is called. Only the worker's own thread writes to its lane.

use std::io;
use std::panic::Location;

use volt_telemetry::recording::event::{Event, Outcome, Reason};
use volt_telemetry::recording::flush::Track;

use super::Worker;
use crate::driver::turn::Polled;
use crate::scheduler::staff::Duty;
use crate::stats::locations::number_of;
use crate::stats::reasons::WakeReason;
use crate::task::header::{Ended, Header, PackedRan};

impl Worker {
    /// Records an event of this worker's thread from outside of the worker's loop.
    #[cold]
    pub(crate) fn note(&self, at_ns: u64, event: Event) {
        self.recorder.note(|| at_ns, || event);
    }

    #[cold]
    pub(super) fn note_poll_begin(&self, task: &Header, now_ns: u64) {
        let Some(writer) = self.recorder.get() else { return };
        let id = task.id.as_u64();
        // Whether the task came from the LIFO slot is determined here, so that it costs nothing
        // there. Since the previous poll there was one hit or none. A greater difference stems from
        // a time in which nothing was recorded.
        let lifo_hits = self.cells().lifo_hits.get();
        if self.lifo_hits.replace(lifo_hits) + 1 == lifo_hits {
            writer.note(now_ns, Event::LifoHit { task: id });
        }
        writer.poll_begin(now_ns, id, number_of(task.location()), task.submitted_at_ns());
    }

    /// Records the end of the poll that began last; its task may no longer exist.
    #[cold]
    pub(super) fn note_poll_end(
        &self,
        location: &'static Location<'static>,
        ran: &PackedRan,
        has_yielded: bool,
        now_ns: u64,
        took_ns: u64,
    ) {
        let Some(writer) = self.recorder.get() else { return };
        let task = self.cells().last_task();
        if has_yielded {
            writer.note(now_ns, Event::CoopYield { task });
        }
        writer.poll_end(now_ns, task, number_of(location), outcome(ran), took_ns);
    }

    /// Records that a spare goes on duty, in place of the first worker that is away or blocking.
    pub(super) fn note_replacement(&self) {
        let (staff, now_ns) = (&self.shared.staff, self.now_ns.get());
        let is_stuck = |slot: &usize| matches!(staff.duty(*slot), Duty::Away | Duty::Blocking);
        if let Some(stuck) = (0..staff.in_use()).find(is_stuck) {
            self.note(now_ns, Event::Replace { worker: stuck as u16 });
        }
    }
}

/// Returns the event of a task's wake-up, from the task's header.
#[cold]
pub(crate) fn wake_of(task: &Header) -> Event {
    Event::Wake { task: task.id.as_u64(), location: number_of(task.location()), by: task.last_wake().by }
}

/// Returns the lane of a slot: workers first, spares after them.
pub(super) fn track_of(slot: usize, workers: usize) -> Track {
    match slot.checked_sub(workers) {
        None => Track::Worker { index: slot as u16 },
        Some(spare) => Track::Spare { index: spare as u16 },
    }
}

pub(super) fn driver_out(polled: &io::Result<Polled>) -> Event {
    let polled = polled.as_ref().copied().unwrap_or_default();
    Event::DriverOut { events: polled.events as u64, timers: polled.timers_fired as u32 }
}

pub(super) fn reason(reason: WakeReason) -> Reason {
    match reason {
        WakeReason::Notified => Reason::Notified,
        WakeReason::Timeout => Reason::Timeout,
        WakeReason::Io => Reason::Io,
        WakeReason::Timer => Reason::Timer,
        WakeReason::Spurious => Reason::Spurious,
    }
}

fn outcome(ran: &PackedRan) -> Outcome {
    match ran.ended() {
        None if ran.is_pending() => Outcome::Pending,
        None => Outcome::Woken,
        Some(Ended::Completed) => Outcome::Completed,
        Some(Ended::Cancelled) => Outcome::Cancelled,
        Some(Ended::Panicked) => Outcome::Panicked,
    }
}
