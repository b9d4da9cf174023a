//! What the processes of the chat say to each other. Who says it stands in each message
//! (`Message::from`).
//!
//! Lines are shared, not copied: a room's line is one text, however many read it.

use std::collections::VecDeque;
use std::sync::Arc;

/// Lines that a room remembers, and shows to who comes in.
pub(crate) const HISTORY_MAX: usize = 50;

/// The last lines of a room.
pub(crate) type History = VecDeque<Arc<str>>;

/// A connection to a room.
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

/// A room to a connection.
pub(crate) enum ToGuest {
    Joined,
    Renamed(Arc<str>),
    Refused(Arc<str>),
    /// Somebody has said something; `is_own` for who has.
    Line {
        text: Arc<str>,
        is_own: bool,
    },
    /// Said before somebody came in.
    Earlier(Arc<str>),
    Notice(Arc<str>),
    /// It said something and is not in the room: the room has been started again since.
    NotIn,
}

/// A room to the keeper.
pub(crate) enum ToKeeper {
    Keep {
        room: Arc<str>,
        line: Arc<str>,
    },
    /// All that the keeper has to know of a room.
    KeepAll {
        room: Arc<str>,
        history: History,
    },
    /// Answered with a `History`.
    Fetch {
        room: Arc<str>,
    },
}

/// Adds a line, and forgets the oldest if there are too many.
pub(crate) fn remember(history: &mut History, line: Arc<str>) {
    if history.len() == HISTORY_MAX {
        history.pop_front();
    }
    history.push_back(line);
}
