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
    /// The poll has the program's callbacks, which may set up what the task requires on its thread.
    /// It is not counted or recorded, nor does it change the task's account: these are about polls
    /// that the program causes. The end of a task is both counted and recorded.
    pub(in crate::scheduler) fn poll_traced(&self, task: Notified, tape: &mut Tape) -> bool {
        let began_at_ns = clock::now_ns();
        let identity = (task.header().id.as_u64(), task.header().location());
        let mut run = |task: Notified| {
            let (mut task, mut ran) = (Some(task), None);
            tape.record(&mut || {
                ran = coop::limited(self.shared.config.coop_budget, || Some(task.take()?.run_traced()));
            });
            ran.expect("`record` calls the closure once")
        };
        let ran = if self.has_poll_hooks { self.run_between_hooks(task, run) } else { run(task) };
        match ran {
            Ran::Pending { .. } => true,
            Ran::Woken { task, by_itself, .. } => {
                let now_ns = clock::now_ns();
                if by_itself {
                    task.header().stamp_own_wake(now_ns);
                } else {
                    task.header().stamp_wake_in_poll(now_ns);
                }
                self.take_woken(task);
                false
            }
            Ran::Ended(ended) => {
                self.cells().count_end(ended);
                if self.recorder.is_on() {
                    let now_ns = clock::now_ns();
                    self.note_traced_end(identity, ended, now_ns, now_ns.saturating_sub(began_at_ns));
                }
                false
            }
        }
    }
}
