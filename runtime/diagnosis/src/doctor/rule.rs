//! The table of all rules, and the examination that applies them.
//!
//! # Shape
//!
//! [`RULES`] has a row for each [`Rule`], in the order of the enum. A row contains the meaning of
//! the rule, the conditions under which it fires, as text, and the function that judges. The
//! thresholds are constants next to those functions, each with its reason. The texts are generated
//! from them, so that the documentation and the code cannot differ. Only the thresholds of the
//! engine are written out: 10 ms for an incident, 50 ms for a pause.
//!
//! # Invariants
//!
//! * *Healthy is silent*: no finding above [`Severity::Info`] for an idle runtime, for a busy one
//!   that serves all tasks, or for one that has more work than processors but is fair.
//! * *Missing data is no evidence*: a rule whose input the program does not report finds nothing.
//! * *One cause, one finding*: if one rule explains the symptom of another, the other does not
//!   fire. An example is timers that are late while the kernel runs other programs.
//!
//! # Rejected alternative
//!
//! Thresholds that users configure: users who can choose good thresholds do not need the doctor,
//! and findings that depend on settings cannot be compared between two machines.

use volt_telemetry::finding::{Finding, Severity};
use volt_telemetry::listing::order;
use volt_telemetry::rule::Rule;
use volt_telemetry::snapshot::Snapshot;

use super::case::{Case, Span};
use super::growth::Growth;
use super::{machine, processes, queues, stalls, tasks, waits, wakes};

/// A row of [`RULES`].
#[derive(Clone, Copy, Debug)]
pub struct RuleEntry {
    /// The rule.
    pub rule: Rule,
    /// Its name in text, JSON and metrics.
    pub name: &'static str,
    /// The problem that it detects.
    pub meaning: &'static str,
    threshold: fn() -> String,
    /// Whether the program reports the input of the rule.
    is_reported: fn(&Snapshot) -> bool,
    judge: Judge,
}

/// The input from which a rule judges.
#[derive(Clone, Copy, Debug)]
enum Judge {
    /// The current snapshot, and the span between two snapshots if there is one.
    Case(fn(&Case<'_>) -> Vec<Finding>),
    /// The span between two snapshots.
    Span(fn(&Span<'_>) -> Vec<Finding>),
    /// Growth over minutes, for readers that have collected snapshots for that long.
    Growth(fn(&Growth) -> Vec<Finding>),
}

/// Every rule.
pub static RULES: [RuleEntry; Rule::COUNT] = [
    RuleEntry {
        rule: Rule::StalledPoll,
        name: Rule::StalledPoll.name(),
        meaning: "Polls block their worker at one place in the code.",
        threshold: stalls::stalled_poll_threshold,
        is_reported: always,
        judge: Judge::Case(stalls::stalled_poll),
    },
    RuleEntry {
        rule: Rule::NoYield,
        name: Rule::NoYield.name(),
        meaning: "Tasks of one spawn location compute for too long between two awaits and delay other tasks.",
        threshold: stalls::no_yield_threshold,
        is_reported: stalls::is_blame_reported,
        judge: Judge::Span(stalls::no_yield),
    },
    RuleEntry {
        rule: Rule::DriverHeld,
        name: Rule::DriverHeld.name(),
        meaning: "No worker polls the driver (timers and sockets), because every worker is in a poll.",
        threshold: stalls::driver_held_threshold,
        is_reported: always,
        judge: Judge::Span(stalls::driver_held),
    },
    RuleEntry {
        rule: Rule::LostWakeup,
        name: Rule::LostWakeup.name(),
        meaning: "Every worker is parked although tasks wait: a bug in Volt.",
        threshold: queues::lost_wakeup_threshold,
        is_reported: always,
        judge: Judge::Case(queues::lost_wakeup),
    },
    RuleEntry {
        rule: Rule::ParkedWhileBacklog,
        name: Rule::ParkedWhileBacklog.name(),
        meaning: "A worker is parked while tasks wait for another worker.",
        threshold: queues::parked_while_backlog_threshold,
        is_reported: always,
        judge: Judge::Span(queues::parked_while_backlog),
    },
    RuleEntry {
        rule: Rule::GlobalStarved,
        name: Rule::GlobalStarved.name(),
        meaning: "Tasks wait in the global queue while the workers run their own tasks.",
        threshold: queues::global_starved_threshold,
        is_reported: always,
        judge: Judge::Span(queues::global_starved),
    },
    RuleEntry {
        rule: Rule::LifoHeld,
        name: Rule::LifoHeld.name(),
        meaning: "A task waits in the LIFO slot of a stuck worker while another worker is parked.",
        threshold: queues::lifo_held_threshold,
        is_reported: always,
        judge: Judge::Case(queues::lifo_held),
    },
    RuleEntry {
        rule: Rule::LifoMonopoly,
        name: Rule::LifoMonopoly.name(),
        meaning: "Tasks that wake each other through the LIFO slot delay the other tasks of their worker.",
        threshold: queues::lifo_monopoly_threshold,
        is_reported: always,
        judge: Judge::Span(queues::lifo_monopoly),
    },
    RuleEntry {
        rule: Rule::Imbalance,
        name: Rule::Imbalance.name(),
        meaning: "One worker has a backlog while another is idle.",
        threshold: queues::imbalance_threshold,
        is_reported: always,
        judge: Judge::Span(queues::imbalance),
    },
    RuleEntry {
        rule: Rule::StealContention,
        name: Rule::StealContention.name(),
        meaning: "Stealing workers compete for the same tasks.",
        threshold: wakes::steal_contention_threshold,
        is_reported: always,
        judge: Judge::Span(wakes::steal_contention),
    },
    RuleEntry {
        rule: Rule::WakeStorm,
        name: Rule::WakeStorm.name(),
        meaning: "Waking workers costs more than the tasks that they then run.",
        threshold: wakes::wake_storm_threshold,
        is_reported: always,
        judge: Judge::Span(wakes::wake_storm),
    },
    RuleEntry {
        rule: Rule::SelfWakeLoop,
        name: Rule::SelfWakeLoop.name(),
        meaning: "A task wakes itself in every poll and does almost no work: it waits by polling.",
        threshold: wakes::self_wake_loop_threshold,
        is_reported: wakes::are_self_wakes_reported,
        judge: Judge::Span(wakes::self_wake_loop),
    },
    RuleEntry {
        rule: Rule::CgroupThrottled,
        name: Rule::CgroupThrottled.name(),
        meaning: "The control group has used up its CPU quota, and the kernel pauses the program.",
        threshold: machine::cgroup_throttled_threshold,
        is_reported: always,
        judge: Judge::Span(machine::cgroup_throttled),
    },
    RuleEntry {
        rule: Rule::CpuStarved,
        name: Rule::CpuStarved.name(),
        meaning: "Workers are runnable, but the kernel runs other threads.",
        threshold: machine::cpu_starved_threshold,
        is_reported: machine::is_run_delay_reported,
        judge: Judge::Span(machine::cpu_starved),
    },
    RuleEntry {
        rule: Rule::Oversubscribed,
        name: Rule::Oversubscribed.name(),
        meaning: "There are more busy workers than processors, and they wait for each other.",
        threshold: machine::oversubscribed_threshold,
        is_reported: machine::are_processors_reported,
        judge: Judge::Span(machine::oversubscribed),
    },
    RuleEntry {
        rule: Rule::ProgramPaused,
        name: Rule::ProgramPaused.name(),
        meaning: "The whole program was paused for a while, by the machine and not by its tasks.",
        threshold: machine::program_paused_threshold,
        is_reported: always,
        judge: Judge::Span(machine::program_paused),
    },
    RuleEntry {
        rule: Rule::BlockingPoolSaturated,
        name: Rule::BlockingPoolSaturated.name(),
        meaning: "All blocking threads are in use, and jobs wait for one.",
        threshold: tasks::blocking_pool_saturated_threshold,
        is_reported: always,
        judge: Judge::Span(tasks::blocking_pool_saturated),
    },
    RuleEntry {
        rule: Rule::TaskLeak,
        name: Rule::TaskLeak.name(),
        meaning: "The number of live tasks of one spawn location keeps growing.",
        threshold: tasks::task_leak_threshold,
        is_reported: tasks::are_alive_reported,
        judge: Judge::Growth(tasks::task_leak),
    },
    RuleEntry {
        rule: Rule::LostWaker,
        name: Rule::LostWaker.name(),
        meaning: "A task waits, but has no waker left: it can only be cancelled.",
        threshold: tasks::lost_waker_threshold,
        is_reported: tasks::are_stranded_reported,
        judge: Judge::Span(tasks::lost_waker),
    },
    RuleEntry {
        rule: Rule::Deadlock,
        name: Rule::Deadlock.name(),
        meaning: "Tasks wait for each other in a cycle: for locks, for room in channels, or for each other to end.",
        threshold: waits::deadlock_threshold,
        is_reported: waits::are_deadlocks_reported,
        judge: Judge::Case(waits::deadlock),
    },
    RuleEntry {
        rule: Rule::LockHeld,
        name: Rule::LockHeld.name(),
        meaning: "A task holds a lock for long, and other tasks wait for it.",
        threshold: waits::lock_held_threshold,
        is_reported: waits::are_held_locks_reported,
        judge: Judge::Case(waits::lock_held),
    },
    RuleEntry {
        rule: Rule::WaitingForever,
        name: Rule::WaitingForever.name(),
        meaning: "A task waits far longer at a line than tasks usually do there.",
        threshold: waits::waiting_forever_threshold,
        is_reported: waits::are_long_waits_reported,
        judge: Judge::Case(waits::waiting_forever),
    },
    RuleEntry {
        rule: Rule::MailboxGrowing,
        name: Rule::MailboxGrowing.name(),
        meaning: "A process handles its messages more slowly than they arrive.",
        threshold: processes::mailbox_growing_threshold,
        is_reported: always,
        judge: Judge::Case(processes::mailbox_growing),
    },
    RuleEntry {
        rule: Rule::RestartStorm,
        name: Rule::RestartStorm.name(),
        meaning: "Processes exit abnormally and are restarted again and again.",
        threshold: processes::restart_storm_threshold,
        is_reported: always,
        judge: Judge::Span(processes::restart_storm),
    },
];

const _: () = {
    let mut row = 0;
    while row < RULES.len() {
        assert!(RULES[row].rule as usize == row, "the table has the order of the enum");
        row += 1;
    }
};

impl RuleEntry {
    /// Returns the row of a rule.
    ///
    /// ```
    /// use volt_diagnosis::doctor::RuleEntry;
    /// use volt_telemetry::rule::Rule;
    ///
    /// assert_eq!(RuleEntry::of(Rule::StalledPoll).name, "stalled-poll");
    /// ```
    pub fn of(rule: Rule) -> &'static RuleEntry {
        &RULES[rule as usize]
    }

    /// Returns whether the rule can judge a program that sends this snapshot: some rules need
    /// numbers that not every version of Volt, and not every kernel, reports.
    pub fn can_judge(&self, snapshot: &Snapshot) -> bool {
        (self.is_reported)(snapshot)
    }

    /// Returns whether one check that finds the problem suffices as its proof: the rule does not
    /// depend on two snapshots a second apart, which one unusual second may distort.
    pub fn can_judge_one_snapshot(&self) -> bool {
        !matches!(self.judge, Judge::Span(_))
    }

    /// Returns the conditions under which the rule fires, as text.
    pub fn threshold(&self) -> String {
        (self.threshold)()
    }
}

fn always(_: &Snapshot) -> bool {
    true
}

/// Applies every rule to a runtime, from one snapshot of it to a later one. Returns the findings,
/// the worst first.
///
/// Some rules need only one snapshot: those for problems that exist at this moment. With the same
/// snapshot twice, with two of different runtimes, or with two less than 100 ms apart, only these
/// rules can fire. Problems that take minutes to detect, and whether a problem persists, require a
/// [`History`](super::History).
///
/// ```
/// use volt_diagnosis::doctor::examine;
/// use volt_telemetry::rule::Rule;
/// use volt_telemetry::{Cause, Incident, Snapshot};
///
/// let mut now = Snapshot { runtime: "app".into(), ..Snapshot::default() };
/// assert!(examine(&now, &now).is_empty());
///
/// let stuck = Incident { task_id: 7, for_ns: 300_000_000, cause: Cause::Sleep, ..Incident::default() };
/// now.incidents.latest.push(stuck);
/// assert_eq!(examine(&now, &now)[0].rule, Rule::StalledPoll);
/// ```
pub fn examine(before: &Snapshot, after: &Snapshot) -> Vec<Finding> {
    examine_with(before, after, None)
}

/// Like [`examine`], with the growth over minutes.
pub(super) fn examine_with(before: &Snapshot, after: &Snapshot, growth: Option<&Growth>) -> Vec<Finding> {
    let case = Case::of(before, after);
    let mut findings: Vec<Finding> = RULES
        .iter()
        .flat_map(|entry| match (entry.judge, &case.span) {
            (Judge::Case(judge), _) => judge(&case),
            (Judge::Span(judge), Some(span)) => judge(span),
            (Judge::Span(_), None) => Vec::new(),
            (Judge::Growth(judge), _) => growth.map(judge).unwrap_or_default(),
        })
        .collect();
    for finding in &mut findings {
        if finding.seen.last_at_ns == 0 {
            (finding.seen.first_at_ns, finding.seen.last_at_ns) = (after.at_ns, after.at_ns);
        }
    }
    order::sort_by_key(&mut findings, |finding| (std::cmp::Reverse(finding.severity), finding.rule));
    findings
}

/// Returns how many of `findings` are of `rule` and have this severity. The metric shows these
/// counts, for [`Severity::Warning`] and worse.
pub fn count_of(findings: &[Finding], rule: Rule, severity: Severity) -> u64 {
    findings.iter().filter(|finding| finding.rule == rule && finding.severity == severity).count() as u64
}

/// Returns the rules as Markdown, for documentation: a table, and a list of their conditions.
pub fn markdown_table() -> String {
    let mut text = String::from("| Rule | Problem |\n|---|---|\n");
    for entry in &RULES {
        text += &format!("| `{}` | {} |\n", entry.name, entry.meaning);
    }
    text += "\nThe rules fire under these conditions. Unless stated otherwise, the finding is a warning.\n\n";
    for entry in &RULES {
        text += &format!("* `{}`: {}\n", entry.name, entry.threshold());
    }
    text
}
