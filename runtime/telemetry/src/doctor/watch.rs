//! Findings of programs that do not judge themselves, since they are older than that: for an exporter, a console, a live page.
//!
//! Shape: of each runtime that lives, a [`History`] that is fed with what the reader gets.
//!
//! Invariants. *The program's word counts*: findings that came with a snapshot stay as they are, so that every reader shows the same. *Bounded*: one history a
//! runtime, and none of a runtime that is gone or judges itself.

use std::borrow::Cow;

use super::history::History;
use crate::snapshot::{Process, Snapshot};

/// Fills in findings where a program does not send them.
///
/// ```
/// use volt_telemetry::doctor::Watch;
/// use volt_telemetry::Snapshot;
///
/// let mut runtimes = [Snapshot { runtime: "main".into(), ..Snapshot::default() }];
/// Watch::default().fill_in(&mut runtimes);
/// assert_eq!(runtimes[0].findings, Some(Vec::new()));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Watch {
    histories: Vec<(String, History)>,
}

impl Watch {
    /// Sees to it that each of a program's `runtimes` has findings.
    pub fn fill_in(&mut self, runtimes: &mut [Snapshot]) {
        self.histories.retain(|(name, _)| runtimes.iter().any(|now| now.runtime == *name && now.findings.is_none()));
        for now in runtimes.iter_mut().filter(|now| now.findings.is_none()) {
            let index = self.histories.iter().position(|(name, _)| *name == now.runtime);
            let index = index.unwrap_or_else(|| {
                self.histories.push((now.runtime.clone(), History::default()));
                self.histories.len() - 1
            });
            let history = &mut self.histories[index].1;
            history.check(now);
            now.findings = Some(history.findings(now.at_ns));
        }
    }

    /// `process` with findings for each of its runtimes.
    pub fn filled<'p>(&mut self, process: &'p Process) -> Cow<'p, Process> {
        if process.runtimes.iter().all(|runtime| runtime.findings.is_some()) {
            self.histories.clear();
            return Cow::Borrowed(process);
        }
        let mut process = process.clone();
        self.fill_in(&mut process.runtimes);
        Cow::Owned(process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{Finding, Rule, Severity};
    use crate::snapshot::Sentinel;

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
        assert_eq!(current(&mut watch, paused(35, 4)), [Rule::ProcessPaused]);
        assert_eq!(current(&mut watch, paused(36, 4)), [Rule::ProcessPaused], "it stays for a while");
        assert_eq!(current(&mut watch, paused(80, 4)), []);
    }

    #[test]
    fn what_a_program_says_itself_stays() {
        let mut runtimes = paused(20, 3);
        let own = vec![Finding::new(Rule::TaskLeak, Severity::Warning, "own")];
        runtimes[0].findings = Some(own.clone());
        let mut watch = Watch::default();
        watch.fill_in(&mut runtimes);
        assert_eq!(runtimes[0].findings, Some(own));
        assert!(watch.histories.is_empty());
    }

    #[test]
    fn nothing_is_kept_of_a_runtime_that_is_gone() {
        let mut watch = Watch::default();
        for second in 1..100 {
            watch.fill_in(&mut paused(second, second));
            assert_eq!(watch.histories.len(), 1);
        }
        watch.fill_in(&mut []);
        assert!(watch.histories.is_empty());
    }
}
