//! The tasks of a runtime that are alive.
//!
//! Who writes: spawns and completions, on any thread, one shard's lock each. Who reads: shutdown, and the observer for a name.
//!
//! Invariants: *Registered while alive*: a task is in here from before its first submission until it is complete, and the registry
//! holds a reference for that time. *Closed for good*: once closed, nothing enters.
//!
//! Shape: shards by task id, each a lock around a slab; a task remembers its place. Nothing counts them all: that is asked at the end
//! only, and would cost every task two read-modify-writes.

use std::sync::atomic::Ordering;

use slab::Slab;

use super::header::{Header, Task};
use super::id::Id;
use crate::shim::{CachePadded, Mutex};

/// Shards: more than the threads that spawn at the same time on machines that exist.
const SHARDS: usize = 16;

/// See the header of this file.
pub(crate) struct Registry {
    shards: Box<[CachePadded<Mutex<Shard>>]>,
}

/// What [`Registry::remove`] leaves to do.
pub(crate) struct Removed {
    /// The registry's reference.
    pub(crate) reference: Option<Task>,
    /// The registry is closed, and now it is empty.
    pub(crate) was_last: bool,
}

#[derive(Default)]
struct Shard {
    tasks: Slab<Task>,
    is_closed: bool,
}

impl Registry {
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| CachePadded(Mutex::new(Shard::default()))).collect() }
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
        Ok(result)
    }

    /// Lets go of a task that is complete, and gives back the reference that it held, if `insert` took the task in.
    pub(crate) fn remove(&self, task: &Header) -> Removed {
        let mut shard = self.shard(task.id.as_u64()).lock();
        // ORDERING: Relaxed; single-writer cell, written before the task was submitted.
        let key = task.registry_key.load(Ordering::Relaxed) as usize;
        let is_here = shard.tasks.get(key).is_some_and(|found| found.header().id == task.id);
        let reference = is_here.then(|| shard.tasks.remove(key));
        let may_be_last = shard.is_closed && shard.tasks.is_empty();
        drop(shard);
        // Of two that end at once, the one that looks second sees that the other is gone.
        Removed { reference, was_last: may_be_last && self.alive() == 0 }
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

    /// Tasks alive now. Takes every lock in turn: for shutdown.
    pub(crate) fn alive(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().tasks.len()).sum()
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
