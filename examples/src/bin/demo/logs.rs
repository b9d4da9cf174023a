//! Where log lines go: to standard error, or, while the console has the screen, into memory until it has left.
//!
//! Invariant: *what is kept is bounded*: the newest [`KEPT_LINES`]; older ones are dropped, counted, and the count is shown.
//!
//! Rejected: a log file, which somebody would have to find and remove; the demo's lines matter for minutes.

use std::collections::VecDeque;
use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Lines kept while the console is open.
const KEPT_LINES: usize = 100;

/// The place that the subscriber writes to.
#[derive(Clone)]
pub(crate) struct Logs(Arc<Mutex<Place>>);

enum Place {
    Stderr,
    Memory { lines: VecDeque<String>, dropped: u64 },
}

impl Logs {
    /// Makes every log line of the process come here; `in_memory`: until [`show`](Self::show).
    ///
    /// # Errors
    ///
    /// When `RUST_LOG` is not a filter.
    pub(crate) fn install(in_memory: bool) -> Result<Self, Box<dyn Error>> {
        let place = if in_memory { Place::Memory { lines: VecDeque::new(), dropped: 0 } } else { Place::Stderr };
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

    /// Writes what was kept to standard error; lines that follow go there at once.
    pub(crate) fn show(&self) {
        if let Place::Memory { lines, dropped } = std::mem::replace(&mut *self.place(), Place::Stderr) {
            if dropped > 0 {
                eprintln!("({dropped} older log lines were dropped)");
            }
            lines.iter().for_each(|line| eprint!("{line}"));
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
            Place::Memory { lines, dropped } => {
                if lines.len() == KEPT_LINES {
                    lines.pop_front();
                    *dropped += 1;
                }
                lines.push_back(String::from_utf8_lossy(line).into_owned());
            }
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

    #[test]
    fn in_memory_the_newest_lines_are_kept_and_the_others_counted() {
        let place = Place::Memory { lines: VecDeque::new(), dropped: 0 };
        let mut logs = Logs(Arc::new(Mutex::new(place)));
        for number in 0..KEPT_LINES + 3 {
            logs.write_all(format!("line {number}\n").as_bytes()).unwrap();
        }
        let Place::Memory { lines, dropped } = &*logs.place() else { panic!("still in memory") };
        assert_eq!((lines.len(), *dropped), (KEPT_LINES, 3));
        assert_eq!((lines.front().unwrap().as_str(), lines.back().unwrap().as_str()), ("line 3\n", "line 102\n"));
    }
}
