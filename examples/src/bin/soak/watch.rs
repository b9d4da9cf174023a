//! The parent's view of the program under test: its counts, its memory and its descriptors.

use std::error::Error;
use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use crate::child::Counts;
use crate::faults::Victim;

/// The longest time in which a part of the load may complete no operation. Each completes one
/// within a second unless a fault lasts.
const STALL_LIMIT: Duration = Duration::from_secs(30);
/// How long the child may take to end.
const END_LIMIT: Duration = Duration::from_secs(150);
/// The least part of a run before its memory and descriptors are compared: pools and buffers fill.
const WARM_UP_RATIO: f64 = 0.4;
/// By how much the mean of the last third may exceed that of the first third: 5 %, and 6 MiB,
/// because a short run has few samples, and a dump needs some MB for a moment.
const GROWTH_RATIO_MAX: f64 = 1.05;
const GROWTH_BYTES_MAX: f64 = (6 << 20) as f64;
/// The same for descriptors. Their number varies with the open connections.
const GROWTH_DESCRIPTORS_MAX: f64 = 4.0;

/// A line that the child prints.
enum Line {
    Counts(Box<Counts>),
    /// A wrong result, or anything unexpected.
    Text(String),
}

/// The child and what is known of it.
pub(crate) struct Watch {
    child: Child,
    socket: PathBuf,
    lines: Receiver<Line>,
    counts: Counts,
    /// For each part, when its count of completed operations last grew.
    progress: Vec<Instant>,
    samples: Vec<Sample>,
    /// When every fault had been injected once.
    compared_from: Option<Duration>,
    failures: Vec<String>,
}

/// The size of the program at one moment.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Duration,
    resident_bytes: f64,
    descriptors: f64,
}

impl Watch {
    /// Starts the child, and waits until it prints the path of its control socket.
    pub(crate) fn start() -> Result<Self, Box<dyn Error>> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("--child")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut output = BufReader::new(child.stdout.take().ok_or("the child has no output")?);
        let mut socket = String::new();
        output.read_line(&mut socket)?;
        let (to, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let parsed = serde_json::from_str(&line).map_or(Line::Text(line), Line::Counts);
                if to.send(parsed).is_err() {
                    return;
                }
            }
        });
        let socket = PathBuf::from(socket.trim_end());
        let (counts, progress, samples, failures) = (Counts::default(), Vec::new(), Vec::new(), Vec::new());
        Ok(Self { child, socket, lines, counts, progress, samples, compared_from: None, failures })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Whether nothing has failed so far.
    pub(crate) fn is_well(&self) -> bool {
        self.failures.is_empty()
    }

    pub(crate) fn fail(&mut self, failure: String) {
        self.failures.push(failure);
    }

    /// Measures the program.
    pub(crate) fn sample(&mut self, at: Duration, victim: &Victim) {
        let measured = victim.resident_bytes().and_then(|bytes| Ok((bytes as f64, victim.descriptors()? as f64)));
        match measured {
            Ok((resident_bytes, descriptors)) => self.samples.push(Sample { at, resident_bytes, descriptors }),
            Err(error) => self.fail(format!("the size of the program: {error}")),
        }
    }

    /// States that every fault was injected once before this time.
    pub(crate) fn begin_comparison(&mut self, at: Duration) {
        self.compared_from.get_or_insert(at);
    }

    /// Reads what the child has printed. If a part of the load makes no progress, it prints
    /// what `dump` returns.
    pub(crate) fn read(&mut self, dump: impl FnOnce() -> String) {
        while let Ok(line) = self.lines.try_recv() {
            self.take(line);
        }
        match self.child.try_wait() {
            Ok(None) => {}
            Ok(Some(status)) => self.fail(format!("the program ended early: {status}")),
            Err(error) => self.fail(format!("the program: {error}")),
        }
        let stalled = self.counts.parts.iter().zip(&self.progress).filter(|(_, since)| since.elapsed() > STALL_LIMIT);
        let names: Vec<_> = stalled.map(|(part, _)| part.name.clone()).collect();
        if !names.is_empty() {
            println!("{}", dump());
            self.fail(format!("no progress for {STALL_LIMIT:?}: {}", names.join(", ")));
        }
    }

    fn take(&mut self, line: Line) {
        let counts = match line {
            Line::Counts(counts) => counts,
            Line::Text(text) => {
                println!("{text}");
                return;
            }
        };
        let now = Instant::now();
        self.progress.resize(counts.parts.len(), now);
        let before = self.counts.parts.iter().map(|part| part.done).chain(std::iter::repeat(0));
        for ((since, part), before) in self.progress.iter_mut().zip(&counts.parts).zip(before) {
            if part.done > before {
                *since = now;
            }
        }
        self.counts = *counts;
    }

    /// Ends the load, waits for the child, and returns everything that was wrong.
    pub(crate) fn end(&mut self) -> Vec<String> {
        let mut failures = std::mem::take(&mut self.failures);
        drop(self.child.stdin.take());
        let begun = Instant::now();
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status.to_string(),
                Ok(None) if begun.elapsed() < END_LIMIT => thread::sleep(Duration::from_millis(50)),
                _ => {
                    // Nothing is left to be measured in a program that does not end.
                    let _ = self.child.kill();
                    break format!("killed because it did not end in {END_LIMIT:?}");
                }
            }
        };
        while let Ok(line) = self.lines.recv() {
            self.take(line);
        }
        if status != "exit status: 0" {
            failures.push(format!("the program: {status}"));
        }
        let counts = &self.counts;
        let wrong = counts.parts.iter().filter(|part| part.wrong > 0);
        failures.extend(wrong.map(|part| format!("{}: {} wrong results", part.name, part.wrong)));
        if counts.lost_wakeups > 0 {
            failures.push(format!("{} lost wake-ups", counts.lost_wakeups));
        }
        if !counts.are_conserved() {
            failures.push(format!(
                "{} tasks were spawned, but {} completed + {} cancelled + {} panicked + {} alive",
                counts.spawned, counts.completed, counts.cancelled, counts.panicked, counts.alive
            ));
        }
        let (first, last) = self.thirds();
        if first.resident_bytes == 0.0 {
            failures.push("memory was not compared: give more --seconds".to_owned());
        }
        if last.resident_bytes > first.resident_bytes * GROWTH_RATIO_MAX + GROWTH_BYTES_MAX {
            failures.push(format!("memory grew from {:.1} to {:.1} MB", mb(first), mb(last)));
        }
        if last.descriptors > first.descriptors + GROWTH_DESCRIPTORS_MAX {
            failures.push(format!("descriptors grew from {:.1} to {:.1}", first.descriptors, last.descriptors));
        }
        failures
    }

    /// Returns the means of the first and of the last third, without the warm-up.
    fn thirds(&self) -> (Sample, Sample) {
        let end = self.samples.last().map_or(Duration::ZERO, |sample| sample.at);
        let from = end.mul_f64(WARM_UP_RATIO).max(self.compared_from.unwrap_or(end));
        let warm: Vec<_> = self.samples.iter().filter(|sample| sample.at >= from).collect();
        let third = warm.len() / 3;
        (mean(&warm[..third]), mean(&warm[warm.len() - third..]))
    }

    /// One line of progress.
    pub(crate) fn line(&self, elapsed: Duration) -> String {
        let sum = |count: fn(&crate::child::PartCounts) -> u64| self.counts.parts.iter().map(count).sum::<u64>();
        let now = self.samples.last().copied().unwrap_or_else(|| mean(&[]));
        format!(
            "{:>6} s  {} results, {} refused, {} wrong  {} lost wake-ups  {} stuck polls  {:.1} MB  {} descriptors",
            elapsed.as_secs(),
            sum(|part| part.done),
            sum(|part| part.refused),
            sum(|part| part.wrong),
            self.counts.lost_wakeups,
            self.counts.incidents,
            mb(now),
            now.descriptors,
        )
    }

    /// The counts of the whole run.
    pub(crate) fn table(&self) -> String {
        let mut table = format!("\n{:<16} {:>12} {:>9} {:>6}\n", "load", "results", "refused", "wrong");
        for part in &self.counts.parts {
            let _ = writeln!(table, "{:<16} {:>12} {:>9} {:>6}", part.name, part.done, part.refused, part.wrong);
        }
        let (counts, (first, last)) = (&self.counts, self.thirds());
        let _ = writeln!(
            table,
            "\ntasks            {} spawned = {} completed + {} cancelled + {} panicked + {} alive",
            counts.spawned, counts.completed, counts.cancelled, counts.panicked, counts.alive
        );
        let _ = writeln!(table, "lost wake-ups    {}", counts.lost_wakeups);
        let _ = writeln!(table, "stuck polls      {}", counts.incidents);
        let _ = writeln!(table, "memory           {:.1} MB, then {:.1} MB", mb(first), mb(last));
        let _ = writeln!(table, "descriptors      {:.1}, then {:.1}", first.descriptors, last.descriptors);
        table
    }
}

/// The mean of some samples; zeros if there are none.
fn mean(samples: &[&Sample]) -> Sample {
    let mean = |value: fn(&Sample) -> f64| {
        samples.iter().map(|sample| value(sample)).sum::<f64>() / samples.len().max(1) as f64
    };
    Sample {
        at: samples.first().map_or(Duration::ZERO, |sample| sample.at),
        resident_bytes: mean(|sample| sample.resident_bytes),
        descriptors: mean(|sample| sample.descriptors),
    }
}

fn mb(sample: Sample) -> f64 {
    sample.resident_bytes / 1e6
}
