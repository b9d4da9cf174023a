//! The state machine of a process: the trait [`Process`], which applications implement and `runner`
//! calls.

use std::any::Any;
use std::task::Context as TaskContext;

use crate::messages::event::Events;
use crate::messages::failure::Failure;
use crate::messages::payload::Payload;
use crate::output::Output;
use crate::steps::context::Context;

/// A state machine that runs as a process.
///
/// Its methods are called by one worker at a time, in the task of the process. None may block. A
/// method that panics or returns an error ends only this process.
pub trait Process: Any + Send {
    /// Returns the names of the entry methods, with which the process can be started
    /// ([`Spawn::method`](crate::Spawn::method)). The first is the default. Starting the process
    /// with any other name fails.
    fn methods(&self) -> &[&'static str] {
        &["main"]
    }

    /// Initializes the process. Called once, before any other step, with the entry method and its
    /// input.
    ///
    /// # Errors
    /// If an error is returned, the process exits with [`Failed`](crate::ExitReason::Failed).
    fn init(&mut self, context: &Context, method: &str, input: Payload) -> Result<(), Failure>;

    /// Handles events. Called with at most 128 events from the mailbox, and the completions of the
    /// process's own yields. Set in `out` what the process waits for and what it yields; `out` is
    /// reset before each step.
    ///
    /// There may be no events: after a step that returned [`Continue`](crate::Status::Continue),
    /// after a wake-up by the process's [waker](Context::waker), after an upgrade, or after the
    /// completion of a cancelled yield.
    ///
    /// # Errors
    /// If an error is returned, the process exits with [`Failed`](crate::ExitReason::Failed).
    fn step(&mut self, events: Events<'_>, out: &mut Output) -> Result<(), Failure>;

    /// Cleans up. Called once, after the last step, whatever the exit reason, if `init` was called.
    /// Then the state machine is dropped, and after that, monitors and links are notified. Only a
    /// [shutdown](crate::System::shutdown) whose time is over may notify them earlier.
    fn close(&mut self) {}

    /// Returns whether the next step accepts events. While this returns false, all events stay in
    /// the mailbox, where messages are bounded and counted. Completions and cancellation are held
    /// back, too.
    fn takes_events(&self) -> bool {
        true
    }

    /// Returns the process as an async function, if it is one, for task dumps. Only
    /// [`from_fn`](crate::from_fn) implements this.
    #[doc(hidden)]
    fn function(&mut self) -> Option<&mut dyn Function> {
        None
    }
}

/// A process that is an async function. Its step polls a future, which may be polled at any time.
#[doc(hidden)]
pub trait Function {
    /// Like [`Process::step`], but polls the future with the waker of the task, which records where
    /// the future waits. When that waker wakes the task, the process must step.
    #[doc(hidden)]
    fn step_traced(&mut self, cx: &mut TaskContext<'_>, events: Events<'_>, out: &mut Output) -> Result<(), Failure>;
}
