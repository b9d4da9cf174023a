//! The names of the doctor's rules. A finding contains the name of its rule, so the names are data;
//! how a rule judges is in the crate `volt-diagnosis`.

use std::fmt;

use serde::{Serialize, Serializer};

/// Everything that the doctor knows to be wrong with a runtime. The table of rules in the
/// crate `volt-diagnosis` explains each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// A poll does not come back.
    StalledPoll,
    /// Tasks compute for too long between two awaits.
    NoYield,
    /// Nobody polls timers and sockets.
    DriverHeld,
    /// Everybody sleeps although work is there.
    LostWakeup,
    /// A worker sleeps while tasks wait for another.
    ParkedWhileBacklog,
    /// The global queue waits for workers that serve their own.
    GlobalStarved,
    /// A LIFO slot is held by a worker that is stuck.
    LifoHeld,
    /// The LIFO slot keeps a worker's ring waiting.
    LifoMonopoly,
    /// One worker has a backlog, another has time.
    Imbalance,
    /// Thieves get into each other's way.
    StealContention,
    /// Waking costs more than the work.
    WakeStorm,
    /// A task polls in a loop instead of waiting.
    SelfWakeLoop,
    /// The processor quota is spent.
    CgroupThrottled,
    /// The kernel runs other threads.
    CpuStarved,
    /// More busy workers than processors.
    Oversubscribed,
    /// The process stood still.
    ProgramPaused,
    /// Jobs wait for a thread for blocking work.
    BlockingPoolSaturated,
    /// Tasks are spawned and do not end.
    TaskLeak,
    /// A task waits that nothing can wake.
    LostWaker,
    /// A process does not keep up with its messages.
    MailboxGrowing,
    /// Processes fail as soon as they are started anew.
    RestartStorm,
}

/// The name of each rule, in the order of the enum.
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
    /// How many rules there are.
    pub const COUNT: usize = Rule::RestartStorm as usize + 1;

    /// Its name in text, JSON and metrics.
    ///
    /// ```
    /// assert_eq!(volt_telemetry::rule::Rule::StalledPoll.name(), "stalled-poll");
    /// ```
    pub const fn name(self) -> &'static str {
        NAMES[self as usize].1
    }

    /// The rule of this name.
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
