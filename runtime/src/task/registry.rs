//! The tasks of a runtime that are alive.
//!
//! Who writes: spawns and completions, on any thread, one shard's lock each. Who reads: shutdown, and the observer for a name.
//!
//! Invariants: *Registered while alive*: a task is in here from before its first submission until it is complete, and the registry
//! holds a reference for that time. *Closed for good*: once closed, nothing enters.
//!
//! Shape: shards by task id, each a lock around a slab; a task remembers its place. `alive` counts all shards, so that "closed and
//! empty" is two loads.

use std::sync::atomic::{AtomicUsize, Ordering};

use slab::Slab;

use super::header::{Header, Task};
use super::id::Id;
use crate::shim::{CachePadded, Mutex};

/// Shards: more than the threads that spawn at the same time on machines that exist.
const SHARDS: usize = 16;

/// See the header of this file.
pub(crate) struct Registry {
    shards: Box<[CachePadded<Mutex<Shard>>]>,
    alive: CachePadded<AtomicUsize>,
}

#[derive(Default)]
struct Shard {
    tasks: Slab<Task>,
    is_closed: bool,
}

impl Registry {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| CachePadded(Mutex::new(Shard::default()))).collect(),
            alive: CachePadded(AtomicUsize::new(0)),
        }
    }

    fn shard(&self, id: u64) -> &Mutex<Shard> {
        &self.shards[id as usize % SHARDS]
    }

    /// Takes the task in.
    ///
    /// # Errors
    /// The task, if the registry is closed.
    pub(crate) fn insert(&self, task: Task) -> Result<(), Task> {
        let id = task.header().id;
        self.insert_with(id, task, |task| (task, ()))
    }

    /// Has task `id` made of `ingredients`, and takes it in; `make` is called under a lock and must only move things.
    ///
    /// # Errors
    /// The ingredients, if the registry is closed.
    pub(crate) fn insert_with<I, R>(&self, id: Id, ingredients: I, make: impl FnOnce(I) -> (Task, R)) -> Result<R, I> {
        let mut shard = self.shard(id.as_u64()).lock();
        if shard.is_closed {
            return Err(ingredients);
        }
        let (task, result) = make(ingredients);
        debug_assert_eq!(task.header().id, id);
        let entry = shard.tasks.vacant_entry();
        let key = u32::try_from(entry.key()).expect("memory ends long before 2^32 tasks a shard");
        // ORDERING: Relaxed; single-writer cell, written here before the task is submitted.
        task.header().registry_key.store(key, Ordering::Relaxed);
        entry.insert(task);
        // ORDERING: Relaxed; only counted; under the shard's lock, so `close` sees all that came in before.
        self.alive.fetch_add(1, Ordering::Relaxed);
        Ok(result)
    }

    /// Lets go of a task that is complete. Returns whether the registry is now closed and empty.
    pub(crate) fn remove(&self, task: &Header) -> bool {
        let mut shard = self.shard(task.id.as_u64()).lock();
        // ORDERING: Relaxed; single-writer cell, written before the task was submitted.
        let key = task.registry_key.load(Ordering::Relaxed) as usize;
        let is_here = shard.tasks.get(key).is_some_and(|found| found.header().id == task.id);
        if !is_here {
            // It was refused by `insert`.
            return false;
        }
        let removed = shard.tasks.remove(key);
        let is_closed = shard.is_closed;
        drop(shard);
        // ORDERING: AcqRel; pairs with the load in `alive`: who sees 0 sees all completions.
        let was_last = self.alive.fetch_sub(1, Ordering::AcqRel) == 1;
        drop(removed);
        was_last && is_closed
    }

    /// From now on nothing enters.
    pub(crate) fn close(&self) {
        self.shards.iter().for_each(|shard| shard.lock().is_closed = true);
    }

    /// Cancels every task that is alive.
    pub(crate) fn cancel_all(&self) {
        for shard in &self.shards {
            // Cancelling enqueues, and must not happen under the lock.
            let tasks: Vec<Task> = shard.lock().tasks.iter().map(|(_, task)| task.clone()).collect();
            tasks.iter().for_each(Task::cancel);
        }
    }

    /// Tasks alive now.
    pub(crate) fn alive(&self) -> usize {
        // ORDERING: Acquire; pairs with the fetch_sub in `remove`.
        self.alive.load(Ordering::Acquire)
    }

    /// The name of task `id` that sits at `key`, if it is still alive and has one.
    pub(crate) fn name_of(&self, id: u64, key: u32) -> Option<String> {
        let shard = self.shard(id).lock();
        let task = shard.tasks.get(key as usize).filter(|task| task.header().id.as_u64() == id)?;
        task.header().name().map(str::to_owned)
    }

    /// `#id name (spawned at)` of up to `limit` tasks that are alive: for the report of what a shutdown left behind.
    pub(crate) fn describe(&self, limit: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for shard in &self.shards {
            for (_, task) in &shard.lock().tasks {
                if lines.len() == limit {
                    return lines;
                }
                let header = task.header();
                let name = header.name().map_or(String::new(), |name| format!(" {name}"));
                lines.push(format!("#{}{name} ({})", header.id, header.location));
            }
        }
        lines
    }
}
