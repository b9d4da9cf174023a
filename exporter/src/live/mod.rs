//! The live page, for users without Grafana: the current numbers and ten minutes of history.
//!
//! # Shape
//!
//! `/` is a page with its scripts, style sheet and plot library. All of them are part of this
//! program, so that the page works without an internet connection. The script requests `/live.json`
//! once a second and keeps what it draws; `/live/history.json` has what came before the page was
//! opened ([`history`]). What the tasks wait for is read only on request ([`tasks`]). This module
//! keeps only the last snapshots. It computes rates and ratios between two snapshots with
//! `volt_diagnosis`, as the other tools do. Findings come from the observed program, or from a
//! [`Watch`] if that is too old to send them. A program that did not reply, or could
//! not send a snapshot, is in the response without runtimes, and the page keeps their numbers. One
//! that has exited is not in it.
//!
//! # Invariants
//!
//! *Snapshots are far apart*: requests within [`FRESH`] of each other get the same response.
//! Otherwise two viewers would halve the time over which rates are computed. A viewer therefore
//! costs no more than a scraper. *No requests to other hosts*: the page loads and sends nothing
//! beyond its own address, and its `Content-Security-Policy` forbids it.
//!
//! Rejected: server-sent events (they keep one of the limited connections open for each viewer);
//! Chart.js (four times as large).

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime};

use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use volt_diagnosis::doctor::Verdict;
use volt_diagnosis::doctor::watch::Watch;
use volt_diagnosis::exposition::Origin;
use volt_diagnosis::rates::Rates;
use volt_telemetry::snapshot::{Program, Snapshot};

use self::history::{History, Point};
use self::tasks::Turns;
use crate::discovery::Seen;

pub(crate) mod history;
mod remote_dump;
pub(crate) mod tasks;

/// The maximum age at which a response is sent again.
const FRESH: Duration = Duration::from_millis(900);
/// An older snapshot is not used for rates: the exporter itself was paused in between, since it
/// takes one at each [`STEP`](history::STEP).
const STALE_NS: u64 = 10_000_000_000;
/// Allows scripts, styles and requests of this program only.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// The files of the page: paths, types, contents.
const FILES: [(&str, &str, &str); 7] = [
    ("/", "text/html; charset=utf-8", include_str!("index.html")),
    ("/live/text.js", "text/javascript; charset=utf-8", include_str!("text.js")),
    ("/live/tasks.js", "text/javascript; charset=utf-8", include_str!("tasks.js")),
    ("/live/live.js", "text/javascript; charset=utf-8", include_str!("live.js")),
    ("/live/live.css", "text/css; charset=utf-8", include_str!("live.css")),
    ("/live/uplot.js", "text/javascript; charset=utf-8", include_str!("uplot/uPlot.iife.min.js")),
    ("/live/uplot.css", "text/css; charset=utf-8", include_str!("uplot/uPlot.min.css")),
];

/// Returns the paths of the page's files.
pub(crate) fn paths() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(path, ..)| *path)
}

/// Returns the file at `path`, which is one of [`paths`].
pub(crate) fn file(path: &str) -> Response {
    let (_, kind, text) = FILES.iter().find(|(of, ..)| *of == path).expect("a path of `paths`");
    respond(kind, text)
}

/// Returns a response with `text`, a page of HTML that is made at run time.
pub(crate) fn html(text: &'static str) -> Response {
    respond("text/html; charset=utf-8", text)
}

fn respond(kind: &'static str, text: &'static str) -> Response {
    let headers = [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // Another version of the program has another page.
        (CACHE_CONTROL, "no-cache"),
    ];
    (headers, text).into_response()
}

/// The data from which the last response was made.
#[derive(Debug, Default)]
pub(crate) struct Live {
    last: HashMap<Origin, Program>,
    watches: HashMap<Origin, Watch>,
    answer: Option<(Instant, String)>,
    history: History,
    turns: Turns,
}

/// One program, as the script gets it. Without runtimes if it sent no snapshot.
#[derive(Serialize)]
struct Shown<'a> {
    program: &'a str,
    pid: u32,
    at_ns: u64,
    runtimes: Vec<ShownRuntime<'a>>,
}

#[derive(Serialize)]
struct ShownRuntime<'a> {
    #[serde(flatten)]
    snapshot: &'a Snapshot,
    /// The verdict of the doctor, in one line.
    verdict: String,
    /// One flag per worker: JavaScript numbers cannot represent all 64 bits of a bitmap's word.
    is_parked: Vec<bool>,
    /// Rates since the previous snapshot, if there was one.
    rates: Option<Rates>,
    /// The values for the charts.
    point: Point,
}

impl Live {
    /// Returns the last response if it is still fresh.
    pub(crate) fn fresh(&self) -> Option<String> {
        self.answer.as_ref().filter(|(at, _)| at.elapsed() < FRESH).map(|(_, answer)| answer.clone())
    }

    /// Returns the response for new snapshots.
    pub(crate) fn answer(&mut self, seen: &[Seen]) -> String {
        let mut former = std::mem::take(&mut self.watches);
        let last = std::mem::take(&mut self.last);
        for seen in seen {
            let (origin, Some(program)) = (&seen.origin, &seen.program) else {
                // It may reply the next time.
                self.watches.extend(former.remove_entry(&seen.origin));
                continue;
            };
            let mut watch = former.remove(origin).unwrap_or_default();
            // A program that could not send a snapshot has no runtimes. The watch keeps its
            // findings.
            let is_empty = program.runtimes.is_empty();
            let filled = if is_empty { program.clone() } else { watch.filled(program).into_owned() };
            self.last.insert(origin.clone(), filled);
            self.watches.insert(origin.clone(), watch);
        }
        let mut shown: Vec<_> = self.last.iter().map(|(origin, program)| show(last.get(origin), program)).collect();
        shown.extend(seen.iter().filter_map(silent));
        shown.sort_by_key(|program| program.pid);
        for program in &shown {
            for runtime in &program.runtimes {
                self.history.add(program.pid, runtime.snapshot, runtime.point);
            }
        }
        let answer = serde_json::to_string(&shown).expect("plain data has a JSON form");
        self.answer = Some((Instant::now(), answer.clone()));
        answer
    }

    /// Returns the programs that have requests for their tasks.
    pub(crate) fn turns(&self) -> &Turns {
        &self.turns
    }

    /// Returns the history as JSON.
    pub(crate) fn history(&self) -> String {
        self.history.json()
    }
}

/// Returns a program that did not reply.
fn silent(seen: &Seen) -> Option<Shown<'_>> {
    let ([name, pid], None) = (&seen.origin[..], &seen.program) else { return None };
    Some(Shown { program: name, pid: pid.parse().ok()?, at_ns: 0, runtimes: Vec::new() })
}

fn show<'a>(before: Option<&Program>, now: &'a Program) -> Shown<'a> {
    let before = before.filter(|before| now.at_ns.saturating_sub(before.at_ns) < STALE_NS);
    let rates = match before {
        Some(before) => Rates::of_program(before, now),
        None => now.runtimes.iter().map(|_| None).collect(),
    };
    let (runtimes, wall) = (now.runtimes.iter().zip(rates), SystemTime::now());
    let shown = |(snapshot, rates): (&'a Snapshot, Option<Rates>)| ShownRuntime {
        snapshot,
        verdict: Verdict::of([snapshot]).to_string(),
        is_parked: (0..snapshot.workers.len()).map(|index| snapshot.is_parked(index)).collect(),
        point: Point::of(snapshot, rates.as_ref(), wall),
        rates,
    };
    Shown { program: &now.name, pid: now.pid, at_ns: now.at_ns, runtimes: runtimes.map(shown).collect() }
}

#[cfg(test)]
mod tests {
    use volt_telemetry::snapshot::{Sentinel, Worker};

    use super::*;

    #[test]
    fn each_runtime_has_its_verdict_and_the_state_of_64_workers() {
        let workers = (0..64).map(|index| Worker { index, ..Worker::default() }).collect();
        let runtime = Snapshot { parked_bitmap: vec![u64::MAX - 1], workers, ..Snapshot::default() };
        let program = Some(Program { runtimes: vec![runtime], ..Program::default() });
        let answer = Live::default().answer(&[Seen { origin: Origin::new(), program }]);
        let reported: serde_json::Value = serde_json::from_str(&answer).unwrap();
        let parked = reported[0]["runtimes"][0]["is_parked"].as_array().unwrap();
        let verdict = &reported[0]["runtimes"][0]["verdict"];
        assert_eq!(*verdict, "OK: no findings", "also for a program that sends no findings");
        assert_eq!((parked.len(), parked.iter().filter(|is_parked| **is_parked == true).count()), (64, 63));
    }

    #[test]
    fn a_program_that_does_not_reply_has_no_runtimes() {
        let origin = vec!["shop".to_string(), "7".to_string()];
        let mut live = Live::default();
        let mut runtimes = |replies: bool| {
            let program = || Program { pid: 7, runtimes: vec![Snapshot::default()], ..Program::default() };
            let answer = live.answer(&[Seen { origin: origin.clone(), program: replies.then(program) }]);
            let reported: serde_json::Value = serde_json::from_str(&answer).unwrap();
            assert_eq!((reported.as_array().unwrap().len(), &reported[0]["pid"]), (1, &7_u32.into()));
            reported[0]["runtimes"].as_array().unwrap().len()
        };
        assert_eq!([true, false, true].map(&mut runtimes), [1, 0, 1]);
        assert_eq!(live.answer(&[]), "[]", "it has exited");
    }

    #[test]
    fn a_failed_snapshot_does_not_erase_the_findings() {
        const SECOND: u64 = 1_000_000_000;
        // An older program that computes no findings, and was paused once.
        let paused = |second: u64, pauses: u64| {
            let sentinel = Sentinel { pauses, ..Sentinel::default() };
            let runtime = Snapshot { at_ns: second * SECOND, sentinel, ..Snapshot::default() };
            Program { runtimes: vec![runtime], ..Program::default() }
        };
        let mut live = Live::default();
        let mut answer = |program| live.answer(&[Seen { origin: Origin::new(), program: Some(program) }]);
        answer(paused(20, 0));
        answer(paused(35, 1));
        answer(Program::default());
        let reported: serde_json::Value = serde_json::from_str(&answer(paused(37, 1))).unwrap();
        assert_eq!(reported[0]["runtimes"][0]["findings"].as_array().map(Vec::len), Some(1), "{reported}");
    }
}
