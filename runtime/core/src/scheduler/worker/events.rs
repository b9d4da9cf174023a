//! The events of the flight recorder that describe what a worker does.

use std::io;

use volt_telemetry::recording::event::{Event, Outcome, Reason};
use volt_telemetry::recording::flush::Track;

use crate::driver::turn::Polled;
use crate::stats::locations::number_of;
use crate::stats::reasons::{Ended, WakeReason};
use crate::task::header::{Header, PackedRan};

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

pub(super) fn outcome(ran: &PackedRan) -> Outcome {
    match ran.ended() {
        None if ran.is_pending() => Outcome::Pending,
        None => Outcome::Woken,
        Some(ended) => outcome_of(ended),
    }
}

pub(super) fn outcome_of(ended: Ended) -> Outcome {
    match ended {
        Ended::Completed => Outcome::Completed,
        Ended::Cancelled => Outcome::Cancelled,
        Ended::Panicked => Outcome::Panicked,
    }
}
