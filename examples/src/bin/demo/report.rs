//! The results, as one line per second and as a summary at the end.
//!
//! A [`Reading`] has all numbers at one moment. A line is made from two of them, and the summary
//! from the last.

use std::fmt::Write;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Map, Value};
use volt_telemetry::{Program, Snapshot};

use crate::load::{Handler, Load, Outcome, Tally};

/// The name of the service's runtime.
pub(crate) const SERVICE: &str = "service";

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Its time was over.
    RanOut,
    /// It was stopped before that, by a signal or by `q` in the console.
    Stopped,
}

/// The numbers of the load and of the runtimes at one moment.
pub(crate) struct Reading {
    at: Instant,
    tally: Tally,
    program: Program,
}

impl Reading {
    /// Takes a reading. Can be called from any thread.
    pub(crate) fn take(load: &Load) -> Self {
        Self { at: Instant::now(), tally: load.tally(), program: volt::observe::program() }
    }

    fn service(&self) -> Option<&Snapshot> {
        self.program.runtimes.iter().find(|snapshot| snapshot.runtime == SERVICE)
    }
}

/// Formats the changes between two readings as one line; `elapsed` is the time since the load
/// began.
pub(crate) fn line(elapsed: Duration, before: &Reading, now: &Reading) -> String {
    let seconds = (now.at - before.at).as_secs_f64();
    let outcome = now.tally.whole().since(&before.tally.whole());
    let mut line = format!(
        "{:>4.0} s  {:>7.0} requests/s  p50 {}  p99 {}  errors {}",
        elapsed.as_secs_f64(),
        outcome.answered as f64 / seconds,
        milliseconds(&outcome, 0.50),
        milliseconds(&outcome, 0.99),
        outcome.errors,
    );
    if let (Some(before), Some(now)) = (before.service(), now.service()) {
        let polls = (sum(now, |worker| worker.polls) - sum(before, |worker| worker.polls)) as f64 / seconds;
        let steals = (sum(now, |worker| worker.steals) - sum(before, |worker| worker.steals)) as f64 / seconds;
        let delay = now.schedule_delay().since(&before.schedule_delay());
        let _ = write!(
            line,
            "  |  {polls:>7.0} polls/s  {steals:>5.0} steals/s  delay p99 {}  parked {} of {}  global queue {}",
            format_ms(delay.quantile_ns(0.99)),
            now.parked_count(),
            now.workers.len(),
            now.global_queue.len,
        );
    }
    line
}

/// The numbers of the whole run.
#[derive(Serialize)]
pub(crate) struct Summary {
    /// Requests with the expected response.
    requests: u64,
    errors: u64,
    /// `None` (JSON: null) if no request was answered.
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    by_handler: Map<String, Value>,
    /// The scheduler's numbers: first all runtimes of the program together, then each of them.
    #[serde(flatten)]
    whole: Scheduling,
    runtimes: Map<String, Value>,
}

/// The counters of the workers.
#[derive(Default, Serialize)]
struct Scheduling {
    polls: u64,
    steals: u64,
    tasks_stolen: u64,
    parks: u64,
    /// Parks, by what ended them.
    parks_by_reason: Map<String, Value>,
    lost_wakeup_rescues: u64,
}

/// The results of one handler's requests.
#[derive(Serialize)]
struct HandlerSummary {
    requests: u64,
    errors: u64,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
}

impl Summary {
    pub(crate) fn of(reading: &Reading) -> Self {
        let whole = reading.tally.whole();
        let by_handler = Handler::ALL.map(|handler| {
            let outcome = reading.tally.of(handler);
            let summary = HandlerSummary {
                requests: outcome.answered,
                errors: outcome.errors,
                p50_ms: quantile_ms(outcome, 0.50),
                p99_ms: quantile_ms(outcome, 0.99),
            };
            (handler.name().to_owned(), json(&summary))
        });
        let snapshots = || reading.program.runtimes.iter();
        Self {
            requests: whole.answered,
            errors: whole.errors,
            p50_ms: quantile_ms(&whole, 0.50),
            p99_ms: quantile_ms(&whole, 0.99),
            by_handler: by_handler.into_iter().collect(),
            whole: Scheduling::of(snapshots()),
            runtimes: snapshots()
                .map(|snapshot| (snapshot.runtime.clone(), json(&Scheduling::of([snapshot].into_iter()))))
                .collect(),
        }
    }

    /// Returns what was wrong with the run, if anything; `end` is how it ended.
    ///
    /// A run that was stopped early may have no answered requests. A run that had all its time must
    /// have some.
    pub(crate) fn fault(&self, end: End) -> Option<String> {
        match (self.errors, self.requests, end) {
            (1.., _, _) => Some(format!("{} requests failed", self.errors)),
            (0, 0, End::RanOut) => Some("no request was answered".to_owned()),
            (0, 0, End::Stopped) | (0, 1.., _) => None,
        }
    }

    /// Returns one line of JSON.
    pub(crate) fn as_json(&self) -> String {
        // Not by way of `Value`, which would sort the names: the most important ones come first.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the summary as a short text.
    pub(crate) fn for_people(&self) -> String {
        format!(
            "{} requests, {} errors, p50 {}, p99 {}; {} polls, {} steals, {} parks, {} lost wake-ups",
            self.requests,
            self.errors,
            self.p50_ms.map_or_else(|| "none".to_owned(), |ms| format!("{ms:.2} ms")),
            self.p99_ms.map_or_else(|| "none".to_owned(), |ms| format!("{ms:.2} ms")),
            self.whole.polls,
            self.whole.steals,
            self.whole.parks,
            self.whole.lost_wakeup_rescues,
        )
    }
}

impl Scheduling {
    fn of<'a>(snapshots: impl Iterator<Item = &'a Snapshot> + Clone) -> Self {
        let workers = || snapshots.clone().flat_map(|snapshot| &snapshot.workers);
        let mut reasons: Vec<(&str, u64)> = Vec::new();
        for (reason, count) in workers().flat_map(|worker| worker.unparks.by_reason()) {
            match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, sum)) => *sum += count,
                None => reasons.push((reason, count)),
            }
        }
        Self {
            polls: workers().map(|worker| worker.polls).sum(),
            steals: workers().map(|worker| worker.steals).sum(),
            tasks_stolen: workers().map(|worker| worker.tasks_stolen).sum(),
            parks: workers().map(|worker| worker.parks).sum(),
            parks_by_reason: reasons.into_iter().map(|(reason, count)| (reason.to_owned(), count.into())).collect(),
            lost_wakeup_rescues: workers().map(|worker| worker.lost_wakeup_rescues).sum(),
        }
    }
}

fn sum(snapshot: &Snapshot, of: impl Fn(&volt_telemetry::Worker) -> u64) -> u64 {
    snapshot.workers.iter().map(of).sum()
}

/// Numbers and names always have a JSON form.
fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

fn quantile_ms(outcome: &Outcome, q: f64) -> Option<f64> {
    // Rounded to 1 µs: further digits would exceed the resolution of the histogram.
    Some((outcome.latency.quantile_ns(q)? as f64 / 1e3).round() / 1e3)
}

fn milliseconds(outcome: &Outcome, q: f64) -> String {
    format_ms(outcome.latency.quantile_ns(q))
}

fn format_ms(ns: Option<u64>) -> String {
    ns.map_or_else(|| format!("{:>6} ms", "-"), |ns| format!("{:>6.2} ms", ns as f64 / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;
    use volt_telemetry::{Unparks, Worker};

    fn reading(requests: u64, polls: u64) -> Reading {
        let unparks = Unparks { notified: 2, io: 3, ..Unparks::default() };
        let worker = Worker { polls, steals: 4, parks: 5, unparks, ..Worker::default() };
        let runtime = |name: &str| Snapshot {
            runtime: name.to_owned(),
            workers: vec![worker.clone(), worker.clone()],
            ..Snapshot::default()
        };
        let program = Program { runtimes: vec![runtime(SERVICE), runtime("load")], ..Program::default() };
        let mut tally = Tally::default();
        (0..requests).for_each(|_| tally.record(Handler::Fast, Some(Duration::from_millis(2))));
        Reading { at: Instant::now(), tally, program }
    }

    #[test]
    fn the_summary_has_totals_and_values_per_handler_and_runtime() {
        let summary: Value = serde_json::from_str(&Summary::of(&reading(9, 10)).as_json()).unwrap();
        assert_eq!(summary["requests"], 9);
        assert_eq!(summary["errors"], 0);
        assert_eq!(summary["by_handler"]["fast"]["requests"], 9);
        assert_eq!(summary["by_handler"]["block"]["p99_ms"], Value::Null);
        assert!((summary["p50_ms"].as_f64().unwrap() - 2.0).abs() < 0.1);
        assert_eq!((&summary["polls"], &summary["runtimes"]["load"]["polls"]), (&40.into(), &20.into()));
        assert_eq!(summary["parks_by_reason"]["io"], 12);
        assert_eq!(summary["lost_wakeup_rescues"], 0);
    }

    #[test]
    fn errors_fail_the_demo_and_no_answers_fail_a_full_run() {
        let fault = |reading: &Reading, end| Summary::of(reading).fault(end);
        let mut failed = reading(1, 1);
        failed.tally.record(Handler::Cpu, None);
        for end in [End::RanOut, End::Stopped] {
            assert_eq!(fault(&reading(1, 1), end), None, "{end:?}");
            assert!(fault(&failed, end).unwrap().starts_with("1 requests failed"), "{end:?}");
        }
        assert_eq!(fault(&reading(0, 1), End::Stopped), None);
        assert!(fault(&reading(0, 1), End::RanOut).unwrap().starts_with("no request was answered"));
    }

    #[test]
    fn a_line_has_the_figures_between_two_readings() {
        let (before, mut now) = (reading(100, 1_000), reading(300, 4_000));
        now.at = before.at + Duration::from_secs(2);
        let line = line(Duration::from_secs(7), &before, &now);
        assert!(line.starts_with("   7 s      100 requests/s  p50   2.0"), "{line}");
        assert!(line.contains("   3000 polls/s      0 steals/s"), "{line}");
        assert!(line.ends_with("parked 0 of 2  global queue 0"), "{line}");
    }
}
