//! `volt-console check`: watches a program for a while and reports whether it stayed within limits.
//! For continuous integration.
//!
//! # Protocol
//!
//! 1. Take a first snapshot. Polls and delays are counted from there.
//! 2. Take a snapshot every [`SNAPSHOT_INTERVAL`] until the time is over. Completed polls are in
//!    the histograms; unfinished polls are in the snapshots.
//! 3. If none arrives for [`REPLY_TIMEOUT`], request one. That fails if the program has stopped
//!    responding. If it was only paused, step 2 continues.
//! 4. Take one more snapshot and compute the verdicts; see [`tally`].
//!
//! Invariant *no pass without a snapshot*: if the program exited before the time was over, stopped
//! responding, or did nothing at all, the check does not pass. That is an error, unless a limit was
//! already exceeded.

use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use volt_telemetry::client::{Client, ConnectError, REPLY_TIMEOUT};
use volt_telemetry::snapshot::Program;

use crate::commands::progress::Progress;
use crate::commands::record;
use crate::error::Error;
use crate::text::clean;
use crate::text::figures::paragraph;
use crate::text::figures::short_place;
use crate::text::figures::{count, duration, span};

pub mod limit;
pub mod tally;

use limit::{Limit, Measure};
use tally::{Place, Tally, Verdict};

/// Time between two snapshots. A poll must last at least this long to be certain to be sampled in
/// flight, with its spawn location.
pub const SNAPSHOT_INTERVAL: Duration = Duration::from_millis(100);
/// The largest number of locations in the text; JSON has all.
const PLACES_MAX: usize = 5;
/// The largest number of workers in the text; JSON has all.
const WORKERS_MAX: usize = 8;

/// The limits of a check, and its output.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The runtime; `None` means every runtime.
    pub runtime: Option<String>,
    /// The limits, at least one.
    pub limits: Vec<(Measure, Limit)>,
    /// How long to watch.
    pub watch: Duration,
    /// Whether to print one JSON object instead of text.
    pub as_json: bool,
    /// The width of the text in columns; lines are broken between words.
    pub columns: usize,
}

/// Watches the program and prints the result. Returns whether a limit was exceeded.
///
/// # Errors
///
/// Fails with [`Error::is_connect`] if the program cannot be watched to the end and no limit was
/// exceeded before; [`Error::is_not_checked`] if there was nothing to measure; and if the output
/// cannot be written. An output that its reader closes is no error.
pub fn run(client: &mut Client, options: &Options, out: &mut impl Write) -> Result<bool, Error> {
    let mut watch = Watch::begin();
    let broke = watch.watch(client, options.watch, REPLY_TIMEOUT).err();
    let verdicts = watch.tally.judge(options.runtime.as_deref(), &options.limits);
    let is_exceeded = verdicts.iter().any(|verdict| verdict.is_exceeded);
    if !is_exceeded {
        if let Some(broke) = broke {
            return Err(Error::not_watched(&broke, watch.watched(), options.watch));
        }
        if let Some(why) = unchecked(&watch.tally, options, &verdicts) {
            return Err(Error::not_checked(&why));
        }
    }
    let (Some(last), watched) = (&watch.last, watch.watched()) else { return Ok(is_exceeded) };
    let broke = broke.map(|error| clean::text(&error.to_string()));
    let text = if options.as_json {
        format!("{}\n", json(last, watched, broke.as_deref(), &verdicts))
    } else {
        text(last, watched, broke.as_deref(), &verdicts, options.columns)
    };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::output) {
        // If the reader closes the output early, as `head` does, the exit code is the verdict.
        Err(error) if !error.is_output_closed() => Err(error),
        _ => Ok(is_exceeded),
    }
}

/// Returns the reason why no verdict is possible, if there is one.
fn unchecked(tally: &Tally, options: &Options, verdicts: &[Verdict]) -> Option<String> {
    if verdicts.is_empty() {
        let names: Vec<_> = tally.names().collect();
        return Some(match (&options.runtime, names.is_empty()) {
            (Some(name), false) => format!("there is no runtime named {name:?}; the program has: {}", names.join(", ")),
            _ => "the program has no runtime".into(),
        });
    }
    if let Some(cut) = verdicts.iter().find(|verdict| verdict.is_cut) {
        let runtime = &cut.runtime;
        return Some(format!(
            "the snapshots of runtime {runtime} were too large to include histograms: \
             check each runtime separately, or use fewer workers"
        ));
    }
    let is_empty = |measure: Measure| {
        let mut of = verdicts.iter().filter(|verdict| verdict.measure == measure).peekable();
        of.peek().is_some() && of.all(|verdict| verdict.count == 0)
    };
    let what = match (is_empty(Measure::Poll), is_empty(Measure::Delay)) {
        (true, _) => "no poll ended",
        (_, true) => "no task was polled after a wake-up",
        _ => return None,
    };
    Some(format!("{what} within {}: give the program work to do, or increase --for", span(options.watch)))
}

struct Watch {
    tally: Tally,
    first: Option<u64>,
    last: Option<Program>,
    began: Instant,
}

impl Watch {
    fn begin() -> Watch {
        Watch { tally: Tally::default(), first: None, last: None, began: Instant::now() }
    }

    /// Watches the program for `how_long`. If no snapshot arrives for longer than `silence_max`,
    /// requests one.
    fn watch(&mut self, client: &mut Client, how_long: Duration, silence_max: Duration) -> Result<(), ConnectError> {
        client.subscribe(SNAPSHOT_INTERVAL)?;
        let mut received_at = Instant::now();
        let mut progress = Progress::begin();
        while self.began.elapsed() < how_long {
            let left = how_long.saturating_sub(self.began.elapsed());
            match client.next(left.min(SNAPSHOT_INTERVAL)) {
                Ok(Some(update)) => {
                    received_at = Instant::now();
                    self.take(update.program);
                }
                // This fails if the program has stopped responding.
                Ok(None) if received_at.elapsed() > silence_max => {
                    match client.snapshot() {
                        Ok(program) => self.take(program),
                        Err(error) if error.is_answer() => {}
                        Err(error) => return Err(error),
                    }
                    received_at = Instant::now();
                }
                Ok(None) => {}
                // The program could not take this snapshot; the next may succeed, and the last one
                // must.
                Err(error) if error.is_answer() => {}
                Err(error) => return Err(error),
            }
            let watched = duration(nanos(self.began.elapsed()));
            progress.print_line(|| format!("watching: {watched} of {}; Ctrl-C cancels", span(how_long)));
        }
        // One more, because a stall may have begun just now. Without it, the check does not pass.
        let last = client.snapshot()?;
        self.take(last);
        Ok(())
    }

    fn take(&mut self, program: Program) {
        let program = clean::program(program);
        self.first.get_or_insert(program.at_ns);
        self.tally.take(&program);
        self.last = Some(program);
    }

    /// Returns how long the program was watched, on its own clock.
    fn watched(&self) -> Duration {
        let last_ns = self.last.as_ref().map_or(0, |program| program.at_ns);
        Duration::from_nanos(last_ns.saturating_sub(self.first.unwrap_or(last_ns)))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn text(program: &Program, watched: Duration, broke: Option<&str>, verdicts: &[Verdict], columns: usize) -> String {
    let watched = duration(nanos(watched));
    let mut text = format!("{}  pid {}  watched for {watched}\n\n", program.name, program.pid);
    for verdict in verdicts {
        let word = if verdict.is_exceeded { "EXCEEDED  " } else { "WITHIN    " };
        text.push_str(&paragraph(word, "          ", &line(verdict), columns));
        if verdict.is_exceeded {
            let facts = detail(verdict);
            facts.iter().for_each(|fact| text.push_str(&paragraph("    - ", "      ", fact, columns)));
        }
    }
    let exceeded = verdicts.iter().filter(|verdict| verdict.is_exceeded).count();
    if let Some(broke) = broke {
        text.push('\n');
        text.push_str(&paragraph("", "", &format!("The check ended early: {broke}"), columns));
    }
    match exceeded {
        0 => text.push_str("\nNo limit was exceeded.\n"),
        _ => {
            let (pid, all) = (program.pid, verdicts.len());
            text.push_str(&format!("\n{exceeded} of {all} limits exceeded. Next steps:\n"));
            let on = verdicts.iter().find(|verdict| verdict.is_exceeded).map_or_else(String::new, trigger);
            text.push_str(&format!("  volt-console doctor {pid}\n  volt-console record {pid} --trigger {on}\n"));
        }
    }
    text
}

/// Returns the trigger of a recording of what exceeds the limit, such as `poll=50ms`.
fn trigger(verdict: &Verdict) -> String {
    let what = match verdict.measure {
        Measure::Poll => "poll",
        Measure::Delay => "delay",
    };
    let micros = verdict.limit.time.min(record::TIME_MAX).as_micros();
    if micros.is_multiple_of(1_000) { format!("{what}={}ms", micros / 1_000) } else { format!("{what}={micros}us") }
}

/// Formats a verdict: `app: longest poll 94.1ms, limit 50ms; 12 of 48.2k polls exceeded it`.
fn line(verdict: &Verdict) -> String {
    let Verdict { runtime, measure, limit, .. } = verdict;
    let what = format!("{limit} {}", measure.name());
    let limit = duration(limit.ns());
    match verdict.measured_ns {
        None => format!("{runtime}: no {} measured, limit {limit}", measure.name()),
        Some(ns) => {
            let (over, all) = (count(verdict.over), count(verdict.count));
            format!(
                "{runtime}: {what} {}, limit {limit}; {over} of {all} {} exceeded it",
                duration(ns),
                match verdict.measure {
                    Measure::Poll => "polls",
                    Measure::Delay => "delays",
                }
            )
        }
    }
}

fn detail(verdict: &Verdict) -> Vec<String> {
    let mut facts = Vec::new();
    let place = |(at, place): &(String, Place)| match verdict.measure {
        Measure::Poll => {
            let line = place.line.as_ref().map_or(String::new(), |line| format!(", at {line}"));
            format!("tasks spawned at {at}: longest {}{line}", duration(place.longest_poll_ns))
        }
        Measure::Delay => {
            let caused = duration(place.delay_caused_ns);
            let line = place.line.as_ref().map_or(String::new(), |line| format!(", at {}", short_place(line)));
            format!("tasks spawned at {at} delayed other tasks by {caused} in total{line}")
        }
    };
    facts.extend(verdict.places.iter().take(PLACES_MAX).map(place));
    if verdict.places.len() > PLACES_MAX {
        facts.push(format!("and {} more places", verdict.places.len() - PLACES_MAX));
    }
    let worker = |(index, over, longest_ns): &(u32, u64, u64)| {
        format!("{index} ({} exceeded, longest {})", count(*over), duration(*longest_ns))
    };
    let workers: Vec<_> = verdict.workers.iter().take(WORKERS_MAX).map(worker).collect();
    if !workers.is_empty() {
        let more = match verdict.workers.len().saturating_sub(WORKERS_MAX) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        facts.push(format!("on workers {}{more}", workers.join(", ")));
    }
    facts
}

fn json(program: &Program, watched: Duration, broke: Option<&str>, verdicts: &[Verdict]) -> Value {
    let place = |(at, place): &(String, Place)| {
        json!({
            "spawned_at": at,
            "longest_poll_ns": place.longest_poll_ns,
            "delay_caused_ns": place.delay_caused_ns,
            "line": place.line,
        })
    };
    let worker =
        |(index, over, longest_ns): &(u32, u64, u64)| json!({ "index": index, "over": over, "longest_ns": longest_ns });
    let verdict = |verdict: &Verdict| {
        json!({
            "runtime": verdict.runtime,
            "measure": verdict.measure.name(),
            "quantile": verdict.limit.quantile,
            "limit_ns": verdict.limit.ns(),
            "measured_ns": verdict.measured_ns,
            "count": verdict.count,
            "over": verdict.over,
            "is_exceeded": verdict.is_exceeded,
            "workers": verdict.workers.iter().map(worker).collect::<Vec<_>>(),
            "locations": verdict.places.iter().map(place).collect::<Vec<_>>(),
        })
    };
    json!({
        "pid": program.pid,
        "program": program.name,
        "watched_ns": nanos(watched),
        "is_within": !verdicts.iter().any(|verdict| verdict.is_exceeded),
        "broke": broke,
        "limits": verdicts.iter().map(verdict).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests;
