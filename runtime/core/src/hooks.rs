//! The callbacks of a program at the start, the end and the sleeps of a runtime's threads.
//!
//! Set by the Builder, called by the threads themselves: workers, spare workers and the threads of
//! the blocking pool. The sentinel and other helper threads call none.
//!
//! A callback that panics must not end its thread: the thread's tasks would be lost. Each call is
//! contained, so the thread continues as if the callback had returned.

use std::fmt;
use std::sync::Arc;

use crate::task::contain::contain;

/// A callback of the program.
pub(crate) type Hook = Arc<dyn Fn() + Send + Sync>;

/// The callbacks of one runtime. See the module documentation.
#[derive(Clone, Default)]
pub(crate) struct Hooks {
    pub(crate) start: Option<Hook>,
    pub(crate) stop: Option<Hook>,
    pub(crate) park: Option<Hook>,
    pub(crate) unpark: Option<Hook>,
    pub(crate) thread_name: Option<Arc<dyn Fn() -> String + Send + Sync>>,
}

impl Hooks {
    /// Returns the name for a worker's or a blocking thread that is about to start: what the
    /// program's function returns, or `default` if there is no such function or if it panics.
    pub(crate) fn thread_name(&self, default: impl FnOnce() -> String) -> String {
        let mut given = None;
        if let Some(name) = &self.thread_name {
            contain(|| given = Some(name()));
        }
        // The standard library panics if the name of a thread contains NUL.
        given.map_or_else(default, |name: String| name.replace('\0', ""))
    }

    /// Runs `f`, the whole work of a worker's thread, between the callbacks for its start and its
    /// end.
    pub(crate) fn around_thread(&self, f: impl FnOnce()) {
        call(self.start.as_ref());
        f();
        call(self.stop.as_ref());
    }

    /// Returns whether a sleep of a worker has a callback.
    #[inline]
    pub(crate) fn are_for_parks(&self) -> bool {
        self.park.is_some() || self.unpark.is_some()
    }
}

/// Calls `hook`, if there is one. If it panics, only the panic hook reports the panic.
pub(crate) fn call(hook: Option<&Hook>) {
    if let Some(hook) = hook {
        contain(|| hook());
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks")
            .field("start", &self.start.is_some())
            .field("stop", &self.stop.is_some())
            .field("park", &self.park.is_some())
            .field("unpark", &self.unpark.is_some())
            .field("thread_name", &self.thread_name.is_some())
            .finish()
    }
}
