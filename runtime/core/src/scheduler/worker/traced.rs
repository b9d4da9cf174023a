//! Polls a waiting task for a dump.

use std::sync::Arc;

use volt_stacks::Tape;

use super::Worker;
use crate::clock;
use crate::coop;
use crate::scheduler::shared::Shared;
use crate::task::header::{Notified, Ran};

impl Worker {
    pub(in crate::scheduler) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Polls a task that a dump has claimed, inside the poll of the dump's own task, and records on
    /// `tape` where it suspends. Returns whether it still waits.
    ///
    /// The poll is not counted and has no callbacks: the counts are about polls that the program
    /// causes. The end of a task is counted.
    pub(in crate::scheduler) fn poll_traced(&self, task: Notified, tape: &mut Tape) -> bool {
        let (mut task, mut ran) = (Some(task), None);
        tape.record(&mut || {
            let began_at_ns = clock::now_ns();
            ran = coop::limited(self.shared.config.coop_budget, || Some(task.take()?.run_traced(began_at_ns)));
        });
        match ran.expect("`record` calls the closure once") {
            Ran::Pending { .. } => true,
            Ran::Woken { task, by_itself, at_ns } => {
                if by_itself {
                    task.header().stamp_own_wake(at_ns);
                } else {
                    task.header().stamp_wake_in_poll(at_ns);
                }
                self.take_woken(task);
                false
            }
            Ran::Ended(ended) => {
                self.cells().count_end(ended);
                false
            }
        }
    }
}
