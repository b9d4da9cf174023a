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
use std::sync::{Mutex, PoisonError};

use crate::process::watch::Watch;
use volt_core::handle::Handle;
use volt_stacks::fork::Home;

static LEFT: Mutex<Vec<(process::Child, Home)>> = Mutex::new(Vec::new());

/// An orphan that a task waits for. It is moved to the list if the task is dropped first.
struct Orphan {
    /// `None` after the exit was seen.
    child: Option<process::Child>,
    home: Home,
}

impl Drop for Orphan {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            leave(child, self.home);
        }
    }
}

/// Takes over `child`, which no other code waits for.
pub(super) fn adopt(child: process::Child, mut watch: Watch, runtime: &Handle) {
    let home = runtime.shared().home;
    let mut orphan = Orphan { child: Some(child), home };
    if !home.is_here() {
        // This is the copy of a forked child process. The orphan is a child of its parent, not of
        // itself.
        std::mem::forget(orphan.child.take());
        return;
    }
    runtime.spawn(async move {
        let child = orphan.child.as_mut().expect("it is taken out at the end only");
        if poll_fn(|cx| watch.poll_exit(cx, child)).await.is_ok() {
            drop(orphan.child.take());
        }
    });
}

fn leave(mut child: process::Child, home: Home) {
    if !matches!(child.try_wait(), Ok(None)) {
        return;
    }
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    left.push((child, home));
}

/// Waits for the orphans in the list that have exited, and removes them.
pub(super) fn reap() {
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    left.retain_mut(|(child, home)| home.is_here() && matches!(child.try_wait(), Ok(None)));
}
