//! What each rule is for, and what looks like it: a healthy program, changed.

use super::programs::{MS, Pair, SECOND, busy, idle, saturated};
use crate::doctor::{Rule, Severity};
use crate::incident::{Cause, Frame, Incident, Remedy};
use crate::snapshot::{Duty, GlobalQueue, InFlight, Phase, Snapshot};

/// One way in which a rule fires.
pub(super) struct Case {
    pub(super) rule: Rule,
    pub(super) severity: Severity,
    pub(super) what: &'static str,
    sick: fn() -> Pair,
    /// Other rules that rightly fire beside it.
    pub(super) beside: &'static [Rule],
    pub(super) but: &'static str,
    look_alike: fn() -> Pair,
}

impl Case {
    pub(super) fn sick(&self) -> Pair {
        (self.sick)()
    }

    pub(super) fn look_alike(&self) -> Pair {
        (self.look_alike)()
    }
}

/// `program` with `change` made to both looks.
fn both(program: Pair, change: impl Fn(&mut Snapshot)) -> Pair {
    let (mut before, mut after) = program;
    change(&mut before);
    change(&mut after);
    (before, after)
}

/// `program` with `change` made to the second look.
fn after(program: Pair, change: impl FnOnce(&mut Snapshot)) -> Pair {
    let (before, mut after) = program;
    change(&mut after);
    (before, after)
}

/// An incident that began `for_ms` before the second look.
fn incident(snapshot: &Snapshot, cause: Cause, for_ms: u64) -> Incident {
    let frame = Frame {
        function: Some("shop::pay".into()),
        file: Some("src/pay.rs".into()),
        line: Some(40),
        is_user_code: true,
        ..Frame::default()
    };
    Incident {
        id: 1,
        began_at_ns: snapshot.at_ns - for_ms * MS,
        for_ns: for_ms * MS,
        task_id: 7,
        task_name: Some("checkout".into()),
        spawned_at: "src/main.rs:12:5".into(),
        cause,
        stack: vec![Frame::default(), frame],
        remedy: Remedy::Replaced,
        ..Incident::default()
    }
}

fn stuck(cause: Cause, for_ms: u64) -> Pair {
    after(busy(), |now| now.incidents.latest.push(incident(now, cause, for_ms)))
}

fn in_flight(snapshot: &mut Snapshot, for_ms: u64) {
    let poll = InFlight { task_id: 9, spawned_at: "src/feed.rs:8:9".into(), for_ns: for_ms * MS, task_name: None };
    snapshot.workers[1].in_flight = Some(poll);
    snapshot.workers[1].phase = Phase::Busy;
    snapshot.parked_bitmap = vec![0];
}

/// All asleep for 100 ms, with `ring_len` tasks in a ring.
fn all_asleep(ring_len: u32) -> Pair {
    both(idle(), |snapshot| snapshot.workers[1].ring_len = ring_len)
}

/// Worker 0 busy all the time with `ring_len` tasks waiting, worker 1 for `busy_ns` of the second.
fn uneven(ring_len: u32, busy_ns: u64) -> Pair {
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

fn old_global_queue(program: Pair, age_ms: u64) -> Pair {
    both(program, |snapshot| {
        snapshot.global_queue =
            GlobalQueue { len: 5, oldest_age_ns: Some(age_ms * MS), ..snapshot.global_queue.clone() };
        snapshot.searching = 0;
    })
}

/// Both workers with all polls but a few from the slot.
fn lifo_only(ring_len: u32) -> Pair {
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

/// Workers that had `cpu_ms` of the second and waited for `waited_ms`, on so many processors.
fn waiting_for_processors(cpu_ms: u64, waited_ms: u64, processors: u32) -> Pair {
    let (mut before, mut after) = saturated();
    for (snapshot, seconds) in [(&mut before, 1), (&mut after, 2)] {
        snapshot.host.as_mut().unwrap().processors = processors;
        for worker in &mut snapshot.workers[..2] {
            (worker.cpu_ns, worker.run_delay_ns) = (Some(seconds * cpu_ms * MS), Some(seconds * waited_ms * MS));
        }
    }
    (before, after)
}

fn throttled_for(ms: u64) -> Pair {
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

/// 4,000 spawned within the second, so many of them alive at its end.
fn spawning(alive: u64) -> Pair {
    let (mut before, mut after) = busy();
    for (snapshot, spawned, alive) in [(&mut before, 9_000, 5_000), (&mut after, 13_000, 5_000 + alive)] {
        snapshot.tasks.spawned = spawned;
        snapshot.tasks.alive = alive;
        snapshot.tasks.completed = spawned - alive;
        snapshot.blame[1].alive = Some(alive);
    }
    (before, after)
}

/// Empty polls at `src/feed.rs:8:9`, so many of which ended with the task woken by itself, and took so long each.
fn polling(self_wakes: u64, poll_ns: u64) -> Pair {
    after(busy(), |now| {
        let place = &mut now.blame[1];
        place.polls += 900_000;
        place.busy_ns += 900_000 * poll_ns;
        place.self_wakes = place.self_wakes.map(|wakes| wakes + self_wakes);
    })
}

fn woken(times: u64, poll_ns: u64) -> Pair {
    after(busy(), |now| {
        let worker = &mut now.workers[1];
        worker.unparks.notified += times;
        worker.polls += times;
        (0..times).for_each(|_| worker.poll_time.record(poll_ns));
    })
}

pub(super) const CASES: &[Case] = &[
    Case {
        rule: Rule::StalledPoll,
        severity: Severity::Critical,
        what: "a poll that has slept for 300 ms",
        sick: || stuck(Cause::Sleep, 300),
        beside: &[],
        but: "the kernel does not let the poll run",
        look_alike: || stuck(Cause::NotScheduled, 300),
    },
    Case {
        rule: Rule::StalledPoll,
        severity: Severity::Warning,
        what: "a poll that ended between the looks",
        sick: || {
            after(busy(), |now| now.incidents.latest.push(Incident { is_over: true, ..incident(now, Cause::Lock, 30) }))
        },
        beside: &[],
        but: "a long poll, shorter than what counts without an incident",
        look_alike: || after(busy(), |now| in_flight(now, 90)),
    },
    Case {
        rule: Rule::StalledPoll,
        severity: Severity::Warning,
        what: "polls like one before the looks, that were only counted",
        sick: || {
            after(busy(), |now| {
                let old = Incident { is_over: true, began_at_ns: SECOND, ..incident(now, Cause::Cpu, 30) };
                now.incidents.latest.push(old);
                now.incidents.by_cause = vec![4];
            })
        },
        beside: &[],
        but: "a poll that the kernel has kept off the processor",
        look_alike: || {
            after(busy(), |now| {
                in_flight(now, 150);
                now.workers[1].run_delay_ns = now.workers[1].run_delay_ns.map(|ns| ns + 300 * MS);
            })
        },
    },
    Case {
        rule: Rule::StalledPoll,
        severity: Severity::Info,
        what: "a poll that ended long ago",
        sick: || {
            both(busy(), |snapshot| {
                let old = Incident { is_over: true, began_at_ns: SECOND, ..incident(snapshot, Cause::Cpu, 30) };
                snapshot.incidents.latest.push(old);
                snapshot.incidents.by_cause = vec![1];
            })
        },
        beside: &[],
        but: "nothing but incidents that are the machine's",
        look_alike: || stuck(Cause::Throttled, 300),
    },
    Case {
        rule: Rule::StalledPoll,
        severity: Severity::Critical,
        what: "a poll that is stuck, without an incident",
        sick: || after(busy(), |now| in_flight(now, 150)),
        beside: &[],
        but: "a service under load",
        look_alike: busy,
    },
    Case {
        rule: Rule::StalledPoll,
        severity: Severity::Warning,
        what: "a poll of a place that was stuck a moment ago",
        sick: || {
            after(busy(), |now| {
                let before =
                    Incident { is_over: true, began_at_ns: now.at_ns - 3 * SECOND, ..incident(now, Cause::Io, 30) };
                now.incidents.latest.push(Incident { spawned_at: "src/feed.rs:8:9".into(), ..before });
                in_flight(now, 40);
            })
        },
        beside: &[],
        but: "a poll as long of another place",
        look_alike: || after(busy(), |now| in_flight(now, 40)),
    },
    Case {
        rule: Rule::NoYield,
        severity: Severity::Warning,
        what: "8 ms of computing a poll, behind which others wait",
        sick: || {
            after(busy(), |now| {
                let place = &mut now.blame[0];
                (place.polls, place.busy_ns) = (place.polls - 20_000 + 100, place.busy_ns + 100 * 8 * MS);
                place.delay_caused_ns += 400 * MS;
            })
        },
        beside: &[],
        but: "as much computing in turns, where everybody waits equally",
        look_alike: saturated,
    },
    Case {
        rule: Rule::DriverHeld,
        severity: Severity::Warning,
        what: "nobody looked at timers for 200 ms",
        sick: || after(busy(), |now| now.driver.idle_ns = 200 * MS),
        beside: &[],
        but: "nobody looked since the whole process stood still",
        look_alike: || {
            after(busy(), |now| {
                now.driver.idle_ns = 200 * MS;
                now.sentinel.pauses += 1;
            })
        },
    },
    Case {
        rule: Rule::DriverHeld,
        severity: Severity::Warning,
        what: "timers that fired 80 ms late",
        sick: || after(busy(), |now| now.timers.last_lag_ns = 80 * MS),
        beside: &[],
        but: "the lag of a timer that fired long before the looks",
        look_alike: || {
            both(busy(), |snapshot| {
                snapshot.timers.last_lag_ns = 80 * MS;
                snapshot.timers.fired = 7;
            })
        },
    },
    Case {
        rule: Rule::DriverHeld,
        severity: Severity::Critical,
        what: "the worker in the driver does not come out",
        sick: || {
            after(busy(), |now| {
                (now.driver.owner, now.workers[0].phase, now.workers[0].phase_for_ns) =
                    (Some(0), Phase::Maintenance, 3 * SECOND);
            })
        },
        beside: &[],
        but: "an idle runtime, whose worker sleeps in the driver",
        look_alike: idle,
    },
    Case {
        rule: Rule::LostWakeup,
        severity: Severity::Critical,
        what: "all asleep, a task in a ring",
        sick: || all_asleep(1),
        beside: &[],
        but: "all asleep, nothing to do",
        look_alike: || all_asleep(0),
    },
    Case {
        rule: Rule::LostWakeup,
        severity: Severity::Critical,
        what: "a time-out that found work",
        sick: || after(busy(), |now| now.workers[1].lost_wakeup_rescues += 1),
        beside: &[],
        but: "all asleep, and a task came a moment ago",
        look_alike: || {
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
        but: "all asleep over a task at one of the looks only",
        look_alike: || after(idle(), |now| now.workers[1].ring_len = 1),
    },
    Case {
        rule: Rule::ParkedWhileBacklog,
        severity: Severity::Warning,
        what: "one sleeps, the other has 40 tasks that wait",
        sick: || uneven(40, 10 * MS),
        beside: &[],
        but: "one sleeps, the other runs a single task all the time",
        look_alike: || uneven(0, 10 * MS),
    },
    Case {
        rule: Rule::ParkedWhileBacklog,
        severity: Severity::Warning,
        what: "one sleeps while the global queue waits",
        sick: || old_global_queue(busy(), 30),
        beside: &[],
        but: "the global queue waits, and nobody sleeps",
        look_alike: saturated,
    },
    Case {
        rule: Rule::GlobalStarved,
        severity: Severity::Warning,
        what: "200 ms in the global queue, beside local work",
        sick: || {
            both(old_global_queue(saturated(), 200), |snapshot| {
                snapshot.workers[..2].iter_mut().for_each(|worker| worker.global_tasks = 3);
            })
        },
        beside: &[],
        but: "200 ms in the global queue, since there is more in it than can be done",
        look_alike: || old_global_queue(saturated(), 200),
    },
    Case {
        rule: Rule::LifoHeld,
        severity: Severity::Warning,
        what: "a full slot, a poll of 40 ms, another asleep",
        sick: || after(busy(), |now| now.workers[0].in_flight.as_mut().unwrap().for_ns = 40 * MS),
        beside: &[],
        but: "a full slot and a poll of 40 ms, nobody asleep",
        look_alike: || {
            after(busy(), |now| {
                now.workers[0].in_flight.as_mut().unwrap().for_ns = 40 * MS;
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
        but: "all polls from the slot, and nobody waits",
        look_alike: || lifo_only(0),
    },
    Case {
        rule: Rule::Imbalance,
        severity: Severity::Warning,
        what: "one has 40 tasks that wait, the other time",
        sick: || uneven(40, 300 * MS),
        beside: &[],
        but: "one has a few tasks that wait, the other time",
        look_alike: || uneven(5, 300 * MS),
    },
    Case {
        rule: Rule::StealContention,
        severity: Severity::Warning,
        what: "more races lost than won",
        sick: || after(busy(), |now| now.workers[1].steal_races_lost += 9_000),
        beside: &[],
        but: "races lost among many more that were won",
        look_alike: || {
            after(busy(), |now| {
                now.workers[1].steal_races_lost += 9_000;
                now.workers[1].steals += 90_000;
            })
        },
    },
    Case {
        rule: Rule::WakeStorm,
        severity: Severity::Warning,
        what: "40,000 wake-ups for polls of 300 ns",
        sick: || woken(40_000, 300),
        beside: &[],
        but: "40,000 wake-ups for polls of 20 µs",
        look_alike: || woken(40_000, 20_000),
    },
    Case {
        rule: Rule::SelfWakeLoop,
        severity: Severity::Warning,
        what: "a task that asks again and again",
        sick: || polling(890_000, 200),
        beside: &[],
        but: "as many polls, woken by others",
        look_alike: || polling(100_000, 200),
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
        look_alike: || polling(890_000, 20_000),
    },
    Case {
        rule: Rule::CgroupThrottled,
        severity: Severity::Critical,
        what: "held up for 300 ms of a second",
        sick: || throttled_for(300),
        beside: &[],
        but: "held up for 10 ms of a second",
        look_alike: || throttled_for(10),
    },
    Case {
        rule: Rule::CgroupThrottled,
        severity: Severity::Warning,
        what: "a poll that stands still for the quota",
        sick: || stuck(Cause::Throttled, 60),
        beside: &[],
        but: "a poll that stood still before the looks",
        look_alike: || {
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
        look_alike: || waiting_for_processors(700, 300, 2),
    },
    Case {
        rule: Rule::Oversubscribed,
        severity: Severity::Critical,
        what: "two busy workers on one processor",
        sick: || waiting_for_processors(480, 510, 1),
        beside: &[],
        but: "two workers on one processor that seldom want it",
        look_alike: || waiting_for_processors(100, 200, 1),
    },
    Case {
        rule: Rule::ProcessPaused,
        severity: Severity::Info,
        what: "the sentinel came late",
        sick: || after(busy(), |now| now.sentinel.pauses += 1),
        beside: &[],
        but: "pauses before the looks",
        look_alike: || both(busy(), |snapshot| snapshot.sentinel.pauses = 9),
    },
    Case {
        rule: Rule::BlockingPoolSaturated,
        severity: Severity::Critical,
        what: "jobs wait, and none is done",
        sick: || full_pool(30, 0),
        beside: &[],
        but: "all threads busy, and no job waits",
        look_alike: || full_pool(0, 0),
    },
    Case {
        rule: Rule::BlockingPoolSaturated,
        severity: Severity::Warning,
        what: "jobs wait, and some are done",
        sick: || full_pool(30, 60),
        beside: &[],
        but: "jobs waited at one look only",
        look_alike: || after(full_pool(0, 60), |now| now.blocking.queue_len = 30),
    },
    Case {
        rule: Rule::TaskLeak,
        severity: Severity::Warning,
        what: "4,000 tasks more in a second",
        sick: || spawning(4_000),
        beside: &[],
        but: "4,000 tasks spawned in a second, most of which end",
        look_alike: || spawning(400),
    },
    Case {
        rule: Rule::LostWaker,
        severity: Severity::Warning,
        what: "three tasks without a waker",
        sick: || both(busy(), |snapshot| snapshot.blame[1].stranded = Some(3)),
        beside: &[],
        but: "tasks without a waker at one look, on their way out",
        look_alike: || after(busy(), |now| now.blame[1].stranded = Some(3)),
    },
    Case {
        rule: Rule::ParkedWhileBacklog,
        severity: Severity::Warning,
        what: "one sleeps, and a task waits behind a poll that is stuck",
        sick: || both(uneven(1, 0), |snapshot| snapshot.workers[0].in_flight.as_mut().unwrap().for_ns = 60 * MS),
        beside: &[Rule::LifoHeld],
        but: "one is a spare that is off duty",
        look_alike: || both(uneven(1, 0), |snapshot| snapshot.workers[1].duty = Duty::Off),
    },
];
