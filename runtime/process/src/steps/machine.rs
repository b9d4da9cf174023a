//! What a process is made of.

use std::any::Any;

use crate::messages::event::Events;
use crate::messages::failure::Failure;
use crate::messages::payload::Payload;
use crate::steps::context::Context;
use crate::steps::output::Output;

/// A state machine that runs as a process.
///
/// Its methods are called by one worker at a time, in the process's own task; none may block. One
/// that panics or returns an error ends the process, and nothing else.
pub trait Process: Any + Send {
    /// Entry methods that it offers; a process that is to be started by another is refused before
    /// anything of it runs. The first is taken if none is named.
    fn methods(&self) -> &[&'static str] {
        &["main"]
    }

    /// Begins: called once, before everything else, with the entry method and its input.
    ///
    /// # Errors
    /// The process cannot begin; it ends.
    fn init(&mut self, context: &Context, method: &str, input: Payload) -> Result<(), Failure>;

    /// Goes on: called when there are events, with at most 128 from its mailbox and the completions
    /// of its own yields. There may be none: when it said [`Continue`](crate::Status::Continue),
    /// was woken by its [waker](Context::waker), was upgraded, or what woke it was a yield that it
    /// has cancelled. What it writes to `out` says what it waits for, each time anew.
    ///
    /// # Errors
    /// The process cannot go on; it ends.
    fn step(&mut self, events: Events<'_>, out: &mut Output) -> Result<(), Failure>;

    /// Ends: called once after everything else, however the process ends, if `init` was called.
    /// Then it is dropped, and only then others are told of its end.
    fn close(&mut self) {}

    /// Whether its next step is to get events. While it wants none, they stay in the mailbox, where
    /// they are bounded and counted; that goes for completions and cancellation, too.
    fn takes_events(&self) -> bool {
        true
    }
}
