//! Waiting for child processes whose `Child` was dropped before their exit was seen.
//!
//! A child process that has exited stays a zombie until its parent waits for it. This module does
//! that for such children, called *orphans*.
//!
//! While the runtime of an orphan runs, one task for each orphan waits for it. The console lists
//! that task with this file as its spawn location. When that runtime shuts down, the orphan is
//! moved to a list. The list is checked whenever another child process is started.
//!
//! Bound: the list contains only orphans of runtimes that were shut down. Each one stays until it
//! has exited and the list is checked.

use std::future::poll_fn;
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::process::watch::Watch;
use volt_core::Handle;
use volt_stacks::fork::PerProcess;

/// Locks the list of this process. A forked child does not wait for the orphans of its parent.
fn left() -> MutexGuard<'static, Vec<process::Child>> {
    static LEFT: PerProcess<Mutex<Vec<process::Child>>> = PerProcess::new();
    LEFT.get_or_make(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// An orphan that a task waits for. It is moved to the list if the task is dropped first.
struct Orphan {
    /// `None` after the exit was seen.
    child: Option<process::Child>,
}

impl Drop for Orphan {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            leave(child);
        }
    }
}

/// Takes over `child`, which no other code waits for.
pub(super) fn adopt(child: process::Child, mut watch: Watch, runtime: &Handle) {
    if !runtime.shared().identity.home.is_here() {
        // This is the copy of a forked child process. The orphan is a child of its parent, not of
        // itself.
        std::mem::forget(child);
        return;
    }
    let mut orphan = Orphan { child: Some(child) };
    runtime.spawn(async move {
        let child = orphan.child.as_mut().expect("it is taken out at the end only");
        if poll_fn(|cx| watch.poll_exit(cx, child)).await.is_ok() {
            drop(orphan.child.take());
        }
    });
}

/// Adds the child to the list, unless it has exited, or is a child of another process.
fn leave(mut child: process::Child) {
    if matches!(child.try_wait(), Ok(None)) {
        left().push(child);
    }
}

/// Waits for the orphans in the list that have exited, and removes them.
pub(super) fn reap() {
    left().retain_mut(|child| matches!(child.try_wait(), Ok(None)));
}
