//! A shard of the table of waits: steps (3) to (5) of the protocol of the parent module, under the
//! shard's lock.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use super::holder::{Holder, Holding};

/// How many locks that no operation waits for any more a shard may keep for the next waits.
const KEPT_MAX: usize = 16;

/// An operation that waits.
pub(super) trait Ticketed {
    /// Returns its ticket. Tickets increase in the order in which operations began to wait.
    fn ticket(&self) -> u64;

    /// Returns the same with this ticket, as of a later poll than `former` if there was one.
    fn numbered(self, ticket: u64, former: Option<&Self>) -> Self;
}

/// A lock that operations wait for.
#[derive(Debug)]
pub(super) struct Resource<W> {
    pub(super) holding: Option<Holding>,
    /// By ticket.
    pub(super) waiters: VecDeque<W>,
}

/// A part of the table, with the operations `W` that wait.
pub(super) struct Shard<W> {
    pub(super) resources: HashMap<usize, Resource<W>, BuildHasherDefault<AddressHasher>>,
    /// The number of operations that wait.
    pub(super) waiting: usize,
    last_ticket: u64,
}

/// Distributes addresses, whose lowest bits are equal.
pub(super) fn hash(key: usize) -> u64 {
    (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

#[derive(Default)]
pub(super) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are addresses")
    }

    fn write_usize(&mut self, key: usize) {
        // The map takes its tag from the highest bits, and the position from the lowest.
        self.0 = hash(key).wrapping_mul(0x1_0000_0001);
    }
}

impl<W: Ticketed> Shard<W> {
    pub(super) const fn new() -> Self {
        Self { resources: HashMap::with_hasher(BuildHasherDefault::new()), waiting: 0, last_ticket: 0 }
    }

    /// Adds the waiter, or updates the one that has this ticket. Returns the ticket.
    pub(super) fn enter(&mut self, holder: &Holder, ticket: Option<u64>, waiter: W) -> u64 {
        let resource = self.resources.entry(holder.key()).or_default();
        resource.holding = holder.read();
        if let Some(ticket) = ticket {
            if let Some(known) = resource.find(ticket).map(|index| &mut resource.waiters[index]) {
                *known = waiter.numbered(ticket, Some(known));
            }
            return ticket;
        }
        self.waiting += 1;
        self.last_ticket += 1;
        resource.waiters.push_back(waiter.numbered(self.last_ticket, None));
        self.last_ticket
    }

    /// Returns the number of operations that wait for the lock of this holder.
    pub(super) fn waiting_for(&self, holder: &Holder) -> usize {
        self.resources.get(&holder.key()).map_or(0, |resource| resource.waiters.len())
    }

    /// Copies the holder again, if operations wait for its lock.
    pub(super) fn copy_again(&mut self, holder: &Holder) {
        let resource = self.resources.get_mut(&holder.key());
        if let Some(resource) = resource.filter(|resource| !resource.waiters.is_empty()) {
            resource.holding = holder.read();
        }
    }

    /// Removes the waiter with this ticket.
    pub(super) fn leave(&mut self, holder: &Holder, ticket: u64) {
        let Some(resource) = self.resources.get_mut(&holder.key()) else { return };
        match resource.waiters.front() {
            Some(first) if first.ticket() == ticket => drop(resource.waiters.pop_front()),
            _ => match resource.find(ticket) {
                Some(index) => drop(resource.waiters.remove(index)),
                None => return,
            },
        }
        self.waiting -= 1;
        if !resource.waiters.is_empty() {
            resource.holding = holder.read();
            return;
        }
        resource.holding = None;
        // Tasks that have waited for a lock soon wait for it again.
        if self.resources.len() > KEPT_MAX {
            self.resources.remove(&holder.key());
        }
    }
}

impl<W> Default for Resource<W> {
    fn default() -> Self {
        Self { holding: None, waiters: VecDeque::new() }
    }
}

impl<W: Ticketed> Resource<W> {
    fn find(&self, ticket: u64) -> Option<usize> {
        self.waiters.binary_search_by_key(&ticket, Ticketed::ticket).ok()
    }
}
