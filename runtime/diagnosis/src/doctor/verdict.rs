//! The verdict on a program in one line: whether it is all right, and if not, which line of code.
//!
//! The console's header, `volt-console top` and the live page show the same line. It counts the
//! current findings by severity, and names the rule and the line of the worst. Of equally severe
//! findings, it names one with a line, because a line can be acted on. Of those, it names a poll
//! that waited for a lock last, if another poll, which may hold the lock, was stuck meanwhile.
//! If no critical finding has a line, but a warning has one, it names the warning, too. If there
//! is nothing to act on, it states for how long that has been so, from the times of past
//! findings. But it does so only if no worker is stuck at this moment. A poll that blocks its
//! worker for the first time is an info, or is not found before the next check; all is not well
//! during that time.
//!
//! A pure function of the findings, workers and incidents in snapshots. For programs that send no
//! findings, a [`Watch`](super::Watch) adds them first.

use std::fmt;

use volt_telemetry::finding::{Finding, Place, Severity};
use volt_telemetry::incident::Incident;
use volt_telemetry::snapshot::{Duty, InFlight, Snapshot, Worker};
use volt_telemetry::text::{counted, duration};

use super::history::PAST_NS;
use super::polls::{OUTAGE_NS, is_of_the_task};
use super::stalls::POSSIBLE_HOLDER;

const SECOND_NS: u64 = 1_000_000_000;
/// A shorter poll is not called stuck, even if the sentinel has replaced its worker: the runtime
/// records polls of this length by default.
const STUCK_NS: u64 = 10_000_000;
/// The two durations of a poll were measured at different moments of one snapshot.
const APART_NS: u64 = 5_000_000;

/// The verdict on one or more runtimes of a program. [`Display`](fmt::Display) formats it.
///
/// ```
/// use volt_diagnosis::doctor::Verdict;
/// use volt_telemetry::Snapshot;
///
/// let well = Snapshot { at_ns: 720_000_000_000, findings: Some(Vec::new()), ..Snapshot::default() };
/// assert_eq!(Verdict::of([&well]).to_string(), "OK: no findings for 12 min");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Number of current critical findings.
    pub critical: u64,
    /// Number of current warnings.
    pub warnings: u64,
    /// Number of other current findings.
    pub infos: u64,
    /// The rule of the worst current finding, and its line if it has one.
    worst: Option<(&'static str, Option<Line>)>,
    /// The rule and the line of a warning, if the worst finding is critical and has no line.
    warning: Option<(&'static str, Line)>,
    /// The workers that are stuck at this moment.
    stuck: Option<Stuck>,
    /// How long there has been no warning, or no finding if `infos` is 0, ns.
    well_ns: u64,
    /// The number of runtimes with findings, even if empty.
    judged: usize,
}

/// A line of code.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    /// `file:line`, not empty.
    at: String,
    /// Whether the tasks were spawned there, and the line with the problem is not known.
    is_of_spawn: bool,
}

/// Workers in polls that block them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stuck {
    /// Their number, at least 1.
    workers: u64,
    /// How long the longest of their polls has lasted so far, ns.
    longest_ns: u64,
    /// The line of that poll.
    line: Option<Line>,
}

impl Stuck {
    /// Returns the stuck workers of a runtime.
    fn of(runtime: &Snapshot) -> Option<Self> {
        let polls = runtime.workers.iter().filter_map(|worker| stuck_poll(runtime, worker));
        polls.map(|(poll, incident)| Self::of_poll(poll, incident)).reduce(Self::and)
    }

    fn of_poll(poll: &InFlight, incident: Option<&Incident>) -> Self {
        let guilty = incident.and_then(Incident::guilty).map(Place::of_frame);
        let place = guilty.unwrap_or_else(|| Place::Spawned { at: poll.spawned_at.clone() });
        Self { workers: 1, longest_ns: poll.for_ns, line: Line::at(&place) }
    }

    /// Returns these workers and others.
    fn and(self, other: Self) -> Self {
        let workers = self.workers + other.workers;
        let longest = if other.longest_ns > self.longest_ns { other } else { self };
        Self { workers, ..longest }
    }
}

/// Returns the poll that blocks this worker of a runtime, and its incident if it has one.
fn stuck_poll<'a>(runtime: &'a Snapshot, worker: &'a Worker) -> Option<(&'a InFlight, Option<&'a Incident>)> {
    // A poll that announced that it blocks has handed over its worker.
    let poll = worker.in_flight.as_ref().filter(|_| worker.duty != Duty::Blocking)?;
    let is_this = |incident: &&Incident| {
        // The incident of the poll before it is open until the next check of the sentinel.
        let is_of_this_poll = incident.for_ns <= poll.for_ns.saturating_add(APART_NS);
        let is_of_the_same = incident.worker == worker.index && incident.task_id == poll.task_id;
        !incident.is_over && is_of_the_same && is_of_this_poll
    };
    let incident = runtime.incidents.latest.iter().rfind(is_this);
    let is_stuck = match incident {
        // A poll that the kernel does not run is not stuck.
        Some(incident) => is_of_the_task(incident.cause),
        None => poll.for_ns >= OUTAGE_NS || worker.duty == Duty::Stuck && poll.for_ns >= STUCK_NS,
    };
    is_stuck.then_some((poll, incident))
}

impl Line {
    fn of(finding: &Finding) -> Option<Self> {
        Self::at(finding.locations.first()?)
    }

    fn at(place: &Place) -> Option<Self> {
        let line = Self { at: line_of(place.at()).to_owned(), is_of_spawn: matches!(place, Place::Spawned { .. }) };
        (!line.at.is_empty()).then_some(line)
    }

    /// Returns it without this many columns at its beginning.
    fn without(&self, columns: usize) -> Self {
        let kept: String = self.at.chars().skip(columns + 1).collect();
        Self { at: format!("…{kept}"), ..*self }
    }

    /// Returns how many columns can be left out without cutting the name of the file.
    fn spare(&self) -> usize {
        let path = self.at.rsplit_once('/').map_or("", |(path, _)| path);
        path.chars().count()
    }

    /// Names a problem at this line.
    fn after(&self, problem: &str) -> String {
        let Self { at, is_of_spawn } = self;
        if *is_of_spawn { format!("{problem}, spawned at {at}") } else { format!("{problem} at {at}") }
    }
}

impl Verdict {
    /// Returns the verdict on these runtimes of one program.
    pub fn of<'a>(runtimes: impl IntoIterator<Item = &'a Snapshot>) -> Self {
        let mut verdict = Self::default();
        let mut worst = None;
        let mut warning: Option<(bool, &str, Line)> = None;
        // The last time of any finding, and of a warning or worse.
        let (mut now_ns, mut started_at_ns, mut last_ns, mut bad_ns) = (0, u64::MAX, 0, 0);
        for runtime in runtimes {
            let Some(findings) = &runtime.findings else { continue };
            verdict.judged += 1;
            verdict.stuck = verdict.stuck.into_iter().chain(Stuck::of(runtime)).reduce(Stuck::and);
            now_ns = now_ns.max(runtime.at_ns);
            started_at_ns = started_at_ns.min(runtime.started_at_ns);
            for finding in findings {
                let at_ns = finding.seen.last_at_ns;
                last_ns = last_ns.max(at_ns);
                if finding.seen.worst.max(finding.severity) > Severity::Info {
                    bad_ns = bad_ns.max(at_ns);
                }
                if !finding.seen.is_current {
                    continue;
                }
                match finding.severity {
                    Severity::Critical => verdict.critical += 1,
                    Severity::Warning => verdict.warnings += 1,
                    Severity::Info => verdict.infos += 1,
                }
                // Of equal ones, the first.
                let line = Line::of(finding);
                let is_cause = finding.evidence.iter().all(|evidence| evidence.key != POSSIBLE_HOLDER);
                let is_better = warning.as_ref().is_none_or(|(was_cause, ..)| is_cause && !was_cause);
                if let (Severity::Warning, true, Some(line)) = (finding.severity, is_better, &line) {
                    warning = Some((is_cause, finding.rule.name(), line.clone()));
                }
                let rank = (finding.severity, line.is_some(), is_cause);
                if worst.is_none_or(|worst| worst < rank) {
                    (worst, verdict.worst) = (Some(rank), Some((finding.rule.name(), line)));
                }
            }
        }
        let since_ns = if verdict.infos > 0 { bad_ns } else { last_ns };
        verdict.well_ns = now_ns.saturating_sub(since_ns.max(started_at_ns.min(now_ns)));
        let is_critical_without_line = verdict.critical > 0 && matches!(verdict.worst, Some((_, None)));
        verdict.warning = warning.filter(|_| is_critical_without_line).map(|(_, rule, line)| (rule, line));
        verdict
    }

    /// Returns the severity of the worst current finding that needs action; `None` if there is
    /// none.
    pub fn severity(&self) -> Option<Severity> {
        match (self.critical, self.warnings) {
            (0, 0) => None,
            (0, _) => Some(Severity::Warning),
            _ => Some(Severity::Critical),
        }
    }

    /// Returns the number of workers that a poll blocks at this moment. The verdict names the poll
    /// if no finding needs action.
    pub fn stuck_workers(&self) -> u64 {
        self.stuck.as_ref().map_or(0, |stuck| stuck.workers)
    }

    /// Returns the verdict in at most `columns` characters, as far as possible: of a long path, the
    /// beginning is left out.
    ///
    /// ```
    /// use volt_diagnosis::doctor::Verdict;
    ///
    /// let whole = Verdict::default().to_string();
    /// assert_eq!(Verdict::default().in_columns(100), whole);
    /// ```
    pub fn in_columns(&self, columns: usize) -> String {
        let whole = self.to_string();
        let over = whole.chars().count().saturating_sub(columns);
        if over == 0 {
            return whole;
        }
        let mut cut = self.clone();
        if let (None, Some(stuck)) = (self.severity(), &mut cut.stuck) {
            let line = stuck.line.take().filter(|line| line.spare() > over);
            stuck.line = line.map(|line| line.without(over));
        } else if let Some((_, Some(line))) = &mut cut.worst {
            *line = line.without(over);
        } else {
            // The warning is named beside the worst finding, so it is left out if it does not fit.
            let warning = cut.warning.filter(|(_, line)| line.spare() > over);
            cut.warning = warning.map(|(rule, line)| (rule, line.without(over)));
        }
        cut.to_string()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let well_ns = self.well_ns / SECOND_NS * SECOND_NS;
        let time = match well_ns {
            0 => String::new(),
            // Older findings are not kept.
            PAST_NS.. => format!(" for {} or more", duration(PAST_NS)),
            ns => format!(" for {}", duration(ns)),
        };
        match (self.severity(), &self.stuck) {
            (None, _) if self.judged == 0 => f.write_str("No verdict: no runtime reports findings"),
            (None, Some(stuck)) => {
                write!(f, "{stuck}")?;
                if self.infos > 0 { write!(f, "; {} info", self.infos) } else { Ok(()) }
            }
            (None, None) if self.infos == 0 => write!(f, "OK: no findings{time}"),
            (None, None) => write!(f, "OK: no warnings{time}; {} info", self.infos),
            (Some(Severity::Critical), _) => {
                write!(f, "{} critical: {}", self.critical, self.first())?;
                if self.warnings > 0 {
                    write!(f, "; {}", counted(self.warnings, "warning"))?;
                }
                match &self.warning {
                    Some((rule, line)) => write!(f, ": {}", line.after(rule)),
                    None => Ok(()),
                }
            }
            (Some(_), _) => write!(f, "{}: {}", counted(self.warnings, "warning"), self.first()),
        }
    }
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = duration(self.longest_ns);
        let who = match self.workers {
            1 => format!("1 worker stuck for {time}"),
            workers => format!("{workers} workers stuck, one for {time}"),
        };
        match &self.line {
            Some(line) => f.write_str(&line.after(&who)),
            None => f.write_str(&who),
        }
    }
}

impl Verdict {
    fn first(&self) -> String {
        match &self.worst {
            Some((rule, Some(line))) => line.after(rule),
            Some((rule, None)) => (*rule).to_owned(),
            None => String::new(),
        }
    }
}

/// Returns `file:line` of `file:line:column`, and any other text unchanged.
fn line_of(at: &str) -> &str {
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    match at.rsplit_once(':') {
        Some((rest, column)) if is_number(column) && rest.rsplit_once(':').is_some_and(|(_, line)| is_number(line)) => {
            rest
        }
        _ => at,
    }
}

#[cfg(test)]
mod tests {
    use volt_telemetry::finding::{Place, Seen};
    use volt_telemetry::incident::{Cause, Frame};
    use volt_telemetry::rule::Rule;

    use super::*;
    use crate::doctor::describe::Describe;

    fn runtime(findings: Vec<Finding>) -> Snapshot {
        let at_ns = 1_000 * SECOND_NS;
        Snapshot { started_at_ns: 100 * SECOND_NS, at_ns, findings: Some(findings), ..Snapshot::default() }
    }

    fn found(rule: Rule, severity: Severity, at: &str) -> Finding {
        let mut finding = Finding::new(rule, severity, "title");
        if !at.is_empty() {
            finding.locations = vec![Place::Guilty { at: at.into(), function: None }];
        }
        finding.seen = Seen { last_at_ns: 990 * SECOND_NS, worst: severity, ..Seen::default() };
        finding
    }

    fn past(severity: Severity, last_at: u64) -> Finding {
        let mut finding = found(Rule::NoYield, Severity::Info, "src/a.rs:1");
        finding.seen = Seen { is_current: false, last_at_ns: last_at * SECOND_NS, worst: severity, ..Seen::default() };
        finding
    }

    fn verdict(findings: Vec<Finding>) -> String {
        Verdict::of([&runtime(findings)]).to_string()
    }

    #[test]
    fn the_worst_finding_is_named_with_its_line() {
        let deadlock = found(Rule::Deadlock, Severity::Critical, "src/a.rs:33:21");
        let other = found(Rule::LostWakeup, Severity::Critical, "");
        let leak = found(Rule::TaskLeak, Severity::Warning, "src/b.rs:7");
        assert_eq!(
            verdict(vec![leak.clone(), deadlock.clone(), other.clone()]),
            "2 critical: deadlock at src/a.rs:33; 1 warning"
        );
        assert_eq!(verdict(vec![other, past(Severity::Critical, 500)]), "1 critical: lost-wakeup");
        assert_eq!(verdict(vec![leak.clone(), leak.clone()]), "2 warnings: task-leak at src/b.rs:7");
        let no_line = found(Rule::CpuStarved, Severity::Critical, "");
        assert_eq!(
            verdict(vec![no_line, deadlock.clone()]),
            "2 critical: deadlock at src/a.rs:33",
            "of equal ones, one with a line"
        );
        let mut spawned = leak.clone();
        spawned.locations = vec![Place::Spawned { at: "src/b.rs:7:9".into() }];
        assert_eq!(verdict(vec![spawned]), "1 warning: task-leak, spawned at src/b.rs:7");
        let both = [runtime(vec![leak]), runtime(vec![deadlock])];
        assert_eq!(Verdict::of(&both).to_string(), "1 critical: deadlock at src/a.rs:33; 1 warning");
        assert_eq!(Verdict::of(&both).severity(), Some(Severity::Critical));
    }

    #[test]
    fn the_probable_holder_of_a_lock_is_named_before_a_victim() {
        let holder = found(Rule::StalledPoll, Severity::Warning, "src/holder.rs:9");
        let victim = found(Rule::StalledPoll, Severity::Warning, "src/victim.rs:3");
        let victim = victim.word(POSSIBLE_HOLDER, "possible holder", "task 7 at src/holder.rs:9");
        let named = "2 warnings: stalled-poll at src/holder.rs:9";
        assert_eq!(verdict(vec![victim.clone(), holder.clone()]), named);
        assert_eq!(verdict(vec![holder.clone(), victim.clone()]), named);
        assert_eq!(verdict(vec![victim.clone()]), "1 warning: stalled-poll at src/victim.rs:3");
        let starved = found(Rule::CpuStarved, Severity::Critical, "");
        let both = verdict(vec![starved, victim.clone(), holder.clone()]);
        assert_eq!(both, "1 critical: cpu-starved; 2 warnings: stalled-poll at src/holder.rs:9");
        let worse = Finding { severity: Severity::Critical, ..victim };
        assert_eq!(verdict(vec![holder, worse]), "1 critical: stalled-poll at src/victim.rs:3; 1 warning");
    }

    #[test]
    fn a_warning_is_named_if_no_critical_finding_has_a_line() {
        let starved = found(Rule::CpuStarved, Severity::Critical, "");
        let stalled = found(Rule::StalledPoll, Severity::Warning, "/home/shop/src/service.rs:151:9");
        let other = found(Rule::TaskLeak, Severity::Warning, "");
        let info = found(Rule::Imbalance, Severity::Info, "src/b.rs:7");
        let findings = vec![other.clone(), starved.clone(), info.clone(), stalled.clone()];
        let both = Verdict::of([&runtime(findings)]);
        let whole = "1 critical: cpu-starved; 2 warnings: stalled-poll at /home/shop/src/service.rs:151";
        assert_eq!((both.to_string().as_str(), both.in_columns(whole.len()).as_str()), (whole, whole));
        assert_eq!(both.in_columns(75), "1 critical: cpu-starved; 2 warnings: stalled-poll at …op/src/service.rs:151");
        let file = "1 critical: cpu-starved; 2 warnings: stalled-poll at …/service.rs:151";
        assert_eq!(both.in_columns(69), file);
        assert_eq!(both.in_columns(68), "1 critical: cpu-starved; 2 warnings", "rather than a part of a file name");
        assert_eq!(verdict(vec![starved.clone(), other, info]), "1 critical: cpu-starved; 1 warning");
        let deadlock = found(Rule::Deadlock, Severity::Critical, "src/a.rs:33");
        assert_eq!(verdict(vec![stalled, starved, deadlock]), "2 critical: deadlock at src/a.rs:33; 1 warning");
    }

    #[test]
    fn ok_has_the_time_since_the_last_finding() {
        assert_eq!(verdict(Vec::new()), "OK: no findings for 15 min", "since the runtime started");
        assert_eq!(
            verdict(vec![past(Severity::Info, 940), past(Severity::Critical, 700)]),
            "OK: no findings for 1 min"
        );
        let info = found(Rule::Imbalance, Severity::Info, "");
        assert_eq!(verdict(vec![info, past(Severity::Critical, 700)]), "OK: no warnings for 5 min; 1 info");
        let old = Snapshot { at_ns: 90_000 * SECOND_NS, ..runtime(Vec::new()) };
        assert_eq!(Verdict::of([&old]).to_string(), "OK: no findings for 1 h or more");
        let new = Snapshot { at_ns: 100 * SECOND_NS, ..runtime(Vec::new()) };
        assert_eq!(Verdict::of([&new]).to_string(), "OK: no findings");
        let unknown = Snapshot { findings: None, ..runtime(Vec::new()) };
        assert_eq!(Verdict::of([&unknown]).to_string(), "No verdict: no runtime reports findings");
    }

    /// A runtime whose worker 3 has been in a poll for this long, with an open incident of a cause.
    fn stuck(for_ms: u64, cause: Option<Cause>, findings: Vec<Finding>) -> Snapshot {
        let poll = InFlight { task_id: 7, spawned_at: "src/serve.rs:9:5".into(), ..InFlight::default() };
        let in_flight = Some(InFlight { for_ns: for_ms * 1_000_000, ..poll });
        let worker = Worker { index: 3, duty: Duty::Stuck, in_flight, ..Worker::default() };
        let incident = |cause| Incident { worker: 3, task_id: 7, cause, ..Incident::default() };
        let mut runtime = Snapshot { workers: vec![worker], ..runtime(findings) };
        runtime.incidents.latest.extend(cause.map(incident));
        runtime
    }

    #[test]
    fn nothing_is_ok_while_a_worker_is_stuck() {
        let of = |runtime: &Snapshot| Verdict::of([runtime]).to_string();
        let info = found(Rule::StalledPoll, Severity::Info, "src/a.rs:1");
        let first = stuck(45, Some(Cause::Sleep), vec![info]);
        assert_eq!(of(&first), "1 worker stuck for 45 ms, spawned at src/serve.rs:9; 1 info");
        assert_eq!(Verdict::of([&first]).severity(), None, "it needs no action yet");
        let unrecorded = stuck(45, None, Vec::new());
        assert_eq!(of(&unrecorded), "1 worker stuck for 45 ms, spawned at src/serve.rs:9");
        let mut known = first.clone();
        let file = Some("/home/shop/src/price.rs".into());
        let guilty = Frame { file, line: Some(61), is_user_code: true, ..Frame::default() };
        known.incidents.latest[0].stack = vec![guilty];
        let verdict = Verdict::of([&known, &stuck(20, None, Vec::new())]);
        let whole = "2 workers stuck, one for 45 ms at /home/shop/src/price.rs:61; 1 info";
        assert_eq!((verdict.to_string().as_str(), verdict.stuck_workers()), (whole, 2));
        assert_eq!(
            verdict.in_columns(whole.len() - 5),
            "2 workers stuck, one for 45 ms at …shop/src/price.rs:61; 1 info"
        );
        assert_eq!(verdict.in_columns(40), "2 workers stuck, one for 45 ms; 1 info");
        let leak = found(Rule::TaskLeak, Severity::Warning, "src/b.rs:7");
        assert_eq!(of(&stuck(45, None, vec![leak])), "1 warning: task-leak at src/b.rs:7");
    }

    #[test]
    fn a_worker_that_the_task_does_not_block_is_not_stuck() {
        let ok = "OK: no findings for 15 min";
        let of = |runtime: &Snapshot| Verdict::of([runtime]).to_string();
        let with = |runtime: Snapshot, duty| {
            let mut runtime = runtime;
            runtime.workers[0].duty = duty;
            of(&runtime)
        };
        assert_eq!(of(&stuck(9, None, Vec::new())), ok, "it is too short");
        assert_eq!(of(&stuck(45, Some(Cause::NotScheduled), Vec::new())), ok, "the kernel does not run it");
        assert_eq!(with(stuck(900, None, Vec::new()), Duty::Blocking), ok, "it is in block_in_place");
        assert_eq!(with(stuck(45, None, Vec::new()), Duty::Present), ok, "no task waits for it");
        assert!(with(stuck(900, None, Vec::new()), Duty::Present).starts_with("1 worker stuck for 900 ms"));
        let mut over = stuck(9, Some(Cause::Sleep), Vec::new());
        over.incidents.latest[0].is_over = true;
        assert_eq!(of(&over), ok);
        let mut before = stuck(2, Some(Cause::Sleep), Vec::new());
        before.incidents.latest[0].for_ns = 300_000_000;
        assert_eq!(of(&before), ok, "it is the incident of the poll before");
    }

    #[test]
    fn a_long_path_is_shortened_at_its_beginning() {
        let deadlock = found(Rule::Deadlock, Severity::Critical, "/home/shop/src/settle.rs:33");
        let verdict = Verdict::of([&runtime(vec![deadlock])]);
        assert_eq!(verdict.in_columns(40), "1 critical: deadlock at …rc/settle.rs:33");
        assert_eq!(verdict.in_columns(51), verdict.to_string());
        assert_eq!(line_of("src/a.rs:33:21"), "src/a.rs:33");
        assert_eq!([line_of("src/a.rs:33"), line_of("libc.so"), line_of("")], ["src/a.rs:33", "libc.so", ""]);
    }
}
