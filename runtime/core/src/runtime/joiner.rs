//! Joins the threads of a runtime that shuts down.
//!
//! The workers are past their last task, but each may still run destructors of user code: those of
//! thread-locals. Usually there are none, and a thread ends within some 10 µs. So the thread that
//! shuts the runtime down first tries for `TIMEOUT` to join the threads itself ([`join_soon`]). A
//! destructor may need a timer or a socket, so that thread must turn the driver if it has to wait
//! for longer; then another thread joins the rest ([`Joiner`]), since the standard library's join
//! has no time limit.
//!
//! Rejected: `pthread_timedjoin_np` for all, which not every system has, and whose limit is a time
//! of day, which may be set back; and polling `is_finished`, which returns true before a thread's
//! destructors have run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle as JoinThread;
#[cfg(all(target_os = "linux", not(miri)))]
use std::time::Duration;
use std::time::Instant;

use crate::scheduler::shared::Shared;

/// How long the thread that shuts a runtime down tries to join the others itself. Starting another
/// thread for that takes some 50 µs.
#[cfg(all(target_os = "linux", not(miri)))]
const TIMEOUT: Duration = Duration::from_millis(1);

/// Joins those of `threads` that end within `TIMEOUT` and before `deadline`. Returns the others.
#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) fn join_soon(mut threads: Vec<JoinThread<()>>, deadline: Option<Instant>) -> Vec<JoinThread<()>> {
    let until_timeout = Instant::now() + TIMEOUT;
    let until = deadline.map_or(until_timeout, |deadline| deadline.min(until_timeout));
    loop {
        threads = threads.into_iter().filter_map(|thread| try_join(thread).err()).collect();
        if threads.is_empty() || Instant::now() >= until {
            return threads;
        }
        std::thread::yield_now();
    }
}

/// Returns all threads: this system has no join without waiting.
#[cfg(not(all(target_os = "linux", not(miri))))]
pub(crate) fn join_soon(threads: Vec<JoinThread<()>>, _deadline: Option<Instant>) -> Vec<JoinThread<()>> {
    threads
}

/// Joins the thread if it has ended, its destructors included. Otherwise returns it.
#[cfg(all(target_os = "linux", not(miri)))]
fn try_join(thread: JoinThread<()>) -> Result<(), JoinThread<()>> {
    use std::ffi::c_void;
    use std::os::unix::thread::{JoinHandleExt, RawPthread};

    unsafe extern "C" {
        fn pthread_tryjoin_np(thread: RawPthread, result: *mut *mut c_void) -> i32;
    }

    // SAFETY: `thread` owns the id, so the thread was neither joined nor detached; a null pointer
    // means that its result is not needed.
    let failed = unsafe { pthread_tryjoin_np(thread.as_pthread_t(), std::ptr::null_mut()) };
    if failed != 0 {
        return Err(thread);
    }
    // The id is not valid any more. This gives it up without detaching the thread.
    let _joined = thread.into_pthread_t();
    Ok(())
}

/// Joins the threads that are left, on a separate thread.
pub(crate) struct Joiner {
    /// The number of threads that have not ended.
    left: Arc<AtomicUsize>,
    /// `None`: there was nothing to join; or the thread could not be started, and the shutdown does
    /// not wait for the others.
    thread: Option<JoinThread<()>>,
}

impl Joiner {
    /// Starts a thread that joins `threads`, unless there are none.
    pub(crate) fn start(shared: &Arc<Shared>, threads: Vec<JoinThread<()>>) -> Self {
        let left = Arc::new(AtomicUsize::new(threads.len()));
        if threads.is_empty() {
            return Self { left, thread: None };
        }
        let joins = {
            let (left, shared) = (left.clone(), shared.clone());
            move || {
                for thread in threads {
                    // These threads do not panic: panics of user code are caught where it is
                    // called.
                    let _ended = thread.join();
                    // ORDERING: Release; pairs with the Acquire in `Joiner::left`.
                    left.fetch_sub(1, Ordering::Release);
                    shared.workers.driver.unpark();
                }
            }
        };
        let name = format!("{}-joiner", shared.config.thread_name);
        let spawned = std::thread::Builder::new().name(name).spawn(joins);
        if let Err(error) = &spawned {
            // ORDERING: Relaxed: no other thread has the count.
            left.store(0, Ordering::Relaxed);
            // This is the thread that shuts the runtime down, and not a worker, so it may block on
            // the log.
            tracing::warn!(
                target: "volt", runtime = %shared.identity.name, %error,
                "no thread could be started to join the runtime's threads: the shutdown does not wait for them"
            );
        }
        Self { left, thread: spawned.ok() }
    }

    pub(crate) fn left(&self) -> usize {
        // ORDERING: Acquire; pairs with the Release in `Joiner::start`: the threads' work has
        // happened before.
        self.left.load(Ordering::Acquire)
    }

    /// Joins the joiner's thread if all threads have exited. Otherwise detaches it.
    pub(crate) fn end(self) {
        if self.left() == 0 {
            self.thread.into_iter().for_each(|thread| _ = thread.join());
        }
    }
}

#[cfg(all(test, target_os = "linux", not(any(loom, miri))))]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_is_joined_only_after_its_destructors() {
        /// Blocks until the other side is dropped.
        struct Slow(mpsc::Receiver<()>);
        impl Drop for Slow {
            fn drop(&mut self) {
                assert!(self.0.recv().is_err(), "nothing is sent");
            }
        }
        thread_local!(static SLOW: std::cell::OnceCell<Slow> = const { std::cell::OnceCell::new() });
        let (open, is_open) = mpsc::channel();
        let slow = thread::spawn(move || SLOW.with(|slow| _ = slow.set(Slow(is_open))));
        let quick = thread::spawn(|| ());
        while !slow.is_finished() || !quick.is_finished() {
            thread::yield_now();
        }
        let mut left = vec![slow, quick];
        while left.len() > 1 {
            left = join_soon(left, None);
        }
        drop(open);
        while !left.is_empty() {
            left = join_soon(left, None);
        }
    }

    #[test]
    fn a_deadline_that_has_passed_allows_one_try() {
        let (open, is_open) = mpsc::channel::<()>();
        let waits = thread::spawn(move || assert!(is_open.recv().is_err(), "nothing is sent"));
        let left = join_soon(vec![waits], Some(Instant::now()));
        drop(open);
        left.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
