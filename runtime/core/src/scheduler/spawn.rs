//! Spawns tasks: counts a new task, calls the program's callbacks, and submits it.
//!
//! If the thread is a worker of the runtime, the task goes into that worker's own queues. Otherwise
//! it goes to the global queue or to an inbox, and a parked worker is woken for it
//! (`workers/wake`). This file also implements the trait `Schedule` for the tasks of a runtime,
//! which submits them in the same two ways when they are woken.

use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use volt_telemetry::recording::event::Event;

use super::lease::Lease;
use super::shared::Shared;
use super::worker::events::wake_of;
#[cfg(test)]
use super::worker::sim;
use super::worker::{Worker, current};
use crate::clock;
use crate::config::Placement;
use crate::config::hooks::{self, TaskMeta};
use crate::stats::locations::number_of;
use crate::task::cell::{into_future, new_task, new_task_of_thread};
use crate::task::header::{Header, Notified, Task};
use crate::task::id::Id;
use crate::task::join::JoinHandle;
use crate::task::refused::TrySpawnError;
use crate::task::schedule::{Here, Schedule};
use crate::task::state::Wake;
use crate::task::trace::{Kind, extra};

impl Shared {
    /// Spawns a task.
    pub(crate) fn spawn<F>(
        self: &Arc<Self>,
        future: F,
        name: Option<&str>,
        location: &'static Location<'static>,
    ) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        // SAFETY: the future and its output are Send.
        unsafe { self.spawn_of_thread(future, name, location) }
    }

    /// Spawns a task as `spawn` does, for futures that stay on one thread.
    ///
    /// # Safety
    /// The future and its output are Send, or this is a `LocalRuntime` of the calling thread.
    pub(crate) unsafe fn spawn_of_thread<F>(
        self: &Arc<Self>,
        future: F,
        name: Option<&str>,
        location: &'static Location<'static>,
    ) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let id = Id::next();
        let extra = extra(id, name, location, Kind::Task, self.config.inherit_spans);
        // SAFETY: by contract; SAME-THREAD of `runtime/local`.
        let (task, join) = unsafe { new_task_of_thread(future, Lease::of(self), id, location, extra) };
        if let Err(task) = self.start(task) {
            // The runtime shuts down.
            self.cancel_now(task);
        }
        join
    }

    /// Spawns a task. Fails if too many tasks are waiting already, or if the runtime shuts down.
    pub(crate) fn try_spawn<F>(
        self: &Arc<Self>,
        future: F,
        name: Option<&str>,
        location: &'static Location<'static>,
    ) -> Result<JoinHandle<F::Output>, TrySpawnError<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        // Checked first: a queue that is no longer emptied may stay full for ever.
        if self.is_closed() {
            return Err(TrySpawnError::shut_down(future));
        }
        let Some(_room) = self.find_room() else {
            return Err(TrySpawnError::full(future, self.config.global_queue_capacity));
        };
        let id = Id::next();
        let extra = extra(id, name, location, Kind::Task, self.config.inherit_spans);
        let (task, join) = new_task(future, Lease::of(self), id, location, extra);
        match self.start(task) {
            Ok(()) => Ok(join),
            Err(task) => {
                hooks::call_for(self.config.hooks.task_end.as_ref(), &TaskMeta::of(task.header()));
                // SAFETY: the task was created above, from F, and no queue has taken it in.
                let future = unsafe { into_future::<F, Lease<Self>>(task, join) };
                Err(TrySpawnError::shut_down(future))
            }
        }
    }

    /// Reserves room for one more task, until it is dropped, so that concurrent calls do not use
    /// the same room.
    pub(super) fn find_room(&self) -> Option<Room<'_>> {
        // ORDERING: Acquire; pairs with the Release where a `Room` is dropped: if a call is not
        // counted here any more, its task is counted in the length of the queue.
        let others = self.workers.intake.arriving.fetch_add(1, Ordering::Acquire);
        let room = Room(&self.workers.intake.arriving);
        (self.waiting() + others < self.config.global_queue_capacity).then_some(room)
    }

    /// Returns how many tasks wait for a worker to take them in.
    fn waiting(&self) -> usize {
        let placed = match self.config.placement {
            Placement::Global => 0,
            _ => self.workers.remotes.iter().map(|remote| remote.inbox.len()).sum(),
        };
        self.workers.injector.len() + placed
    }

    /// End (1): counts a new task and submits it, or returns it if the runtime shuts down.
    fn start(self: &Arc<Self>, task: Notified) -> Result<(), Notified> {
        if task.header().extra().is_some() {
            self.keep_in_registry(task.task());
        }
        if self.config.hooks.task_spawn.is_some() {
            self.call_spawn_hook(task.header());
        }
        if self.is_recorded.is_on() {
            let location = number_of(task.header().location());
            self.note(task.header(), Event::Spawn { task: task.header().id.as_u64(), location });
        }
        let refused = current::with_worker(|worker| match worker.filter(|worker| worker.is_of(self)) {
            Some(_) if self.is_closed() => Err(task),
            Some(worker) => {
                worker.cells().spawned.add_one();
                Ok(worker.push_woken(task))
            }
            None => self.inject_new(task).map(|()| None),
        });
        if let Some(task) = refused? {
            self.inject(task);
        }
        Ok(())
    }

    #[cold]
    fn call_spawn_hook(&self, task: &Header) {
        hooks::call_for(self.config.hooks.task_spawn.as_ref(), &TaskMeta::of(task));
    }

    /// Records that a task is submitted, at the time that its header contains.
    #[cold]
    fn note(&self, task: &Header, event: Event) {
        self.note_at(task.submitted_at_ns(), event);
    }

    /// Records an event of the present time, if the recorder is on; for other modules. Costs one
    /// load if it is off.
    #[inline]
    pub(crate) fn note_now(&self, event: impl FnOnce() -> Event) {
        if self.is_recorded.is_on() {
            self.note_at(clock::now_ns(), event());
        }
    }

    #[cold]
    fn note_at(&self, at_ns: u64, event: Event) {
        current::with_worker(|worker| match worker.filter(|worker| worker.is_of(self)) {
            Some(worker) => worker.note(at_ns, event),
            None => self.recorder.note_outside(at_ns, event),
        });
    }

    /// Adds a task to the registry: one that is about to wait for the first time, or a new one with
    /// a name or a span, which the observer looks up there. A worker uses the shard of its own
    /// number; tasks from other threads are spread over the shards.
    fn keep_in_registry(&self, task: &Task) {
        let worker = current::with_worker(|worker| worker.filter(|worker| worker.is_of(self)).map(Worker::index));
        if self.workers.registry.keep(task, worker.unwrap_or(task.header().id.as_u64() as usize)) {
            let state = &task.header().state;
            let wake = if self.have_shields_ended() { state.cancel_unshielded() } else { state.cancel() };
            debug_assert_eq!(wake, Wake::Nothing, "it is about to be submitted, or runs");
        }
    }

    /// Submits a new task from outside the workers, or returns it if the runtime shuts down.
    fn inject_new(&self, task: Notified) -> Result<(), Notified> {
        let submitted_at_ns = task.header().submitted_at_ns();
        let chosen = self.workers.place();
        let arrivals = &self.workers.intake.arrivals[chosen.map_or(0, |worker| worker + 1)];
        let queue = chosen.map_or(&self.workers.injector, |worker| &self.workers.remotes[worker].inbox);
        let _submit = self.workers.intake.submits.begin();
        // Submit (1)
        queue.push_new(task, submitted_at_ns, || arrivals.add_one())?;
        #[cfg(test)]
        if sim::delays_wake_up(chosen) {
            return Ok(());
        }
        self.workers.wake_for_placed(chosen);
        Ok(())
    }
}

/// Reserved room for one task: see `Shared::find_room`.
pub(super) struct Room<'a>(&'a AtomicUsize);

impl Drop for Room<'_> {
    fn drop(&mut self) {
        // ORDERING: Release; pairs with the Acquire in `find_room`.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl Schedule for Lease<Shared> {
    const IS_COUNTED: bool = true;

    fn schedule(&self, task: Notified) {
        current::with_worker(|worker| match worker.filter(|worker| worker.is_of(self)) {
            Some(worker) => worker.take_woken(task),
            None => {
                if self.is_recorded.is_on() {
                    self.note(task.header(), wake_of(task.header()));
                }
                self.inject(task);
            }
        });
    }

    #[inline]
    fn here(&self) -> Option<Here> {
        current::with_worker(|worker| worker.filter(|worker| worker.is_of(self)).map(Here::of))
    }

    #[inline(always)]
    unsafe fn schedule_here(here: Here, task: Notified) {
        // SAFETY: `here` above made it from the worker of this thread. Worker while set, of
        // `current`: `run_as`, further up the stack than the caller of `here`, borrows the worker.
        unsafe { here.pointer::<Worker>().as_ref() }.take_woken(task);
    }

    #[inline]
    fn is_closing(&self) -> bool {
        self.is_closed()
    }

    fn have_shields_ended(&self) -> bool {
        Shared::have_shields_ended(self)
    }

    #[inline]
    fn keep(&self, task: &Task) {
        if !task.header().is_kept() {
            self.keep_in_registry(task);
        }
    }

    #[inline]
    fn release(&self, task: &Header) -> Option<Task> {
        self.workers.registry.remove(task)
    }
}
