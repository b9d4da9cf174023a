//! The results, as text and as JSON.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::arguments::{Arguments, Block, PeerName};
use crate::peer::{self, Measured, Reading};

/// The results. All times are in milliseconds; `None` if nothing was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    peer: &'static str,
    block: &'static str,
    workers: u16,
    seconds: u64,
    pings: usize,
    pings_lost: usize,
    ping_p50_ms: Option<f64>,
    ping_p99_ms: Option<f64>,
    ping_max_ms: Option<f64>,
    children: usize,
    child_p50_ms: Option<f64>,
    child_p99_ms: Option<f64>,
    child_max_ms: Option<f64>,
    /// Tokio: from its metrics 200 ms after the workers began to block.
    busy_ratio: Option<f64>,
    /// Volt: how many workers were replaced, and how often a spare was called.
    replacements: Option<u64>,
    spare_calls: Option<u64>,
    /// Volt: the first poll whose line of code was known, and how long that took from the start of
    /// the poll.
    named: Option<Named>,
}

#[derive(Debug, Serialize)]
struct Named {
    after_ms: f64,
    task: String,
    spawned_at: String,
    cause: &'static str,
    function: Option<String>,
    line: Option<String>,
}

impl Named {
    fn of(named: &peer::Named) -> Self {
        let incident = &named.incident;
        let guilty = incident.guilty();
        Self {
            after_ms: (named.after.as_secs_f64() * 1e4).round() / 10.0,
            task: incident.task_name.clone().unwrap_or_else(|| format!("#{}", incident.task_id)),
            spawned_at: incident.spawned_at.clone(),
            cause: incident.cause.name(),
            function: guilty.and_then(|frame| frame.function.clone()),
            line: guilty.and_then(|frame| Some(format!("{}:{}", frame.file.as_deref()?, frame.line?))),
        }
    }
}

impl Report {
    pub(crate) fn of(arguments: &Arguments, measured: Measured) -> Self {
        let Measured { felt, reading } = measured;
        let (busy_ratio, sentinel, named) = match reading {
            Reading::BusyRatio(ratio) => (Some(ratio), None, None),
            Reading::Volt { last, named } => (None, Some(last.sentinel), named.as_deref().map(Named::of)),
        };
        Self {
            peer: match arguments.peer {
                PeerName::Volt => "volt",
                PeerName::Tokio => "tokio",
            },
            block: match arguments.block {
                Block::Sleep => "sleep",
                Block::Mutex => "mutex",
                Block::Spin => "spin",
                Block::None => "none",
            },
            workers: arguments.workers,
            seconds: arguments.seconds,
            pings: felt.sent,
            pings_lost: felt.sent - felt.pings.len(),
            ping_p50_ms: quantile_ms(&felt.pings, 0.5),
            ping_p99_ms: quantile_ms(&felt.pings, 0.99),
            ping_max_ms: quantile_ms(&felt.pings, 1.0),
            children: felt.children.len(),
            child_p50_ms: quantile_ms(&felt.children, 0.5),
            child_p99_ms: quantile_ms(&felt.children, 0.99),
            child_max_ms: quantile_ms(&felt.children, 1.0),
            busy_ratio,
            replacements: sentinel.as_ref().map(|sentinel| sentinel.replacements),
            spare_calls: sentinel.as_ref().map(|sentinel| sentinel.spare_calls),
            named,
        }
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and names are JSON")
    }
}

/// Returns a quantile of sorted waits, in ms, to the microsecond.
fn quantile_ms(sorted: &[Duration], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let wait = sorted[((last as f64 * q).round() as usize).min(last)];
    Some((wait.as_secs_f64() * 1e6).round() / 1e3)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |value: Option<f64>| value.map_or("-".to_owned(), |ms| format!("{ms:.3} ms"));
        writeln!(
            f,
            "{}: {} workers, {} tasks that block 300 ms of every 400 ms ({}), for {} s",
            self.peer, self.workers, self.workers, self.block, self.seconds
        )?;
        let line = |f: &mut fmt::Formatter<'_>, what: &str, count, p50, p99, max| {
            writeln!(f, "  {what:<9} p50 {:>12}   p99 {:>12}   max {:>12}   {count} {what}", ms(p50), ms(p99), ms(max))
        };
        line(f, "pings", self.pings, self.ping_p50_ms, self.ping_p99_ms, self.ping_max_ms)?;
        line(f, "children", self.children, self.child_p50_ms, self.child_p99_ms, self.child_max_ms)?;
        if self.pings_lost > 0 {
            writeln!(f, "  {} pings did not return before the end", self.pings_lost)?;
        }
        if let Some(ratio) = self.busy_ratio {
            write!(f, "  busy ratio that the runtime reported while every worker was blocked: {:.0} %", ratio * 100.0)?;
        }
        if let (Some(replacements), Some(calls)) = (self.replacements, self.spare_calls) {
            write!(f, "  workers declared stuck: {replacements}, spare workers started: {calls}")?;
        }
        if let Some(named) = &self.named {
            let at = |what: &Option<String>| what.clone().unwrap_or_else(|| "unknown".to_owned());
            write!(
                f,
                "\n  first stuck poll, reported {} ms after it began: task {}, spawned at {}\n    cause: {}, in {}\n    at {}",
                named.after_ms,
                named.task,
                named.spawned_at,
                named.cause,
                at(&named.function),
                at(&named.line)
            )?;
        }
        Ok(())
    }
}
