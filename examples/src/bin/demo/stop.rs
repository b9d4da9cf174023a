//! The request to stop the demo, for which threads and tasks can wait.
//!
//! Invariant *a request is never missed*: one lock protects the flag, the waiting threads, and the
//! wakers of the waiting tasks. The lock is held only briefly, never while a task waits.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Instant;

/// A stop request, which is made once and never revoked.
#[derive(Default)]
pub(crate) struct Stop {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_requested: bool,
    /// How many calls of `requested` there were. Numbers them.
    calls: u64,
    /// The waker of each call that waits. Not distinguished by `will_wake`: the waker of a task may
    /// differ from poll to poll, for example in a poll for a task dump.
    waiting: HashMap<u64, Waker>,
}

impl Stop {
    pub(crate) fn request(&self) {
        let waiting = {
            let mut state = self.lock();
            state.is_requested = true;
            std::mem::take(&mut state.waiting)
        };
        self.changed.notify_all();
        waiting.into_values().for_each(Waker::wake);
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.lock().is_requested
    }

    /// Blocks until a stop is requested (returns `true`) or until `deadline` (returns `false`). For
    /// threads, never for tasks.
    pub(crate) fn wait_until(&self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout_while(self.lock(), left, |state| !state.is_requested);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_requested
    }

    /// Blocks until a stop is requested. For threads, never for tasks.
    pub(crate) fn wait(&self) {
        drop(self.changed.wait_while(self.lock(), |state| !state.is_requested));
    }

    /// Completes when a stop is requested. For tasks.
    pub(crate) async fn requested(&self) {
        let mut number = None;
        poll_fn(|cx| {
            let mut state = self.lock();
            if state.is_requested {
                return Poll::Ready(());
            }
            let number = *number.get_or_insert_with(|| {
                state.calls += 1;
                state.calls
            });
            let former = state.waiting.insert(number, cx.waker().clone());
            // A waker is dropped without the lock, since that may run other code.
            drop(state);
            drop(former);
            Poll::Pending
        })
        .await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn a_request_wakes_a_sleeping_thread_and_a_waiting_task() {
        let stop = Arc::new(Stop::default());
        let (thread_stop, task_stop) = (stop.clone(), stop.clone());
        let far = Instant::now() + Duration::from_secs(60);
        let sleeper = thread::spawn(move || thread_stop.wait_until(far));
        let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let task = runtime.spawn(async move { task_stop.requested().await });
        while stop.lock().waiting.is_empty() {
            thread::yield_now();
        }
        stop.request();
        assert!(sleeper.join().unwrap());
        let limit = Duration::from_secs(60);
        runtime.block_on(async { volt::time::timeout(limit, task).await }).expect("the task was not woken").unwrap();
        assert!(Instant::now() < far && stop.is_requested());
    }

    #[test]
    fn without_a_request_the_deadline_ends_the_wait() {
        let stop = Stop::default();
        assert!(!stop.wait_until(Instant::now()));
        assert!(!stop.is_requested());
    }

    #[test]
    fn a_task_that_is_polled_again_waits_once() {
        let stop = Arc::new(Stop::default());
        let task_stop = stop.clone();
        let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let task = runtime.spawn(async move { task_stop.requested().await });
        let dump = || runtime.block_on(runtime.handle().dump());
        while dump().read == 0 {}
        dump();
        assert_eq!(stop.lock().waiting.len(), 1);
        stop.request();
        runtime.block_on(task).unwrap();
    }
}
