//! Task ids: unique in the process, never used twice.

use std::fmt;
use std::num::NonZeroU64;

use std::sync::atomic::{AtomicU64, Ordering};

use super::current;

/// The id of a task, as the console and log lines show it. Unique for the life of the process.
///
/// ```
/// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// let task = runtime.spawn(async { volt::task::id() });
/// let outside = task.id();
/// assert_eq!(runtime.block_on(task).unwrap(), outside);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(NonZeroU64);

impl Id {
    pub(crate) fn next() -> Self {
        #[cfg(test)]
        if let Some(id) = simulated::next() {
            return id;
        }
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // ORDERING: Relaxed; only the value counts, and a fetch_add gives each value once.
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(NonZeroU64::new(id).expect("2^64 tasks take longer than a process lives"))
    }

    pub(crate) fn as_u64(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The id of the task that calls this.
///
/// # Panics
/// Outside a task, the future of `block_on` included; see [`try_id`].
#[track_caller]
pub fn id() -> Id {
    try_id().expect("volt::task::id() is for code that runs in a task: spawn it, or use try_id()")
}

/// The id of the task that calls this, or `None` outside a task.
pub fn try_id() -> Option<Id> {
    current::with(|task| task.map(|task| task.header().id))
}

/// Ids that do not depend on what other threads do: for a test that repeats a run exactly, on the thread that has begun them.
#[cfg(test)]
pub(crate) mod simulated {
    use std::cell::Cell;

    use super::{Id, NonZeroU64};

    thread_local! {
        static LAST: Cell<Option<NonZeroU64>> = const { Cell::new(None) };
    }

    pub(super) fn next() -> Option<Id> {
        let last = LAST.try_with(Cell::get).ok().flatten()?;
        let next = last.checked_add(1)?;
        LAST.set(Some(next));
        Some(Id(next))
    }

    /// The ids after `last`; `None` = real ones again.
    pub(crate) fn begin(last: Option<NonZeroU64>) {
        LAST.set(last);
    }
}
