//! Handlers of commands, and the two objects by which a handler completes a yield: a [`Request`]
//! within the call of the handler, and a [`Completion`] after it.

use std::future::Future;
use std::sync::Arc;

use crate::messages::event::Event;
use crate::messages::failure::Failure;
use crate::messages::payload::Payload;
use crate::messages::pid::Pid;
use crate::output::work::Work;
use crate::system::core::{Entry, System};

/// Handles a command. Any `Fn(Request<'_>)` is a handler.
///
/// It is called on the worker that stepped the process, between two steps, and must not block.
/// [Run](Request::run) or [defer](Request::defer) longer work. If a handler panics, the yield
/// completes with an error.
pub trait Handler: Send + Sync + 'static {
    /// Handles `request`.
    fn handle(&self, request: Request<'_>);
}

impl<F: Fn(Request<'_>) + Send + Sync + 'static> Handler for F {
    fn handle(&self, request: Request<'_>) {
        self(request);
    }
}

/// A yield that its handler must complete: [immediately](Self::complete_yield), by a
/// [future](Self::run), or [later](Self::defer). If it is dropped without any of these, the yield
/// completes with an error.
#[derive(Debug)]
pub struct Request<'a> {
    entry: &'a Arc<Entry>,
    work: &'a mut Work,
    payload: Payload,
    tag: u64,
    is_answered: bool,
}

impl<'a> Request<'a> {
    pub(crate) fn new(entry: &'a Arc<Entry>, work: &'a mut Work, tag: u64, payload: Payload) -> Self {
        Self { entry, work, payload, tag, is_answered: false }
    }

    /// Returns the process that yielded the command.
    pub fn pid(&self) -> Pid {
        self.entry.pid()
    }

    /// Returns the system in which it runs.
    pub fn system(&self) -> &System {
        self.entry.system()
    }

    /// Returns the tag of the yield.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// Takes the payload of the command out.
    ///
    /// # Errors
    /// Returns an error if it is not a `T`. The yield can be [completed](Self::complete_yield) with
    /// that error.
    pub fn take<T: std::any::Any>(&mut self) -> Result<T, Failure> {
        std::mem::take(&mut self.payload).downcast().map_err(|payload| {
            Failure::new(format_args!("expected {}, but got {payload:?}", std::any::type_name::<T>()))
        })
    }

    /// Completes the yield immediately.
    pub fn complete_yield(mut self, result: Result<Payload, Failure>) {
        self.is_answered = true;
        self.work.complete(self.tag, result);
    }

    /// Completes the yield with the result of `future`. The future runs in the task of the process,
    /// between its steps. It is dropped when the process exits or [cancels](crate::Output::cancel)
    /// the tag.
    pub fn run(mut self, future: impl Future<Output = Result<Payload, Failure>> + Send + 'static) {
        self.is_answered = true;
        self.work.run(self.tag, future);
    }

    /// Returns a handle with which any thread can complete the yield later.
    pub fn defer(mut self) -> Completion {
        self.is_answered = true;
        Completion { entry: self.entry.clone(), id: self.work.expect(self.tag), is_answered: false }
    }

    pub(crate) fn entry(&self) -> &Arc<Entry> {
        self.entry
    }

    /// Passes the yield to `hand_over`, which completes it, or arranges its completion, or cancels
    /// other yields.
    pub(crate) fn hand_over(mut self, hand_over: impl FnOnce(&mut Work, u64)) {
        self.is_answered = true;
        hand_over(self.work, self.tag);
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.work.complete(self.tag, Err(Failure::new("its handler did not complete the yield")));
        }
    }
}

/// A yield that any thread can complete later. If it is dropped, the yield completes with an error,
/// so that no process waits forever.
#[derive(Debug)]
pub struct Completion {
    entry: Arc<Entry>,
    id: u64,
    is_answered: bool,
}

impl Completion {
    /// Returns the process that waits.
    pub fn pid(&self) -> Pid {
        self.entry.pid()
    }

    /// Completes the yield. The result is dropped if the process has exited or cancelled the yield.
    pub fn complete_yield(mut self, result: Result<Payload, Failure>) {
        self.is_answered = true;
        self.deliver(result);
    }

    /// The event contains the number of the yield instead of its tag; the runner replaces it. Of
    /// two yields with the same tag, one may have been cancelled.
    fn deliver(&self, result: Result<Payload, Failure>) {
        self.entry.deliver(Event::Completed { tag: self.id, result });
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if !self.is_answered {
            self.deliver(Err(Failure::new("its handler dropped the yield without completing it")));
        }
    }
}
