//! The processes of a node by pid, and by name.
//!
//! Shape: `SHARDS` slabs, each behind a lock of its own; a pid's index says the shard (its low
//! bits) and the place in it (the rest). A place that is used again has its generation counted up,
//! so that a pid finds its own process or none. A place whose generations are used up is left empty
//! for good.
//!
//! Rejected: one slab behind one lock (every send of every worker would meet there);
//! `sharded-slab`, whose keys have no room for a generation of a fixed width, which the text form
//! of a pid wants.

use std::collections::HashMap;
use std::collections::hash_map;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use crate::messages::pid::{Node, Pid};

/// A power of two; more than the threads that look up at the same moment.
pub(crate) const SHARDS: usize = 64;
/// Places that `walk` copies under one lock: some 20 µs, if each process is in nobody's cache.
const WALK_BATCH: usize = 256;

/// See the header of this file.
#[derive(Debug)]
pub(crate) struct Registry<E> {
    node: Node,
    shards: [RwLock<Shard<E>>; SHARDS],
    /// Of places that are new; others count on from it.
    first_generation: u32,
    /// Which shard the next process goes to.
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

/// What the registry has to know of a process.
pub(crate) trait Named {
    /// Its name, if it has one.
    fn name(&self) -> Option<&str>;
}

impl<E: Named> Registry<E> {
    /// An empty one for at most `max` processes, whose generations begin at `first_generation`.
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

    /// Gives a pid to the process that `entry` makes of it. `None` if there are as many as there
    /// may be.
    pub(crate) fn insert(&self, entry: impl FnOnce(Pid) -> Arc<E>) -> Option<Arc<E>> {
        // ORDERING: Relaxed; a bound, counted by read-modify-writes; the shard's lock publishes the
        // entry. A refusal counts nothing, not even for a moment: a shutdown that waits for nobody
        // to be left would never hear of its end.
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

    /// The process, if it lives.
    pub(crate) fn get(&self, pid: Pid) -> Option<Arc<E>> {
        let shard = self.shard(pid)?;
        let place = shard.places.get(pid.index() as usize / SHARDS)?;
        place.entry.as_ref().filter(|_| place.generation == pid.generation()).cloned()
    }

    /// Takes the process and its name out.
    pub(crate) fn remove(&self, pid: Pid) {
        let mut shard = self.shards[pid.index() as usize % SHARDS].write().unwrap_or_else(PoisonError::into_inner);
        let at = pid.index() as usize / SHARDS;
        let place = &mut shard.places[at];
        debug_assert_eq!(place.generation, pid.generation(), "a process is removed once");
        let entry = place.entry.take();
        let next = place.generation.wrapping_add(1);
        if next != self.first_generation {
            place.generation = next;
            shard.free.push(at as u32);
        }
        // ORDERING: Relaxed; under the shard's lock, so that a shutdown that has seen the shard
        // afterwards counts this end, and one that has seen it before is told by `System::ended`.
        self.alive.fetch_sub(1, Ordering::Relaxed);
        drop(shard);
        if let Some(name) = entry.as_ref().and_then(|entry| entry.name()) {
            self.unname(name, pid);
        }
    }

    /// How many processes live.
    pub(crate) fn len(&self) -> usize {
        // ORDERING: Relaxed; a reading for show, but for a shutdown, whose is ordered by the
        // shards' locks: see `remove`.
        self.alive.load(Ordering::Relaxed)
    }

    /// How many may live.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// Those that live, shard by shard: not at one moment, and none is held up for longer than its
    /// shard is copied.
    pub(crate) fn list(&self) -> impl Iterator<Item = Arc<E>> {
        self.shards.iter().flat_map(|shard| {
            let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
            shard.places.iter().filter_map(|place| place.entry.clone()).collect::<Vec<_>>()
        })
    }

    /// Shows those that live to `see`, `limit` of them at most; false: there are more. As
    /// [`list`](Self::list), a few under a lock at a time, and `see` runs under none.
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

    /// Gives `name` to a process; false if one has it.
    pub(crate) fn name(&self, name: Arc<str>, pid: Pid) -> bool {
        match self.names().entry(name) {
            hash_map::Entry::Occupied(_) => false,
            hash_map::Entry::Vacant(free) => {
                free.insert(pid);
                true
            }
        }
    }

    /// Takes `name` from the process, if it bears it.
    pub(crate) fn unname(&self, name: &str, pid: Pid) {
        let mut names = self.names();
        if names.get(name) == Some(&pid) {
            names.remove(name);
        }
    }

    /// Who bears `name`.
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
