//! The error of `try_spawn`, which returns the future that was not spawned.

use std::fmt;

/// The error of `try_spawn`: the runtime refused to start the task. Contains the future.
pub struct TrySpawnError<F> {
    future: F,
    refusal: Refusal,
}

#[derive(Clone, Copy, Debug)]
enum Refusal {
    Full { capacity: usize },
    ShutDown,
}

impl<F> TrySpawnError<F> {
    pub(crate) fn full(future: F, capacity: usize) -> Self {
        Self { future, refusal: Refusal::Full { capacity } }
    }

    pub(crate) fn shut_down(future: F) -> Self {
        Self { future, refusal: Refusal::ShutDown }
    }

    /// Returns whether too many tasks were waiting. A later attempt may succeed.
    pub fn is_full(&self) -> bool {
        matches!(self.refusal, Refusal::Full { .. })
    }

    /// Returns whether the runtime is shut down, or shutting down, and so starts no more tasks.
    pub fn is_shut_down(&self) -> bool {
        matches!(self.refusal, Refusal::ShutDown)
    }

    /// Returns the future, unchanged.
    pub fn into_inner(self) -> F {
        self.future
    }
}

impl<F> fmt::Debug for TrySpawnError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrySpawnError").field("refusal", &self.refusal).finish_non_exhaustive()
    }
}

impl<F> fmt::Display for TrySpawnError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.refusal {
            Refusal::Full { capacity } => {
                write!(f, "global_queue_capacity is {capacity}, and that many tasks wait: try again later, or raise it")
            }
            Refusal::ShutDown => f.write_str("the runtime is shut down and accepts no more tasks"),
        }
    }
}

impl<F> std::error::Error for TrySpawnError<F> {}
