//! What else looks like a rule's case: below one of its thresholds, with all else as it should not be.

use super::others::{polling, spawning};
use super::queues::{lifo_only, uneven};
use super::{after, both};
use crate::doctor::rule::Rule;
use crate::doctor::tests::programs::{Pair, SECOND};

/// The rule that stays silent, what the case is, and the case.
type LookAlike = (Rule, &'static str, fn() -> Pair);

pub(in super::super) const LOOK_ALIKES: &[LookAlike] = &[
    (Rule::ParkedWhileBacklog, "one sleeps, the other has a few tasks and half of its time", || {
        let (mut before, mut after) = uneven(3, 10_000_000);
        (before.workers[0].busy_ns, after.workers[0].busy_ns) = (SECOND / 2, SECOND);
        (before, after)
    }),
    (Rule::LifoMonopoly, "half of the polls from the slot", || {
        both(lifo_only(20), |snapshot| snapshot.workers[..2].iter_mut().for_each(|worker| worker.lifo_hits /= 2))
    }),
    (Rule::LifoMonopoly, "all polls from the slot, and few of them", || {
        both(lifo_only(20), |snapshot| {
            for worker in &mut snapshot.workers[..2] {
                (worker.polls, worker.lifo_hits) = (worker.polls / 100, worker.lifo_hits / 100);
            }
        })
    }),
    (Rule::SelfWakeLoop, "a task that asks now and then", || {
        after(polling(4_900, 200), |now| now.blame[1].polls -= 900_000 - 5_000 + 20_000)
    }),
    (Rule::TaskLeak, "some hundred tasks more in a second, some hundred in all", || {
        both(spawning(800), |snapshot| snapshot.tasks.alive = snapshot.tasks.alive.saturating_sub(5_000))
    }),
    (Rule::TaskLeak, "50 tasks more in a second", || after(spawning(50), |now| now.tasks.spawned = 9_050)),
    (Rule::TaskLeak, "4,000 tasks more in half a second", || after(spawning(4_000), |now| now.at_ns -= SECOND / 2)),
];
