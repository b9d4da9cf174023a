//! Records the events of a worker for the flight recorder, where this takes more than one line: see
//! `recorder`.
//!
//! While the recorder is off, a poll costs one load of its flag, and so does each wake-up; no
//! function of this module is called. Only the worker's own thread writes to its lane.

use std::panic::Location;

use volt_telemetry::recording::event::Event;

use super::Worker;
use super::events::{outcome, outcome_of};
use crate::scheduler::slots::SlotState;
use crate::stats::locations::number_of;
use crate::stats::reasons::Ended;
use crate::task::header::{Header, PackedRan};

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

    /// Records the end of a task in a poll for a dump. The begin of such a poll is not recorded,
    /// since no wake-up led to it.
    #[cold]
    pub(super) fn note_traced_end(
        &self,
        (task, location): (u64, &'static Location<'static>),
        ended: Ended,
        now_ns: u64,
        took_ns: u64,
    ) {
        let Some(writer) = self.recorder.get() else { return };
        writer.poll_end(now_ns, task, number_of(location), outcome_of(ended), took_ns);
    }

    /// Records that a spare becomes active, in place of the first worker that is stuck or blocking.
    pub(super) fn note_replacement(&self) {
        let (slots, now_ns) = (&self.shared.workers.slots, self.now_ns.get());
        let is_stuck = |slot: &usize| matches!(slots.state(*slot), SlotState::Stuck | SlotState::Blocking);
        if let Some(stuck) = (0..slots.in_use()).find(is_stuck) {
            self.note(now_ns, Event::Replace { worker: stuck as u16 });
        }
    }
}
