//! Computes findings for programs that do not send findings, because they use an older version of
//! Volt. An exporter, a console or a live page does this.
//!
//! # Shape
//!
//! Each live runtime has a [`History`], which checks the snapshots that the reader receives.
//!
//! # Invariants
//!
//! * *The program's findings take precedence*: findings that a program sent with a snapshot are not
//!   changed, so that all readers show the same.
//! * *Bounded*: one history per runtime, and none for a runtime that was shut down or sends
//!   findings.

use std::borrow::Cow;

use volt_telemetry::snapshot::{Program, Snapshot};

use super::case::INTERVAL_MIN_NS;
use super::history::{CHECKS_APART_NS, History};

/// Adds findings to snapshots of programs that do not send them.
///
/// ```
/// use volt_diagnosis::doctor::Watch;
/// use volt_telemetry::Snapshot;
///
/// let mut runtimes = [Snapshot { runtime: "main".into(), ..Snapshot::default() }];
/// Watch::default().fill_in(&mut runtimes);
/// assert_eq!(runtimes[0].findings, Some(Vec::new()));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// The initial state of each history.
    fresh: History,
    histories: Vec<(String, History)>,
}

impl Watch {
    /// Creates a watch for a reader whose snapshots span `time_ns` in all. Its histories check
    /// often enough to confirm a finding within that time, which takes three checks.
    ///
    /// ```
    /// use volt_diagnosis::doctor::Watch;
    /// use volt_telemetry::Snapshot;
    ///
    /// let mut watch = Watch::within(1_000_000_000);
    /// for at_ns in [0, 500_000_000, 1_000_000_000] {
    ///     watch.fill_in(&mut [Snapshot { at_ns, ..Snapshot::default() }]);
    /// }
    /// ```
    pub fn within(time_ns: u64) -> Self {
        // Less than half, since no snapshot is taken exactly on time.
        let apart_ns = (time_ns / 5 * 2).clamp(INTERVAL_MIN_NS, CHECKS_APART_NS);
        Self { fresh: History::with_checks_apart(apart_ns), histories: Vec::new() }
    }

    /// Ensures that each of a program's `runtimes` has findings.
    pub fn fill_in(&mut self, runtimes: &mut [Snapshot]) {
        self.histories.retain(|(name, _)| runtimes.iter().any(|now| now.runtime == *name && now.findings.is_none()));
        for now in runtimes.iter_mut().filter(|now| now.findings.is_none()) {
            let index = self.histories.iter().position(|(name, _)| *name == now.runtime);
            let index = index.unwrap_or_else(|| {
                self.histories.push((now.runtime.clone(), self.fresh.clone()));
                self.histories.len() - 1
            });
            self.histories[index].1.judge(now);
        }
    }

    /// Returns `program` with findings for each of its runtimes.
    pub fn filled<'p>(&mut self, program: &'p Program) -> Cow<'p, Program> {
        if program.runtimes.iter().all(|runtime| runtime.findings.is_some()) {
            self.histories.clear();
            return Cow::Borrowed(program);
        }
        let mut program = program.clone();
        self.fill_in(&mut program.runtimes);
        Cow::Owned(program)
    }
}

#[cfg(test)]
mod tests {
    use crate::doctor::describe::Describe;
    use volt_telemetry::finding::{Finding, Severity};
    use volt_telemetry::rule::Rule;
    use volt_telemetry::snapshot::{Driver, Sentinel, Worker};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A runtime that was paused `pauses` times so far.
    fn paused(second: u64, pauses: u64) -> [Snapshot; 1] {
        [Snapshot {
            runtime: "main".into(),
            at_ns: second * SECOND,
            sentinel: Sentinel { pauses, ..Sentinel::default() },
            ..Snapshot::default()
        }]
    }

    fn current(watch: &mut Watch, mut runtimes: [Snapshot; 1]) -> Vec<Rule> {
        watch.fill_in(&mut runtimes);
        let findings = runtimes[0].findings.iter().flatten();
        findings.filter(|finding| finding.seen.is_current).map(|finding| finding.rule).collect()
    }

    #[test]
    fn an_older_program_is_judged_from_snapshot_to_snapshot() {
        let mut watch = Watch::default();
        assert_eq!(current(&mut watch, paused(20, 3)), [], "before the first nobody knows");
        assert_eq!(current(&mut watch, paused(35, 4)), [Rule::ProgramPaused]);
        assert_eq!(current(&mut watch, paused(36, 4)), [Rule::ProgramPaused], "it stays for a while");
        assert_eq!(current(&mut watch, paused(80, 4)), []);
    }

    #[test]
    fn within_a_second_an_older_program_is_judged_by_its_rates() {
        let found = |mut watch: Watch, at_ms: &[u64]| {
            let now = |at_ms: u64| {
                // No worker polls the driver, at any time.
                let driver = Driver { registrations: 1, idle_ns: SECOND / 10, ..Driver::default() };
                let at_ns = 20 * SECOND + at_ms * 1_000_000;
                [Snapshot { at_ns, driver, workers: vec![Worker::default()], ..Snapshot::default() }]
            };
            at_ms.iter().map(|at_ms| current(&mut watch, now(*at_ms))).last().unwrap()
        };
        let late = [0, 201, 402, 603, 804, 1_005];
        assert_eq!(found(Watch::within(SECOND), &late), [Rule::DriverHeld]);
        assert_eq!(found(Watch::within(SECOND / 5), &[0, 101, 202]), [Rule::DriverHeld]);
        assert_eq!(found(Watch::within(SECOND / 5), &[0, 99, 198]), [], "that is one check after the first");
    }

    #[test]
    fn the_programs_own_findings_stay() {
        let mut runtimes = paused(20, 3);
        let own = vec![Finding::new(Rule::TaskLeak, Severity::Warning, "own")];
        runtimes[0].findings = Some(own.clone());
        let mut watch = Watch::default();
        watch.fill_in(&mut runtimes);
        assert_eq!(runtimes[0].findings, Some(own));
        assert!(watch.histories.is_empty());
    }

    #[test]
    fn nothing_is_kept_of_an_ended_runtime() {
        let mut watch = Watch::default();
        for second in 1..100 {
            watch.fill_in(&mut paused(second, second));
            assert_eq!(watch.histories.len(), 1);
        }
        watch.fill_in(&mut []);
        assert!(watch.histories.is_empty());
    }
}
