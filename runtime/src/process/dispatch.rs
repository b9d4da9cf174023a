//! From a command's number to who carries it out.
//!
//! Numbers below [`CommandId::FIRST`] are the system's own and stand in an array; those of applications stand in a map. Both are frozen
//! when the system is built, so that a lookup takes no lock. Two handlers for one number are an error of
//! [`Builder::build`](super::Builder::build); a number that nobody handles completes its yield with an error.
//!
//! Source: seed 004, "Dispatch".

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use super::commands;
use super::entry::Entry;
use super::event::Event;
use super::failure::Failure;
use super::payload::Payload;
use super::pid::Pid;
use super::system::System;
use super::work::Work;

/// The number of a command.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandId(u32);

impl CommandId {
    /// The first number that is an application's to give.
    pub const FIRST: u32 = 256;

    /// An application's command.
    ///
    /// # Panics
    /// `number` is below [`FIRST`](Self::FIRST): the system's own. In a `const` the compiler says so.
    ///
    /// ```
    /// use volt::process::CommandId;
    ///
    /// const LOOK_UP: CommandId = CommandId::new(CommandId::FIRST);
    /// assert_eq!(LOOK_UP.number(), 256);
    /// ```
    pub const fn new(number: u32) -> Self {
        assert!(number >= Self::FIRST, "numbers below 256 are the system's own commands");
        Self(number)
    }

    pub(crate) const fn system(number: u32) -> Self {
        assert!(number < Self::FIRST);
        Self(number)
    }

    /// Its number.
    pub fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for CommandId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CommandId({})", self.0)
    }
}

/// Carries out a command. Any `Fn(Request<'_>)` is one.
///
/// It is called on the worker that stepped the process, between steps, and must not block: what takes long is
/// [run](Request::run) or [deferred](Request::defer). A handler that panics completes the yield with an error.
pub trait Handler: Send + Sync + 'static {
    /// Carries out what `request` asks for.
    fn handle(&self, request: Request<'_>);
}

impl<F: Fn(Request<'_>) + Send + Sync + 'static> Handler for F {
    fn handle(&self, request: Request<'_>) {
        self(request);
    }
}

/// A yield that its handler is to complete: [now](Self::complete_yield), by a [future](Self::run), or [later](Self::defer). Dropped without any
/// of these, it is completed with an error.
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

    /// Completes the yield with what `future` gives. The future runs in the task of the process, between its steps, and is dropped with
    /// it, or when the process [cancels](super::Output::cancel) the tag.
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

/// A yield that somebody is to complete later, on whatever thread. Dropped, it is completed with an error, so that no process waits for ever.
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

    /// Completes the yield. If the process has ended, or has cancelled the yield, the result is dropped.
    pub fn complete_yield(mut self, result: Result<Payload, Failure>) {
        self.is_answered = true;
        self.deliver(result);
    }

    /// Until the runner looks it up, an event's tag is the yield's number: of two yields with one tag, one may be cancelled.
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

/// The handlers of a system.
pub(crate) struct Handlers {
    system: [Option<Box<dyn Handler>>; commands::COUNT],
    others: HashMap<CommandId, Box<dyn Handler>>,
}

impl Handlers {
    /// The system's own, and `others`.
    ///
    /// # Errors
    /// Two of them are for one command: that one.
    pub(crate) fn new(others: Vec<(CommandId, Box<dyn Handler>)>) -> Result<Self, CommandId> {
        let mut handlers = Self { system: commands::handlers(), others: HashMap::new() };
        for (command, handler) in others {
            if handlers.others.insert(command, handler).is_some() {
                return Err(command);
            }
        }
        Ok(handlers)
    }

    pub(crate) fn get(&self, command: CommandId) -> Option<&dyn Handler> {
        let handler = match self.system.get(command.0 as usize) {
            Some(handler) => handler.as_ref(),
            None => self.others.get(&command),
        };
        handler.map(|handler| &**handler)
    }
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.others.keys()).finish()
    }
}
