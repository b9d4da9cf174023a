//! The numbers of commands: those of the system, and those that an application adds.

use std::fmt;
use std::time::Duration;

use crate::messages::payload::Payload;
use crate::messages::pid::Pid;

/// The number of a command.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandId(pub(crate) u32);

impl CommandId {
    /// The lowest number that an application can use.
    pub const FIRST: u32 = 256;

    /// Returns the identifier of an application's command.
    ///
    /// # Panics
    /// Panics if `number` is below [`FIRST`](Self::FIRST): those are reserved for the system. In a
    /// `const`, this is a compile error.
    ///
    /// ```
    /// use volt_process::CommandId;
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

    /// Returns the number.
    pub fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for CommandId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CommandId({})", self.0)
    }
}

pub(crate) const SLEEP: CommandId = CommandId::system(0);
pub(crate) const INTERVAL: CommandId = CommandId::system(1);
pub(crate) const CANCEL: CommandId = CommandId::system(2);
pub(crate) const CALL: CommandId = CommandId::system(3);
pub(crate) const SPAWN: CommandId = CommandId::system(4);
pub(crate) const EXEC: CommandId = CommandId::system(5);
pub(crate) const TERMINATE: CommandId = CommandId::system(6);
pub(crate) const MONITOR: CommandId = CommandId::system(7);
pub(crate) const DEMONITOR: CommandId = CommandId::system(8);
pub(crate) const LINK: CommandId = CommandId::system(9);
pub(crate) const UNLINK: CommandId = CommandId::system(10);

/// The array of the system's handlers has an element for every number below `FIRST`, whether it is
/// used or not.
pub(crate) const COUNT: usize = CommandId::FIRST as usize;

/// The payload of `CALL`.
pub(crate) struct Call {
    pub to: Pid,
    pub message: Payload,
    pub limit: Duration,
}

/// The payload of `TERMINATE`.
pub(crate) struct Terminate {
    pub pid: Pid,
    pub limit: Duration,
}
