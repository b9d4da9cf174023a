//! The process of a supervisor. Its `init` turns the plan (`tree`) into the state machine
//! `running`, which all steps are passed to.

use super::running::Running;
use super::tree::Supervisor;
use crate::messages::event::Events;
use crate::messages::failure::Failure;
use crate::messages::payload::Payload;
use crate::output::Output;
use crate::steps::context::Context;
use crate::steps::machine::Process;
use crate::steps::spawn::Spawn;

/// The state machine that [`Supervisor::into_spawn`] returns.
pub(super) struct Machine {
    plan: Option<Supervisor>,
    running: Option<Running>,
}

impl Machine {
    pub(super) fn new(plan: Supervisor) -> Self {
        Self { plan: Some(plan), running: None }
    }
}

impl Supervisor {
    /// Returns the description with which a system or another supervisor starts this supervisor.
    #[track_caller]
    pub fn into_spawn(self) -> Spawn {
        let spawn = Spawn::new(Machine::new(self)).trap_exits();
        Spawn { kind: std::any::type_name::<Self>(), is_supervisor: true, ..spawn }
    }
}

impl Process for Machine {
    fn init(&mut self, context: &Context, _method: &str, input: Payload) -> Result<(), Failure> {
        let Some(plan) = self.plan.take() else { return Err(Failure::new("a supervisor can be started only once")) };
        self.running = Some(Running::new(plan, context, input)?);
        // The first step starts the children.
        context.waker().wake();
        Ok(())
    }

    fn step(&mut self, events: Events<'_>, out: &mut Output) -> Result<(), Failure> {
        let Some(running) = &mut self.running else { return Ok(()) };
        for event in events {
            running.take(event);
        }
        running.settle(out)
    }
}
