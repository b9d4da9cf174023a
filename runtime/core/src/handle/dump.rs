//! A dump of the runtime's tasks, from inside of the program.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::thread;

use volt_telemetry::dump::{Dump, Query};

use super::Handle;

/// The result of the thread that makes the dump, and the task that waits for it.
#[derive(Default)]
struct Made {
    dump: Option<Dump>,
    waiting: Option<Waker>,
}

impl Handle {
    /// Returns what every task of the runtime waits for: the chain of awaits of each waiting task,
    /// down to the operation that is pending, in groups. [`Dump::text`] formats it, as
    /// `volt-console dump` shows it.
    ///
    /// Polls each waiting task once to find its chain. This is harmless: a future may be polled at
    /// any time. A task that can make progress makes progress. The chains of 100,000 tasks take
    /// about a second, in slices of 50 µs between other tasks.
    ///
    /// Chains are available on Linux, on x86-64 and aarch64. Without debug information the lines
    /// are missing: set `debug = "line-tables-only"` in the profile.
    ///
    /// # Cancel safety
    /// If the future is dropped, the dump is completed in the background and discarded.
    ///
    /// # Panics
    /// Panics in a child process that was forked from the runtime's program.
    ///
    /// ```
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// let (sender, receiver) = volt::sync::oneshot::channel::<u32>();
    /// runtime.spawn(async { receiver.await });
    /// let dump = runtime.block_on(async {
    ///     while volt::runtime::Handle::current().snapshot().tasks.alive == 0 {
    ///         volt::task::yield_now().await;
    ///     }
    ///     volt::runtime::Handle::current().dump().await
    /// });
    /// println!("{}", dump.text());
    /// # drop(sender);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub async fn dump(&self) -> Dump {
        self.dump_with(Query::default()).await
    }

    /// Returns what the tasks that `query` selects wait for: see [`dump`](Self::dump).
    ///
    /// # Panics
    /// As for `dump`.
    ///
    /// ```
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
        self.shared.home.expect_here();
        let made = Arc::new(Mutex::new(Made::default()));
        let (shared, result) = (self.shared.clone(), made.clone());
        let thread = thread::Builder::new().name("volt-dump".into()).spawn(move || {
            let dump = shared.dump(&query);
            drop(shared);
            let waiting = {
                let mut made = result.lock().unwrap_or_else(PoisonError::into_inner);
                made.dump = Some(dump);
                made.waiting.take()
            };
            waiting.into_iter().for_each(Waker::wake);
        });
        if let Err(error) = thread {
            let remark = format!("no thread could be started for the dump: {error}");
            return Dump { runtime: self.shared.name.clone(), remarks: vec![remark], ..Dump::default() };
        }
        poll_fn(|cx| {
            let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
            match made.dump.take() {
                Some(dump) => Poll::Ready(dump),
                None => {
                    // Cloned under the lock: a traced waker notes the stack, which takes no locks.
                    made.waiting = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}
