//! Numbers for spawn locations, which the records of the flight recorder contain instead of
//! addresses, since they have 16 bits for them.
//!
//! Threads that record an event look up the number of its location; threads that drain the rings
//! look up the location of a number. There is one table for the program, with open addressing by
//! the location's address, in at most `PROBES` steps. A place is never freed, so a number keeps its
//! meaning as long as the program runs. A thread that records a location without a number enters
//! it, by one exchange.
//!
//! The tables of `blame` cannot provide these numbers. They have one writer each and therefore
//! different places, and most wake-ups are recorded by threads without such a table.
//!
//! Bound: `PLACES` locations. Those that find no place have number 0, *unknown*.

use std::panic::Location;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use volt_telemetry::recording::event::UNKNOWN_LOCATION;

/// Locations that can have a number, a power of two: eight times the size of a table of `blame`.
pub(crate) const PLACES: usize = 1024;
/// Places that are tried for a location.
const PROBES: usize = 16;

const _: () = assert!(PLACES.is_power_of_two() && PLACES < u16::MAX as usize && UNKNOWN_LOCATION == 0);

static OF_PROGRAM: Locations = Locations::new();

/// Locations that have a number.
static NUMBERED: AtomicUsize = AtomicUsize::new(0);

/// Returns how many locations have a number, for the black box. A location is counted after it was
/// entered.
#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) fn numbered() -> usize {
    // ORDERING: Acquire; pairs with the Release in `seek`.
    NUMBERED.load(Ordering::Acquire)
}

/// Returns the number of a location, from 1; [`UNKNOWN_LOCATION`] if there is none left.
#[inline]
pub(crate) fn number_of(location: &'static Location<'static>) -> u16 {
    OF_PROGRAM.number_of(location)
}

/// Returns the location of a number.
pub(crate) fn of_number(number: u16) -> Option<&'static Location<'static>> {
    OF_PROGRAM.of_number(number)
}

struct Locations([AtomicPtr<Location<'static>>; PLACES]);

impl Locations {
    const fn new() -> Self {
        Self([const { AtomicPtr::new(ptr::null_mut()) }; PLACES])
    }

    #[inline]
    fn number_of(&self, location: &'static Location<'static>) -> u16 {
        let wanted = ptr::from_ref(location).cast_mut();
        let first = first_place(wanted);
        // ORDERING: Relaxed; only compared with.
        if self.0[first].load(Ordering::Relaxed) == wanted {
            return first as u16 + 1;
        }
        self.seek(wanted, first)
    }

    #[cold]
    fn seek(&self, wanted: *mut Location<'static>, first: usize) -> u16 {
        for step in 0..PROBES {
            let place = (first + step) % PLACES;
            // ORDERING: Release for a new entry, although the location itself has existed since the
            // program began; pairs with the Acquire in `of_number`. Relaxed for an entry that is
            // only compared.
            match self.0[place].compare_exchange(ptr::null_mut(), wanted, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => {
                    // ORDERING: Release; pairs with the Acquire in `numbered`: the entry is seen.
                    NUMBERED.fetch_add(1, Ordering::Release);
                    return place as u16 + 1;
                }
                Err(taken) if taken == wanted => return place as u16 + 1,
                Err(_) => {}
            }
        }
        UNKNOWN_LOCATION
    }

    fn of_number(&self, number: u16) -> Option<&'static Location<'static>> {
        let place = self.0.get(usize::from(number).checked_sub(1)?)?;
        // ORDERING: Acquire; pairs with the Release in `seek`.
        let location = place.load(Ordering::Acquire);
        // SAFETY: only `seek` writes the pointer, from a `&'static Location`.
        unsafe { location.as_ref() }
    }
}

/// Locations are close to each other, usually 24 bytes apart. Fibonacci hashing spreads them
/// (Knuth, 6.4).
#[inline]
fn first_place(location: *mut Location<'static>) -> usize {
    let hash = (location.addr() as u64 >> 3).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (hash >> (u64::BITS - PLACES.ilog2())) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Mutex;

    use super::*;

    /// Returns a location with a unique address.
    #[track_caller]
    fn leaked() -> &'static Location<'static> {
        /// Reachable, so that leak detectors do not report it.
        static KEPT: Mutex<Vec<&'static Location<'static>>> = Mutex::new(Vec::new());
        let location: &'static Location<'static> = Box::leak(Box::new(*Location::caller()));
        KEPT.lock().unwrap().push(location);
        location
    }

    #[test]
    fn a_location_maps_to_one_number_under_concurrent_requests() {
        let locations = Locations::new();
        let wanted: Vec<_> = (0..PLACES / 4).map(|_| leaked()).collect();
        let numbers = || -> Vec<u16> { wanted.iter().map(|location| locations.number_of(location)).collect() };
        let [first, second] = std::thread::scope(|scope| {
            let threads = [scope.spawn(numbers), scope.spawn(numbers)];
            threads.map(|thread| thread.join().unwrap())
        });
        assert_eq!(first, second);
        assert_eq!(first.iter().collect::<HashSet<_>>().len(), wanted.len());
        for (number, location) in first.iter().zip(&wanted) {
            assert!(ptr::eq(locations.of_number(*number).unwrap(), *location));
        }
        assert_eq!((locations.of_number(UNKNOWN_LOCATION), locations.of_number(u16::MAX)), (None, None));
    }

    #[test]
    #[cfg_attr(miri, ignore = "fills every place, which takes long, and touches no memory that one place does not")]
    fn locations_have_unique_numbers_until_the_table_is_full() {
        let locations = Locations::new();
        let numbers: Vec<_> = (0..2 * PLACES).map(|_| locations.number_of(leaked())).collect();
        let known: HashSet<_> = numbers.iter().filter(|number| **number != UNKNOWN_LOCATION).collect();
        assert!(known.len() > PLACES / 2 && known.len() <= PLACES);
        assert_eq!(numbers.iter().filter(|number| **number != UNKNOWN_LOCATION).count(), known.len());
    }
}
