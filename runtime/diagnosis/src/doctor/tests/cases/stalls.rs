//! Tests of the rules about polls that take too long, with similar programs on which they do not
//! fire.

use volt_telemetry::finding::Severity;
use volt_telemetry::incident::{Cause, Incident};
use volt_telemetry::rule::Rule;
use volt_telemetry::snapshot::{Duty, InFlight, Phase, Snapshot};

use super::case::{Case, after, both, incident, stuck};
use super::others::waiting_for_processors;
use crate::doctor::tests::programs::{MS, Pair, SECOND, busy, idle, saturated};

pub(super) const CASES: &[Case] = &[
    Case {
        rule: Rule::StalledPoll,
        severity: Severity::Critical,
        what: "a poll that has slept for 300 ms",
        sick: || stuck(Cause::Sleep, 300),
        beside: &[],
        but: "the kernel does not let the poll run",
        healthy: || stuck(Cause::NotScheduled, 300),
    },
    Case {
        rule: Rule::StalledPoll,
        severity: Severity::Warning,
        what: "a long poll that ended between the snapshots",
        sick: || {
            after(busy(), |now| {
                now.incidents.latest.push(Incident { is_over: true, ..incident(now, Cause::Lock, 130) })
            })
        },
        beside: &[],
        but: "a long poll, shorter than what counts without an incident",
        healthy: || after(busy(), |now| in_flight(now, 90)),
    },
    Case {
        rule: Rule::StalledPoll,
        severity: Severity::Info,
        what: "a short stall, which is one too many if it happens again",
        sick: || stuck(Cause::Cpu, 30),
        beside: &[],
        but: "a poll that the kernel has kept off the processor",
        healthy: || {
            after(busy(), |now| {
                in_flight(now, 150);
                now.workers[1].run_delay_ns = now.workers[1].run_delay_ns.map(|ns| ns + 300 * MS);
            })
        },
    },
    Case {
        rule: Rule::StalledPoll,
        severity: Severity::Critical,
        what: "a poll of which nothing is written down, incidents being off",
        sick: || after(busy(), |now| in_flight(now, 900)),
        beside: &[],
        but: "one that has announced that it blocks",
        healthy: || {
            after(busy(), |now| {
                in_flight(now, 900);
                now.workers[1].duty = Duty::Blocking;
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
        healthy: || stuck(Cause::Throttled, 300),
    },
    Case {
        rule: Rule::StalledPoll,
        severity: Severity::Critical,
        what: "a poll that is stuck, without an incident",
        sick: || after(busy(), |now| in_flight(now, 150)),
        beside: &[],
        but: "a service under load",
        healthy: busy,
    },
    Case {
        rule: Rule::StalledPoll,
        severity: Severity::Critical,
        what: "a poll of a place that was stuck a moment ago",
        sick: || {
            after(busy(), |now| {
                let before =
                    Incident { is_over: true, began_at_ns: now.at_ns - 3 * SECOND, ..incident(now, Cause::Io, 30) };
                now.incidents.latest.push(Incident { spawned_at: "src/feed.rs:8:9".into(), ..before });
                in_flight(now, 140);
            })
        },
        beside: &[],
        but: "a shorter poll of that place, which was not stuck before",
        healthy: || after(busy(), |now| in_flight(now, 40)),
    },
    Case {
        rule: Rule::StalledPoll,
        severity: Severity::Info,
        what: "a short wait for a lock",
        sick: || stuck(Cause::Lock, 30),
        beside: &[],
        but: "a short wait for a lock whose holder the kernel does not run",
        healthy: || {
            after(waiting_for_processors(200, 300, 2), |now| {
                now.incidents.latest.push(incident(now, Cause::Lock, 30));
            })
        },
    },
    Case {
        rule: Rule::NoYield,
        severity: Severity::Warning,
        what: "8 ms of computing a poll, behind which others wait",
        sick: || long_polls(0),
        beside: &[],
        but: "as much computing in turns, where everybody waits equally",
        healthy: saturated,
    },
    Case {
        rule: Rule::NoYield,
        severity: Severity::Warning,
        what: "8 ms of computing a poll, and half of the time no processor for it",
        sick: || long_polls(500),
        beside: &[],
        but: "8 ms a poll, in which there was hardly ever a processor",
        healthy: || long_polls(20_000),
    },
    Case {
        rule: Rule::DriverHeld,
        severity: Severity::Warning,
        what: "no worker polled timers for 200 ms",
        sick: || after(busy(), |now| now.driver.idle_ns = 200 * MS),
        beside: &[],
        but: "no worker polled, since the whole program was paused",
        healthy: || {
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
        but: "the lag of a timer that fired long before the snapshots",
        healthy: || {
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
        healthy: idle,
    },
];

pub(in super::super) fn in_flight(snapshot: &mut Snapshot, for_ms: u64) {
    let poll =
        InFlight { task_id: 9, spawned_at: "src/feed.rs:8:9".into(), for_ns: for_ms * MS, ..InFlight::default() };
    snapshot.workers[1].in_flight = Some(poll);
    snapshot.workers[1].phase = Phase::Busy;
    snapshot.parked_bitmap = vec![0];
}

/// 100 polls of `each_us` at `src/main.rs:12:5`. They caused `caused_ms` of delay beyond what they
/// suffered themselves, and a little more.
pub(super) fn computing(each_us: u64, caused_ms: u64) -> Pair {
    after(busy(), |now| {
        let place = &mut now.blame[0];
        (place.polls, place.busy_ns) = (place.polls - 20_000 + 100, place.busy_ns - 400 * MS + 100 * each_us * 1_000);
        place.delay_caused_ns += caused_ms * MS;
    })
}

/// Polls of 8 ms at `src/main.rs:12:5`, and workers that waited `waited_ms` for a processor in
/// addition.
fn long_polls(waited_ms: u64) -> Pair {
    after(busy(), |now| {
        let place = &mut now.blame[0];
        (place.polls, place.busy_ns) = (place.polls - 20_000 + 100, place.busy_ns + 100 * 8 * MS);
        place.delay_caused_ns += 400 * MS;
        let worker = &mut now.workers[1];
        worker.run_delay_ns = worker.run_delay_ns.map(|ns| ns + waited_ms * MS);
    })
}
