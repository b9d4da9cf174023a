//! Tests of the rules about futile effort, about machines that are short of processor time, and
//! about accumulation, with similar programs on which they do not fire.

use volt_telemetry::finding::Severity;
use volt_telemetry::incident::{Cause, Incident};
use volt_telemetry::rule::Rule;
use volt_telemetry::snapshot::{Snapshot, Worker};
use volt_telemetry::waits::{Deadlock, DeadlockLink, HeldLock, LongWait};

use super::case::{Case, after, both, incident, stuck};
use crate::doctor::tests::programs::{MS, Pair, SECOND, busy, saturated};

pub(super) const CASES: &[Case] = &[
    Case {
        rule: Rule::StealContention,
        severity: Severity::Warning,
        what: "more races lost than won",
        sick: || after(busy(), |now| now.workers[1].steal_races_lost += 900_000),
        beside: &[],
        but: "races lost among many more that were won",
        healthy: || {
            after(busy(), |now| {
                now.workers[1].steal_races_lost += 900_000;
                now.workers[1].steals += 9_000_000;
            })
        },
    },
    Case {
        rule: Rule::StealContention,
        severity: Severity::Warning,
        what: "more races lost than won, and time for it",
        sick: || after(busy(), |now| now.workers[1].steal_races_lost += 200_000),
        beside: &[],
        but: "as many, since thieves are interrupted",
        healthy: || after(waiting_for_processors(300, 700, 2), |now| now.workers[1].steal_races_lost += 200_000),
    },
    Case {
        rule: Rule::WakeStorm,
        severity: Severity::Warning,
        what: "40,000 wake-ups for polls of 300 ns",
        sick: || woken(40_000, 300),
        beside: &[],
        but: "40,000 wake-ups for polls of 20 µs",
        healthy: || woken(40_000, 20_000),
    },
    Case {
        rule: Rule::SelfWakeLoop,
        severity: Severity::Warning,
        what: "a task that polls again and again",
        sick: || polling(890_000, 200),
        beside: &[],
        but: "as many polls, woken by others",
        healthy: || polling(100_000, 200),
    },
    Case {
        rule: Rule::SelfWakeLoop,
        severity: Severity::Warning,
        what: "the same, counted by worker only",
        sick: || {
            let counted = |snapshot: &mut Snapshot| snapshot.blame.clear();
            both(
                after(busy(), |now| {
                    now.workers[0].polls += 900_000;
                    now.workers[0].self_wakes = now.workers[0].self_wakes.map(|wakes| wakes + 900_000);
                }),
                counted,
            )
        },
        beside: &[],
        but: "a computation that yields after each 20 µs",
        healthy: || polling(890_000, 20_000),
    },
    Case {
        rule: Rule::CgroupThrottled,
        severity: Severity::Critical,
        what: "held up for 300 ms of a second",
        sick: || throttled_for(300),
        beside: &[],
        but: "held up for 10 ms of a second",
        healthy: || throttled_for(10),
    },
    Case {
        rule: Rule::CgroupThrottled,
        severity: Severity::Warning,
        what: "a poll that stands still for the quota",
        sick: || stuck(Cause::Throttled, 60),
        beside: &[],
        but: "a poll that stood still before the snapshots",
        healthy: || {
            let old =
                |now: &Snapshot| Incident { is_over: true, began_at_ns: SECOND, ..incident(now, Cause::Throttled, 60) };
            after(busy(), |now| now.incidents.latest.push(old(now)))
        },
    },
    Case {
        rule: Rule::CpuStarved,
        severity: Severity::Critical,
        what: "300 ms of processor, 700 ms of waiting for one",
        sick: || waiting_for_processors(300, 700, 2),
        beside: &[],
        but: "300 ms of waiting beside 700 ms of processor",
        healthy: || waiting_for_processors(700, 300, 2),
    },
    Case {
        rule: Rule::CpuStarved,
        severity: Severity::Warning,
        what: "200 ms of processor, 300 ms of waiting for one",
        sick: || waiting_for_processors(200, 300, 2),
        beside: &[],
        but: "20 ms of processor, 30 ms of waiting for one",
        healthy: || waiting_for_processors(20, 30, 2),
    },
    Case {
        rule: Rule::Oversubscribed,
        severity: Severity::Critical,
        what: "two busy workers on one processor",
        sick: || waiting_for_processors(480, 510, 1),
        beside: &[],
        but: "two workers on one processor that seldom want it",
        healthy: || waiting_for_processors(100, 200, 1),
    },
    Case {
        rule: Rule::Oversubscribed,
        severity: Severity::Warning,
        what: "two busy workers on one processor, which others want too",
        sick: || waiting_for_processors(180, 420, 1),
        beside: &[],
        but: "two workers on two processors, which others take, and a spare since one was stuck",
        healthy: || {
            both(waiting_for_processors(200, 400, 2), |snapshot| {
                let busy = snapshot.workers[0].clone();
                snapshot.workers[2] = Worker { index: 2, is_spare: true, ..busy };
            })
        },
    },
    Case {
        rule: Rule::ProgramPaused,
        severity: Severity::Info,
        what: "the sentinel came late",
        sick: || after(busy(), |now| now.sentinel.pauses += 1),
        beside: &[],
        but: "pauses before the snapshots",
        healthy: || both(busy(), |snapshot| snapshot.sentinel.pauses = 9),
    },
    Case {
        rule: Rule::BlockingPoolSaturated,
        severity: Severity::Critical,
        what: "jobs wait, and none is done",
        sick: || full_pool(30, 0),
        beside: &[],
        but: "all threads busy, and no job waits",
        healthy: || full_pool(0, 0),
    },
    Case {
        rule: Rule::BlockingPoolSaturated,
        severity: Severity::Warning,
        what: "jobs wait, and some are done",
        sick: || full_pool(30, 60),
        beside: &[],
        but: "jobs waited at one snapshot only",
        healthy: || after(full_pool(0, 60), |now| now.blocking.queue_len = 30),
    },
    Case {
        rule: Rule::LostWaker,
        severity: Severity::Warning,
        what: "three tasks without a waker",
        sick: || both(busy(), |snapshot| snapshot.blame[1].stranded = Some(3)),
        beside: &[],
        but: "tasks without a waker at one snapshot, on their way out",
        healthy: || after(busy(), |now| now.blame[1].stranded = Some(3)),
    },
    Case {
        rule: Rule::Deadlock,
        severity: Severity::Critical,
        what: "two tasks that wait for each other",
        sick: || deadlock(true, 1_000, 2),
        beside: &[],
        but: "two tasks that have waited for each other for a moment",
        healthy: || deadlock(true, 999, 2),
    },
    Case {
        rule: Rule::Deadlock,
        severity: Severity::Critical,
        what: "a task that waits for itself",
        sick: || deadlock(true, 60_000, 1),
        beside: &[],
        but: "no task",
        healthy: || deadlock(true, 60_000, 0),
    },
    Case {
        rule: Rule::Deadlock,
        severity: Severity::Warning,
        what: "more tasks than a finding describes, one with a time-out",
        sick: || deadlock(false, 2_000, 20),
        beside: &[],
        but: "a time-out that is still to end it",
        healthy: || deadlock(false, 1_999, 20),
    },
    Case {
        rule: Rule::LockHeld,
        severity: Severity::Warning,
        what: "two locks of one line, held while others wait",
        sick: || held(&[3_000, 5_000], 3_000),
        beside: &[],
        but: "a task that has begun to wait for a lock which is held for long",
        healthy: || held(&[60_000], 2_999),
    },
    Case {
        rule: Rule::LockHeld,
        severity: Severity::Warning,
        what: "a lock that many wait for",
        sick: || held(&[3_000], 60_000),
        beside: &[],
        but: "a long queue for a lock that is handed on",
        healthy: || held(&[2_999], 60_000),
    },
    Case {
        rule: Rule::WaitingForever,
        severity: Severity::Warning,
        what: "a request whose answer does not come",
        sick: || waiting("value", 30, 300, 10),
        beside: &[],
        but: "a request that has waited for 29 s",
        healthy: || waiting("value", 29, 20, 10_000),
    },
    Case {
        rule: Rule::WaitingForever,
        severity: Severity::Warning,
        what: "permits that no task returns any more",
        sick: || waiting("permits", 3_600, 36_000, 500),
        beside: &[],
        but: "an export that takes an hour, and usually a minute",
        healthy: || waiting("permits", 3_600, 60_000, 500),
    },
    Case {
        rule: Rule::WaitingForever,
        severity: Severity::Warning,
        what: "a pool whose permits are all in use",
        sick: || waiting("permits", 60, 0, 10),
        beside: &[],
        but: "a line of which too few waits have ended",
        healthy: || waiting("permits", 60, 0, 9),
    },
    Case {
        rule: Rule::WaitingForever,
        severity: Severity::Warning,
        what: "a lock whose holder is not known",
        sick: || waiting("lock", 60, 20, 10),
        beside: &[],
        but: "a lock that a task holds for a moment only, but whose queue is reported",
        healthy: || {
            let (before, mut now) = waiting("lock", 60, 20, 10);
            let at = now.long_waits.as_ref().unwrap()[0].awaits_at.clone();
            now.held_locks = Some(vec![HeldLock { awaits_at: at, ..HeldLock::default() }]);
            (before, now)
        },
    },
];

/// A task that has waited for `waiting_s` at a line where `ended` waits took `longest_ms` at most.
fn waiting(awaits: &str, waiting_s: u64, longest_ms: u64, ended: u64) -> Pair {
    let wait = LongWait {
        awaits: awaits.into(),
        awaits_at: "src/orders.rs:60:9".into(),
        waiting: 12,
        waiting_ns: waiting_s * 1_000 * MS,
        task: 7,
        spawned_at: "src/main.rs:7:5".into(),
        ended,
        longest_ended_ns: longest_ms * MS,
        ..LongWait::default()
    };
    after(busy(), |now| now.long_waits = Some(vec![wait.clone()]))
}

/// Locks that have been held for these times, acquired at the same line.
fn held(held_ms: &[u64], waiting_ms: u64) -> Pair {
    let lock = |(task, held_ms): (u64, &u64)| HeldLock {
        task,
        spawned_at: Some("src/main.rs:7:5".into()),
        held_at: "src/settle.rs:31:9".into(),
        held_ns: held_ms * MS,
        awaits: "lock".into(),
        awaits_at: "src/orders.rs:60:9".into(),
        waiting_ns: waiting_ms * MS,
        waiting: 43,
        ..HeldLock::default()
    };
    after(busy(), |now| now.held_locks = Some((1..).zip(held_ms).map(lock).collect()))
}

/// A cycle of `tasks` tasks.
fn deadlock(is_certain: bool, for_ms: u64, tasks: u64) -> Pair {
    let link = |task| DeadlockLink {
        task,
        spawned_at: format!("src/main.rs:{task}:5"),
        awaits: "lock".into(),
        awaits_at: format!("src/settle.rs:{task}:9"),
        waiting_ns: for_ms * MS,
        held_at: Some(format!("src/pricing.rs:{task}:9")),
        ..DeadlockLink::default()
    };
    after(busy(), |now| {
        now.deadlocks = Some(vec![Deadlock { is_certain, for_ns: for_ms * MS, links: (0..tasks).map(link).collect() }]);
    })
}

/// Workers that ran for `cpu_ms` of the second and waited for `waited_ms`, on `processors`
/// processors.
pub(super) fn waiting_for_processors(cpu_ms: u64, waited_ms: u64, processors: u32) -> Pair {
    let (mut before, mut after) = saturated();
    for (snapshot, seconds) in [(&mut before, 1), (&mut after, 2)] {
        snapshot.host.as_mut().unwrap().processors = processors;
        for worker in &mut snapshot.workers[..2] {
            (worker.cpu_ns, worker.run_delay_ns) = (Some(seconds * cpu_ms * MS), Some(seconds * waited_ms * MS));
        }
    }
    (before, after)
}

pub(super) fn throttled_for(ms: u64) -> Pair {
    after(busy(), |now| {
        let host = now.host.as_mut().unwrap();
        (host.throttles, host.throttled_ns) = (Some(8), Some(ms * MS));
    })
}

fn full_pool(queue_len: u64, done: u64) -> Pair {
    let (before, mut after) = both(busy(), |snapshot| {
        let pool = &mut snapshot.blocking;
        (pool.threads, pool.idle_threads, pool.max_threads, pool.queue_len) = (8, 0, 8, queue_len);
    });
    after.blocking.completed = before.blocking.completed + done;
    (before, after)
}

/// `polls` polls at `src/feed.rs:8:9`, each of `poll_ns`; in `self_wakes` of them the task woke
/// itself.
pub(super) fn looping(polls: u64, self_wakes: u64, poll_ns: u64) -> Pair {
    let (before, mut after) = busy();
    let (then, now) = (&before.blame[1], &mut after.blame[1]);
    (now.polls, now.busy_ns) = (then.polls + polls, then.busy_ns + polls * poll_ns);
    now.self_wakes = then.self_wakes.map(|wakes| wakes + self_wakes);
    (before, after)
}

/// Empty polls at `src/feed.rs:8:9`, each of `poll_ns`; in `self_wakes` of them the task woke
/// itself.
fn polling(self_wakes: u64, poll_ns: u64) -> Pair {
    after(busy(), |now| {
        let place = &mut now.blame[1];
        place.polls += 900_000;
        place.busy_ns += 900_000 * poll_ns;
        place.self_wakes = place.self_wakes.map(|wakes| wakes + self_wakes);
    })
}

pub(super) fn woken(times: u64, poll_ns: u64) -> Pair {
    after(busy(), |now| {
        let worker = &mut now.workers[1];
        worker.unparks.notified += times;
        worker.polls += times;
        (0..times).for_each(|_| worker.poll_time.record(poll_ns));
    })
}
