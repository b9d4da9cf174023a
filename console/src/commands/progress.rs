//! The progress of a long operation: a line on standard error if that is a terminal, and nothing
//! otherwise.
//!
//! Invariants. *Nothing for quick operations*: the first line appears after `QUICK`. *One line*: it
//! is overwritten in place and erased at the end, so that it does not mix with later output.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Operations up to this length show no progress.
const QUICK: Duration = Duration::from_millis(300);
/// The time between two updates of the line.
const APART: Duration = Duration::from_millis(100);
/// The width of the line in columns.
const WIDTH: usize = 78;

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
            // If stderr is closed, no user can read this.
            let _ = write!(io::stderr(), "\r{:<WIDTH$}\r", line());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_reported {
            let _ = write!(io::stderr(), "\r{:WIDTH$}\r", "");
        }
    }
}
