//! The callbacks of a program at the start, the end and the sleeps of a runtime's threads, and at
//! the spawn, the polls and the end of its tasks.
//!
//! The Builder sets them, and the threads themselves call them: workers, spare workers and the
//! threads of the blocking pool. The sentinel and other helper threads call none, except the
//! function that names threads: the thread that starts another one calls it, and the sentinel
//! starts spare workers. The thread that spawns, polls or cancels a task calls the callbacks for
//! tasks.
//!
//! A callback that panics must not end its thread: the thread's tasks would be lost. Each call is
//! contained, so the thread continues as if the callback had returned.

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

use crate::task::contain::contain;
use crate::task::details::dump;
use crate::task::header::Header;
use crate::task::id::Id;

/// A callback of the program.
pub(crate) type Hook = Arc<dyn Fn() + Send + Sync>;

/// A callback of the program for a task.
pub(crate) type TaskHook = Arc<dyn Fn(&TaskMeta<'_>) + Send + Sync>;

/// Describes the task that a callback is called for: its id and its spawn location.
///
/// Passed to the callbacks for tasks, such as the one set with
/// [`Builder::on_task_spawn`](crate::builder::Builder::on_task_spawn).
///
/// ```
/// # use volt_core as volt;
/// let runtime = volt::Builder::new_current_thread()
///     .on_task_spawn(|task| println!("task {} of {}", task.id(), task.spawned_at()))
///     .build()?;
/// runtime.block_on(async { volt::spawn(async {}).await.unwrap() });
/// # Ok::<(), volt::BuildError>(())
/// ```
#[derive(Debug)]
pub struct TaskMeta<'a> {
    id: Id,
    spawned_at: &'static Location<'static>,
    /// Reserves the lifetime, so that later versions may refer to the task.
    _task: PhantomData<&'a ()>,
}

impl TaskMeta<'_> {
    pub(crate) fn of(task: &Header) -> Self {
        Self { id: task.id, spawned_at: task.location(), _task: PhantomData }
    }

    /// Returns the id of the task.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Returns the spawn location: the line that spawned the task, or the location that was set
    /// with `volt::task::Builder::location`.
    pub fn spawned_at(&self) -> &'static Location<'static> {
        self.spawned_at
    }
}

/// The callbacks of one runtime. See the module documentation.
#[derive(Clone, Default)]
pub(crate) struct Hooks {
    pub(crate) start: Option<Hook>,
    pub(crate) stop: Option<Hook>,
    pub(crate) park: Option<Hook>,
    pub(crate) unpark: Option<Hook>,
    pub(crate) thread_name: Option<Arc<dyn Fn() -> String + Send + Sync>>,
    pub(crate) task_spawn: Option<TaskHook>,
    pub(crate) before_poll: Option<TaskHook>,
    pub(crate) after_poll: Option<TaskHook>,
    pub(crate) task_end: Option<TaskHook>,
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

    /// Returns whether a poll of a task may have a callback.
    pub(crate) fn are_for_polls(&self) -> bool {
        self.before_poll.is_some() || self.after_poll.is_some() || self.task_end.is_some()
    }
}

/// Calls `hook`, if there is one. If it panics, only the panic hook reports the panic.
pub(crate) fn call(hook: Option<&Hook>) {
    if let Some(hook) = hook {
        contain(|| hook());
    }
}

/// Calls `hook` for `task`, if there is one. If it panics, only the panic hook reports the panic.
/// The tasks of dumps have no callbacks, since the program has not spawned them.
pub(crate) fn call_for(hook: Option<&TaskHook>, task: &TaskMeta<'_>) {
    if let Some(hook) = hook
        && !dump::is_of_dump(task.spawned_at)
    {
        contain(|| hook(task));
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
            .field("task_spawn", &self.task_spawn.is_some())
            .field("before_poll", &self.before_poll.is_some())
            .field("after_poll", &self.after_poll.is_some())
            .field("task_end", &self.task_end.is_some())
            .finish()
    }
}
