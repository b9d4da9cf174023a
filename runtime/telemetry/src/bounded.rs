//! Deserialization of lists in messages, with a limit on their length.
//!
//! A frame is bounded in bytes, but the memory of its decoded form is not. Missing fields take
//! their default. A worker can therefore be a single byte on the wire (an empty map) and ten
//! thousand bytes in memory, with its histograms. A frame of 1 MiB of such workers would take 10
//! GiB. So workers and HTTP routes are counted over all runtimes of a message. The messages of real
//! programs stay far below the limits.
//!
//! Invariant: BOUNDED WHILE READING. The element that exceeds the limit ends decoding with an
//! error; elements beyond the limit are never stored.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

/// Maximum number of elements to preallocate on the basis of the sender's length.
const TRUSTED_LEN: usize = 64;

/// Deserializes a list whose elements have a total weight of at most `max`.
///
/// # Errors
/// Returns the error of the deserializer, or an error if the total weight exceeds `max`.
pub(crate) fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
    max: usize,
    weigh: fn(&T) -> usize,
) -> Result<Vec<T>, D::Error> {
    deserializer.deserialize_seq(List { max, weigh, keep: Some })
}

/// Deserializes a list of at most `max` elements, and keeps those for which `keep` returns `Some`.
///
/// # Errors
/// Returns the error of the deserializer, or an error if the list has more than `max` elements,
/// kept or not.
pub(crate) fn known<'de, D: Deserializer<'de>, E: Deserialize<'de>, T>(
    deserializer: D,
    max: usize,
    keep: fn(E) -> Option<T>,
) -> Result<Vec<T>, D::Error> {
    deserializer.deserialize_seq(List { max, weigh: |_| 1, keep })
}

/// Deserializes elements as `E` and stores them as `T`.
struct List<E, T> {
    max: usize,
    weigh: fn(&E) -> usize,
    keep: fn(E) -> Option<T>,
}

impl<'de, E: Deserialize<'de>, T> Visitor<'de> for List<E, T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {}", self.max)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::with_capacity(elements.size_hint().unwrap_or(0).min(self.max).min(TRUSTED_LEN));
        let mut weight = 0_usize;
        while let Some(element) = elements.next_element()? {
            weight = weight.saturating_add((self.weigh)(&element));
            if weight > self.max {
                return Err(A::Error::custom(format!("a list of more than {}", self.max)));
            }
            list.extend((self.keep)(element));
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use serde::Serialize;

    use crate::snapshot::routes::{MAX_ROUTES, Route};
    use crate::snapshot::{MAX_RUNTIMES, MAX_WORKERS, Program, Snapshot, Worker};
    use crate::wire::{self, MAX_REPLY_BYTES};

    /// Serializes as an empty map.
    #[derive(Serialize, Clone)]
    struct Nothing {}

    #[derive(Serialize)]
    struct Lists {
        runtimes: Vec<Workers>,
    }

    #[derive(Serialize)]
    struct Workers {
        workers: Vec<Nothing>,
    }

    fn read(runtimes: usize, workers: usize) -> std::io::Result<Program> {
        let workers = || Workers { workers: vec![Nothing {}; workers] };
        let frame = wire::encode(&Lists { runtimes: (0..runtimes).map(|_| workers()).collect() }, MAX_REPLY_BYTES)?;
        wire::decode(&frame[4..])
    }

    #[test]
    fn a_snapshot_with_too_many_workers_or_runtimes_is_an_error() {
        assert_eq!(read(1, MAX_WORKERS).unwrap().runtimes[0].workers.len(), MAX_WORKERS);
        let error = read(1, MAX_WORKERS + 1).unwrap_err();
        assert!(error.to_string().ends_with("a list of more than 2048"), "{error}");
        assert_eq!(read(MAX_RUNTIMES, 0).unwrap().runtimes.len(), MAX_RUNTIMES);
        assert!(read(MAX_RUNTIMES + MAX_WORKERS + 1, 0).is_err());
    }

    #[test]
    fn workers_are_counted_over_all_runtimes() {
        assert!(read(2, MAX_WORKERS / 2).is_ok());
        assert!(read(8, MAX_WORKERS).is_err(), "each is within its bound, all together are not");
        assert!(read(1, MAX_REPLY_BYTES - 100).is_err());
    }

    #[test]
    fn routes_are_counted_over_all_runtimes() {
        #[derive(Serialize, Clone)]
        struct Routes {
            routes: Vec<Nothing>,
        }
        #[derive(Serialize)]
        struct Sent {
            runtimes: Vec<Routes>,
        }

        let read = |runtimes: usize| {
            let routes = Routes { routes: vec![Nothing {}; MAX_ROUTES + 1] };
            let frame = wire::encode(&Sent { runtimes: vec![routes; runtimes] }, MAX_REPLY_BYTES).unwrap();
            wire::decode::<Program>(&frame[4..])
        };
        assert!(read(8).is_ok());
        assert!(read(100).is_err(), "each is within its bound, all together are not");
    }

    #[test]
    fn the_largest_message_of_a_program_stays_below_the_bounds() {
        let worker = |index| Worker { index, ..Worker::default() };
        let fits = |workers: u32| {
            let runtime = Snapshot { workers: (0..workers).map(worker).collect(), ..Snapshot::default() };
            wire::encode(&Program { runtimes: vec![runtime], ..Program::default() }, MAX_REPLY_BYTES).is_ok()
        };
        assert!(!fits(MAX_WORKERS as u32), "a frame is full before");
        let runtimes = vec![Snapshot::default(); MAX_RUNTIMES];
        assert!(wire::encode(&Program { runtimes, ..Program::default() }, MAX_REPLY_BYTES).is_err());
        // Four of them count as one worker.
        let routes = vec![Route::default(); 4 * (MAX_RUNTIMES + MAX_WORKERS)];
        assert!(wire::encode(&routes, MAX_REPLY_BYTES).is_err());
    }
}
