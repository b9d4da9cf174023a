//! How far a long piece of work is: a line on standard error, if that is a terminal, and nothing
//! otherwise.
//!
//! Invariants: *nothing for what is quick*: the first line comes after `QUICK`; *one line*, written
//! over itself and taken away at the end, so that what is printed next stands alone.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Work that takes no longer is not spoken of.
const QUICK: Duration = Duration::from_millis(300);
/// Between two lines.
const APART: Duration = Duration::from_millis(100);
/// Columns of the line.
const WIDTH: usize = 78;

/// A piece of work that is going on; dropped when it is done.
#[derive(Debug)]
pub struct Progress {
    is_terminal: bool,
    due_at: Instant,
    is_told: bool,
}

impl Progress {
    /// It begins now.
    pub fn begin() -> Progress {
        let is_terminal = io::stderr().is_terminal();
        Progress { is_terminal, due_at: Instant::now() + QUICK, is_told: false }
    }

    /// It is so far, 0..=1.
    pub fn tell(&mut self, what: &str, ratio: f64) {
        self.say(|| format!("{what} {:>3.0} %", ratio.clamp(0.0, 1.0) * 100.0));
    }

    /// What `line` says, if it is time to say something.
    pub fn say(&mut self, line: impl FnOnce() -> String) {
        let now = Instant::now();
        if self.is_terminal && now >= self.due_at {
            (self.due_at, self.is_told) = (now + APART, true);
            // When stderr is closed there is nobody to tell.
            let _ = write!(io::stderr(), "\r{:<WIDTH$}\r", line());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_told {
            let _ = write!(io::stderr(), "\r{:WIDTH$}\r", "");
        }
    }
}
