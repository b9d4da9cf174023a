//! The poll in flight: the data that a reader gets about it, and the HTTP route that it handles.
//!
//! The cells and their sequence lock are described in the header of `cells`.

use std::sync::atomic::Ordering;

use volt_telemetry::InFlight;
use volt_telemetry::text;

use super::WorkerCells;

// A black box contains the cells, and readers find those that they need at these places.
const _: () = {
    use std::mem::offset_of;
    use volt_telemetry::recording::black_box::{CELL_BYTES, cell};
    assert!(size_of::<WorkerCells>() <= CELL_BYTES && CELL_BYTES.is_multiple_of(align_of::<WorkerCells>()));
    assert!(offset_of!(WorkerCells, poll_seq) == cell::POLL_SEQ * 8);
    assert!(offset_of!(WorkerCells, task_id) == cell::TASK * 8);
    assert!(offset_of!(WorkerCells, location) == cell::LOCATION * 8);
    assert!(offset_of!(WorkerCells, poll_began_at_ns) == cell::POLL_BEGAN_NS * 8);
    assert!(offset_of!(WorkerCells, phase_seq) == cell::PHASE_SEQ * 8);
    assert!(offset_of!(WorkerCells, phase) == cell::PHASE * 8);
    assert!(offset_of!(WorkerCells, phase_since_ns) == cell::PHASE_SINCE_NS * 8);
    assert!(offset_of!(WorkerCells, thread_id) == cell::THREAD * 8);
};

/// Where the names of a poll in flight are found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys {
    /// The number of the task's place in the registry.
    pub(crate) place: u64,
    /// The index of the HTTP route.
    pub(crate) route: Option<usize>,
}

impl WorkerCells {
    /// Stores the route that the poll in flight handles: its index plus one, or 0. Returns the
    /// former one. For the worker itself.
    pub(crate) fn set_route(&self, route: u64) -> u64 {
        let former = self.route.get();
        self.route.set(route);
        former
    }

    /// Replaces the route that the poll in flight handles by `new` if it is `old`. For the worker
    /// itself.
    pub(crate) fn change_route(&self, old: u64, new: u64) {
        if self.route.get() == old {
            self.route.set(new);
        }
    }

    /// Returns for how long the task of the poll in flight had waited for it since
    /// `submitted_at_ns`. Returns `None` if it was returned for this poll before, and if the task
    /// was submitted again during the poll. For the worker itself.
    pub(crate) fn take_delay(&self, submitted_at_ns: u64) -> Option<u64> {
        let poll_seq = self.poll_seq();
        if self.delay_taken_seq.get() == poll_seq {
            return None;
        }
        self.delay_taken_seq.set(poll_seq);
        self.poll_began_at_ns.get().checked_sub(submitted_at_ns)
    }

    /// Returns the poll in flight, if there is one, and where its task and its route are found.
    pub(crate) fn in_flight(&self, now_ns: u64) -> Option<(InFlight, Keys)> {
        let (task_id, place, began_at_ns, location, route) = self.read_in_flight(|| {
            // ORDERING: Relaxed; guarded by the two readings of `poll_seq`.
            let location = self.location.load(Ordering::Relaxed);
            (self.task_id.get(), self.place.get(), self.poll_began_at_ns.get(), location, self.route.get())
        })?;
        // SAFETY: only `begin_poll` and `begin_poll_of_main` write the pointer, from a `&'static
        // Location`; one of them has done so, since `poll_seq` was odd.
        let location = unsafe { &*location };
        let for_ns = now_ns.saturating_sub(began_at_ns);
        let poll = InFlight { task_id, spawned_at: text::location(location), for_ns, ..InFlight::default() };
        Some((poll, Keys { place, route: route.checked_sub(1).map(|route| route as usize) }))
    }

    /// Same as [`in_flight`](Self::in_flight), if it is the poll with this number. Numbers only
    /// grow, so the values belong to no other poll.
    pub(crate) fn in_flight_of(&self, poll_seq: u64, now_ns: u64) -> Option<(InFlight, Keys)> {
        self.in_flight(now_ns).filter(|_| self.poll_seq() == poll_seq)
    }
}
