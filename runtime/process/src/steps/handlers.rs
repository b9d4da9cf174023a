//! The table of command handlers of a system.
//!
//! Handlers for numbers below [`CommandId::FIRST`] belong to the system and are stored in an array.
//! Those of applications are stored in a map. Both are fixed when the system is built, so that a
//! lookup takes no lock. Two handlers for one number are an error of
//! [`Builder::build`](crate::Builder::build). A command without a handler completes its yield with
//! an error. A message that a step yields is no command and has no handler; it is sent here.

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures_util::FutureExt;

use crate::messages::failure::Failure;
use crate::messages::payload::Payload;
use crate::messages::pid::Pid;
use crate::output::command::{self, CommandId};
use crate::output::work::Work;
use crate::output::{Operation, Output, Yield};
use crate::steps::commands;
use crate::steps::context::Context;
use crate::steps::dispatch::{Handler, Request};
use crate::system::core::{Dispatch, Entry};

/// The handlers of a system.
pub(crate) struct Handlers {
    system: [Option<Box<dyn Handler>>; command::COUNT],
    others: HashMap<CommandId, Box<dyn Handler>>,
}

impl Handlers {
    /// Returns the table of the system's own handlers and `others`.
    ///
    /// # Errors
    /// Returns the command that has two handlers.
    pub(crate) fn new(others: Vec<(CommandId, Box<dyn Handler>)>) -> Result<Self, CommandId> {
        let mut handlers = Self { system: commands::handlers(), others: HashMap::new() };
        for (command, handler) in others {
            if handlers.others.insert(command, handler).is_some() {
                return Err(command);
            }
        }
        Ok(handlers)
    }

    fn get(&self, command: CommandId) -> Option<&dyn Handler> {
        let handler = match self.system.get(command.0 as usize) {
            Some(handler) => handler.as_ref(),
            None => self.others.get(&command),
        };
        handler.map(|handler| &**handler)
    }
}

impl Dispatch for Handlers {
    fn dispatch(&self, entry: &Arc<Entry>, work: &mut Work, Yield { tag, operation }: Yield) {
        if !work.has_room() && !matches!(operation, Operation::Command(command::CANCEL, _)) {
            let full = format_args!("{} yields are outstanding, which is the maximum", Output::YIELDS_MAX);
            work.complete(tag, Err(Failure::new(full)));
            return;
        }
        let (command, payload) = match operation {
            Operation::Send(to, message) => return send(entry, work, tag, to, message),
            Operation::Command(command, payload) => (command, payload),
        };
        let Some(handler) = self.get(command) else {
            let unknown = format_args!("no handler for command {}: add one with Builder::handler", command.number());
            work.complete(tag, Err(Failure::new(unknown)));
            return;
        };
        let request = Request::new(entry, work, tag, payload);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| handler.handle(request))) {
            // The request was dropped during the unwinding, which completed the yield.
            let failure = Failure::of_panic(panic);
            tracing::error!(target: "volt::process", pid = %entry.pid(), command = command.number(), %failure, "a handler panicked");
        }
    }
}

/// Sends a yielded message, or queues it behind those that wait.
fn send(entry: &Arc<Entry>, work: &mut Work, tag: u64, to: Pid, message: Payload) {
    let (system, from) = (entry.system(), entry.pid());
    // The waker is that of this process's task, which polls `work`. Its first poll has set it.
    let Some(waker) = entry.waker().filter(|_| !work.is_sending()) else {
        let context = Context::new(entry.clone());
        return work.send(tag, async move { context.send_in_turn(to, message).await });
    };
    let begun = catch_unwind(AssertUnwindSafe(|| match to == from {
        // A process does not wait for room in its own mailbox.
        true => system.try_send_as(Some(from), to, message).map(|()| None),
        false => system.begin_send_as(Some(from), to, message, waker),
    }));
    match begun {
        Ok(Ok(None)) => work.complete(tag, Ok(Payload::empty())),
        Ok(Ok(Some(delivery))) => {
            work.send(tag, delivery.map(|sent| sent.map(|()| Payload::empty()).map_err(Failure::from)));
        }
        Ok(Err(error)) => work.complete(tag, Err(Failure::from(error))),
        // The mailbox dropped the message, whose destructor panicked.
        Err(panic) => work.complete(tag, Err(Failure::of_panic(panic))),
    }
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.others.keys()).finish()
    }
}
