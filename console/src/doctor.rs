//! `volt-console doctor`: prints what is wrong with a program.
//!
//! Protocol. (1) First snapshot: as text, current warnings and worse are printed immediately, since whoever is on call has little time.
//! (2) Wait. (3) Second snapshot: the other findings, the worst first; what was printed in (1) is printed again only if it has
//! become worse. JSON is one object, after (3).
//!
//! The verdict is the program's own, with its history, so that every reader shows the same; a program that is too old to judge itself is judged here, from
//! these snapshots. Here is only how findings look. Strings of the program are cleaned before they are kept.

use std::cmp::Reverse;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use serde_json::{Value, json};
use volt_telemetry::client::Client;
use volt_telemetry::doctor::INTERVAL_MIN_NS;
use volt_telemetry::doctor::finding::{Finding, Severity, TaskName};
use volt_telemetry::doctor::rule::{RULES, RuleEntry};
use volt_telemetry::doctor::watch::Watch;
use volt_telemetry::processes::LOOK_NS;
use volt_telemetry::snapshot::{Process, Snapshot};

use crate::clean;
use crate::error::Error;
use crate::figures::{duration, width};

/// Two looks that are closer together count as one.
pub const WAIT_MIN: Duration = Duration::from_nanos(INTERVAL_MIN_NS);
/// Looks after the first.
const LOOKS_MAX: u128 = 10;
/// Columns where there is no terminal to ask.
const PLAIN_COLUMNS: usize = 80;
/// On a terminal that is narrower than this, lines are broken by the terminal.
const COLUMNS_MIN: usize = 40;
/// Lines longer than this are hard to read, however wide the terminal is.
const COLUMNS_MAX: usize = 120;

/// How to look, and how to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Time between the two looks; with 0 there is one, which sees only what is stuck at that moment.
    pub wait: Duration,
    /// One JSON object instead of text.
    pub as_json: bool,
    /// The mildest finding that makes the program unwell.
    pub fail_on: Severity,
    /// What the text is for.
    pub paper: Paper,
}

/// What text is written on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paper {
    /// Columns; lines are broken between words.
    pub columns: usize,
    /// Whether severities have colours; the word stands there anyway.
    pub has_colors: bool,
}

impl Paper {
    /// A pipe or a file.
    pub const PLAIN: Paper = Paper { columns: PLAIN_COLUMNS, has_colors: false };

    /// The terminal on standard output, if that is one; no colours when `NO_COLOR` is set to anything.
    pub fn of_stdout() -> Paper {
        if !io::stdout().is_terminal() {
            return Paper::PLAIN;
        }
        let columns = crossterm::terminal::size().map_or(PLAIN_COLUMNS, |(columns, _)| columns.into());
        let has_colors = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Paper { columns: columns.clamp(COLUMNS_MIN, COLUMNS_MAX), has_colors }
    }
}

/// A finding, and the runtime that it is about.
#[derive(Clone, Debug, PartialEq)]
struct Told {
    runtime: String,
    /// When its snapshot was taken.
    at_ns: u64,
    finding: Finding,
}

impl Told {
    /// Whether it is the same finding as `other`, whatever the numbers are.
    fn is_like(&self, other: &Told) -> bool {
        self.runtime == other.runtime && self.finding.key() == other.finding.key()
    }
}

/// Looks and tells. Returns whether anything at or above [`Options::fail_on`] was found.
///
/// # Errors
/// [`Error::is_connect`] when the program ends in between; [`Error::is_output_closed`].
pub fn run(client: &mut Client, options: Options, out: &mut impl Write) -> Result<bool, Error> {
    let mut print = |text: &str| out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::output);
    let mut watch = Watch::default();
    let first = look(client, &mut watch)?;
    let stuck = at_once(&first);
    if !options.as_json {
        print(&head(&first, options.wait))?;
        print(&text(&stuck, options.paper))?;
    }
    let second = if options.wait.is_zero() { first.clone() } else { look_after(client, &mut watch, options.wait)? };
    let (all, news) = join(stuck, findings(&second));
    if options.as_json {
        print(&format!("{}\n", json(&first, &second, &all)))?;
    } else {
        print(&text(&news, options.paper))?;
        print(&summary(&first, &second, &all, options.paper))?;
    }
    Ok(worst(&all) >= Some(options.fail_on))
}

/// The worst of what is wrong now; `None` if nothing is. What is past is no reason to fail.
fn worst(all: &[Told]) -> Option<Severity> {
    all.iter().filter(|told| told.finding.seen.is_current).map(|told| told.finding.severity).max()
}

/// A snapshot, judged.
fn look(client: &mut Client, watch: &mut Watch) -> Result<Process, Error> {
    let mut process = clean::process(client.snapshot()?);
    watch.fill_in(&mut process.runtimes);
    Ok(process)
}

/// The snapshot after `wait`. It takes some in between, too, so that the program sees what only several tell: whether a mailbox grows.
fn look_after(client: &mut Client, watch: &mut Watch, wait: Duration) -> Result<Process, Error> {
    let looks = (wait.as_nanos() / u128::from(LOOK_NS)).clamp(1, LOOKS_MAX) as u32;
    for _ in 1..looks {
        std::thread::sleep(wait / looks);
        look(client, watch)?;
    }
    std::thread::sleep(wait / looks);
    look(client, watch)
}

/// What is wrong at this moment. What is past can wait until it is known whether there is more.
fn at_once(first: &Process) -> Vec<Told> {
    let mut stuck = findings(first);
    stuck.retain(|told| told.finding.severity >= Severity::Warning);
    stuck
}

/// What is wrong with each runtime, the worst first.
fn findings(process: &Process) -> Vec<Told> {
    let mut told = Vec::new();
    for now in &process.runtimes {
        let findings = now.findings.iter().flatten().cloned();
        told.extend(findings.map(|finding| Told { runtime: now.runtime.clone(), at_ns: now.at_ns, finding }));
    }
    // Stable: within a severity the order of the runtimes, and of the rules.
    told.sort_by_key(|told| (Reverse(told.finding.seen.is_current), Reverse(told.finding.severity)));
    told
}

/// All findings of both looks, the worst first, and those that the first did not tell, or not as so bad.
fn join(first: Vec<Told>, second: Vec<Told>) -> (Vec<Told>, Vec<Told>) {
    let is_news = |told: &&Told| {
        !first.iter().any(|former| former.is_like(told) && former.finding.severity >= told.finding.severity)
    };
    let news: Vec<_> = second.iter().filter(is_news).cloned().collect();
    let is_gone = |former: &Told| !news.iter().any(|told| told.is_like(former));
    let mut all: Vec<_> = first.iter().filter(|former| is_gone(former)).cloned().chain(news.iter().cloned()).collect();
    all.sort_by_key(|told| (Reverse(told.finding.seen.is_current), Reverse(told.finding.severity)));
    (all, news)
}

// ---- text ----------------------------------------------------------------------------------------------------------

fn head(process: &Process, wait: Duration) -> String {
    let names: Vec<_> = process.runtimes.iter().map(|runtime| runtime.runtime.as_str()).collect();
    let how = if wait.is_zero() {
        "one look".into()
    } else {
        format!("two looks {} apart", duration(wait.as_nanos() as u64))
    };
    format!("{}  pid {}  {how} at {}\n\n", process.program, process.pid, names.join(", "))
}

fn text(all: &[Told], paper: Paper) -> String {
    let mut text = String::new();
    for Told { runtime, at_ns, finding } in all {
        let severity = if finding.seen.is_current { finding.severity.name().to_uppercase() } else { "PAST".into() };
        let (on, off) = if paper.has_colors { (color(finding.severity), "\u{1b}[0m") } else { ("", "") };
        text += &format!("{on}{severity}{off}  {}  in runtime {runtime}\n", finding.rule);
        text += &paragraph("  ", "  ", &finding.title, paper.columns);
        text += &paragraph("    - ", "      ", &finding.history(*at_ns), paper.columns);
        for place in &finding.locations {
            text += &paragraph("    - ", "      ", &place.to_string(), paper.columns);
        }
        for evidence in &finding.evidence {
            text += &paragraph("    - ", "      ", &evidence.text, paper.columns);
        }
        if !finding.workers.is_empty() {
            let workers: Vec<_> = finding.workers.iter().map(u32::to_string).collect();
            text += &paragraph("    - ", "      ", &format!("workers: {}", workers.join(", ")), paper.columns);
        }
        if !finding.tasks.is_empty() {
            let tasks: Vec<_> = finding.tasks.iter().map(task).collect();
            text += &paragraph("    - ", "      ", &format!("tasks: {}", tasks.join(", ")), paper.columns);
        }
        text += &paragraph("  > ", "    ", &finding.advice, paper.columns);
        text.push('\n');
    }
    text
}

fn summary(first: &Process, second: &Process, all: &[Told], paper: Paper) -> String {
    let workers: u32 = second.runtimes.iter().map(Snapshot::on_duty_count).fold(0, u32::saturating_add);
    let over = match second.at_ns.saturating_sub(first.at_ns) {
        0 => "in one snapshot".into(),
        interval_ns => format!("over {}", duration(interval_ns)),
    };
    let current = || all.iter().filter(|told| told.finding.seen.is_current);
    let count = |severity: Severity| current().filter(|told| told.finding.severity == severity).count();
    let found: Vec<_> = Severity::ALL.iter().rev().filter(|severity| count(**severity) > 0).collect();
    let mut found: Vec<_> = found.iter().map(|severity| format!("{} {}", count(**severity), severity.name())).collect();
    let past = all.len() - current().count();
    found.extend((past > 0).then(|| format!("{past} past")));
    let found = if found.is_empty() { "Nothing found".into() } else { format!("Found: {}", found.join(", ")) };
    let looked = format!(
        "{found}. Checked {} rules across {} with {} {over}.",
        RULES.len(),
        several(second.runtimes.len(), "runtime"),
        several(workers as usize, "worker"),
    );
    let mut text = paragraph("", "", &looked, paper.columns);
    let unjudged: Vec<_> = unjudged(second).map(|entry| entry.name).collect();
    if !unjudged.is_empty() {
        let unjudged = format!("Not judged, since this program does not tell what they need: {}.", unjudged.join(", "));
        text += &paragraph("", "", &unjudged, paper.columns);
    }
    text
}

/// Rules that can judge none of the runtimes.
fn unjudged(process: &Process) -> impl Iterator<Item = &'static RuleEntry> {
    RULES.iter().filter(|entry| !process.runtimes.iter().any(|runtime| entry.can_judge(runtime)))
}

fn several(count: usize, thing: &str) -> String {
    if count == 1 { format!("1 {thing}") } else { format!("{count} {thing}s") }
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

/// `text` in lines of at most `columns`, broken between words; a word that is longer, as a path may be, has a line of
/// its own.
pub(crate) fn paragraph(first: &str, rest: &str, text: &str, columns: usize) -> String {
    let mut lines = String::from(first);
    let (mut used, mut is_fresh) = (width(first), true);
    for word in text.split_whitespace() {
        if !is_fresh && used + 1 + width(word) > columns {
            lines.push('\n');
            lines.push_str(rest);
            (used, is_fresh) = (width(rest), true);
        }
        if !is_fresh {
            lines.push(' ');
            used += 1;
        }
        lines.push_str(word);
        (used, is_fresh) = (used + width(word), false);
    }
    lines.push('\n');
    lines
}

// ---- JSON ----------------------------------------------------------------------------------------------------------

fn json(first: &Process, second: &Process, all: &[Told]) -> Value {
    let finding = |told: &Told| {
        let mut finding = json!(told.finding);
        finding["runtime"] = json!(told.runtime);
        finding
    };
    json!({
        "program": second.program,
        "pid": second.pid,
        "at_ns": second.at_ns,
        "interval_ns": second.at_ns.saturating_sub(first.at_ns),
        "runtimes": second.runtimes.iter().map(|runtime| &runtime.runtime).collect::<Vec<_>>(),
        "rules": RULES.iter().map(|entry| entry.name).collect::<Vec<_>>(),
        "not_judged": unjudged(second).map(|entry| entry.name).collect::<Vec<_>>(),
        "worst": worst(all),
        "findings": all.iter().map(finding).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use volt_telemetry::doctor::rule::Rule;
    use volt_telemetry::incident::{Cause, Frame, Incident};

    const WIDE: Paper = Paper { columns: 80, has_colors: false };

    /// A program whose worker 0 has been held for `for_ms` at `at_ms`.
    fn process(at_ms: u64, for_ms: u64) -> Process {
        let guilty = Frame {
            function: Some("shop::pay::wait_for_the_bank".into()),
            file: Some("src/pay.rs".into()),
            line: Some(40),
            is_user_code: true,
            ..Frame::default()
        };
        let incident = Incident {
            id: 1,
            began_at_ns: (at_ms - for_ms) * 1_000_000,
            for_ns: for_ms * 1_000_000,
            task_id: 7,
            task_name: Some("check\u{1b}[2Jout".into()),
            spawned_at: "src/main.rs:12:5".into(),
            cause: Cause::Sleep,
            stack: vec![guilty],
            ..Incident::default()
        };
        let mut runtime = Snapshot { runtime: "app".into(), at_ns: at_ms * 1_000_000, ..Snapshot::default() };
        runtime.incidents.latest.push(incident);
        Process { pid: 7, program: "shop".into(), at_ns: runtime.at_ns, runtimes: vec![runtime], ..Process::default() }
    }

    /// What is found in the last of these snapshots.
    fn told(snapshots: &[&Process]) -> Vec<Told> {
        let mut watch = Watch::default();
        let judge = |process: &&Process| watch.filled(&clean::process((*process).clone())).into_owned();
        findings(snapshots.iter().map(judge).last().as_ref().unwrap())
    }

    #[test]
    fn text_names_the_task_the_line_the_cause_and_what_to_do() {
        let told = text(&told(&[&process(900, 300)]), WIDE);
        let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "CRITICAL stalled-poll in runtime app",
            "task 7 \"check[2Jout\" has held worker 0 for 300 ms: a poll that sleeps in the kernel",
            "at src/pay.rs:40",
            "src/pay.rs:40 in shop::pay::wait_for_the_bank",
            "spawned at src/main.rs:12:5",
            "cause: sleep",
            "what the runtime did about it: nothing",
            "> Await volt::time::sleep",
        ] {
            assert!(told.contains(part), "{part:?} is not in:\n{told}");
        }
    }

    #[test]
    fn control_characters_of_the_program_are_gone_from_text_and_json() {
        let (first, second) = (process(900, 300), process(1_900, 1_300));
        let all = told(&[&first, &second]);
        let both = text(&all, WIDE) + &json(&first, &second, &all).to_string();
        assert!(both.contains("check[2Jout"), "{both}");
        assert!(!both.contains('\u{1b}') && !both.contains("\\u001b"), "{both}");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_unless_a_word_is() {
        for columns in [40, 80, 120] {
            let told = told(&[&process(900, 300)]);
            let told = text(&told, Paper { columns, has_colors: false });
            for line in told.lines() {
                assert!(width(line) <= columns || line.split_whitespace().count() <= 2, "{columns}: {line}");
            }
        }
        assert_eq!(paragraph("- ", "  ", "one two three", 7), "- one\n  two\n  three\n");
        assert_eq!(paragraph("", "", "one muchlonger two", 5), "one\nmuchlonger\ntwo\n");
    }

    #[test]
    fn colours_are_there_only_where_they_are_wanted_and_the_word_is_always() {
        let told = told(&[&process(900, 300)]);
        let colored = text(&told, Paper { columns: 80, has_colors: true });
        assert!(colored.starts_with("\u{1b}[1;31mCRITICAL\u{1b}[0m"), "{colored}");
        assert!(!text(&told, WIDE).contains('\u{1b}'));
    }

    #[test]
    fn what_the_first_look_told_is_not_told_again_unless_it_has_become_worse() {
        let stuck = |for_ms| told(&[&process(900, for_ms)]);
        let (all, news) = join(stuck(300), stuck(300));
        assert_eq!((all.len(), news.len()), (1, 0));
        let (all, news) = join(stuck(30), stuck(300));
        assert_eq!((all.len(), news.len()), (1, 1));
        assert_eq!(all[0].finding.severity, Severity::Critical);
        let (all, news) = join(stuck(300), Vec::new());
        assert_eq!((all.len(), news.len()), (1, 0), "a stall that is over was one");
    }

    #[test]
    fn what_is_past_says_since_when_and_is_no_reason_to_fail() {
        let mut first = process(900, 300);
        first.runtimes[0].incidents.latest[0].is_over = true;
        let mut later = first.clone();
        later.runtimes[0].at_ns += 125_000_000_000;
        let past = told(&[&first, &later]);
        assert_eq!((past.len(), past[0].finding.severity), (1, Severity::Info));
        assert_eq!((at_once(&later), worst(&past)), (Vec::new(), None));
        let text = text(&past, WIDE);
        assert!(text.starts_with("PAST  stalled-poll"), "{text}");
        assert!(text.contains("past, at worst warning; first seen 2 min ago, last 2 min ago, by 1 check"), "{text}");
        let summary = summary(&first, &later, &past, WIDE);
        assert!(summary.starts_with("Found: 1 past. Checked"), "{summary}");
    }

    #[test]
    fn the_verdict_of_the_program_is_the_one_that_is_printed() {
        let mut process = process(900, 300);
        process.runtimes[0].findings = Some(Vec::new());
        assert_eq!(told(&[&process]), []);
    }

    #[test]
    fn nothing_found_says_what_was_looked_at() {
        let at = |at_ns| Process {
            runtimes: vec![Snapshot { runtime: "app".into(), at_ns, ..Snapshot::default() }],
            at_ns,
            ..Process::default()
        };
        let (first, second) = (at(1_000_000_000), at(2_000_000_000));
        let told = summary(&first, &second, &told(&[&first, &second]), WIDE);
        let begin =
            format!("Nothing found. Checked {} rules across 1 runtime with 0 workers over 1.0s.\n", Rule::COUNT);
        assert!(told.starts_with(&begin), "{told}");
        assert!(told.contains("Not judged") && told.contains("cpu-starved"), "{told}");
        assert!(summary(&first, &first, &[], WIDE).contains("in one snapshot"), "without an interval");
    }

    #[test]
    fn json_is_one_object_with_the_findings_and_what_was_not_judged() {
        let (first, second) = (process(900, 300), process(1_900, 1_300));
        let json = json(&first, &second, &told(&[&first, &second]));
        assert_eq!((&json["program"], &json["interval_ns"]), (&json!("shop"), &json!(1_000_000_000)));
        assert_eq!(json["worst"], "critical");
        assert_eq!(
            (&json["findings"][0]["rule"], &json["findings"][0]["runtime"]),
            (&json!("stalled-poll"), &json!("app"))
        );
        assert_eq!(json["rules"].as_array().unwrap().len(), Rule::COUNT);
        assert!(json["not_judged"].as_array().unwrap().contains(&json!("cpu-starved")));
    }
}
