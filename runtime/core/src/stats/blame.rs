//! Statistics by spawn location: what the tasks of each location cost, and how long they delayed
//! other tasks or were delayed.
//!
//! Each worker and the sentinel has a table, of which it is the only writer. Snapshots read and
//! merge the tables, from any thread. A table contains `PLACES` spawn locations, found by the
//! location's address with open addressing in at most `PROBES` steps. Locations that find no place
//! share one more, *other*. A place is never freed, so every number only grows.
//!
//! The charge. A task that is polled has waited since it was submitted. If the previous poll on the
//! same worker was long, the time for which the wait and that poll overlap is charged: as caused to
//! the location of the poll, as suffered to that of the task. The sentinel charges tasks that it
//! takes from a stuck worker in the same way, up to that moment. If that worker polls them after
//! all, it charges the rest. A task that waits behind many short polls is charged to no location:
//! that is load, not a fault of one task.

use std::panic::Location;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use volt_telemetry::incident::Blame;
use volt_telemetry::text;

use super::numbers::{Counter, Gauge};

/// Spawn locations per table, a power of two. More than the number that matters in a program at one
/// time.
const PLACES: usize = 128;
/// Places that are tried for a location.
const PROBES: usize = 8;
/// The place for locations that find no other.
const OTHER: usize = PLACES;
/// Minimum length of a poll that is charged for the delay of other tasks, ns.
pub(crate) const LONG_NS: u64 = 1_000_000;

const _: () = assert!(PLACES.is_power_of_two() && PROBES < PLACES);

/// See the header of this file.
#[derive(Debug)]
pub(crate) struct BlameTable(Box<[Place; PLACES + 1]>);

#[derive(Debug, Default)]
struct Place {
    location: AtomicPtr<Location<'static>>,
    polls: Counter,
    busy_ns: Counter,
    longest_poll_ns: Gauge,
    self_wakes: Counter,
    stalls: Counter,
    caused_ns: Counter,
    suffered_ns: Counter,
}

impl Default for BlameTable {
    fn default() -> Self {
        Self(Box::new(std::array::from_fn(|_| Place::default())))
    }
}

impl BlameTable {
    /// Counts a poll that has ended. Like all following methods that write, only for the writer.
    #[inline]
    pub(crate) fn count_poll(&self, location: &'static Location<'static>, took_ns: u64, has_woken_itself: bool) {
        let place = self.place(location);
        place.polls.add(1);
        place.busy_ns.add(took_ns);
        place.self_wakes.add(u64::from(has_woken_itself));
        if took_ns > place.longest_poll_ns.get() {
            place.longest_poll_ns.set(took_ns);
        }
    }

    /// Counts a poll that has become an incident.
    pub(crate) fn count_stall(&self, location: &'static Location<'static>) {
        self.place(location).stalls.add(1);
    }

    /// Records that a task of `victim` has waited for `ns` behind a poll of `culprit`.
    pub(crate) fn charge(&self, culprit: &'static Location<'static>, victim: &'static Location<'static>, ns: u64) {
        self.place(culprit).caused_ns.add(ns);
        self.place(victim).suffered_ns.add(ns);
    }

    #[inline]
    fn place(&self, location: &'static Location<'static>) -> &Place {
        let wanted = ptr::from_ref(location).cast_mut();
        let first = first_place(wanted);
        // ORDERING: Relaxed; single-writer cell.
        if self.0[first].location.load(Ordering::Relaxed) == wanted {
            return &self.0[first];
        }
        self.seek(wanted, first)
    }

    #[cold]
    fn seek(&self, wanted: *mut Location<'static>, first: usize) -> &Place {
        for step in 0..PROBES {
            let place = &self.0[(first + step) % PLACES];
            // ORDERING: Relaxed; single-writer cell.
            let found = place.location.load(Ordering::Relaxed);
            if found == wanted {
                return place;
            }
            if found.is_null() {
                // ORDERING: Release; pairs with the Acquire in `read`, although the location itself
                // has existed since the program began.
                place.location.store(wanted, Ordering::Release);
                return place;
            }
        }
        &self.0[OTHER]
    }

    /// Adds the figures of this table to those of the tables read before.
    pub(crate) fn read(&self, into: &mut Vec<Blame>) {
        for (index, place) in self.0.iter().enumerate() {
            // ORDERING: Acquire; pairs with the Release in `seek`.
            let location = place.location.load(Ordering::Acquire);
            // SAFETY: only `seek` writes the pointer, from a `&'static Location`.
            let location = unsafe { location.as_ref() };
            let spawned_at = match location {
                Some(location) => text::location(location),
                None if index == OTHER && place.has_counted() => "other".to_owned(),
                None => continue,
            };
            let known = match into.iter().position(|blame| blame.spawned_at == spawned_at) {
                Some(known) => known,
                None => {
                    into.push(Blame { spawned_at, self_wakes: Some(0), ..Blame::default() });
                    into.len() - 1
                }
            };
            let blame = &mut into[known];
            blame.polls += place.polls.get();
            blame.busy_ns += place.busy_ns.get();
            blame.longest_poll_ns = blame.longest_poll_ns.max(place.longest_poll_ns.get());
            blame.self_wakes = blame.self_wakes.map(|wakes| wakes + place.self_wakes.get());
            blame.stalls += place.stalls.get();
            blame.delay_caused_ns += place.caused_ns.get();
            blame.delay_suffered_ns += place.suffered_ns.get();
        }
    }
}

impl Place {
    fn has_counted(&self) -> bool {
        self.polls.get() + self.stalls.get() + self.caused_ns.get() + self.suffered_ns.get() > 0
    }
}

/// Returns a place in `0..PLACES`. Locations are close to each other, usually 24 bytes apart.
/// Fibonacci hashing spreads them (Knuth, 6.4), by its highest bits.
#[inline]
fn first_place(location: *mut Location<'static>) -> usize {
    let hash = (location.addr() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (hash >> (u64::BITS - PLACES.ilog2())) as usize
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn read(table: &BlameTable) -> Vec<Blame> {
        let mut blame = Vec::new();
        table.read(&mut blame);
        blame.sort_by(|a, b| a.spawned_at.cmp(&b.spawned_at));
        blame
    }

    /// Returns a location with a unique address that displays like its siblings.
    #[track_caller]
    fn leaked() -> &'static Location<'static> {
        /// Reachable, so that leak detectors do not report it.
        static KEPT: Mutex<Vec<&'static Location<'static>>> = Mutex::new(Vec::new());
        let location: &'static Location<'static> = Box::leak(Box::new(*Location::caller()));
        KEPT.lock().unwrap().push(location);
        location
    }

    #[test]
    fn polls_and_delays_go_to_their_locations() {
        let (table, culprit, victim) = (BlameTable::default(), leaked(), Location::caller());
        table.count_poll(culprit, 5_000, false);
        table.count_poll(culprit, 3_000, false);
        table.count_poll(victim, 10, true);
        table.charge(culprit, victim, 4_000);
        table.count_stall(culprit);
        let blame = read(&table);
        assert_eq!(blame.len(), 2);
        let of = |location: &Location<'_>| blame.iter().find(|blame| blame.spawned_at == location.to_string()).unwrap();
        let (culprit, victim) = (of(culprit), of(victim));
        assert_eq!((culprit.polls, culprit.busy_ns, culprit.longest_poll_ns), (2, 8_000, 5_000));
        assert_eq!((culprit.stalls, culprit.delay_caused_ns, culprit.delay_suffered_ns), (1, 4_000, 0));
        assert_eq!((victim.delay_caused_ns, victim.delay_suffered_ns, victim.self_wakes), (0, 4_000, Some(1)));
    }

    #[test]
    fn tables_of_several_writers_are_added_up() {
        let (one, other, location) = (BlameTable::default(), BlameTable::default(), Location::caller());
        one.count_poll(location, 7, false);
        other.count_poll(location, 9, false);
        let mut blame = Vec::new();
        one.read(&mut blame);
        other.read(&mut blame);
        assert_eq!(blame.len(), 1);
        assert_eq!((blame[0].polls, blame[0].busy_ns, blame[0].longest_poll_ns), (2, 16, 9));
    }

    #[test]
    fn tasks_without_a_row_are_counted_as_other() {
        let table = BlameTable::default();
        let locations: Vec<_> = (0..4 * PLACES).map(|_| leaked()).collect();
        for _ in 0..3 {
            for location in &locations {
                table.count_poll(location, 1, false);
            }
        }
        assert_eq!(table.0.iter().map(|place| place.polls.get()).sum::<u64>(), 12 * PLACES as u64);
        assert!(table.0[OTHER].polls.get() > 0);
        assert!(read(&table).iter().any(|blame| blame.spawned_at == "other"));
    }
}
