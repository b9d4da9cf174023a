//! The events of the flight recorder. For their encoding in memory and in files, see `record`.
//!
//! The workers, the sentinel, and other threads that spawn or wake tasks record events; the console
//! and the crate `volt-recording` read them.
//!
//! Invariant: NUMBERS ARE PERMANENT. The number of a variant is never reused for another one,
//! because files contain it. An unknown number is read as `Unknown`.

/// The location number of a task whose spawn location has no number.
pub const UNKNOWN_LOCATION: u16 = 0;

/// Declares an enum whose variants have permanent numbers for files.
macro_rules! numbered {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $number:literal $text:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            /// A variant of a newer version.
            #[default]
            Unknown = 0,
            $($(#[$doc])* $variant = $number,)*
        }

        impl $name {
            /// All variants except `Unknown`.
            pub const ALL: &[$name] = &[$($name::$variant),*];

            /// Returns the name in traces and JSON.
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
    /// The state of a task after a poll, or at its end.
    Outcome {
        /// Waiting to be woken.
        Pending = 1 "pending",
        /// Woken while it was polled, and queued again.
        Woken = 2 "woken",
        /// Completed.
        Completed = 3 "completed",
        /// Cancelled.
        Cancelled = 4 "cancelled",
        /// Panicked.
        Panicked = 5 "panicked",
    }
}

numbered! {
    /// The source of a wake-up.
    Waker {
        /// The task that was being polled on the same track.
        Task = 1 "task",
        /// The worker itself, between two polls.
        Worker = 2 "worker",
        /// A timer.
        Timer = 3 "timer",
        /// A socket that became ready.
        Io = 4 "io",
        /// A thread that is not a worker of this runtime.
        Outside = 5 "outside",
        /// A thread of the blocking pool.
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
    /// The reason why a worker woke up.
    Reason {
        /// Another thread claimed it.
        Notified = 1 "notified",
        /// Its park timeout expired.
        Timeout = 2 "timeout",
        /// I/O became ready.
        Io = 3 "io",
        /// A timer came due, or an earlier one was set.
        Timer = 4 "timer",
        /// No known reason.
        Spurious = 5 "spurious",
    }
}

numbered! {
    /// How a process ended.
    Ending {
        /// It completed.
        Normal = 1 "normal",
        /// It stopped on request.
        Shutdown = 2 "shutdown",
        /// It was killed before its next step.
        Killed = 3 "killed",
        /// It returned an error, or waited for yields and had none.
        Failed = 4 "failed",
        /// It panicked.
        Panicked = 5 "panicked",
    }
}

numbered! {
    /// The fate of a message that did not fit into a mailbox.
    Loss {
        /// The message was dropped without notifying its sender.
        Dropped = 1 "dropped",
        /// The send failed.
        Refused = 2 "refused",
    }
}

/// An event. Times are in ns; for `u32` values, `u32::MAX` means that or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// A poll began.
    PollBegin {
        /// The task's id.
        task: u64,
        /// The number of the task's spawn location.
        location: u16,
        /// How long the task waited since it was woken or spawned.
        delay_ns: u32,
    },
    /// A poll ended. If a task ended in a poll for a task dump, there is no record of the
    /// beginning, and the record is inside the poll of the dump's own task.
    PollEnd {
        /// The task's id.
        task: u64,
        /// The number of the task's spawn location.
        location: u16,
        /// The state of the task after the poll.
        outcome: Outcome,
        /// How long the poll lasted. Stored here too, because the record of its beginning may be
        /// overwritten.
        took_ns: u32,
    },
    /// A task was woken and thereby became runnable.
    Wake {
        /// The task's id.
        task: u64,
        /// The number of the task's spawn location.
        location: u16,
        /// The source of the wake-up.
        by: Waker,
    },
    /// A task was spawned.
    Spawn {
        /// The task's id.
        task: u64,
        /// The number of its spawn location.
        location: u16,
    },
    /// A task ended outside a poll.
    TaskEnd {
        /// The task's id.
        task: u64,
        /// How it ended.
        outcome: Outcome,
    },
    /// A task was taken from the LIFO slot to be polled.
    LifoHit {
        /// The task's id.
        task: u64,
    },
    /// The LIFO slot was flushed into the local queue because its limit per tick was reached.
    LifoFlush {
        /// The id of the task in the slot.
        task: u64,
    },
    /// Tasks were taken from another worker.
    Steal {
        /// The index of that worker.
        victim: u16,
        /// Number of tasks.
        count: u32,
    },
    /// One round through all victims found no task.
    StealMiss {
        /// Number of victims checked.
        victims: u32,
    },
    /// The worker began to search for work in other queues.
    SearchBegin,
    /// The search ended.
    SearchEnd {
        /// Whether it found work.
        is_hit: bool,
    },
    /// The worker parked.
    Park {
        /// What it parked on.
        target: ParkTarget,
    },
    /// The worker woke up.
    Unpark {
        /// The reason.
        reason: Reason,
        /// How long it slept.
        slept_ns: u32,
    },
    /// Tasks were fetched from the global queue.
    GlobalFetch {
        /// Number of tasks.
        count: u32,
    },
    /// The local queue was full, and tasks moved to the global queue.
    Overflow {
        /// Number of tasks.
        count: u32,
    },
    /// The tick ended because its poll budget was used up.
    BudgetExhausted,
    /// A task was made to yield, because its cooperative budget was used up or the sentinel
    /// requested it.
    CoopYield {
        /// The task's id.
        task: u64,
    },
    /// The worker began to poll timers and I/O.
    DriverIn,
    /// The worker finished polling timers and I/O.
    DriverOut {
        /// Number of readiness events delivered.
        events: u64,
        /// Number of timers that fired.
        timers: u32,
    },
    /// A poll exceeded the stall threshold: an incident. Recorded by the sentinel.
    Stall {
        /// The incident's number.
        incident: u64,
        /// The stuck worker.
        worker: u16,
    },
    /// This spare worker began to stand in for a worker that is stuck or in `block_in_place`.
    Replace {
        /// The index of that worker.
        worker: u16,
    },
    /// A worker was declared stuck. A spare worker replaces it, if one is available. Recorded by
    /// the sentinel.
    Retire {
        /// The index of the stuck worker.
        worker: u16,
    },
    /// This worker returned from the poll for which it was declared stuck, or from
    /// `block_in_place`.
    Return,
    /// A process (a state machine with a mailbox) was started. Pids of processes have the form
    /// `index << 32 | generation` here.
    ProcessStart {
        /// The pid.
        process: u64,
        /// The index of its parent's pid, plus one; 0 if it has no parent.
        parent: u32,
    },
    /// A process ended.
    ProcessEnd {
        /// The pid.
        process: u64,
        /// How it ended.
        ending: Ending,
        /// Number of its steps.
        steps: u32,
    },
    /// A mailbox had no room for a message.
    MessageLost {
        /// The pid of the process that owns the mailbox.
        process: u64,
        /// What happened to the message.
        loss: Loss,
    },
    /// A supervisor decided to restart a child.
    ProcessRestart {
        /// The pid of the supervisor.
        supervisor: u64,
    },
    /// An event of a newer version.
    Unknown {
        /// The number of its kind.
        kind: u8,
        /// Word 1.
        subject: u64,
    },
}
