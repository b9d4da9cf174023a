//! The settings that are functions of the program: the names of threads, callbacks at their start,
//! their end and their sleeps, and callbacks for tasks.
//!
//! The runtime calls these functions on its own threads, so a slow one delays tasks. A panic of
//! such a function is contained: it ends no thread. The calls are in `config::hooks`.

use std::sync::Arc;

use super::Builder;
use crate::config::hooks::TaskMeta;

/// # Callbacks
///
/// The callbacks for threads (`on_thread_…`) run on the threads of the runtime: on workers, on
/// spare workers (threads that replace workers that are stuck) and, at the start and the end, on
/// threads of the blocking pool. They run inside the runtime, so they may call `volt::spawn`.
///
/// The callbacks for tasks run on the thread that spawns, polls or cancels the task. No callback
/// may call `block_on`.
///
/// In a [current-thread runtime](Self::new_current_thread), the thread in `Runtime::block_on` is
/// the worker. It calls the functions for parks. It does not call those for its start and its end,
/// since the runtime does not start it.
///
/// If a callback panics, the panic hook reports the panic, and the thread continues as if the
/// callback had returned. A callback that is set again replaces the former one. A callback that is
/// not set costs nothing.
impl Builder {
    /// Sets a function that returns the names of worker threads and blocking threads. It is called
    /// once per thread, before the thread starts, by the thread that starts it. Linux shows only
    /// the first 15 bytes of a thread's name.
    ///
    /// It replaces [`thread_name`](Self::thread_name), which still names the runtime's helper
    /// threads, such as the one that resolves stacks. NUL is removed from a name. If the function
    /// panics, the thread gets a default name.
    ///
    /// The function must return quickly, and must not drop or shut down a runtime: the sentinel,
    /// which replaces stuck workers in all runtimes of the program, calls it for spare workers.
    ///
    /// ```
    /// # use volt_core as volt;
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    ///
    /// let next = AtomicUsize::new(0);
    /// let runtime = volt::Builder::new_multi_thread()
    ///     .worker_threads(1)
    ///     .thread_name_fn(move || format!("pool-{}", next.fetch_add(1, Ordering::Relaxed)))
    ///     .build()?;
    /// let name = runtime.spawn(async { std::thread::current().name().map(str::to_owned) });
    /// assert_eq!(runtime.block_on(name).unwrap().as_deref(), Some("pool-0"));
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn thread_name_fn<F>(mut self, f: F) -> Self
    where
        F: Fn() -> String + Send + Sync + 'static,
    {
        self.config.hooks.thread_name = Some(Arc::new(f));
        self
    }

    /// Sets a function that each worker thread and each blocking thread calls when it has started,
    /// before its first task or job.
    ///
    /// ```
    /// # use volt_core as volt;
    /// use std::sync::mpsc;
    ///
    /// let (started, starts) = mpsc::sync_channel(64);
    /// let runtime = volt::Builder::new_multi_thread()
    ///     .worker_threads(2)
    ///     .on_thread_start(move || _ = started.try_send(()))
    ///     .build()?;
    /// starts.recv().unwrap();
    /// starts.recv().unwrap();
    /// # drop(runtime);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn on_thread_start<F>(mut self, f: F) -> Self
    where
        F: Fn() + Send + Sync + 'static,
    {
        self.config.hooks.start = Some(Arc::new(f));
        self
    }

    /// Sets a function that each worker thread and each blocking thread calls when it is about to
    /// end, after its last task or job. A blocking thread ends after it has been idle for
    /// [`thread_keep_alive`](Self::thread_keep_alive), the others when the runtime shuts down. The
    /// shutdown waits for the function, within its limit.
    ///
    /// ```
    /// # use volt_core as volt;
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    ///
    /// let stops = Arc::new(AtomicUsize::new(0));
    /// let counted = stops.clone();
    /// let runtime = volt::Builder::new_multi_thread()
    ///     .worker_threads(2)
    ///     .on_thread_stop(move || _ = counted.fetch_add(1, Ordering::Relaxed))
    ///     .build()?;
    /// drop(runtime);
    /// assert!(stops.load(Ordering::Relaxed) >= 2);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn on_thread_stop<F>(mut self, f: F) -> Self
    where
        F: Fn() + Send + Sync + 'static,
    {
        self.config.hooks.stop = Some(Arc::new(f));
        self
    }

    /// Sets a function that a worker calls when it has found no task and is about to park.
    ///
    /// If the function spawns or wakes a task, the worker runs that task instead of sleeping. A
    /// worker parks often, so the function should return quickly. A worker that parks again because
    /// its [`park_timeout`](Self::park_timeout) has passed calls it again. Blocking threads do not
    /// call it, and neither does a thread that waits in `block_on` without being a worker.
    ///
    /// ```
    /// # use volt_core as volt;
    /// use std::sync::mpsc;
    ///
    /// let (parked, parks) = mpsc::sync_channel(1);
    /// let runtime = volt::Builder::new_multi_thread()
    ///     .worker_threads(1)
    ///     .on_thread_park(move || _ = parked.try_send(()))
    ///     .build()?;
    /// parks.recv().unwrap();
    /// # drop(runtime);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn on_thread_park<F>(mut self, f: F) -> Self
    where
        F: Fn() + Send + Sync + 'static,
    {
        self.config.hooks.park = Some(Arc::new(f));
        self
    }

    /// Sets a function that a worker calls when it has woken up and is about to search for tasks:
    /// once for each call of the function of [`on_thread_park`](Self::on_thread_park), on the same
    /// thread. It should return quickly, since a task may be waiting for this worker.
    ///
    /// ```
    /// # use volt_core as volt;
    /// use std::sync::mpsc;
    ///
    /// let (woken, wakes) = mpsc::sync_channel(1);
    /// let runtime = volt::Builder::new_multi_thread()
    ///     .worker_threads(1)
    ///     .on_thread_unpark(move || _ = woken.try_send(()))
    ///     .build()?;
    /// runtime.block_on(runtime.spawn(async {})).unwrap();
    /// drop(runtime);
    /// wakes.recv().unwrap();
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn on_thread_unpark<F>(mut self, f: F) -> Self
    where
        F: Fn() + Send + Sync + 'static,
    {
        self.config.hooks.unpark = Some(Arc::new(f));
        self
    }

    /// Sets a function that is called for each task that is spawned onto the runtime, before the
    /// task can be polled. The thread that spawns the task calls it, which may be a thread outside
    /// the runtime.
    ///
    /// This callback and the callbacks below are not called for blocking jobs and for the tasks of
    /// a `LocalSet`. The function must not spawn onto the same runtime: it would be called again
    /// for that task, without end.
    ///
    /// ```
    /// # use volt_core as volt;
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    ///
    /// let spawned = Arc::new(AtomicUsize::new(0));
    /// let counted = spawned.clone();
    /// let runtime = volt::Builder::new_current_thread()
    ///     .on_task_spawn(move |_task| _ = counted.fetch_add(1, Ordering::Relaxed))
    ///     .build()?;
    /// runtime.spawn(async {});
    /// assert_eq!(spawned.load(Ordering::Relaxed), 1);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn on_task_spawn<F>(mut self, f: F) -> Self
    where
        F: Fn(&TaskMeta<'_>) + Send + Sync + 'static,
    {
        self.config.hooks.task_spawn = Some(Arc::new(f));
        self
    }

    /// Sets a function that a worker calls before each poll of a task, and before it drops a task
    /// that was cancelled. The function should return quickly: its time counts as part of the
    /// poll, which becomes an incident if it takes too long.
    ///
    /// The function is also called when a [dump](crate::handle::Handle::dump) polls a waiting task.
    /// That poll takes place inside a poll of one of the dump's own tasks, for which no callback is
    /// called.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_current_thread()
    ///     .on_before_task_poll(|task| println!("{} begins", task.id()))
    ///     .on_after_task_poll(|task| println!("{} ends", task.id()))
    ///     .build()?;
    /// runtime.block_on(runtime.spawn(async { volt::task::yield_now().await })).unwrap();
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn on_before_task_poll<F>(mut self, f: F) -> Self
    where
        F: Fn(&TaskMeta<'_>) + Send + Sync + 'static,
    {
        self.config.hooks.before_poll = Some(Arc::new(f));
        self
    }

    /// Sets a function that a worker calls after each poll of a task.
    ///
    /// It runs on the same thread as the function of
    /// [`on_before_task_poll`](Self::on_before_task_poll) for that poll. Another worker may already
    /// poll the task again.
    pub fn on_after_task_poll<F>(mut self, f: F) -> Self
    where
        F: Fn(&TaskMeta<'_>) + Send + Sync + 'static,
    {
        self.config.hooks.after_poll = Some(Arc::new(f));
        self
    }

    /// Sets a function that is called once for each task that has ended: completed, panicked, or
    /// cancelled. It is called after the future was dropped and the task that awaits the
    /// [`JoinHandle`](crate::task::join::JoinHandle) was woken.
    ///
    /// Usually the worker that ran the task calls it, before the function of
    /// [`on_after_task_poll`](Self::on_after_task_poll). If a task is spawned onto a runtime that
    /// is shut down, the thread that spawns it calls the function, also where
    /// [`try_spawn`](crate::handle::Handle::try_spawn) returns the future.
    ///
    /// ```
    /// # use volt_core as volt;
    /// use std::sync::mpsc;
    ///
    /// let (ended, ends) = mpsc::channel();
    /// let runtime = volt::Builder::new_current_thread()
    ///     .on_task_terminate(move |task| _ = ended.send(task.id()))
    ///     .build()?;
    /// let task = runtime.spawn(std::future::pending::<()>());
    /// drop(runtime);
    /// assert_eq!(ends.recv().unwrap(), task.id());
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn on_task_terminate<F>(mut self, f: F) -> Self
    where
        F: Fn(&TaskMeta<'_>) + Send + Sync + 'static,
    {
        self.config.hooks.task_end = Some(Arc::new(f));
        self
    }
}
