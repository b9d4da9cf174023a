//! The table of command handlers of a system.
//!
//! Handlers for numbers below [`CommandId::FIRST`] belong to the system and are stored in an array.
//! Those of applications are stored in a map. Both are fixed when the system is built, so that a
//! lookup takes no lock. Two handlers for one number are an error of
//! [`Builder::build`](crate::Builder::build). A command without a handler completes its yield with
//! an error.

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::messages::failure::Failure;
use crate::steps::command::{self, CommandId};
use crate::steps::commands;
use crate::steps::dispatch::{Handler, Request};
use crate::steps::output::{Output, Yield};
use crate::steps::work::Work;
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
    fn dispatch(&self, entry: &Arc<Entry>, work: &mut Work, Yield { tag, command, payload }: Yield) {
        if !work.has_room() && command != command::CANCEL {
            let full = format_args!("{} yields are outstanding, which is the maximum", Output::YIELDS_MAX);
            work.complete(tag, Err(Failure::new(full)));
            return;
        }
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

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.others.keys()).finish()
    }
}
