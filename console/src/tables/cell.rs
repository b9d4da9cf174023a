//! One cell of a table: its text and its tone.

use crate::facts::Tone;
use crate::text::figures::{ABSENT, left, right};

/// A text and its tone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// The text, not padded.
    pub text: String,
    /// Its meaning.
    pub tone: Tone,
}

impl Cell {
    /// Creates a cell with `text`, which is quiet if it is zero or absent.
    pub(crate) fn new(text: impl Into<String>) -> Cell {
        let text = text.into();
        let tone = if ["0", "0%", "0ns", ABSENT].contains(&text.as_str()) { Tone::Quiet } else { Tone::Plain };
        Cell { text, tone }
    }

    /// Returns the same text with the plain tone.
    pub(crate) fn plain(self) -> Cell {
        Cell { tone: Tone::Plain, ..self }
    }

    /// Returns the same text, quiet if `is_quiet`.
    pub(crate) fn quiet_if(self, is_quiet: bool) -> Cell {
        Cell { tone: if is_quiet { Tone::Quiet } else { self.tone }, ..self }
    }
}

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// For text.
    Left,
    /// For figures.
    Right,
}

impl Align {
    /// Pads or cuts `text` to `columns`.
    pub(crate) fn set(self, text: &str, columns: usize) -> String {
        match self {
            Align::Left => left(text, columns),
            Align::Right => right(text, columns),
        }
    }
}
