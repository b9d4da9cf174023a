//! How many tasks of each spawn location live and wait, and how many of them nothing can wake any more.
//!
//! Shape: whoever takes a snapshot walks through the registry, a few tasks under a lock at a time, and reads their words; no task and no
//! worker does anything for it. What is in the registry are tasks that have waited once, or have a name.
//!
//! *Stranded* is a task that waits while its references are the registry's and the JoinHandle's: each waker is a reference, and so is the
//! `Notified` in a queue. An AbortHandle, a guard of a shield, or a waker that the task's own future keeps is a reference too, and hides the
//! task: the count may be too small, and is never too large but for an instant.
//!
//! Who reads: snapshots. Bounds: of more than `TASKS_MAX` tasks nothing is told; a walk is told again for `REST` times as long as it took, so
//! that readers, however many, use a five-hundredth of a processor for it at most.
//!
//! Rejected: counts by location that workers keep: two writes to shared memory a task, for numbers that are seldom looked at.

use std::collections::HashMap;
use std::panic::Location;
use std::ptr;
use std::sync::Mutex;

use volt_telemetry::incident::Blame;

use crate::clock;
use crate::task::registry::Registry;

/// Tasks that are walked through: half a second, if each is in nobody's cache.
const TASKS_MAX: usize = 4_000_000;
/// See the header of this file.
const REST: u64 = 500;
/// What the table of blame calls all locations that it has no room for.
const OTHER: &str = "other";

/// The last walk.
#[derive(Default)]
pub(crate) struct Census(Mutex<Option<Taken>>);

struct Taken {
    at_ns: u64,
    /// Not to be walked again before.
    good_until_ns: u64,
    /// `None` = there were too many tasks.
    places: Option<Places>,
}

/// By the location's address.
type Places = HashMap<usize, (&'static Location<'static>, Count)>;

/// Of one spawn location.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    alive: u64,
    stranded: u64,
}

impl Census {
    /// Adds what is known of each location to `blame`, and returns when that was counted. `None`: there are too many tasks.
    #[must_use = "what is not known is to be said"]
    pub(crate) fn tell(&self, registry: &Registry, blame: &mut Vec<Blame>) -> Option<u64> {
        let mut last = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let now_ns = clock::now_ns();
        let taken = match last.take() {
            Some(taken) if now_ns < taken.good_until_ns => taken,
            _ => take(registry, now_ns),
        };
        let taken = last.insert(taken);
        let places = taken.places.as_ref()?;
        for blame in &mut *blame {
            (blame.alive, blame.stranded) = (Some(0), Some(0));
        }
        for (location, count) in places.values() {
            let place = place_in(blame, location.to_string());
            place.alive = place.alive.map(|alive| alive + count.alive);
            place.stranded = place.stranded.map(|stranded| stranded + count.stranded);
        }
        Some(taken.at_ns)
    }
}

fn take(registry: &Registry, began_at_ns: u64) -> Taken {
    let mut places = Places::new();
    let is_complete = registry.visit(TASKS_MAX, |task| {
        let location = task.location();
        let (_, count) = places.entry(ptr::from_ref(location).addr()).or_insert((location, Count::default()));
        count.alive += 1;
        count.stranded += u64::from(task.state.is_stranded());
    });
    let ended_at_ns = clock::now_ns();
    let took_ns = ended_at_ns.saturating_sub(began_at_ns);
    let good_until_ns = ended_at_ns + REST.saturating_mul(took_ns);
    Taken { at_ns: ended_at_ns, good_until_ns, places: is_complete.then_some(places) }
}

fn place_in(blame: &mut Vec<Blame>, spawned_at: String) -> &mut Blame {
    let known = blame.iter().position(|blame| blame.spawned_at == spawned_at);
    let index = known.or_else(|| blame.iter().position(|blame| blame.spawned_at == OTHER)).unwrap_or_else(|| {
        // Of tasks with a name that were not polled yet.
        blame.push(Blame { spawned_at, self_wakes: Some(0), alive: Some(0), stranded: Some(0), ..Blame::default() });
        blame.len() - 1
    });
    &mut blame[index]
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::{Arc, Mutex};
    use std::task::{Poll, Waker};

    use super::*;
    use crate::Builder;

    #[test]
    fn a_task_without_a_waker_is_stranded_and_one_with_a_waker_is_not() {
        let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let kept: Arc<Mutex<Vec<Waker>>> = Arc::default();
        let wait = |keeps: bool| {
            let kept = kept.clone();
            poll_fn(move |cx| {
                if keeps {
                    kept.lock().unwrap().push(cx.waker().clone());
                }
                Poll::<()>::Pending
            })
        };
        let here = line!();
        let forgets = runtime.spawn(wait(false));
        drop(runtime.spawn(wait(true)));
        drop(runtime.spawn(wait(false)));
        let told = || {
            let blame = runtime.handle().snapshot().blame;
            let of = |line: u32| {
                let at = format!("census.rs:{line}:");
                let blame = blame.iter().find(|blame| blame.spawned_at.contains(&at));
                blame.map_or((0, 0), |blame| (blame.alive.unwrap(), blame.stranded.unwrap()))
            };
            [of(here + 1), of(here + 2), of(here + 3)]
        };
        let until = |wanted: [(u64, u64); 3]| {
            while told() != wanted {
                std::thread::yield_now();
            }
        };
        until([(1, 1), (1, 0), (1, 1)]);
        kept.lock().unwrap().clear();
        until([(1, 1), (1, 1), (1, 1)]);
        forgets.abort();
        until([(0, 0), (1, 1), (1, 1)]);
    }

    #[test]
    fn of_too_many_tasks_nothing_is_told() {
        let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let registry = &runtime.handle().shared().registry;
        (0..9).for_each(|_| drop(runtime.spawn(std::future::pending::<()>())));
        let count = |limit| {
            let mut count = 0;
            (registry.visit(limit, |_| count += 1), count)
        };
        while count(usize::MAX) != (true, 9) {
            std::thread::yield_now();
        }
        assert_eq!(count(9), (true, 9));
        assert_eq!(count(8), (false, 8));
    }

    #[test]
    fn a_walk_is_told_again_for_as_long_as_it_is_good() {
        let (census, registry) = (Census::default(), Registry::new(1));
        let place = Location::caller();
        let places = Places::from([(0, (place, Count { alive: 3, stranded: 2 }))]);
        *census.0.lock().unwrap() = Some(Taken { at_ns: 7, good_until_ns: u64::MAX, places: Some(places) });
        let mut blame = vec![Blame { spawned_at: OTHER.into(), ..Blame::default() }];
        assert_eq!(census.tell(&registry, &mut blame), Some(7));
        assert_eq!((blame.len(), blame[0].alive, blame[0].stranded), (1, Some(3), Some(2)), "no place of its own");
        *census.0.lock().unwrap() = Some(Taken { at_ns: 7, good_until_ns: u64::MAX, places: None });
        assert_eq!(census.tell(&registry, &mut vec![Blame::default()]), None);
        *census.0.lock().unwrap() = Some(Taken { at_ns: 7, good_until_ns: 0, places: None });
        let mut blame = vec![Blame::default()];
        assert!(census.tell(&registry, &mut blame).is_some_and(|at_ns| at_ns > 7), "it is walked again");
        assert_eq!((blame[0].alive, blame[0].stranded), (Some(0), Some(0)));
    }
}
