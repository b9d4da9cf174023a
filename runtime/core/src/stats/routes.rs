//! Statistics by HTTP route: what the requests of each route cost, and how long they took.
//!
//! Each runtime has one table, which every thread that handles a request writes to. A table has
//! `PLACES` routes, found by a hash of method and path with open addressing in at most `PROBES`
//! steps. Routes that find no place share one more, *other*. A place is never freed, so its index
//! keeps its meaning: while a worker handles a request, its cells have the index of the route.
//! Every number only grows, except the number of requests that have begun: a request that gets
//! another name begins in the place of the new one instead.
//!
//! Unlike the other cells these have many writers, so they are counted with read-modify-writes.
//! Each of these costs 5 to 20 ns: little for a request, but too much for each poll of a task.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use volt_telemetry::Histogram;
use volt_telemetry::histogram::{BUCKETS, bucket_of};
use volt_telemetry::routes::{MAX_ROUTES, OTHER, Route};

/// Places for routes, a power of two.
const PLACES: usize = MAX_ROUTES;
/// Places that are tried for a route.
const PROBES: usize = 32;
/// The place for routes that find no other.
const OTHERS: usize = PLACES;
/// The length in bytes to which a path is cut.
const PATH_MAX: usize = 256;

const _: () = assert!(PLACES.is_power_of_two() && PROBES < PLACES);

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Succeeded,
    Failed,
    Abandoned,
}

/// See the header of this file. The places are allocated with the first request: most runtimes have
/// none.
#[derive(Default)]
pub(crate) struct RouteTable(OnceLock<Box<[OnceLock<Place>; PLACES + 1]>>);

/// One route.
pub(crate) struct Place {
    method: &'static str,
    path: Box<str>,
    /// Requests that have begun and did not get another name.
    pub(crate) begun: AtomicU64,
    outcomes: [AtomicU64; 3],
    duration: SharedHistogram,
    pub(crate) busy_ns: AtomicU64,
    pub(crate) delay_ns: AtomicU64,
    pub(crate) longest_poll_ns: AtomicU64,
}

impl RouteTable {
    /// Returns the index of the route with this method and path.
    pub(crate) fn index_of(&self, method: &str, path: &str) -> usize {
        let method = known_method(method);
        let path = &path[..path.floor_char_boundary(PATH_MAX)];
        let places = self.0.get_or_init(|| Box::new([const { OnceLock::new() }; PLACES + 1]));
        let first = hash(method, path);
        // The names of the place for all others must not have a second one.
        let probes = if method == OTHER && path == OTHER { 0 } else { PROBES };
        for step in 0..probes {
            let index = (first + step) % PLACES;
            // Two threads may enter two routes in one place; the loser tries the next place.
            let place = places[index].get_or_init(|| Place::new(method, path));
            if place.method == method && *place.path == *path {
                return index;
            }
        }
        places[OTHERS].get_or_init(|| Place::new(OTHER, OTHER));
        OTHERS
    }

    /// Returns the route with this index, if there is one.
    pub(crate) fn get(&self, index: usize) -> Option<&Place> {
        self.0.get()?.get(index)?.get()
    }

    /// Returns the routes in any order. Leaves out those that were only the first name of requests
    /// which then got another one.
    pub(crate) fn read(&self) -> Vec<Route> {
        let places = self.0.get().into_iter().flat_map(|places| places.iter()).filter_map(OnceLock::get);
        let is_used = |route: &Route| route.active + route.ended() > 0 || route.busy_ns > 0;
        places.map(Place::read).filter(is_used).collect()
    }
}

impl Place {
    fn new(method: &'static str, path: &str) -> Self {
        Self {
            method,
            path: path.into(),
            begun: AtomicU64::new(0),
            outcomes: Default::default(),
            duration: SharedHistogram::default(),
            busy_ns: AtomicU64::new(0),
            delay_ns: AtomicU64::new(0),
            longest_poll_ns: AtomicU64::new(0),
        }
    }

    /// Returns the method and the path.
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// Counts a request that has ended after `took_ns`.
    pub(crate) fn count_end(&self, outcome: Outcome, took_ns: u64) {
        if outcome != Outcome::Abandoned {
            self.duration.record(took_ns);
        }
        // ORDERING: Release; pairs with the Acquire in `read`, so that a reader that counts the end
        // also counts the begin.
        self.outcomes[outcome as usize].fetch_add(1, Ordering::Release);
    }

    fn read(&self) -> Route {
        // ORDERING: Acquire; see `count_end`. Read before `begun`, so that the difference is not
        // negative.
        let [succeeded, failed, abandoned] =
            [0, 1, 2].map(|outcome: usize| self.outcomes[outcome].load(Ordering::Acquire));
        // ORDERING: Relaxed, all; only statistics.
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Route {
            method: self.method.to_owned(),
            path: self.path.to_string(),
            active: read(&self.begun).saturating_sub(succeeded + failed + abandoned),
            succeeded,
            failed,
            abandoned,
            duration: self.duration.read(),
            busy_ns: read(&self.busy_ns),
            delay_ns: read(&self.delay_ns),
            longest_poll_ns: read(&self.longest_poll_ns),
        }
    }
}

/// A histogram with many writers.
struct SharedHistogram {
    counts: Box<[AtomicU64; BUCKETS]>,
    sum_ns: AtomicU64,
}

impl Default for SharedHistogram {
    fn default() -> Self {
        Self { counts: Box::new([const { AtomicU64::new(0) }; BUCKETS]), sum_ns: AtomicU64::new(0) }
    }
}

impl SharedHistogram {
    fn record(&self, ns: u64) {
        // ORDERING: Relaxed, both; only statistics.
        self.counts[bucket_of(ns)].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    fn read(&self) -> Histogram {
        // ORDERING: Relaxed; as above.
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Histogram::from_counts(self.counts.iter().map(read), read(&self.sum_ns))
    }
}

/// Returns the method if HTTP defines it, otherwise [`OTHER`]: a client can send any.
fn known_method(method: &str) -> &'static str {
    const KNOWN: [&str; 9] = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "CONNECT", "TRACE"];
    KNOWN.into_iter().find(|known| *known == method).unwrap_or(OTHER)
}

/// Returns a place in `0..PLACES`, by FNV-1a and Fibonacci hashing.
fn hash(method: &str, path: &str) -> usize {
    let bytes = method.bytes().chain(path.bytes());
    let hash = bytes
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    // Its low bits depend on few of the last bytes only.
    (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % PLACES
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn a_route_is_found_again_and_unknown_methods_share_a_name() {
        let table = RouteTable::default();
        let users = table.index_of("GET", "/users/{id}");
        assert_eq!(table.index_of("GET", "/users/{id}"), users);
        assert_ne!(table.index_of("POST", "/users/{id}"), users);
        assert_eq!(table.index_of("PURGE", "other"), OTHERS);
        let purge = table.index_of("PURGE", "/");
        assert_eq!((purge, table.get(purge).unwrap().name()), (table.index_of("BREW", "/"), "other /".to_owned()));
        let long = format!("/{}", "ä".repeat(PATH_MAX));
        let cut = table.get(table.index_of("GET", &long)).unwrap().name();
        assert_eq!(cut.len(), "GET ".len() + PATH_MAX - 1, "not in the middle of a character");
    }

    #[test]
    #[cfg_attr(miri, ignore = "fills every place, which takes long, and touches no memory that one place does not")]
    fn routes_without_a_place_are_counted_together() {
        const ROUTES: usize = 10 * PLACES;
        let table = RouteTable::default();
        for number in 0..ROUTES {
            let place = table.get(table.index_of("GET", &format!("/{number}"))).unwrap();
            place.begun.fetch_add(1, Ordering::Relaxed);
            place.count_end(Outcome::Succeeded, 5);
        }
        let routes = table.read();
        assert!(routes.len() <= MAX_ROUTES + 1 && routes.len() > MAX_ROUTES / 2, "{}", routes.len());
        assert_eq!(routes.iter().map(Route::ended).sum::<u64>(), ROUTES as u64);
        assert!(routes.iter().any(|route| route.name() == "other other" && route.succeeded > 1));
    }

    #[test]
    fn threads_that_enter_a_route_together_count_in_one_place() {
        const THREADS: usize = 4;
        const ROUNDS: usize = if cfg!(miri) { 1 } else { 50 };
        const PATHS: usize = if cfg!(miri) { 3 } else { 20 };
        for _ in 0..ROUNDS {
            let (table, together) = (RouteTable::default(), Barrier::new(THREADS));
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        together.wait();
                        for path in 0..PATHS {
                            let index = table.index_of("GET", &path.to_string());
                            table.get(index).unwrap().begun.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
            });
            let routes = table.read();
            assert_eq!(routes.len(), PATHS);
            assert!(routes.iter().all(|route| route.active == THREADS as u64), "{routes:#?}");
        }
    }

    #[test]
    fn the_numbers_of_a_route_are_what_was_counted() {
        let table = RouteTable::default();
        let place = table.get(table.index_of("PUT", "/a")).unwrap();
        place.begun.fetch_add(4, Ordering::Relaxed);
        place.count_end(Outcome::Succeeded, 1_000);
        place.count_end(Outcome::Failed, 3_000);
        place.count_end(Outcome::Abandoned, 9_000);
        let route = &table.read()[0];
        assert_eq!((route.active, route.succeeded, route.failed, route.abandoned), (1, 1, 1, 1));
        assert_eq!((route.duration.count(), route.duration.sum_ns()), (2, 4_000), "of answered requests");
    }
}
