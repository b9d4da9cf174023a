//! A yield on its way to completion: who carries out its command, and how the result comes back.

use std::future::Future;
use std::sync::Arc;

use crate::messages::event::Event;
use crate::messages::failure::Failure;
use crate::messages::payload::Payload;
use crate::messages::pid::Pid;
use crate::steps::work::Work;
use crate::system::core::{Entry, System};

/// Carries out a command. Any `Fn(Request<'_>)` is one.
///
/// It is called on the worker that stepped the process, between steps, and must not block: what
/// takes long is [run](Request::run) or [deferred](Request::defer). A handler that panics completes
/// the yield with an error.
pub trait Handler: Send + Sync + 'static {
    /// Carries out what `request` asks for.
    fn handle(&self, request: Request<'_>);
}

impl<F: Fn(Request<'_>) + Send + Sync + 'static> Handler for F {
    fn handle(&self, request: Request<'_>) {
        self(request);
    }
}

/// A yield that its handler is to complete: [now](Self::complete_yield), by a [future](Self::run),
/// or [later](Self::defer). Dropped without any of these, it is completed with an error.
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

    /// The process that yields.
    pub fn pid(&self) -> Pid {
        self.entry.pid()
    }

    /// The system in which it runs.
    pub fn system(&self) -> &System {
        self.entry.system()
    }

    /// The yield's tag.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// Takes out what the process gave with the command.
    ///
    /// # Errors
    /// It is no `T`; the failure says so, fit to [complete](Self::complete_yield) the yield with.
    pub fn take<T: std::any::Any>(&mut self) -> Result<T, Failure> {
        std::mem::take(&mut self.payload).downcast().map_err(|payload| {
            Failure::new(format_args!("expected {}, but got {payload:?}", std::any::type_name::<T>()))
        })
    }

    /// Completes the yield at once.
    pub fn complete_yield(mut self, result: Result<Payload, Failure>) {
        self.is_answered = true;
        self.work.complete(self.tag, result);
    }

    /// Completes the yield with what `future` gives. The future runs in the task of the process,
    /// between its steps, and is dropped with it, or when the process
    /// [cancels](crate::Output::cancel) the tag.
    pub fn run(mut self, future: impl Future<Output = Result<Payload, Failure>> + Send + 'static) {
        self.is_answered = true;
        self.work.run(self.tag, future);
    }

    /// Leaves it to somebody else, on whatever thread, to complete the yield.
    pub fn defer(mut self) -> Completion {
        self.is_answered = true;
        Completion { entry: self.entry.clone(), id: self.work.expect(self.tag), is_answered: false }
    }

    pub(crate) fn entry(&self) -> &Arc<Entry> {
        self.entry
    }

    /// Leaves it to `hand_over` to see that the yield is completed, or that it never will be.
    pub(crate) fn hand_over(mut self, hand_over: impl FnOnce(&mut Work, u64)) {
        self.is_answered = true;
        hand_over(self.work, self.tag);
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.work.complete(self.tag, Err(Failure::new("its handler did not complete it")));
        }
    }
}

/// A yield that somebody is to complete later, on whatever thread. Dropped, it is completed with an
/// error, so that no process waits for ever.
#[derive(Debug)]
pub struct Completion {
    entry: Arc<Entry>,
    id: u64,
    is_answered: bool,
}

impl Completion {
    /// The process that waits.
    pub fn pid(&self) -> Pid {
        self.entry.pid()
    }

    /// Completes the yield. If the process has ended, or has cancelled the yield, the result is
    /// dropped.
    pub fn complete_yield(mut self, result: Result<Payload, Failure>) {
        self.is_answered = true;
        self.deliver(result);
    }

    /// Until the runner looks it up, an event's tag is the yield's number: of two yields with one
    /// tag, one may be cancelled.
    fn deliver(&self, result: Result<Payload, Failure>) {
        self.entry.deliver(Event::Completed { tag: self.id, result });
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if !self.is_answered {
            self.deliver(Err(Failure::new("its handler dropped it without completing it")));
        }
    }
}
