//! Children that were dropped before their end was seen, so that none stays a zombie.
//!
//! As long as their runtime runs, a task waits for each (it shows in the console, with this file as
//! where it was spawned). Those whose runtime is gone stand in a list, which is gone through
//! whenever another child is started.
//!
//! Bound: the list is as long as there are such children that still run, or ended since.

use std::future::poll_fn;
use std::process;
use std::sync::{Mutex, PoisonError};

use crate::process::watch::Watch;
use volt_core::handle::Handle;
use volt_stacks::fork::Home;

static LEFT: Mutex<Vec<(process::Child, Home)>> = Mutex::new(Vec::new());

/// A child to be waited for, which goes to the list if its runtime ends before it does.
struct Orphan {
    /// `None` once its end was seen.
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

/// Sees to `child`, which nobody else waits for any more.
pub(super) fn adopt(child: process::Child, mut watch: Watch, runtime: &Handle) {
    let home = runtime.shared().home;
    let mut orphan = Orphan { child: Some(child), home };
    if !home.is_here() {
        // A forked child's copy: the process is its parent's child, not its own.
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

/// Waits for those in the list that have ended.
pub(super) fn reap() {
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    left.retain_mut(|(child, home)| home.is_here() && matches!(child.try_wait(), Ok(None)));
}
