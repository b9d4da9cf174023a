//! The tasks of a runtime that have to be found by others than those who hold them anyway.
//!
//! A task that is in a queue is found there, and one that is polled by its worker. So a task comes
//! in here when it is about to wait for the first time, and most tasks of a program that starts
//! many never do; and at once if it has a name, since the observer looks names up here. Once in, it
//! stays until it ends.
//!
//! Who writes: workers, when a task first waits or ends; spawns, of tasks with a name. Who reads:
//! shutdown, and the observer, for a name and to count them.
//!
//! Invariants:
//! * *Kept while it waits*: a task that is IDLE is in here, and the registry holds a reference to
//!   it, so that it is not freed without an end when its last waker goes.
//! * *Nobody slips through*: `close` marks a shard and takes its list under one lock. A task that
//!   is kept before is on the list and is cancelled by `close`; one that is kept after is told so,
//!   and is cancelled by whoever brings it.
//!
//! Shape: shards, each a lock around slots of 8 bytes; free slots are a list through themselves. A
//! worker always uses the same shard, so that it shares the lock only with whoever ends a task that
//! first waited elsewhere. A task remembers its place.
//!
//! Rejected: every task from its spawn on, sharded by id. Two locks a task, a tenth of what a spawn
//! costs, for tasks nobody ever searches for. Tasks with names sharded by id: a look-up takes one
//! lock instead of all, and all workers share the locks of all spawns.

use std::collections::HashMap;
use std::ptr::{self, NonNull};
use std::thread;

use volt_shim::{AtomicUsize, CachePadded, Mutex, MutexGuard, Ordering};

use super::header::{Header, MAX_SHARDS, NO_PLACE, Place, Task};

/// Slots that a walk through all checks under one lock: some 20 µs, if each task is in nobody's
/// cache.
const WALK_BATCH: usize = 256;
/// How often a walk gives its processor away for those that wait for a shard, before it goes on all
/// the same.
const YIELDS_MAX: usize = 1000;
/// Slots of a shard whose memory is kept, whoever leaves: 8 KiB.
const SLOTS_KEPT: usize = if cfg!(miri) { 16 } else { 1024 };

/// See the header of this file.
pub(crate) struct Registry {
    shards: Box<[CachePadded<Room>]>,
}

/// A shard behind its lock. Whoever walks through it takes the lock again at once, and the lock is
/// not fair: who waits would be woken too late each time, and wait for the whole walk. So it is
/// counted, and the walk stays away until it is in.
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
        // ORDERING: Relaxed, both; a hint to who walks through it, what it is about is under the
        // lock.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let shard = self.shard.lock();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        shard
    }

    /// For who had the lock, and will take it again.
    fn let_others_in(&self) {
        for _ in 0..YIELDS_MAX {
            // ORDERING: Relaxed; as in `lock`.
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
    /// Where the tasks are that have a name, by id.
    named: HashMap<u64, usize>,
    is_closed: bool,
}

impl Registry {
    /// For so many workers; with more than `MAX_SHARDS` some share a shard.
    pub(crate) fn new(workers: usize) -> Self {
        let shards = workers.clamp(1, MAX_SHARDS);
        Self { shards: (0..shards).map(|_| CachePadded::default()).collect() }
    }

    fn shard(&self, place: Place) -> MutexGuard<'_, Shard> {
        self.shards[usize::from(place.shard)].lock()
    }

    /// Takes the task in, for a caller that prefers a shard of its own: a worker by its index,
    /// others by anything that spreads. True: the registry is closed, and the caller has to
    /// cancel the task.
    ///
    /// The caller is the task's runner or its creator, so that no other call about the task's place
    /// happens at the same time.
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

    /// Gives back the reference to a task, if it is in here. Called by its runner, or its creator.
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

    /// Cancels every task that is in here, and has those who bring one from now on told.
    pub(crate) fn close(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.is_closed = true;
            let tasks: Vec<Task> = shard.slots.iter().cloned().collect();
            // Cancelling enqueues, and must not happen under the lock.
            drop(shard);
            tasks.iter().for_each(Task::cancel);
        }
    }

    /// Tasks that are in here.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().slots.iter().count()).sum()
    }

    /// Shows every task that is in here to `f`, `limit` of them at most; false: there are more. One
    /// that comes or goes meanwhile is seen or not.
    ///
    /// `f` runs under a lock that workers take, and must not call anybody.
    pub(crate) fn walk(&self, limit: usize, mut f: impl FnMut(&Header)) -> bool {
        let mut left = limit;
        let seen = self.find(|task| {
            if left == 0 {
                return Some(());
            }
            left -= 1;
            f(task);
            None
        });
        seen.is_none()
    }

    /// Shows tasks that are in here to `f` until it returns something; as [`walk`](Self::walk).
    pub(crate) fn find<R>(&self, mut f: impl FnMut(&Header) -> Option<R>) -> Option<R> {
        for room in &self.shards {
            let mut next = 0;
            loop {
                room.let_others_in();
                let shard = room.lock();
                let Some(slots) = shard.slots.slots.get(next..).filter(|slots| !slots.is_empty()) else { break };
                let slots = &slots[..slots.len().min(WALK_BATCH)];
                if let Some(found) = slots.iter().filter_map(Slot::task).find_map(|task| f(task.header())) {
                    return Some(found);
                }
                next += slots.len();
            }
        }
        None
    }

    /// The name of task `id` that was seen at `place`, if it is still there and has one.
    pub(crate) fn name_of(&self, id: u64, place: Place) -> Option<String> {
        self.look_up(id, place, |task| task.header().name().map(str::to_owned)).flatten()
    }

    /// The name of task `id`, if it is in here and has one.
    pub(crate) fn name_by_id(&self, id: u64) -> Option<String> {
        let mut name = None;
        self.with_named(id, |task| name = task.name().map(str::to_owned));
        name
    }

    /// Calls `f` with the task of that id, if it is in here and has a name. Checks one shard
    /// after the other: for observers.
    pub(crate) fn with_named(&self, id: u64, f: impl FnOnce(&Header)) {
        for shard in &self.shards {
            let shard = shard.lock();
            let slot = shard.named.get(&id).copied();
            if let Some(task) = slot.and_then(|slot| shard.slots.get(slot)) {
                return f(task.header());
            }
        }
    }

    /// Task `id`, if it is still where it was seen. Whoever gets it may be the last to let go of
    /// it, and with it of its spans: that is for threads that may wait for a subscriber.
    pub(crate) fn get(&self, id: u64, place: Place) -> Option<Task> {
        self.look_up(id, place, Task::clone)
    }

    /// Calls `f` with the task of that id if it is at `place`. `f` runs under a lock that workers
    /// take, and must not call anybody.
    pub(crate) fn look_up<R>(&self, id: u64, place: Place, f: impl FnOnce(&Task) -> R) -> Option<R> {
        if place == NO_PLACE {
            return None;
        }
        let shard = self.shard(place);
        // Somebody else may be there by now.
        let task = shard.slots.get(place.slot as usize).filter(|task| task.header().id.as_u64() == id)?;
        Some(f(task))
    }

    /// `#id name (spawned at)` of up to `limit` tasks that are in here, but for those of `told`:
    /// for the report of what a shutdown left behind.
    pub(crate) fn describe(&self, limit: usize, told: &[u64]) -> Vec<String> {
        let mut lines = Vec::new();
        for shard in &self.shards {
            for task in shard.lock().slots.iter() {
                let header = task.header();
                if lines.len() == limit {
                    return lines;
                }
                if !told.contains(&header.id.as_u64()) {
                    let name = header.name().map_or(String::new(), |name| format!(" {name}"));
                    lines.push(format!("#{}{name} ({})", header.id, header.location()));
                }
            }
        }
        lines
    }
}

/// Tasks by number, 8 bytes each.
#[derive(Default)]
struct Slots {
    slots: Vec<Slot>,
    /// The first free slot, as it stands in a free slot.
    free: usize,
    occupied: usize,
    /// With no more than so many it is worth while to check whether the memory is still needed.
    shrinks_at: usize,
}

/// A task's pointer, whose lowest bit is clear; or `next << 1 | 1`, where `next - 1` is the next
/// free slot, and 0 the end of the list.
#[derive(Clone, Copy)]
struct Slot(*mut Header);

// SAFETY: it is a task's reference, and Task is Send; or a number.
unsafe impl Send for Slot {}

impl Slot {
    fn free(next: usize) -> Self {
        Self(ptr::without_provenance_mut(next << 1 | 1))
    }

    /// What `free` was given.
    fn next_free(self) -> Option<usize> {
        (self.0.addr() & 1 != 0).then_some(self.0.addr() >> 1)
    }

    fn task(&self) -> Option<&Task> {
        if self.next_free().is_some() {
            return None;
        }
        // SAFETY: the slot is a non-null `*mut Header` as `Task::into_raw` gave it, and a Task is
        // nothing else (`repr(transparent)`); the slot holds the reference.
        Some(unsafe { &*ptr::from_ref(&self.0).cast::<Task>() })
    }
}

impl Slots {
    fn insert(&mut self, task: Task) -> usize {
        let slot = Slot(task.into_raw().as_ptr());
        self.occupied += 1;
        match self.free.checked_sub(1) {
            None => {
                assert!(self.slots.len() < NO_PLACE.slot as usize, "so many tasks take half a terabyte");
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
        // SAFETY: the slot held the reference that `insert` was given, and does so no more.
        unsafe { Task::from_raw(raw) }
    }

    /// Gives back the memory behind the last task, after a crowd has left. Some ns a slot, under
    /// the lock; the next time is when half of those that are left have gone. The free slots
    /// are used from the front from now on, so that the next time finds more.
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
