//! One cell of a table: text, and what it means.

use crate::facts::Tone;
use crate::text::figures::{ABSENT, left, right};

/// Text and what it means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// What stands there, not yet padded.
    pub text: String,
    /// Its meaning.
    pub tone: Tone,
}

impl Cell {
    /// `text`, quiet where it is nothing.
    pub(crate) fn new(text: impl Into<String>) -> Cell {
        let text = text.into();
        let tone = if ["0", "0%", "0ns", ABSENT].contains(&text.as_str()) { Tone::Quiet } else { Tone::Plain };
        Cell { text, tone }
    }

    /// The same text without a meaning.
    pub(crate) fn plain(self) -> Cell {
        Cell { tone: Tone::Plain, ..self }
    }

    /// The same text, quiet if `is_quiet`.
    pub(crate) fn quiet_if(self, is_quiet: bool) -> Cell {
        Cell { tone: if is_quiet { Tone::Quiet } else { self.tone }, ..self }
    }
}

/// Which side a column's text leans to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Figures.
    Right,
}

impl Align {
    /// `text` padded or cut to `columns`.
    pub(crate) fn set(self, text: &str, columns: usize) -> String {
        match self {
            Align::Left => left(text, columns),
            Align::Right => right(text, columns),
        }
    }
}
