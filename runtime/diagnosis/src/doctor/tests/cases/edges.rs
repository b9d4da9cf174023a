//! Tests thresholds from both sides: a program just above one, and a program just below it that
//! meets the other conditions of the rule. Those of task leaks, locks and waits have tests
//! elsewhere.
//!
//! Invariant *Near*: values above exceed the threshold by less than a factor of two, and values
//! below are more than half of it. These tests therefore notice a threshold that is doubled or
//! halved.

use volt_telemetry::finding::Severity::{self, Critical, Info, Warning};
use volt_telemetry::incident::Cause;
use volt_telemetry::rule::Rule;
use volt_telemetry::snapshot::GlobalQueue;

use super::case::{after, both, stuck};
use super::others::{looping, throttled_for, waiting_for_processors, woken};
use super::processes::{mailbox, restarting};
use super::queues::{all_asleep, beside_local_work, lifo_only, old_global_queue, uneven};
use super::stalls::{computing, in_flight};
use crate::doctor::tests::programs::{MS, Pair, SECOND, busy, idle};

/// A threshold with a program on each side.
pub(in super::super) struct Edge {
    pub(in super::super) rule: Rule,
    /// The value that is compared.
    pub(in super::super) what: &'static str,
    /// The severity above the threshold, and a program.
    pub(in super::super) over: (Severity, fn() -> Pair),
    /// The severity below the threshold, if the rule fires, and a program.
    pub(in super::super) under: (Option<Severity>, fn() -> Pair),
}

/// Nothing is wrong below the threshold.
const fn edge(rule: Rule, what: &'static str, worst: Severity, over: fn() -> Pair, under: fn() -> Pair) -> Edge {
    Edge { rule, what, over: (worst, over), under: (None, under) }
}

/// Below the threshold the problem is less severe.
const fn step(rule: Rule, what: &'static str, over: (Severity, fn() -> Pair), under: (Severity, fn() -> Pair)) -> Edge {
    Edge { rule, what, over, under: (Some(under.0), under.1) }
}

pub(in super::super) const EDGES: &[Edge] = &[
    // ---- stalls
    step(
        Rule::StalledPoll,
        "a poll that is stuck, from when on it is an outage",
        (Critical, || stuck(Cause::Sleep, 150)),
        (Info, || stuck(Cause::Sleep, 60)),
    ),
    edge(
        Rule::StalledPoll,
        "a poll without an incident",
        Critical,
        || after(busy(), |now| in_flight(now, 150)),
        || after(busy(), |now| in_flight(now, 60)),
    ),
    edge(Rule::NoYield, "the mean poll", Warning, || computing(1_500, 400), || computing(700, 400)),
    edge(Rule::NoYield, "waiting that is caused", Warning, || computing(8_000, 145), || computing(8_000, 65)),
    edge(
        Rule::DriverHeld,
        "since the timers were last checked",
        Warning,
        || after(busy(), |now| now.driver.idle_ns = 70 * MS),
        || after(busy(), |now| now.driver.idle_ns = 40 * MS),
    ),
    step(
        Rule::DriverHeld,
        "the same, from when on it is an outage",
        (Critical, || after(busy(), |now| now.driver.idle_ns = 1_500 * MS)),
        (Warning, || after(busy(), |now| now.driver.idle_ns = 700 * MS)),
    ),
    // ---- queues
    edge(
        Rule::LostWakeup,
        "how long all have slept",
        Critical,
        || asleep_over_a_task_for(30),
        || asleep_over_a_task_for(15),
    ),
    edge(
        Rule::LostWakeup,
        "how old the global queue's task is",
        Critical,
        || asleep_over_the_global_queue_for(30),
        || asleep_over_the_global_queue_for(15),
    ),
    step(
        Rule::LostWakeup,
        "how far apart two checks are",
        (Critical, || rescued_within(150)),
        (Info, || rescued_within(60)),
    ),
    edge(Rule::ParkedWhileBacklog, "tasks that wait", Warning, || uneven(3, 10 * MS), || uneven(1, 10 * MS)),
    edge(
        Rule::ParkedWhileBacklog,
        "how long the poll lasts behind which one task waits",
        Warning,
        || behind_a_poll_of(30),
        || behind_a_poll_of(15),
    ),
    edge(Rule::ParkedWhileBacklog, "how long the one has slept", Warning, || uneven(3, 30 * MS), || uneven(3, 80 * MS)),
    edge(Rule::ParkedWhileBacklog, "how busy the other is", Warning, || uneven_and_busy(95), || uneven_and_busy(60)),
    edge(
        Rule::ParkedWhileBacklog,
        "the age of the global queue's oldest",
        Warning,
        || old_global_queue(busy(), 30),
        || old_global_queue(busy(), 15),
    ),
    edge(
        Rule::GlobalStarved,
        "its age, in times the target",
        Warning,
        || beside_local_work_with_target(300, 10_000),
        || beside_local_work_with_target(150, 10_000),
    ),
    edge(
        Rule::GlobalStarved,
        "its age, with a target that is next to nothing",
        Warning,
        || beside_local_work_with_target(30, 100),
        || beside_local_work_with_target(15, 100),
    ),
    step(
        Rule::GlobalStarved,
        "its age, from when on it is an outage",
        (Critical, || beside_local_work(1_500)),
        (Warning, || beside_local_work(700)),
    ),
    edge(Rule::GlobalStarved, "the share that is served", Warning, || serving_global(80), || serving_global(140)),
    edge(
        Rule::LifoHeld,
        "how long the poll lasts",
        Warning,
        || after(busy(), |now| now.workers[0].in_flight.as_mut().unwrap().for_ns = 140 * MS),
        || after(busy(), |now| now.workers[0].in_flight.as_mut().unwrap().for_ns = 60 * MS),
    ),
    edge(Rule::LifoMonopoly, "the slot's share", Warning, || lifo_share(50_000, 80), || lifo_share(50_000, 50)),
    edge(Rule::LifoMonopoly, "how many polls", Warning, || lifo_share(1_500, 99), || lifo_share(700, 99)),
    edge(Rule::Imbalance, "how far apart they are", Warning, || uneven(40, 400 * MS), || uneven(40, 650 * MS)),
    edge(Rule::Imbalance, "tasks that wait", Warning, || uneven(20, 300 * MS), || uneven(12, 300 * MS)),
    // ---- wakes
    edge(Rule::StealContention, "races lost a second", Warning, || races(150_000, 0), || races(60_000, 0)),
    edge(
        Rule::StealContention,
        "of those that met tasks",
        Warning,
        || races(900_000, 600_000),
        || races(900_000, 2_000_000),
    ),
    edge(Rule::WakeStorm, "wake-ups a second", Warning, || woken(10_000, 300), || woken(5_000, 300)),
    edge(Rule::WakeStorm, "what a wake-up costs", Warning, || woken(40_000, 8_000), || woken(40_000, 14_000)),
    edge(
        Rule::SelfWakeLoop,
        "polls a second: a task that polls now and then",
        Warning,
        || looping(15_000, 15_000, 200),
        || looping(5_500, 5_400, 200),
    ),
    edge(
        Rule::SelfWakeLoop,
        "of all polls",
        Warning,
        || looping(100_000, 95_000, 200),
        || looping(100_000, 70_000, 200),
    ),
    edge(
        Rule::SelfWakeLoop,
        "how long a poll is that is empty",
        Warning,
        || looping(15_000, 15_000, 7_000),
        || looping(15_000, 15_000, 15_000),
    ),
    // ---- the machine
    edge(
        Rule::CpuStarved,
        "the share of waiting",
        Warning,
        || waiting_for_processors(200, 300, 2),
        || waiting_for_processors(100, 150, 2),
    ),
    step(
        Rule::CpuStarved,
        "the same, when it is bad",
        (Critical, || waiting_for_processors(100, 700, 2)),
        (Warning, || waiting_for_processors(100, 400, 2)),
    ),
    edge(
        Rule::Oversubscribed,
        "who wants a processor",
        Warning,
        || waiting_for_processors(290, 310, 1),
        || waiting_for_processors(150, 270, 1),
    ),
    edge(
        Rule::Oversubscribed,
        "what the workers get themselves",
        Warning,
        || waiting_for_processors(160, 440, 1),
        || waiting_for_processors(80, 460, 1),
    ),
    edge(Rule::CgroupThrottled, "the time held up", Warning, || throttled_for(80), || throttled_for(30)),
    step(
        Rule::CgroupThrottled,
        "the same, when it is bad",
        (Critical, || throttled_for(300)),
        (Warning, || throttled_for(150)),
    ),
    // ---- processes
    edge(Rule::MailboxGrowing, "how often it was deeper", Warning, || mailbox(600, 1024, 4), || mailbox(600, 1024, 3)),
    edge(Rule::MailboxGrowing, "how full it is", Warning, || mailbox(600, 1024, 5), || mailbox(400, 1024, 5)),
    edge(Rule::MailboxGrowing, "how deep a small one is", Warning, || mailbox(130, 140, 5), || mailbox(100, 140, 5)),
    edge(
        Rule::MailboxGrowing,
        "how deep one of much room is",
        Warning,
        || mailbox(11_000, 1 << 20, 5),
        || mailbox(9_000, 1 << 20, 5),
    ),
    step(
        Rule::MailboxGrowing,
        "whether it is full",
        (Critical, || mailbox(1024, 1024, 5)),
        (Warning, || mailbox(1023, 1024, 5)),
    ),
    edge(Rule::RestartStorm, "restarts in all", Warning, || within(2, 12), || within(1, 8)),
    edge(Rule::RestartStorm, "restarts a second", Warning, || within(2, 11), || within(3, 12)),
    step(
        Rule::RestartStorm,
        "restarts among starts",
        (Critical, || restarting(100, 90)),
        (Warning, || restarting(100, 110)),
    ),
];

fn asleep_over_a_task_for(ms: u64) -> Pair {
    both(all_asleep(1), |snapshot| {
        snapshot.workers.iter_mut().for_each(|worker| worker.phase_for_ns = ms * MS);
    })
}

fn asleep_over_the_global_queue_for(ms: u64) -> Pair {
    both(idle(), |snapshot| {
        snapshot.global_queue = GlobalQueue { len: 1, oldest_age_ns: Some(ms * MS), ..GlobalQueue::default() };
    })
}

/// A timeout found work between two snapshots that are `ms` apart.
fn rescued_within(ms: u64) -> Pair {
    let (before, mut after) = busy();
    after.at_ns = before.at_ns + ms * MS;
    after.workers[0].lost_wakeup_rescues += 1;
    (before, after)
}

fn behind_a_poll_of(ms: u64) -> Pair {
    both(uneven(1, 0), |snapshot| snapshot.workers[0].in_flight.as_mut().unwrap().for_ns = ms * MS)
}

/// One worker is parked, the other has waiting tasks and is busy for `percent` of the time.
fn uneven_and_busy(percent: u64) -> Pair {
    let (mut before, mut after) = uneven(3, 10 * MS);
    (before.workers[0].busy_ns, after.workers[0].busy_ns) = (percent * 10 * MS, 2 * percent * 10 * MS);
    (before, after)
}

fn beside_local_work_with_target(age_ms: u64, target_us: u64) -> Pair {
    both(beside_local_work(age_ms), |snapshot| snapshot.config.target_global_queue_latency_ns = target_us * 1_000)
}

/// `polls` of the 200 polls of each worker are of tasks from the global queue, whose oldest task is
/// old.
fn serving_global(polls: u64) -> Pair {
    after(beside_local_work(200), |now| {
        now.workers[..2].iter_mut().for_each(|worker| worker.global_tasks += polls);
    })
}

/// `polls` per worker, of which `percent` are from the slot.
fn lifo_share(polls: u64, percent: u64) -> Pair {
    let (mut before, mut after) = lifo_only(20);
    for (snapshot, seconds) in [(&mut before, 1), (&mut after, 2)] {
        for worker in &mut snapshot.workers[..2] {
            (worker.polls, worker.lifo_hits) = (seconds * polls, seconds * polls * percent / 100);
        }
    }
    (before, after)
}

fn races(lost: u64, won: u64) -> Pair {
    after(busy(), |now| {
        now.workers[1].steal_races_lost += lost;
        now.workers[1].steals += won;
    })
}

/// `restarts` restarts among many starts, within `seconds`.
fn within(seconds: u64, restarts: u64) -> Pair {
    let (before, mut after) = restarting(restarts, 10 * restarts);
    after.at_ns = before.at_ns + seconds * SECOND;
    (before, after)
}
