//! The messages between the processes of the chat. The sender is in each message (`Message::from`).
//!
//! Lines are shared, not copied: a room's line is stored once, however many guests receive it.

use std::collections::VecDeque;
use std::sync::Arc;

/// The number of lines that a room keeps and shows to new guests.
pub(crate) const HISTORY_MAX: usize = 50;

/// The last lines of a room.
pub(crate) type History = VecDeque<Arc<str>>;

/// A message from a connection to a room.
pub(crate) enum ToRoom {
    /// Answered by `Joined` or `Refused`.
    Join {
        nick: Arc<str>,
    },
    /// Answered by `Renamed` or `Refused`.
    Rename {
        nick: Arc<str>,
    },
    Say(Arc<str>),
    /// Answered by `Notice`.
    Who,
    Leave,
}

/// A message from a room to a connection.
pub(crate) enum ToGuest {
    Joined,
    Renamed(Arc<str>),
    Refused(Arc<str>),
    /// A guest's line; `is_own` if it is from the receiver.
    Line {
        text: Arc<str>,
        is_own: bool,
    },
    /// A line from before the guest joined.
    Earlier(Arc<str>),
    Notice(Arc<str>),
    /// The connection sent a line and is not in the room, because the room was restarted.
    NotIn,
}

/// A message from a room to the keeper.
pub(crate) enum ToKeeper {
    Keep {
        room: Arc<str>,
        line: Arc<str>,
    },
    /// All lines that the keeper must store for a room.
    KeepAll {
        room: Arc<str>,
        history: History,
    },
    /// Answered with a `History`.
    Fetch {
        room: Arc<str>,
    },
}

/// Adds a line, and removes the oldest if there are too many.
pub(crate) fn remember(history: &mut History, line: Arc<str>) {
    if history.len() == HISTORY_MAX {
        history.pop_front();
    }
    history.push_back(line);
}
