//! What kind of runtime a runtime is, and which one.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

/// The id of a runtime. Returned by [`Handle::id`](crate::handle::Handle::id).
///
/// It is unique among the runtimes that the program has ever built. It identifies the runtime
/// within the program only: a runtime of another program, or of the next run, may have the same id.
///
/// ```
/// let (one, other) = (volt::Runtime::new()?, volt::Runtime::new()?);
/// assert_ne!(one.handle().id(), other.handle().id());
/// # Ok::<(), volt::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id(NonZeroU64);

impl Id {
    /// Returns an id that no other runtime of the program has.
    pub(crate) fn next() -> Self {
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

/// Which threads of a runtime poll its tasks. Returned by
/// [`Handle::runtime_flavor`](crate::handle::Handle::runtime_flavor).
///
/// ```
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
