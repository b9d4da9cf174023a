//! Tests of the rules about tasks that wait although a worker could run them, with similar programs
//! on which they do not fire.

use volt_telemetry::finding::Severity;
use volt_telemetry::rule::Rule;
use volt_telemetry::snapshot::{Duty, GlobalQueue};

use super::case::{Case, after, both};
use crate::doctor::tests::programs::{MS, Pair, SECOND, busy, idle, saturated};

pub(super) const CASES: &[Case] = &[
    Case {
        rule: Rule::LostWakeup,
        severity: Severity::Critical,
        what: "all asleep, a task in a ring",
        sick: || all_asleep(1),
        beside: &[],
        but: "all asleep, nothing to do",
        healthy: || all_asleep(0),
    },
    Case {
        rule: Rule::LostWakeup,
        severity: Severity::Critical,
        what: "a time-out that found work",
        sick: || after(busy(), |now| now.workers[1].lost_wakeup_rescues += 1),
        beside: &[],
        but: "all asleep, and a task came a moment ago",
        healthy: || {
            both(idle(), |snapshot| {
                snapshot.global_queue = GlobalQueue { len: 1, oldest_age_ns: Some(MS), ..GlobalQueue::default() }
            })
        },
    },
    Case {
        rule: Rule::LostWakeup,
        severity: Severity::Info,
        what: "a time-out that found work, long ago",
        sick: || both(busy(), |snapshot| snapshot.workers[1].lost_wakeup_rescues = 2),
        beside: &[],
        but: "all asleep over a task at one of the snapshots only",
        healthy: || after(idle(), |now| now.workers[1].ring_len = 1),
    },
    Case {
        rule: Rule::ParkedWhileBacklog,
        severity: Severity::Warning,
        what: "one sleeps, the other has 40 tasks that wait",
        sick: || uneven(40, 10 * MS),
        beside: &[],
        but: "one sleeps, the other runs a single task all the time",
        healthy: || uneven(0, 10 * MS),
    },
    Case {
        rule: Rule::ParkedWhileBacklog,
        severity: Severity::Warning,
        what: "one sleeps while the global queue waits",
        sick: || old_global_queue(busy(), 30),
        beside: &[],
        but: "the global queue waits, and no worker sleeps",
        healthy: saturated,
    },
    Case {
        rule: Rule::GlobalStarved,
        severity: Severity::Warning,
        what: "200 ms in the global queue, beside local work",
        sick: || beside_local_work(200),
        beside: &[],
        but: "200 ms in the global queue, since there is more in it than can be done",
        healthy: || old_global_queue(saturated(), 200),
    },
    Case {
        rule: Rule::GlobalStarved,
        severity: Severity::Critical,
        what: "more than a second in the global queue, beside local work",
        sick: || beside_local_work(1_500),
        beside: &[],
        but: "200 ms in the global queue, with a target of 20 ms",
        healthy: || both(beside_local_work(200), |snapshot| snapshot.config.target_global_queue_latency_ns = 20 * MS),
    },
    Case {
        rule: Rule::LifoHeld,
        severity: Severity::Warning,
        what: "a full slot, a poll of 140 ms, another asleep",
        sick: || after(busy(), |now| now.workers[0].in_flight.as_mut().unwrap().for_ns = 140 * MS),
        beside: &[Rule::StalledPoll],
        but: "a full slot and a poll of 140 ms, no worker asleep",
        healthy: || {
            after(busy(), |now| {
                now.workers[0].in_flight.as_mut().unwrap().for_ns = 140 * MS;
                now.parked_bitmap = vec![0];
            })
        },
    },
    Case {
        rule: Rule::LifoMonopoly,
        severity: Severity::Warning,
        what: "all polls from the slot, and a ring that waits",
        sick: || lifo_only(20),
        beside: &[],
        but: "all polls from the slot, and no task waits",
        healthy: || lifo_only(0),
    },
    Case {
        rule: Rule::Imbalance,
        severity: Severity::Warning,
        what: "one has 40 tasks that wait, the other time",
        sick: || uneven(40, 300 * MS),
        beside: &[],
        but: "one has a few tasks that wait, the other time",
        healthy: || uneven(5, 300 * MS),
    },
    Case {
        rule: Rule::Imbalance,
        severity: Severity::Warning,
        what: "one has 40 tasks that wait, and the other runs little",
        sick: || uneven(40, 300 * MS),
        beside: &[],
        but: "the other is stuck in a poll, and a spare runs in its place",
        healthy: || both(uneven(40, 300 * MS), |snapshot| snapshot.workers[1].duty = Duty::Stuck),
    },
    Case {
        rule: Rule::ParkedWhileBacklog,
        severity: Severity::Warning,
        what: "one sleeps, and a task waits behind a poll that is stuck",
        sick: || both(uneven(1, 0), |snapshot| snapshot.workers[0].in_flight.as_mut().unwrap().for_ns = 60 * MS),
        beside: &[],
        but: "one is an inactive spare",
        healthy: || both(uneven(1, 0), |snapshot| snapshot.workers[1].duty = Duty::Off),
    },
];

/// All workers have been parked for 100 ms, with `ring_len` tasks in a ring.
pub(super) fn all_asleep(ring_len: u32) -> Pair {
    both(idle(), |snapshot| snapshot.workers[1].ring_len = ring_len)
}

/// Worker 0 is busy all the time with `ring_len` waiting tasks, worker 1 for `busy_ns` of the
/// second.
pub(super) fn uneven(ring_len: u32, busy_ns: u64) -> Pair {
    let (mut before, mut after) = busy();
    for (snapshot, seconds) in [(&mut before, 1), (&mut after, 2)] {
        snapshot.config.enable_stealing = false;
        snapshot.searching = 0;
        snapshot.workers[0].busy_ns = seconds * SECOND;
        snapshot.workers[0].ring_len = ring_len;
        (snapshot.workers[1].busy_ns, snapshot.workers[1].driver_ns) = (seconds * busy_ns, 0);
        snapshot.workers[1].parked_ns = seconds * (SECOND - busy_ns);
    }
    (before, after)
}

pub(super) fn old_global_queue(program: Pair, age_ms: u64) -> Pair {
    both(program, |snapshot| {
        snapshot.global_queue =
            GlobalQueue { len: 5, oldest_age_ns: Some(age_ms * MS), ..snapshot.global_queue.clone() };
        snapshot.searching = 0;
    })
}

/// Both workers poll almost only tasks from the LIFO slot.
pub(super) fn lifo_only(ring_len: u32) -> Pair {
    let (mut before, mut after) = saturated();
    for (snapshot, polls) in [(&mut before, 50_000), (&mut after, 100_000)] {
        snapshot.config.max_lifo_polls_per_tick = 128;
        snapshot.global_queue = GlobalQueue::default();
        for worker in &mut snapshot.workers[..2] {
            (worker.polls, worker.lifo_hits, worker.ring_len) = (polls, polls / 128 * 127, ring_len);
            worker.batch_len = 0;
        }
    }
    after.workers[0].schedule_delay.record(30 * MS);
    (before, after)
}

/// The oldest task of the global queue is `age_ms` old, while nearly all polls are of local tasks.
pub(super) fn beside_local_work(age_ms: u64) -> Pair {
    both(old_global_queue(saturated(), age_ms), |snapshot| {
        snapshot.workers[..2].iter_mut().for_each(|worker| worker.global_tasks = 3);
    })
}
