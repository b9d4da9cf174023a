//! The doctor for those who come by now and then: an exporter at each scrape, a thread that looks once a second.
//!
//! Shape: of each runtime that lives, the last look that was kept and the one before it.
//!
//! Invariants. *Bounded*: two snapshots a runtime, and none of a runtime that is gone. *Far enough apart*: what is
//! compared with is `APART_NS` old at least, however often somebody looks, so that two scrapers do not blind each
//! other.

use super::finding::Finding;
use super::rule::examine;
use crate::snapshot::Snapshot;

/// How old the look before has to be: rates over less time are rough.
const APART_NS: u64 = 1_000_000_000;

/// Remembers what it saw, and tells what is wrong since.
///
/// ```
/// use volt_telemetry::doctor::Watch;
/// use volt_telemetry::Snapshot;
///
/// let runtimes = [Snapshot { runtime: "main".into(), ..Snapshot::default() }];
/// let mut watch = Watch::default();
/// assert_eq!(watch.look(&runtimes), [Vec::new()]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Watch {
    kept: Vec<Kept>,
}

/// Looks at one runtime.
#[derive(Clone, Debug)]
struct Kept {
    last: Snapshot,
    before: Option<Snapshot>,
}

impl Watch {
    /// What is wrong with each of a program's `runtimes`, in their order, from the look before to this one; at the
    /// first look only what is stuck at the moment.
    pub fn look(&mut self, runtimes: &[Snapshot]) -> Vec<Vec<Finding>> {
        let mut former = std::mem::take(&mut self.kept);
        let mut found = Vec::new();
        for now in runtimes {
            let place = former.iter().position(|kept| is_same(&kept.last, now));
            let kept = place.map(|place| former.swap_remove(place));
            let (findings, kept) = look(kept, now);
            found.push(findings);
            self.kept.push(kept);
        }
        found
    }
}

fn look(kept: Option<Kept>, now: &Snapshot) -> (Vec<Finding>, Kept) {
    match kept {
        None => (examine(now, now), Kept { last: now.clone(), before: None }),
        Some(kept) if now.at_ns.saturating_sub(kept.last.at_ns) >= APART_NS => {
            (examine(&kept.last, now), Kept { last: now.clone(), before: Some(kept.last) })
        }
        Some(kept) => (examine(kept.before.as_ref().unwrap_or(now), now), kept),
    }
}

fn is_same(then: &Snapshot, now: &Snapshot) -> bool {
    then.runtime == now.runtime && then.started_at_ns == now.started_at_ns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Rule;
    use crate::snapshot::Sentinel;

    const SECOND: u64 = 1_000_000_000;

    /// A runtime that was paused `pauses` times so far.
    fn paused(at_ns: u64, pauses: u64) -> [Snapshot; 1] {
        [Snapshot {
            runtime: "main".into(),
            at_ns,
            sentinel: Sentinel { pauses, ..Sentinel::default() },
            ..Snapshot::default()
        }]
    }

    fn rules(findings: &[Vec<Finding>]) -> Vec<Rule> {
        findings.iter().flatten().map(|finding| finding.rule).collect()
    }

    #[test]
    fn each_look_is_compared_with_the_one_before() {
        let mut watch = Watch::default();
        assert_eq!(rules(&watch.look(&paused(SECOND, 3))), [], "before the first look nobody knows");
        assert_eq!(rules(&watch.look(&paused(16 * SECOND, 4))), [Rule::ProcessPaused]);
        assert_eq!(rules(&watch.look(&paused(31 * SECOND, 4))), []);
    }

    #[test]
    fn looks_in_quick_succession_see_the_same() {
        let mut watch = Watch::default();
        watch.look(&paused(SECOND, 3));
        watch.look(&paused(16 * SECOND, 4));
        for late_ns in [1, 1_000_000, SECOND - 1] {
            assert_eq!(rules(&watch.look(&paused(16 * SECOND + late_ns, 4))), [Rule::ProcessPaused]);
        }
        assert_eq!(rules(&watch.look(&paused(17 * SECOND, 4))), []);
    }

    #[test]
    fn two_snapshots_are_kept_of_a_runtime_and_none_of_one_that_is_gone() {
        let mut watch = Watch::default();
        for second in 1..100 {
            watch.look(&paused(second * SECOND, second));
            assert_eq!(watch.kept.len(), 1);
        }
        let mut anew = paused(100 * SECOND, 0);
        anew[0].started_at_ns = 99 * SECOND;
        assert_eq!(rules(&watch.look(&anew)), [], "another runtime of that name");
        assert_eq!(watch.kept.len(), 1);
        watch.look(&[]);
        assert_eq!(watch.kept.len(), 0);
    }
}
