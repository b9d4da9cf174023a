//! What a flight recorder notes down. How it stands in memory and in files: see `record`.
//!
//! Who writes: the workers. Who reads: whoever shows a recording.
//!
//! Invariant: *Numbers are for ever*: a detail's number is never used for something else, since it
//! stands in files. What a reader does not know is `Unknown`.

/// The location of a task whose spawn location has no number.
pub const UNKNOWN_LOCATION: u16 = 0;

/// Declares an enum whose variants have numbers that stand in files.
macro_rules! numbered {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $number:literal $text:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            /// One that this reader does not know.
            #[default]
            Unknown = 0,
            $($(#[$doc])* $variant = $number,)*
        }

        impl $name {
            /// All that have a name.
            pub const ALL: &[$name] = &[$($name::$variant),*];

            /// The name in a trace and in JSON.
            pub fn name(self) -> &'static str {
                match self {
                    $name::Unknown => "unknown",
                    $($name::$variant => $text,)*
                }
            }

            #[inline]
            pub(super) fn from_number(number: u8) -> Self {
                match number {
                    $($number => $name::$variant,)*
                    _ => $name::Unknown,
                }
            }
        }
    };
}

numbered! {
    /// How a poll left its task, or how a task ended.
    Outcome {
        /// It waits to be woken.
        Pending = 1 "pending",
        /// It was woken while it was polled, and is enqueued again.
        Woken = 2 "woken",
        /// It ran to its end.
        Completed = 3 "completed",
        /// It was cancelled.
        Cancelled = 4 "cancelled",
        /// It panicked.
        Panicked = 5 "panicked",
    }
}

numbered! {
    /// Who woke a task.
    Waker {
        /// The task whose poll was going on, on the track that says so.
        Task = 1 "task",
        /// The worker itself, between two polls.
        Worker = 2 "worker",
        /// A timer.
        Timer = 3 "timer",
        /// A socket that became ready.
        Io = 4 "io",
        /// A thread that is no worker of this runtime.
        Outside = 5 "outside",
        /// A thread for blocking work.
        Blocking = 6 "blocking",
    }
}

numbered! {
    /// What a worker parks on.
    ParkTarget {
        /// Its futex.
        Futex = 1 "parked",
        /// The I/O driver.
        Driver = 2 "parked in the driver",
    }
}

numbered! {
    /// Why a worker woke up.
    Reason {
        /// Somebody claimed it.
        Notified = 1 "notified",
        /// Its park time-out ran out.
        Timeout = 2 "timeout",
        /// I/O became ready.
        Io = 3 "io",
        /// A timer came due, or an earlier one was set.
        Timer = 4 "timer",
        /// No reason that it knows of.
        Spurious = 5 "spurious",
    }
}

numbered! {
    /// How a process ended.
    Ending {
        /// It was done.
        Normal = 1 "normal",
        /// It was asked to end, and did.
        Shutdown = 2 "shutdown",
        /// It was ended before its next step.
        Killed = 3 "killed",
        /// It returned an error, or broke a rule.
        Failed = 4 "failed",
        /// It panicked.
        Panicked = 5 "panicked",
    }
}

numbered! {
    /// What became of a message for which a mailbox had no room.
    Loss {
        /// It was dropped; its sender has not noticed.
        Dropped = 1 "dropped",
        /// Its sender was refused.
        Refused = 2 "refused",
    }
}

/// What happened. Times are ns, `u32` ones at most `u32::MAX`, which means that or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// A poll begins.
    PollBegin {
        /// The task's id.
        task: u64,
        /// The number of its spawn location.
        location: u16,
        /// How long it waited since it was woken or spawned.
        delay_ns: u32,
    },
    /// A poll ends.
    PollEnd {
        /// The task's id.
        task: u64,
        /// The number of its spawn location.
        location: u16,
        /// What became of the task.
        outcome: Outcome,
        /// How long the poll lasted, so that it is known although its begin was overwritten.
        took_ns: u32,
    },
    /// A task was woken, and by that became runnable.
    Wake {
        /// The task's id.
        task: u64,
        /// The number of its spawn location.
        location: u16,
        /// By whom.
        by: Waker,
    },
    /// A task was spawned.
    Spawn {
        /// Its id.
        task: u64,
        /// The number of its spawn location.
        location: u16,
    },
    /// A task ended outside a poll.
    TaskEnd {
        /// Its id.
        task: u64,
        /// How.
        outcome: Outcome,
    },
    /// A task is run from the LIFO slot.
    LifoHit {
        /// Its id.
        task: u64,
    },
    /// The LIFO slot was flushed into the ring, since the cap was reached.
    LifoFlush {
        /// The id of the task in it.
        task: u64,
    },
    /// Tasks were taken from another worker.
    Steal {
        /// Its index.
        victim: u16,
        /// How many.
        count: u32,
    },
    /// A round of all victims brought nothing.
    StealMiss {
        /// Victims that were checked.
        victims: u32,
    },
    /// The worker begins to search for work elsewhere.
    SearchBegin,
    /// The search ends.
    SearchEnd {
        /// Whether it found work.
        is_hit: bool,
    },
    /// The worker goes to sleep.
    Park {
        /// On what.
        target: ParkTarget,
    },
    /// The worker wakes up.
    Unpark {
        /// Why.
        reason: Reason,
        /// How long it slept.
        slept_ns: u32,
    },
    /// Tasks were fetched from the global queue.
    GlobalFetch {
        /// How many.
        count: u32,
    },
    /// The ring was full, and tasks went to the global queue.
    Overflow {
        /// How many.
        count: u32,
    },
    /// The tick ended because its polls were used up.
    BudgetExhausted,
    /// A task was made to yield because its cooperative budget was used up.
    CoopYield {
        /// Its id.
        task: u64,
    },
    /// The worker begins to poll timers and I/O.
    DriverIn,
    /// It is done with that.
    DriverOut {
        /// Readiness events that it delivered.
        events: u64,
        /// Timers that fired.
        timers: u32,
    },
    /// A poll does not end in time: an incident. Noted down by the sentinel.
    Stall {
        /// The incident's number.
        incident: u64,
        /// The worker that is held.
        worker: u16,
    },
    /// This thread begins to stand in for a worker that is stuck.
    Replace {
        /// The stuck worker's index.
        worker: u16,
    },
    /// This thread is retired: somebody else has its place. Noted down by the sentinel.
    Retire {
        /// The index of the worker that is retired.
        worker: u16,
    },
    /// This thread is out of the poll that it was stuck in, after it was retired.
    Return,
    /// A process, a state machine with a mailbox, was started. Its pid, as of all processes here,
    /// is `index << 32 | generation`.
    ProcessStart {
        /// Its pid.
        process: u64,
        /// The index of the pid of the process that started it, and one; 0 if none did.
        parent: u32,
    },
    /// A process ended.
    ProcessEnd {
        /// Its pid.
        process: u64,
        /// How.
        ending: Ending,
        /// Its steps.
        steps: u32,
    },
    /// A mailbox had no room for a message.
    MessageLost {
        /// The pid of the process whose mailbox it is.
        process: u64,
        /// What became of it.
        loss: Loss,
    },
    /// A supervisor decided to start a child anew.
    ProcessRestart {
        /// The pid of the supervisor.
        supervisor: u64,
    },
    /// An event of a newer version.
    Unknown {
        /// Its kind.
        kind: u8,
        /// Word 1.
        subject: u64,
    },
}
