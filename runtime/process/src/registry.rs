//! The processes of one node, found by pid or by name. Every send finds its receiver here.
//!
//! # Shape
//!
//! `SHARDS` slabs, each behind its own lock. The index of a pid consists of the shard (its low
//! bits) and the place in the slab (the rest). When a place is used again, its generation is
//! incremented, so that a pid finds its own process or none. A place whose generations are used up
//! stays empty forever.
//!
//! # Rejected
//!
//! * One slab behind one lock: every send of every worker would contend for it.
//! * `sharded-slab`: its keys have no room for a generation of fixed width, which the text form of
//!   a pid needs.

use std::collections::HashMap;
use std::collections::hash_map;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use crate::messages::pid::{Node, Pid};
use crate::stopping;

/// A power of two, and more than the threads that look processes up at the same time.
pub(crate) const SHARDS: usize = 64;
/// Places that `walk` copies under one lock. This takes about 20 µs if no process is in a cache.
const WALK_BATCH: usize = 256;

/// The processes of one node. See the module's documentation.
#[derive(Debug)]
pub(crate) struct Registry<E> {
    node: Node,
    shards: [RwLock<Shard<E>>; SHARDS],
    /// The generation of a place that is used for the first time. Later ones count up from it.
    first_generation: u32,
    /// The number of the next insertion, which selects its shard.
    turn: AtomicU32,
    alive: AtomicUsize,
    max: usize,
    names: Mutex<HashMap<Arc<str>, Pid>>,
}

#[derive(Debug)]
struct Shard<E> {
    places: Vec<Place<E>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Place<E> {
    generation: u32,
    entry: Option<Arc<E>>,
}

impl<E> Default for Shard<E> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

/// The property of a process that the registry needs.
pub(crate) trait Named {
    /// Returns the name, if the process has one.
    fn name(&self) -> Option<&str>;
}

impl<E: Named> Registry<E> {
    /// Returns an empty registry for at most `max` processes, whose generations begin at
    /// `first_generation`.
    pub(crate) fn new(node: Node, max: usize, first_generation: u32) -> Self {
        Self {
            node,
            first_generation,
            shards: std::array::from_fn(|_| RwLock::default()),
            turn: AtomicU32::new(0),
            alive: AtomicUsize::new(0),
            max,
            names: Mutex::default(),
        }
    }

    /// Assigns a pid, and inserts the process that `entry` returns for it. Returns `None` if `max`
    /// processes are alive.
    pub(crate) fn insert(&self, entry: impl FnOnce(Pid) -> Arc<E>) -> Option<Arc<E>> {
        // ORDERING: Relaxed; this only enforces the bound, by read-modify-writes. The lock of the
        // shard publishes the entry. A refused insertion must not change the count even for a
        // moment: a shutdown that waits for the count to be 0 would not be notified when it is.
        let alive = &self.alive;
        alive
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| (count < self.max).then_some(count + 1))
            .ok()?;
        // ORDERING: Relaxed; any shard will do.
        let which = self.turn.fetch_add(1, Ordering::Relaxed) as usize % SHARDS;
        let mut shard = self.shards[which].write().unwrap_or_else(PoisonError::into_inner);
        let at = match shard.free.pop() {
            Some(at) => at as usize,
            None => {
                shard.places.push(Place { generation: self.first_generation, entry: None });
                shard.places.len() - 1
            }
        };
        let place = &mut shard.places[at];
        let entry = entry(Pid::new(self.node, (at * SHARDS + which) as u32, place.generation));
        place.entry = Some(entry.clone());
        Some(entry)
    }

    /// Returns the process, if it is alive.
    pub(crate) fn get(&self, pid: Pid) -> Option<Arc<E>> {
        let shard = self.shard(pid)?;
        let place = shard.places.get(pid.index() as usize / SHARDS)?;
        place.entry.as_ref().filter(|_| place.generation == pid.generation()).cloned()
    }

    /// Removes the process and its name.
    pub(crate) fn remove(&self, pid: Pid) {
        let shard = self.shards[pid.index() as usize % SHARDS].write().unwrap_or_else(PoisonError::into_inner);
        let at = pid.index() as usize / SHARDS;
        let entry = stopping::remove(shard, &self.alive, |shard| {
            let place = &mut shard.places[at];
            debug_assert_eq!(place.generation, pid.generation(), "a process is removed once");
            let entry = place.entry.take();
            let next = place.generation.wrapping_add(1);
            if next != self.first_generation {
                place.generation = next;
                shard.free.push(at as u32);
            }
            entry
        });
        if let Some(name) = entry.as_ref().and_then(|entry| entry.name()) {
            self.unname(name, pid);
        }
    }

    /// Returns the number of live processes.
    pub(crate) fn len(&self) -> usize {
        // ORDERING: Relaxed; the value is only displayed, except in a shutdown, for which the locks
        // of the shards order it: see `stopping`.
        self.alive.load(Ordering::Relaxed)
    }

    /// Returns the largest allowed number of live processes.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// Returns the live processes, shard by shard. This is not a consistent snapshot. A shard is
    /// locked only while it is copied.
    pub(crate) fn list(&self) -> impl Iterator<Item = Arc<E>> {
        self.shards.iter().flat_map(|shard| {
            let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
            shard.places.iter().filter_map(|place| place.entry.clone()).collect::<Vec<_>>()
        })
    }

    /// Passes at most `limit` live processes to `see`. Returns false if there are more. Like
    /// [`list`](Self::list), but copies a few processes at a time, and calls `see` without a lock.
    pub(crate) fn walk(&self, limit: usize, mut see: impl FnMut(&E)) -> bool {
        let mut left = limit;
        let mut some = Vec::with_capacity(WALK_BATCH);
        for shard in &self.shards {
            let mut next = 0;
            loop {
                let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
                let places = shard.places.get(next..).unwrap_or_default();
                let places = &places[..places.len().min(WALK_BATCH)];
                if places.is_empty() {
                    break;
                }
                next += places.len();
                some.extend(places.iter().filter_map(|place| place.entry.clone()));
                drop(shard);
                for entry in some.drain(..) {
                    if left == 0 {
                        return false;
                    }
                    left -= 1;
                    see(&entry);
                }
            }
        }
        true
    }

    /// Assigns `name` to a process. Returns false if it is taken.
    pub(crate) fn name(&self, name: Arc<str>, pid: Pid) -> bool {
        match self.names().entry(name) {
            hash_map::Entry::Occupied(_) => false,
            hash_map::Entry::Vacant(free) => {
                free.insert(pid);
                true
            }
        }
    }

    /// Releases `name` if the process has it.
    pub(crate) fn unname(&self, name: &str, pid: Pid) {
        let mut names = self.names();
        if names.get(name) == Some(&pid) {
            names.remove(name);
        }
    }

    /// Returns the process with this name.
    pub(crate) fn named(&self, name: &str) -> Option<Pid> {
        self.names().get(name).copied()
    }

    fn shard(&self, pid: Pid) -> Option<RwLockReadGuard<'_, Shard<E>>> {
        let is_ours = pid.node() == self.node;
        is_ours.then(|| self.shards[pid.index() as usize % SHARDS].read().unwrap_or_else(PoisonError::into_inner))
    }

    fn names(&self) -> std::sync::MutexGuard<'_, HashMap<Arc<str>, Pid>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
