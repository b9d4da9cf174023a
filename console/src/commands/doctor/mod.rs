//! `volt-console doctor`: diagnoses a program and prints what to change.
//!
//! # Protocol
//!
//! 1. Take a first snapshot. In text mode, print current findings of severity warning and above
//!    immediately, because an engineer on call has little time.
//! 2. Wait. Take a few snapshots meanwhile, for rules that need several, but print nothing.
//! 3. Take the last snapshot. Print the other findings, the worst first. Print a finding of (1)
//!    again only if it has become worse, and say so, or with its line if its stack has been
//!    captured since. JSON is one object, printed after (3).
//!
//! The program computes the findings itself and keeps their history, so that every tool shows the
//! same ones. For a program that is too old to do so, they are computed here from these snapshots.
//! This file only formats findings. Strings from the program are cleaned before they are stored.

use std::cmp::Reverse;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use serde_json::{Value, json};
use volt_diagnosis::doctor::INTERVAL_MIN_NS;
use volt_diagnosis::doctor::history::KNOWN_MAX;
use volt_diagnosis::doctor::key::Key;
use volt_diagnosis::doctor::rule::{RULES, RuleEntry};
use volt_diagnosis::doctor::watch::Watch;
use volt_telemetry::client::Client;
use volt_telemetry::finding::{Finding, Severity, TaskName};
use volt_telemetry::processes::SAMPLE_NS;
use volt_telemetry::snapshot::{Program, Snapshot};
use volt_telemetry::text::duration;

use crate::error::Error;
use crate::text::clean;
use crate::text::figures::paragraph;

/// The smallest distance between two snapshots; closer ones count as one.
pub const WAIT_MIN: Duration = Duration::from_nanos(INTERVAL_MIN_NS);
/// The minimum number of snapshots after the first, if the time is long enough for two. The
/// findings of an older program are confirmed by the second.
const SNAPSHOTS_MIN: u128 = 2;
/// The maximum number of snapshots after the first.
const SNAPSHOTS_MAX: u128 = 10;
/// A current finding that was last seen this long ago, two checks of the program, is held.
const HELD_FROM_NS: u64 = 2 * SECOND_NS;
const SECOND_NS: u64 = 1_000_000_000;
/// Columns if there is no terminal that reports its width.
const PLAIN_COLUMNS: usize = 80;
/// On a narrower terminal, the terminal breaks the lines.
const COLUMNS_MIN: usize = 40;
/// Lines longer than this are hard to read, however wide the terminal is.
const COLUMNS_MAX: usize = 120;

/// How to examine a program, and how to report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Time between the two snapshots. With 0, takes only one snapshot. For a program that is too
    /// old to compute findings, that finds only what is stuck at that moment.
    pub wait: Duration,
    /// Whether to print one JSON object instead of text.
    pub as_json: bool,
    /// The lowest severity that counts as a failure.
    pub fail_on: Severity,
    /// The medium that the text is formatted for.
    pub style: TextStyle,
}

/// The width and the colours of the medium that text is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextStyle {
    /// The width in columns; lines are broken between words.
    pub columns: usize,
    /// Whether severities are coloured. The word is printed in any case.
    pub has_colors: bool,
}

impl TextStyle {
    /// For a pipe or a file.
    pub const PLAIN: TextStyle = TextStyle { columns: PLAIN_COLUMNS, has_colors: false };

    /// Returns the properties of the terminal on standard output, or [`PLAIN`](Self::PLAIN) if it
    /// is not a terminal. There are no colours if `NO_COLOR` is set and not empty.
    pub fn of_stdout() -> TextStyle {
        if !io::stdout().is_terminal() {
            return TextStyle::PLAIN;
        }
        let columns = crossterm::terminal::size().map_or(PLAIN_COLUMNS, |(columns, _)| columns.into());
        let has_colors = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        TextStyle { columns: columns.clamp(COLUMNS_MIN, COLUMNS_MAX), has_colors }
    }
}

/// A finding and its runtime.
#[derive(Clone, Debug, PartialEq)]
struct Reported {
    runtime: String,
    /// When its snapshot was taken.
    at_ns: u64,
    finding: Finding,
    /// Whether it was printed before, with a lower severity. That is a warning, because the
    /// findings below it are not printed before the second snapshot.
    was_warning: bool,
}

impl Reported {
    /// Returns whether it is the same finding as `other`, whatever the numbers are.
    fn is_like(&self, other: &Reported) -> bool {
        self.runtime == other.runtime && Key::of(&self.finding) == Key::of(&other.finding)
    }

    /// Returns whether it is about the same poll as `former`, whose stack had not been captured
    /// yet.
    fn replaces(&self, former: &Reported) -> bool {
        let (now, then) = (&self.finding, &former.finding);
        let is_read = Key::of(then).is_provisional() && !Key::of(now).is_provisional();
        let tasks = |finding: &Finding| finding.tasks.iter().map(|task| task.id).collect::<Vec<_>>();
        let is_same = now.rule == then.rule && now.workers == then.workers && tasks(now) == tasks(then);
        is_read && self.runtime == former.runtime && is_same
    }
}

/// Examines the program and prints a report. Returns whether a current finding has at least the
/// severity [`Options::fail_on`].
///
/// # Errors
///
/// Fails with [`Error::is_connect`] if the program exits in between, and if the output cannot be
/// written. An output that its reader closes is no error.
pub fn run(client: &mut Client, options: Options, out: &mut impl Write) -> Result<bool, Error> {
    let mut is_closed = false;
    // If the reader closes the output early, as `head` does, the verdict is still the exit code.
    let mut print = |text: &str| {
        if is_closed {
            return Ok(());
        }
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::output) {
            Err(error) if error.is_output_closed() => is_closed = true,
            printed => return printed,
        }
        Ok(())
    };
    let mut watch = Watch::within(options.wait.as_nanos() as u64);
    let first = take_snapshot(client, &mut watch)?;
    let stuck = at_once(&first);
    if !options.as_json {
        print(&head(&first, options.wait))?;
        print(&text(&stuck, options.style))?;
    }
    let second = if options.wait.is_zero() { first.clone() } else { snapshot_after(client, &mut watch, options.wait)? };
    let (all, news) = join(stuck, findings(&second));
    if options.as_json {
        print(&format!("{}\n", json(&first, &second, &all)))?;
    } else {
        print(&text(&news, options.style))?;
        print(&summary(&first, &second, &all, options.style))?;
    }
    Ok(worst(&all) >= Some(options.fail_on))
}

/// Returns the highest severity of the current findings; `None` if there are none. Past findings
/// are no reason to fail.
fn worst(all: &[Reported]) -> Option<Severity> {
    all.iter().filter(|reported| reported.finding.seen.is_current).map(|reported| reported.finding.severity).max()
}

/// Takes a snapshot, with the doctor's findings.
fn take_snapshot(client: &mut Client, watch: &mut Watch) -> Result<Program, Error> {
    let mut program = clean::program(client.snapshot()?);
    watch.fill_in(&mut program.runtimes);
    Ok(program)
}

/// Returns the snapshot after `wait`. Takes further snapshots in between, for the rules that need
/// several of them: whether a mailbox grows, for example.
fn snapshot_after(client: &mut Client, watch: &mut Watch, wait: Duration) -> Result<Program, Error> {
    let snapshots_min = if wait >= 2 * WAIT_MIN { SNAPSHOTS_MIN } else { 1 };
    let snapshots = (wait.as_nanos() / u128::from(SAMPLE_NS)).clamp(snapshots_min, SNAPSHOTS_MAX) as u32;
    for _ in 1..snapshots {
        std::thread::sleep(wait / snapshots);
        take_snapshot(client, watch)?;
    }
    std::thread::sleep(wait / snapshots);
    take_snapshot(client, watch)
}

/// Returns the findings to print immediately. Those below a warning wait until the second snapshot.
fn at_once(first: &Program) -> Vec<Reported> {
    let mut stuck = findings(first);
    stuck.retain(|reported| reported.finding.severity >= Severity::Warning);
    stuck
}

/// Returns the findings of every runtime, the worst first.
fn findings(program: &Program) -> Vec<Reported> {
    let mut reported = Vec::new();
    for now in &program.runtimes {
        let findings = now.findings.iter().flatten().cloned();
        reported.extend(findings.map(|finding| Reported {
            runtime: now.runtime.clone(),
            at_ns: now.at_ns,
            finding,
            was_warning: false,
        }));
    }
    sort(&mut reported);
    reported
}

/// Returns all findings of both snapshots, the worst first, and those that the first snapshot did
/// not have or had with a lower severity.
fn join(first: Vec<Reported>, mut second: Vec<Reported>) -> (Vec<Reported>, Vec<Reported>) {
    // A finding whose stack had not been captured is present again, with or without its line, and
    // keeps its severity.
    let (gone, first): (Vec<_>, Vec<_>) = first.into_iter().partition(|former| {
        !second.iter().any(|reported| reported.is_like(former))
            && second.iter().any(|reported| reported.replaces(former))
    });
    for former in gone {
        let Some(reported) = second.iter_mut().find(|reported| reported.replaces(&former)) else { continue };
        let (now, then) = (&mut reported.finding, former.finding);
        (now.severity, now.seen.worst) = (now.severity.max(then.severity), now.seen.worst.max(then.seen.worst));
        now.seen.is_current |= then.seen.is_current;
    }
    sort(&mut second);
    let mut news = second;
    news.retain_mut(|reported| {
        let former = first.iter().find(|former| former.is_like(reported));
        reported.was_warning = former.is_some();
        former.is_none_or(|former| former.finding.severity < reported.finding.severity)
    });
    let is_kept = |former: &&Reported| !news.iter().any(|reported| reported.is_like(former));
    let mut all: Vec<_> = first.iter().filter(is_kept).cloned().chain(news.iter().cloned()).collect();
    sort(&mut all);
    (all, news)
}

/// Sorts the worst first. The sort is stable: within a severity, runtimes and rules keep their
/// order.
fn sort(reported: &mut [Reported]) {
    reported.sort_by_key(|reported| (Reverse(reported.finding.seen.is_current), Reverse(reported.finding.severity)));
}

// ---- text ---------------------------------------------------------------------------------------

fn head(program: &Program, wait: Duration) -> String {
    let names: Vec<_> = program.runtimes.iter().map(|runtime| runtime.runtime.as_str()).collect();
    let runtimes = match &names[..] {
        [] => "no runtime".into(),
        [only] => format!("runtime {only}"),
        several => format!("runtimes {}", several.join(", ")),
    };
    let how = if wait.is_zero() {
        "one snapshot".into()
    } else {
        format!("two snapshots {} apart", duration(wait.as_nanos() as u64))
    };
    format!("{}  pid {}  {}  {how}\n\n", program.name, program.pid, runtimes)
}

/// Returns the findings of a program as text, the worst first; `None` if there are none.
pub(crate) fn report(program: &Program, style: TextStyle) -> Option<String> {
    Some(text(&findings(program), style)).filter(|text| !text.is_empty())
}

fn text(all: &[Reported], style: TextStyle) -> String {
    let mut text = String::new();
    for Reported { runtime, at_ns, finding, was_warning } in all {
        let severity = if finding.seen.is_current { finding.severity.name().to_uppercase() } else { "PAST".into() };
        let (on, off) = if style.has_colors { (color(finding.severity), "\u{1b}[0m") } else { ("", "") };
        let held = held(finding, *at_ns).map_or_else(String::new, |ago| format!(", last seen {ago} ago"));
        let above = if *was_warning { ", reported above as a warning" } else { "" };
        text += &format!("{on}{severity}{off}  {}  in runtime {runtime}{held}{above}\n", finding.rule);
        text += &paragraph("  ", "  ", &finding.title, style.columns);
        text += &paragraph("    - ", "      ", &finding.history(*at_ns), style.columns);
        for place in &finding.locations {
            text += &paragraph("    - ", "      ", &place.to_string(), style.columns);
        }
        for evidence in &finding.evidence {
            text += &paragraph("    - ", "      ", &evidence.text, style.columns);
        }
        let workers: Vec<_> = finding.workers.iter().map(u32::to_string).collect();
        let tasks: Vec<_> = finding.tasks.iter().map(task).collect();
        for line in [concerned("worker", &workers), concerned("task", &tasks)].into_iter().flatten() {
            text += &paragraph("    - ", "      ", &line, style.columns);
        }
        text += &paragraph("  > ", "    ", &finding.advice, style.columns);
        text.push('\n');
    }
    text
}

/// Returns how long ago a current finding was last seen, if the latest checks did not find it. Its
/// evidence is as old.
fn held(finding: &Finding, at_ns: u64) -> Option<String> {
    let ago_ns = at_ns.saturating_sub(finding.seen.last_at_ns);
    let is_held = finding.seen.is_current && ago_ns >= HELD_FROM_NS;
    is_held.then(|| duration(ago_ns / SECOND_NS * SECOND_NS))
}

fn summary(first: &Program, second: &Program, all: &[Reported], style: TextStyle) -> String {
    let workers: u32 = second.runtimes.iter().map(Snapshot::active_count).fold(0, u32::saturating_add);
    let over = match second.at_ns.saturating_sub(first.at_ns) {
        0 => "in one snapshot".into(),
        interval_ns => format!("over {}", duration(interval_ns)),
    };
    let current = || all.iter().filter(|reported| reported.finding.seen.is_current);
    let count = |severity: Severity| current().filter(|reported| reported.finding.severity == severity).count();
    let found: Vec<_> = Severity::ALL.iter().rev().filter(|severity| count(**severity) > 0).collect();
    let of = |severity: &Severity| match (count(*severity), severity) {
        (several @ 2.., Severity::Warning) => format!("{several} warnings"),
        (count, severity) => format!("{count} {}", severity.name()),
    };
    let mut found: Vec<_> = found.into_iter().map(of).collect();
    let past = all.len() - current().count();
    found.extend((past > 0).then(|| format!("{past} past")));
    let found = if found.is_empty() { "Nothing found".into() } else { format!("Found: {}", found.join(", ")) };
    let summary = format!(
        "{found}. Checked {} rules across {} with {} {over}.",
        RULES.len(),
        several(second.runtimes.len(), "runtime"),
        several(workers as usize, "worker"),
    );
    let mut text = paragraph("", "", &summary, style.columns);
    let left_out = left_out(second);
    if left_out > 0 {
        let omitted = several(left_out as usize, "finding");
        let reported = format!("{omitted} omitted: the program keeps at most {KNOWN_MAX} for each runtime.");
        text += &paragraph("", "", &reported, style.columns);
    }
    let unjudged: Vec<_> = unjudged(second).map(|entry| entry.name).collect();
    if !unjudged.is_empty() {
        let unjudged =
            format!("Not checked, because the program does not report the required data: {}.", unjudged.join(", "));
        text += &paragraph("", "", &unjudged, style.columns);
    }
    text
}

/// Returns the number of findings of the last check for which the program's history had no room.
fn left_out(program: &Program) -> u64 {
    program.runtimes.iter().filter_map(|runtime| runtime.findings_left_out).fold(0, u64::saturating_add)
}

/// Returns the rules that cannot be checked on any of the runtimes.
fn unjudged(program: &Program) -> impl Iterator<Item = &'static RuleEntry> {
    RULES.iter().filter(|entry| !program.runtimes.iter().any(|runtime| entry.can_judge(runtime)))
}

fn several(count: usize, thing: &str) -> String {
    if count == 1 { format!("1 {thing}") } else { format!("{count} {thing}s") }
}

/// Returns the workers or the tasks of a finding: `worker 0`, `tasks 1 "sleeper", 2`. There is no
/// colon, after which a number reads as a count.
fn concerned(thing: &str, names: &[String]) -> Option<String> {
    let plural = if names.len() == 1 { "" } else { "s" };
    (!names.is_empty()).then(|| format!("{thing}{plural} {}", names.join(", ")))
}

fn task(task: &TaskName) -> String {
    match &task.name {
        Some(name) => format!("{} \"{name}\"", task.id),
        None => task.id.to_string(),
    }
}

fn color(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "\u{1b}[36m",
        Severity::Warning => "\u{1b}[1;33m",
        Severity::Critical => "\u{1b}[1;31m",
    }
}

// ---- JSON ---------------------------------------------------------------------------------------

fn json(first: &Program, second: &Program, all: &[Reported]) -> Value {
    let finding = |reported: &Reported| {
        let mut finding = json!(reported.finding);
        finding["runtime"] = json!(reported.runtime);
        finding
    };
    json!({
        "program": second.name,
        "pid": second.pid,
        "at_ns": second.at_ns,
        "interval_ns": second.at_ns.saturating_sub(first.at_ns),
        "runtimes": second.runtimes.iter().map(|runtime| &runtime.runtime).collect::<Vec<_>>(),
        "rules": RULES.iter().map(|entry| entry.name).collect::<Vec<_>>(),
        "not_checked": unjudged(second).map(|entry| entry.name).collect::<Vec<_>>(),
        "worst": worst(all),
        "findings_left_out": left_out(second),
        "findings": all.iter().map(finding).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests;
