//! The destination of log lines: standard error or, while the console uses the screen, memory until
//! the console has ended.
//!
//! Lines that differ only in their figures, such as a warning every second, are stored once and
//! counted: `… 17 more like this`.
//!
//! Invariant *bounded*: only the newest [`KEPT_LINES`] kinds of line are kept. Older ones are
//! dropped and counted, and the count is printed.
//!
//! Rejected: a log file, which the user would have to find and remove; the demo's lines matter only
//! for minutes.

use std::collections::VecDeque;
use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// The maximum number of different lines that are kept while the console is open.
const KEPT_LINES: usize = 100;
/// The maximum number of these that are printed after the console has ended, above the prompt.
const SHOWN_LINES: usize = 5;

/// The writer of the log subscriber.
#[derive(Clone)]
pub(crate) struct Logs(Arc<Mutex<Place>>);

enum Place {
    Stderr,
    Memory(Kept),
}

/// Lines, in the order in which the first of each kind arrived.
#[derive(Default)]
struct Kept {
    lines: VecDeque<Line>,
    /// The number of dropped lines, including repeated ones.
    dropped: u64,
}

struct Line {
    text: String,
    kind: String,
    /// The number of later lines of this kind.
    repeated: u64,
}

impl Kept {
    fn keep(&mut self, text: String) {
        let kind = kind(&text);
        if let Some(known) = self.lines.iter_mut().find(|line| line.kind == kind) {
            known.repeated += 1;
            return;
        }
        if self.lines.len() == KEPT_LINES {
            self.dropped += self.lines.pop_front().map_or(0, |oldest| 1 + oldest.repeated);
        }
        self.lines.push_back(Line { text, kind, repeated: 0 });
    }

    fn show(&self, to: &mut impl Write) -> io::Result<()> {
        let hidden = self.lines.len().saturating_sub(SHOWN_LINES);
        let older = self.dropped + self.lines.iter().take(hidden).map(|line| 1 + line.repeated).sum::<u64>();
        if older > 0 {
            writeln!(to, "({older} older log lines are left out; `demo --headless` prints them all)")?;
        }
        for line in self.lines.iter().skip(hidden) {
            to.write_all(line.text.as_bytes())?;
            if line.repeated > 0 {
                writeln!(to, "  … {} more like this", line.repeated)?;
            }
        }
        Ok(())
    }
}

/// Returns the line without its figures: time, ids, ports, durations.
fn kind(line: &str) -> String {
    line.split(|c: char| c.is_ascii_digit()).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("#")
}

impl Logs {
    /// Installs the writer for every log line of the program. If `in_memory`, lines are kept until
    /// [`show`](Self::show).
    ///
    /// # Errors
    ///
    /// Returns an error if `RUST_LOG` is not a valid filter.
    pub(crate) fn install(in_memory: bool) -> Result<Self, Box<dyn Error>> {
        let place = if in_memory { Place::Memory(Kept::default()) } else { Place::Stderr };
        let logs = Logs(Arc::new(Mutex::new(place)));
        let filter = EnvFilter::builder()
            .with_default_directive(LevelFilter::INFO.into())
            .from_env()
            .map_err(|error| format!("RUST_LOG: {error}; an example is RUST_LOG=warn,demo=debug"))?;
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
            .with_writer(logs.clone())
            .init();
        Ok(logs)
    }

    /// Writes the kept lines to standard error. Later lines go there directly.
    pub(crate) fn show(&self) {
        let mut place = self.place();
        if let Place::Memory(kept) = std::mem::replace(&mut *place, Place::Stderr) {
            // Under the lock, so that later lines come after these. If standard error is closed,
            // the error cannot be reported either.
            let _ = kept.show(&mut io::stderr().lock());
        }
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> MakeWriter<'a> for Logs {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Write for Logs {
    /// The subscriber writes each event, with its line feed, in one call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match &mut *self.place() {
            Place::Stderr => return io::stderr().write(line),
            Place::Memory(kept) => kept.keep(String::from_utf8_lossy(line).into_owned()),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(lines: impl IntoIterator<Item = String>) -> String {
        let logs = Logs(Arc::new(Mutex::new(Place::Memory(Kept::default()))));
        lines.into_iter().for_each(|line| logs.clone().write_all(format!("{line}\n").as_bytes()).unwrap());
        let mut shown = Vec::new();
        let Place::Memory(kept) = &*logs.place() else { panic!("still in memory") };
        kept.show(&mut shown).unwrap();
        String::from_utf8(shown).unwrap()
    }

    #[test]
    fn lines_that_differ_in_figures_only_are_shown_once_and_counted() {
        let warning =
            |second| format!("08:55:{second:02}.922Z  WARN task{{id=6{second}}}: blocks its worker ms=2{second}");
        let other = "08:55:03.1Z  INFO something else".to_owned();
        let lines = (1..=9).map(warning).chain([other.clone()]).chain((10..=18).map(warning));
        let expected = format!("{}\n  … 17 more like this\n{other}\n", warning(1));
        assert_eq!(shown(lines), expected);
    }

    #[test]
    fn the_newest_kinds_are_kept_and_the_others_counted() {
        let name = |number: usize| "x".repeat(number + 1);
        let lines = [name(0), name(0)].into_iter().chain((1..KEPT_LINES + 2).map(name));
        let shown = shown(lines);
        let mut lines = shown.lines();
        let left_out = KEPT_LINES - SHOWN_LINES + 3;
        let notice = format!("({left_out} older log lines are left out; `demo --headless` prints them all)");
        assert_eq!(lines.next(), Some(notice.as_str()), "of the dropped two of the first kind and one of the second");
        assert_eq!((lines.next(), lines.count()), (Some(name(KEPT_LINES - SHOWN_LINES + 2).as_str()), SHOWN_LINES - 1));
    }
}
