//! Messages on standard error, in cargo's style, and results on standard output.

use std::env;
use std::io::{self, IsTerminal, Write};

use crate::error::Error;

const GREEN: &str = "\x1b[1m\x1b[92m";
const RED: &str = "\x1b[1m\x1b[91m";
const YELLOW: &str = "\x1b[1m\x1b[33m";
const CYAN: &str = "\x1b[1m\x1b[96m";
const RESET: &str = "\x1b[0m";

/// Prints the result of a command to standard output. If that is closed, the result is dropped.
pub(crate) fn print_result(text: &str) -> Result<(), Error> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::new(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints messages. None of them matters enough to fail if standard error is closed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shell {
    is_quiet: bool,
    is_coloured: bool,
}

impl Shell {
    /// `color` is the value of cargo's option `--color`, which overrides the environment.
    pub(crate) fn new(is_quiet: bool, color: Option<&str>) -> Shell {
        let term = env::var("CARGO_TERM_COLOR").ok();
        let is_dumb = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || env::var_os("TERM").is_some_and(|term| term == "dumb");
        let is_coloured = match color.or(term.as_deref()) {
            Some("always") => true,
            Some("never") => false,
            _ => io::stderr().is_terminal() && !is_dumb,
        };
        Shell { is_quiet, is_coloured }
    }

    /// Prints a step: its verb, aligned to the right, and what it is done to.
    pub(crate) fn status(&self, verb: &str, text: &str) {
        if !self.is_quiet {
            self.print(GREEN, &format!("{verb:>12}"), &format!(" {text}"));
        }
    }

    /// Prints that the program waits.
    pub(crate) fn waiting(&self, verb: &str, text: &str) {
        if !self.is_quiet {
            self.print(CYAN, &format!("{verb:>12}"), &format!(" {text}"));
        }
    }

    pub(crate) fn warn(&self, text: &str) {
        if !self.is_quiet {
            self.print(YELLOW, "warning", &format!(": {text}"));
        }
    }

    pub(crate) fn note(&self, text: &str) {
        if !self.is_quiet {
            self.print(CYAN, "note", &format!(": {text}"));
        }
    }

    pub(crate) fn error(&self, error: &Error) {
        self.print(RED, "error", &format!(": {}", error.message()));
        for text in error.remedies() {
            self.print(CYAN, "help", &format!(": {text}"));
        }
    }

    fn print(&self, colour: &str, word: &str, text: &str) {
        let mut out = io::stderr().lock();
        let _ = match self.is_coloured {
            true => writeln!(out, "{colour}{word}{RESET}{text}"),
            false => writeln!(out, "{word}{text}"),
        };
    }
}
