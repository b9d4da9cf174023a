//! The names of the doctor's rules.
//!
//! A finding contains the name of its rule, so the names are part of the data. The conditions of
//! the rules are in the crate `volt-diagnosis`.

use std::fmt;

use serde::{Serialize, Serializer};

/// A problem of a runtime that the doctor can detect. The table of rules in the crate
/// `volt-diagnosis` explains each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// A poll does not return.
    StalledPoll,
    /// Tasks compute too long between two awaits.
    NoYield,
    /// No worker polls the timers and sockets.
    DriverHeld,
    /// All workers sleep although work is available.
    LostWakeup,
    /// A worker sleeps while tasks wait in the queue of another worker.
    ParkedWhileBacklog,
    /// Tasks in the global queue wait while workers serve their local queues.
    GlobalStarved,
    /// A task waits in the LIFO slot of a stuck worker.
    LifoHeld,
    /// The LIFO slot starves a worker's local queue.
    LifoMonopoly,
    /// One worker has a backlog while another has spare time.
    Imbalance,
    /// Stealing workers interfere with each other.
    StealContention,
    /// Wake-ups cost more than the work.
    WakeStorm,
    /// A task polls in a loop instead of waiting.
    SelfWakeLoop,
    /// The CPU quota of the control group is used up.
    CgroupThrottled,
    /// The kernel runs other threads instead of the workers.
    CpuStarved,
    /// There are more busy workers than processors.
    Oversubscribed,
    /// The whole program was paused.
    ProgramPaused,
    /// Blocking jobs wait for a thread of the blocking pool.
    BlockingPoolSaturated,
    /// Tasks are spawned and never end.
    TaskLeak,
    /// A task waits and nothing can wake it.
    LostWaker,
    /// Tasks wait for locks that they hold themselves, or each other.
    Deadlock,
    /// A task holds a lock for long, and others wait for it.
    LockHeld,
    /// A task waits far longer at a line than tasks usually do there.
    WaitingForever,
    /// A process receives messages faster than it handles them.
    MailboxGrowing,
    /// Processes fail immediately after each restart.
    RestartStorm,
}

/// The names of the rules, in the order of the enum.
const NAMES: [(Rule, &str); Rule::COUNT] = [
    (Rule::StalledPoll, "stalled-poll"),
    (Rule::NoYield, "no-yield"),
    (Rule::DriverHeld, "driver-held"),
    (Rule::LostWakeup, "lost-wakeup"),
    (Rule::ParkedWhileBacklog, "parked-while-backlog"),
    (Rule::GlobalStarved, "global-starved"),
    (Rule::LifoHeld, "lifo-held"),
    (Rule::LifoMonopoly, "lifo-monopoly"),
    (Rule::Imbalance, "imbalance"),
    (Rule::StealContention, "steal-contention"),
    (Rule::WakeStorm, "wake-storm"),
    (Rule::SelfWakeLoop, "self-wake-loop"),
    (Rule::CgroupThrottled, "cgroup-throttled"),
    (Rule::CpuStarved, "cpu-starved"),
    (Rule::Oversubscribed, "oversubscribed"),
    (Rule::ProgramPaused, "program-paused"),
    (Rule::BlockingPoolSaturated, "blocking-pool-saturated"),
    (Rule::TaskLeak, "task-leak"),
    (Rule::LostWaker, "lost-waker"),
    (Rule::Deadlock, "deadlock"),
    (Rule::LockHeld, "lock-held"),
    (Rule::WaitingForever, "waiting-forever"),
    (Rule::MailboxGrowing, "mailbox-growing"),
    (Rule::RestartStorm, "restart-storm"),
];

const _: () = {
    let mut row = 0;
    while row < NAMES.len() {
        assert!(NAMES[row].0 as usize == row, "the table has the order of the enum");
        row += 1;
    }
};

impl Rule {
    /// The number of rules.
    pub const COUNT: usize = Rule::RestartStorm as usize + 1;

    /// Returns the name of the rule in text, JSON and metrics.
    ///
    /// ```
    /// assert_eq!(volt_telemetry::rule::Rule::StalledPoll.name(), "stalled-poll");
    /// ```
    pub const fn name(self) -> &'static str {
        NAMES[self as usize].1
    }

    /// Returns the names of all rules.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(_, name)| *name)
    }

    /// Returns the rule with this name.
    pub fn by_name(name: &str) -> Option<Rule> {
        NAMES.iter().find(|(_, known)| *known == name).map(|(rule, _)| *rule)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
