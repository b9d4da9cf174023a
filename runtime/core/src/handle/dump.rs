//! A dump of the runtime's tasks, from inside of the program.
//!
//! A dump takes a while and blocks its thread, so it is made on a thread that is started for it.
//! The future here waits for that thread. `scheduler/dump` makes the dump.

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;

use volt_telemetry::dump::{Dump, Query};

use super::Handle;
use crate::scheduler::readers::limit::{Limit, TIME_MAX};
use crate::scheduler::readers::main_futures;

/// The remark if making the dump panics.
const PANICKED: &str = "making the dump panicked, see the program's stderr: report it as a bug";

/// The result of the thread that makes the dump, and the task that waits for it.
#[derive(Default)]
struct Made {
    dump: Option<Dump>,
    waiting: Option<Waker>,
}

/// Makes a dump by `make` on a separate thread, which the future waits for. Fails if no thread
/// could be started. If `make` panics, the dump has only a remark.
fn on_thread(make: impl FnOnce() -> Dump + Send + 'static) -> io::Result<Waiting> {
    let made = Arc::new(Mutex::new(Made::default()));
    let result = made.clone();
    thread::Builder::new().name("volt-dump".into()).spawn(move || {
        // Unwind safe: what `make` has used is not used again.
        let dump = catch_unwind(AssertUnwindSafe(make)).unwrap_or_else(|_| with_remark(PANICKED.to_owned()));
        let waiting = {
            let mut made = result.lock().unwrap_or_else(PoisonError::into_inner);
            made.dump = Some(dump);
            made.waiting.take()
        };
        waiting.into_iter().for_each(Waker::wake);
    })?;
    Ok(Waiting(made))
}

fn with_remark(remark: String) -> Dump {
    Dump { remarks: vec![remark], ..Dump::default() }
}

/// Makes a dump by `make` on a separate thread. If the future is dropped, the dump is cancelled.
pub(crate) async fn made_by(make: impl FnOnce(&Limit) -> Dump + Send + 'static) -> Dump {
    let (limit, canceller) = Limit::new(TIME_MAX);
    let dump = match on_thread(move || make(&limit)) {
        Ok(waiting) => waiting.await,
        Err(error) => with_remark(format!("no thread could be started for the dump: {error}")),
    };
    drop(canceller);
    dump
}

/// Waits for the dump of a thread.
struct Waiting(Arc<Mutex<Made>>);

impl Future for Waiting {
    type Output = Dump;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Dump> {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(dump) = made.dump.take() {
            return Poll::Ready(dump);
        }
        // Cloned under the lock: a traced waker notes the stack, which takes no locks.
        let former = made.waiting.replace(cx.waker().clone());
        // Dropped without the lock, since that may run code of a subscriber.
        drop(made);
        drop(former);
        main_futures::note_dump();
        Poll::Pending
    }
}

impl Handle {
    /// Makes a dump: lists the waiting tasks of the runtime, in groups, with their chains of
    /// awaits. A chain leads from the spawned function down to the operation that is pending.
    /// [`Dump::text`] formats the dump as `volt-console dump` does.
    ///
    /// Polls each waiting task once to find its chain. This is harmless: a future may be polled at
    /// any time, and a task that can make progress does. The chains of 100,000 tasks take about a
    /// second, in slices of 50 µs between other tasks.
    ///
    /// The dump also contains the futures of `block_on`, such as that of `main`: their own threads
    /// poll them once. While such a thread is in a long poll, the dump waits up to 100 ms for it. A
    /// `block_on` that awaits a dump is left out, as are all of a runtime with a seed.
    ///
    /// A dump ends early after 20 s, or if its poll of one task takes 3 s. It then contains the
    /// tasks found so far, and a remark with the reason. The runtime makes one dump at a time;
    /// further calls wait. If eight calls already wait, a further one returns immediately, with
    /// only a remark.
    ///
    /// The polls call the callbacks that the builder has set for polls, such as
    /// [`on_before_task_poll`](crate::builder::Builder::on_before_task_poll). The runtime spawns
    /// one task for every 128 waiting tasks, to poll them. These tasks are counted like all tasks,
    /// but no callbacks are called for them.
    ///
    /// Chains are available on Linux, on x86-64 and aarch64. Without debug information the lines
    /// are missing: set `debug = "line-tables-only"` in the profile.
    ///
    /// # Cancel safety
    /// If the future is dropped, the dump ends early and is discarded. Some waiting tasks may still
    /// be polled.
    ///
    /// # Panics
    /// Panics in a child process that was forked from the runtime's program.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// runtime.spawn(async { volt::time::sleep(std::time::Duration::from_secs(3600)).await });
    /// let dump = runtime.block_on(async {
    ///     let handle = volt::Handle::current();
    ///     while handle.snapshot().tasks.alive == 0 {
    ///         volt::task::yield_now().await;
    ///     }
    ///     handle.dump().await
    /// });
    /// println!("{}", dump.text());
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub async fn dump(&self) -> Dump {
        self.dump_with(Query::default()).await
    }

    /// Makes a dump of the tasks that `query` selects; see [`dump`](Self::dump).
    ///
    /// # Cancel safety
    /// Same as [`dump`](Self::dump).
    ///
    /// # Panics
    /// Same as [`dump`](Self::dump).
    ///
    /// ```
    /// # use volt_core as volt;
    /// use volt::telemetry::dump::Query;
    ///
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// # let handle = runtime.handle().clone();
    /// # let dump = runtime.block_on(async move {
    /// handle.dump_with(Query { sample: 100, ..Query::default() }).await
    /// # });
    /// # assert_eq!(dump.waiting, 0);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub async fn dump_with(&self, query: Query) -> Dump {
        self.shared.identity.home.expect_here();
        let shared = self.shared.clone();
        let name = shared.identity.name.clone();
        let dump = made_by(move |limit| shared.dump(&query, limit)).await;
        Dump { runtime: name, ..dump }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::task::Wake;

    use super::*;
    use crate::builder::Builder;

    #[test]
    fn a_panic_while_a_dump_is_made_is_a_remark() {
        let runtime = Builder::new_current_thread().control_socket(false).build().unwrap();
        let waiting = on_thread(|| std::panic::resume_unwind(Box::new("on purpose"))).unwrap();
        assert_eq!(runtime.block_on(waiting).remarks, [PANICKED]);
    }

    /// A waker that records, when it is dropped, whether `made` is locked.
    struct Unlocked {
        made: Arc<Mutex<Made>>,
        was_locked: Arc<AtomicBool>,
    }

    impl Wake for Unlocked {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for Unlocked {
        fn drop(&mut self) {
            // ORDERING: Relaxed; the test reads it on the same thread.
            self.was_locked.fetch_or(self.made.try_lock().is_err(), Ordering::Relaxed);
        }
    }

    #[test]
    fn a_former_waker_is_dropped_without_the_lock() {
        let (go_on, wait) = mpsc::channel::<()>();
        let mut waiting = on_thread(move || {
            _ = wait.recv();
            Dump::default()
        })
        .unwrap();
        let was_locked = Arc::new(AtomicBool::new(false));
        for _ in 0..2 {
            let waker = Unlocked { made: waiting.0.clone(), was_locked: was_locked.clone() };
            let waker = Waker::from(Arc::new(waker));
            assert!(Pin::new(&mut waiting).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        // ORDERING: Relaxed; as above.
        assert!(!was_locked.load(Ordering::Relaxed));
        drop(go_on);
    }
}
