//! The id and the flavor of a runtime, which handles return, and the number by which a
//! `LocalRuntime` recognizes its thread.

use std::cell::Cell;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

/// The id of a runtime, or of a `LocalSet`. Returned by
/// [`Handle::id`](crate::handle::Handle::id) and by `LocalSet::id`.
///
/// It is unique among the runtimes and sets that the program has ever built. It identifies the
/// runtime within the program only: a runtime of another program, or of the next run, may have the
/// same id.
///
/// ```
/// # use volt_core as volt;
/// let (one, other) = (volt::Runtime::new()?, volt::Runtime::new()?);
/// assert_ne!(one.handle().id(), other.handle().id());
/// # Ok::<(), volt::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id(NonZeroU64);

impl Id {
    /// For the crate `volt`: returns an id that no other runtime or set of the program has.
    #[doc(hidden)]
    #[allow(clippy::should_implement_trait, reason = "an id is no iterator")]
    pub fn next() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // ORDERING: Relaxed: only the value matters, and fetch_add returns each value once.
        let last = LAST.fetch_add(1, Ordering::Relaxed);
        Self(NonZeroU64::MIN.saturating_add(last))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The kind of threads that poll the tasks of a runtime. Returned by
/// [`Handle::runtime_flavor`](crate::handle::Handle::runtime_flavor).
///
/// ```
/// # use volt_core as volt;
/// use volt::runtime::RuntimeFlavor;
///
/// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
/// assert_eq!(runtime.handle().runtime_flavor(), RuntimeFlavor::MultiThread);
/// # Ok::<(), volt::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuntimeFlavor {
    /// The thread in `block_on`; see
    /// [`new_current_thread`](crate::builder::Builder::new_current_thread).
    CurrentThread,
    /// One or more worker threads; see
    /// [`new_multi_thread`](crate::builder::Builder::new_multi_thread).
    MultiThread,
}

/// The number of a thread. No other thread of the program ever has the same one.
///
/// The standard library's `ThreadId` cannot be read in every destructor of a thread-local.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadNumber(NonZeroU64);

impl ThreadNumber {
    /// Returns the number of the current thread.
    pub(crate) fn here() -> Self {
        thread_local! {
            static HERE: Cell<Option<ThreadNumber>> = const { Cell::new(None) };
        }
        static LAST: AtomicU64 = AtomicU64::new(0);
        HERE.get().unwrap_or_else(|| {
            // ORDERING: Relaxed: only the value matters, and fetch_add returns each value once.
            let last = LAST.fetch_add(1, Ordering::Relaxed);
            let here = Self(NonZeroU64::MIN.saturating_add(last));
            HERE.set(Some(here));
            here
        })
    }
}
