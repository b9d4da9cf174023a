//! The progress of a long operation: a line on standard error if that is a terminal, and nothing
//! otherwise.
//!
//! Invariants. *Nothing for quick operations*: the first line appears after `QUICK`. *One line*: it
//! is overwritten in place and erased at the end, so that it does not mix with later output. It is
//! cut before the last column of the terminal, because a line that wraps cannot be overwritten.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use rustix::termios::tcgetwinsize;

use crate::text::figures::left;

/// Operations up to this length show no progress.
const QUICK: Duration = Duration::from_millis(300);
/// The time between two updates of the line.
const APART: Duration = Duration::from_millis(100);
/// The maximum width of the line in columns.
const WIDTH_MAX: usize = 100;
/// The assumed width of a terminal that does not report its own, in columns.
const TERMINAL_WIDTH: u16 = 80;

/// A running operation; dropped when it is done.
#[derive(Debug)]
pub struct Progress {
    is_terminal: bool,
    due_at: Instant,
    is_reported: bool,
}

impl Progress {
    /// Starts an operation now.
    pub fn begin() -> Progress {
        let is_terminal = io::stderr().is_terminal();
        Progress { is_terminal, due_at: Instant::now() + QUICK, is_reported: false }
    }

    /// Shows the progress as a ratio in 0..=1.
    pub fn show(&mut self, what: &str, ratio: f64) {
        self.print_line(|| format!("{what} {:>3.0} %", ratio.clamp(0.0, 1.0) * 100.0));
    }

    /// Shows `line` if an update is due.
    pub fn print_line(&mut self, line: impl FnOnce() -> String) {
        let now = Instant::now();
        if self.is_terminal && now >= self.due_at {
            (self.due_at, self.is_reported) = (now + APART, true);
            overwrite(&line());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_reported {
            overwrite("");
        }
    }
}

/// Replaces the line on the terminal.
fn overwrite(line: &str) {
    let columns = tcgetwinsize(io::stderr()).map_or(0, |size| size.ws_col);
    // If stderr is closed, no user can read this.
    let _ = write!(io::stderr(), "\r{}\r", fitted(line, columns));
}

/// Cuts or pads the line for a terminal of this width; 0 if the width is unknown.
fn fitted(line: &str, columns: u16) -> String {
    let columns = if columns == 0 { TERMINAL_WIDTH } else { columns };
    left(line, usize::from(columns - 1).min(WIDTH_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::figures::width;

    #[test]
    fn the_line_never_reaches_the_last_column() {
        for (columns, expected) in [(0, 79), (1, 0), (60, 59), (80, 79), (500, 100)] {
            for line in ["", "watching", &"recording ".repeat(20)] {
                assert_eq!(width(&fitted(line, columns)), expected, "{columns} columns");
            }
        }
    }
}
