//! The registry of a runtime: it finds tasks that wait, and tasks with a name.
//!
//! A task in a queue, or one that is being polled, is found through the queue or the worker. A task
//! that waits would be reachable only through its wakers. The shutdown must be able to cancel it,
//! and the console to list it, so it is added to the registry before it waits for the first time.
//! Most tasks of a program that spawns many never wait. A task with a name is added at its spawn,
//! since observers look it up by name. A task stays in the registry until it ends.
//!
//! An ordinary case: the first poll of a task is pending. Its worker adds it to a shard, and stores
//! its place in the task. Later the task ends, and the worker that runs it removes it from that
//! place. The race: a shutdown closes the registry while a worker adds a task.
//!
//! Writers: workers, when a task first waits or ends; spawns of tasks with a name. Readers:
//! the shutdown, and observers that look up names or count tasks.
//!
//! Invariants:
//! * *Kept while it waits*: an IDLE task is in the registry, which owns a reference to it. So it is
//!   not freed before its end, even if its last waker is dropped.
//! * *No task is missed*: `close` marks a shard and copies its tasks under one lock. A task that
//!   was added before is cancelled by `close`. For a task that is added later, `keep` returns that
//!   the registry is closed, and the caller cancels it.
//!
//! Shape: shards, each with a lock around slots of 8 bytes. Free slots are linked to a list. A
//! worker always uses the same shard, so it contends for the lock only with threads that end a task
//! which first waited on that worker. A task stores its place.
//!
//! Rejected: all tasks from their spawn on, sharded by id. It costs two locks per task, a tenth of
//! a spawn, for tasks that are never looked up. Also rejected: tasks with names sharded by id. A
//! look-up takes one lock instead of all, but all workers share the locks of all spawns.

use std::collections::HashMap;
use std::ptr::{self, NonNull};
use std::thread;

use volt_shim::{AtomicUsize, CachePadded, Mutex, MutexGuard, Ordering};
use volt_telemetry::text;

use super::header::{Header, MAX_SHARDS, NO_PLACE, Place, Task};

/// The slots that a walk checks under one lock: some 20 µs if the tasks are in no cache.
const WALK_BATCH: usize = 256;
/// How often a walk yields its processor to threads that wait for a shard, before it continues
/// anyway.
const YIELDS_MAX: usize = 1000;
/// The slots of a shard whose memory is always retained: 8 KiB.
const SLOTS_KEPT: usize = if cfg!(miri) { 16 } else { 1024 };

/// The registry of a runtime. See the module documentation.
pub(crate) struct Registry {
    shards: Box<[CachePadded<Room>]>,
}

/// A shard and its lock.
///
/// A walk releases the lock and soon takes it again. The lock is not fair: a waiting thread is
/// woken too late each time, and could wait for the whole walk. Therefore waiting threads are
/// counted, and the walk does not take the lock while there are any.
#[derive(Default)]
struct Room {
    shard: Mutex<Shard>,
    waiting: AtomicUsize,
}

impl Room {
    fn lock(&self) -> MutexGuard<'_, Shard> {
        if let Some(shard) = self.shard.try_lock() {
            return shard;
        }
        // ORDERING: Relaxed, both: a hint for walks; the data is under the lock.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let shard = self.shard.lock();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        shard
    }

    /// Lets waiting threads take the lock, before the caller takes it again.
    fn let_others_in(&self) {
        for _ in 0..YIELDS_MAX {
            // ORDERING: Relaxed: as in `lock`.
            if self.waiting.load(Ordering::Relaxed) == 0 {
                return;
            }
            thread::yield_now();
        }
    }
}

#[derive(Default)]
struct Shard {
    slots: Slots,
    /// The slots of the tasks with a name, by id.
    named: HashMap<u64, usize>,
    is_closed: bool,
}

impl Registry {
    /// Creates a registry for `workers` workers. If there are more than `MAX_SHARDS`, some share a
    /// shard.
    pub(crate) fn new(workers: usize) -> Self {
        let shards = workers.clamp(1, MAX_SHARDS);
        Self { shards: (0..shards).map(|_| CachePadded::default()).collect() }
    }

    fn shard(&self, place: Place) -> MutexGuard<'_, Shard> {
        self.shards[usize::from(place.shard)].lock()
    }

    /// Adds the task to a shard. `shard` selects it: a worker passes its index, other threads any
    /// number that spreads the tasks. Returns true if the registry is closed: the caller must then
    /// cancel the task.
    ///
    /// The caller is the task's runner or its creator, so no other thread changes the task's place
    /// at the same time.
    #[must_use = "true means that the task must be cancelled"]
    pub(crate) fn keep(&self, task: &Task, shard: usize) -> bool {
        debug_assert!(!task.header().is_kept(), "kept once");
        let index = shard % self.shards.len();
        let mut shard = self.shards[index].lock();
        let slot = shard.slots.insert(task.clone());
        if task.header().name().is_some() {
            shard.named.insert(task.header().id.as_u64(), slot);
        }
        task.header().set_place(Place { slot: slot as u32, shard: index as u8 });
        shard.is_closed
    }

    /// Removes a task and returns the registry's reference, if the task is registered. Called by
    /// its runner or creator.
    #[inline]
    pub(crate) fn remove(&self, task: &Header) -> Option<Task> {
        task.is_kept().then(|| self.take(task))
    }

    #[cold]
    fn take(&self, task: &Header) -> Task {
        let place = task.place();
        let mut shard = self.shard(place);
        let found = shard.slots.remove(place.slot as usize);
        if task.name().is_some() {
            shard.named.remove(&task.id.as_u64());
        }
        drop(shard);
        debug_assert_eq!(found.header().id, task.id);
        task.set_place(NO_PLACE);
        found
    }

    /// Cancels all tasks in the registry. From now on, `keep` returns true.
    pub(crate) fn close(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.is_closed = true;
            let tasks: Vec<Task> = shard.slots.iter().cloned().collect();
            // Cancelling enqueues the task, which must not happen under the lock.
            drop(shard);
            tasks.iter().for_each(Task::cancel);
        }
    }

    /// Cancels all tasks in spite of their shields.
    pub(crate) fn cancel_unshielded(&self) {
        for shard in &self.shards {
            let tasks: Vec<Task> = shard.lock().slots.iter().cloned().collect();
            // As in `close`.
            tasks.iter().for_each(Task::cancel_unshielded);
        }
    }

    /// Returns the number of tasks in the registry.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().slots.iter().count()).sum()
    }

    /// Calls `f` for each task in the registry, at most `limit`. Returns false if there are more. A
    /// task that is added or removed meanwhile may be missed.
    ///
    /// `f` runs under a lock that workers take, so it must be short and must not run foreign code.
    pub(crate) fn walk(&self, limit: usize, mut f: impl FnMut(&Header)) -> bool {
        self.walk_tasks(limit, |task| f(task.header()))
    }

    /// Calls `f` as [`walk`](Self::walk) does.
    pub(crate) fn walk_tasks(&self, limit: usize, mut f: impl FnMut(&Task)) -> bool {
        let mut left = limit;
        let seen = self.find_task(|task| {
            if left == 0 {
                return Some(());
            }
            left -= 1;
            f(task);
            None
        });
        seen.is_none()
    }

    /// Calls `f` for tasks in the registry until it returns a value, under the conditions of
    /// [`walk`](Self::walk).
    pub(crate) fn find<R>(&self, mut f: impl FnMut(&Header) -> Option<R>) -> Option<R> {
        self.find_task(|task| f(task.header()))
    }

    fn find_task<R>(&self, mut f: impl FnMut(&Task) -> Option<R>) -> Option<R> {
        for room in &self.shards {
            let mut next = 0;
            loop {
                room.let_others_in();
                let shard = room.lock();
                let Some(slots) = shard.slots.slots.get(next..).filter(|slots| !slots.is_empty()) else { break };
                let slots = &slots[..slots.len().min(WALK_BATCH)];
                if let Some(found) = slots.iter().filter_map(Slot::task).find_map(&mut f) {
                    return Some(found);
                }
                next += slots.len();
            }
        }
        None
    }

    /// Returns the name of task `id` that was seen at `place`, if it is still there and has one.
    pub(crate) fn name_of(&self, id: u64, place: Place) -> Option<String> {
        self.look_up(id, place, |task| task.header().name().map(str::to_owned)).flatten()
    }

    /// Returns the name of task `id`, if it is in the registry and has one.
    pub(crate) fn name_by_id(&self, id: u64) -> Option<String> {
        let mut name = None;
        self.with_named(id, |task| name = task.name().map(str::to_owned));
        name
    }

    /// Calls `f` with the task of that id, if it is in the registry and has a name. Locks one shard
    /// after the other, so it is for observers only.
    pub(crate) fn with_named(&self, id: u64, f: impl FnOnce(&Header)) {
        for shard in &self.shards {
            let shard = shard.lock();
            let slot = shard.named.get(&id).copied();
            if let Some(task) = slot.and_then(|slot| shard.slots.get(slot)) {
                return f(task.header());
            }
        }
    }

    /// Returns task `id` if it is still at `place`. The caller may become the last owner of the
    /// task and then drops its spans, so it must be a thread that may wait for a `tracing`
    /// subscriber.
    pub(crate) fn get(&self, id: u64, place: Place) -> Option<Task> {
        self.look_up(id, place, Task::clone)
    }

    /// Calls `f` with the task of that id if it is at `place`. `f` runs under a lock that workers
    /// take, so it must be short and must not run foreign code.
    pub(crate) fn look_up<R>(&self, id: u64, place: Place, f: impl FnOnce(&Task) -> R) -> Option<R> {
        if place == NO_PLACE {
            return None;
        }
        let shard = self.shard(place);
        // Another task may have the slot by now.
        let task = shard.slots.get(place.slot as usize).filter(|task| task.header().id.as_u64() == id)?;
        Some(f(task))
    }

    /// Returns `#id name (spawned at)` of up to `limit` tasks in the registry, except those in
    /// `listed`, for the report of an incomplete shutdown.
    pub(crate) fn describe(&self, limit: usize, listed: &[u64]) -> Vec<String> {
        let mut lines = Vec::new();
        for shard in &self.shards {
            for task in shard.lock().slots.iter() {
                let header = task.header();
                if lines.len() == limit {
                    return lines;
                }
                if !listed.contains(&header.id.as_u64()) {
                    let name = header.name().map_or(String::new(), |name| format!(" {name}"));
                    lines.push(format!("#{}{name} ({})", header.id, text::location(header.location())));
                }
            }
        }
        lines
    }
}

/// Tasks by slot number, 8 bytes each.
#[derive(Default)]
struct Slots {
    slots: Vec<Slot>,
    /// The first free slot plus 1, or 0 if there is none, as in the free slots themselves.
    free: usize,
    occupied: usize,
    /// If at most this many slots are occupied, `remove` checks whether memory can be released.
    shrinks_at: usize,
}

/// The pointer of a task, whose lowest bit is clear, or `next << 1 | 1` in a free slot. `next - 1`
/// is then the next free slot, and 0 the end of the list.
#[derive(Clone, Copy)]
struct Slot(*mut Header);

// SAFETY: it is a reference to a task, and Task is Send, or a number.
unsafe impl Send for Slot {}

impl Slot {
    fn free(next: usize) -> Self {
        Self(ptr::without_provenance_mut(next << 1 | 1))
    }

    /// Returns the argument of `free`, if the slot is free.
    fn next_free(self) -> Option<usize> {
        (self.0.addr() & 1 != 0).then_some(self.0.addr() >> 1)
    }

    fn task(&self) -> Option<&Task> {
        if self.next_free().is_some() {
            return None;
        }
        // SAFETY: the slot contains a non-null `*mut Header` from `Task::into_raw`, which has the
        // layout of a Task (`repr(transparent)`). The slot owns the reference.
        Some(unsafe { &*ptr::from_ref(&self.0).cast::<Task>() })
    }
}

impl Slots {
    fn insert(&mut self, task: Task) -> usize {
        let slot = Slot(task.into_raw().as_ptr());
        self.occupied += 1;
        match self.free.checked_sub(1) {
            None => {
                assert!(self.slots.len() < NO_PLACE.slot as usize, "this many tasks need half a terabyte");
                self.slots.push(slot);
                self.shrinks_at = self.slots.len() / 4;
                self.slots.len() - 1
            }
            Some(index) => {
                let former = std::mem::replace(&mut self.slots[index], slot);
                self.free = former.next_free().expect("the free list has free slots only");
                index
            }
        }
    }

    fn get(&self, index: usize) -> Option<&Task> {
        self.slots.get(index)?.task()
    }

    fn remove(&mut self, index: usize) -> Task {
        let slot = std::mem::replace(&mut self.slots[index], Slot::free(self.free));
        assert!(slot.task().is_some(), "a task is removed once");
        self.free = index + 1;
        self.occupied -= 1;
        if self.occupied <= self.shrinks_at && self.slots.len() > SLOTS_KEPT {
            self.shrink();
        }
        let raw = NonNull::new(slot.0).expect("made from a NonNull");
        // SAFETY: the slot owned the reference that `insert` received, and no longer does.
        unsafe { Task::from_raw(raw) }
    }

    /// Releases the memory behind the last task, after many tasks have completed. Takes some ns per
    /// slot under the lock. It runs again when half of the remaining tasks have completed. From now
    /// on, free slots are used from the front, so that the next run can release more.
    #[cold]
    fn shrink(&mut self) {
        let len = self.slots.iter().rposition(|slot| slot.task().is_some()).map_or(0, |last| last + 1);
        self.slots.truncate(len);
        self.slots.shrink_to(SLOTS_KEPT);
        self.free = 0;
        for index in (0..len).rev() {
            if self.slots[index].next_free().is_some() {
                self.slots[index] = Slot::free(self.free);
                self.free = index + 1;
            }
        }
        self.shrinks_at = self.occupied / 2;
    }

    fn iter(&self) -> impl Iterator<Item = &Task> {
        self.slots.iter().filter_map(Slot::task)
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        for index in 0..self.slots.len() {
            if self.get(index).is_some() {
                drop(self.remove(index));
            }
        }
    }
}

#[cfg(test)]
mod tests;
