//! How many tasks of each spawn location live and wait, and how many of them nothing can wake any
//! more.
//!
//! Shape: whoever takes a snapshot walks through the registry, a few tasks under a lock at a time,
//! and reads their words; no task and no worker does anything for it. What is in the registry are
//! tasks that have waited once, or have a name.
//!
//! *Stranded* is a task that waits while its references are the registry's and the JoinHandle's:
//! each waker is a reference, and so is the `Notified` in a queue. An AbortHandle, a guard of a
//! shield, or a waker that the task's own future keeps is a reference too, and hides the
//! task: the count may be too small, and is never too large but for an instant.
//!
//! The table of blame has a bounded number of rows (`stats::blame`), and what finds none is one
//! row, *other*. So that tasks that pile up are seen with their place, a location without a row
//! gets one of its own here while it has `ALIVE_WORTH_A_ROW` tasks or more; it says how many are
//! alive and stranded, and no more: what its tasks did is counted under *other*.
//!
//! Who reads: snapshots. Bounds: of more than `TASKS_MAX` tasks nothing is told. A walk is used
//! again for `REST` times the processor time that it took, so that readers, however many, spend a
//! five-hundredth of a processor on it; but for `REST_MAX_NS` at most, since a count that is
//! minutes old hides a leak (`TASKS_MAX` tasks then cost a thirtieth). Not for `REST` times the
//! time that passed: on a busy machine a walk waits for a processor, which costs nobody anything,
//! and the next would be due minutes later. Rows for locations without one: `ROWS_MAX`, for those
//! with most tasks.
//!
//! Rejected: counts by location that workers keep: two writes to shared memory a task, for numbers
//! that are seldom read.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::panic::Location;
use std::ptr;
use std::sync::Mutex;

use rustix::time::{ClockId, clock_gettime};
use volt_telemetry::incident::Blame;

use crate::clock;
use crate::task::registry::Registry;

/// Tasks that are walked through: half a second, if each is in nobody's cache.
const TASKS_MAX: usize = 4_000_000;
/// See the header of this file.
const REST: u64 = 500;
/// Three times the time between two samples of the doctor, which judges how tasks become more.
const REST_MAX_NS: u64 = 15_000_000_000;
/// Rows for locations that the table of blame has no room for, and tasks that are worth one: half
/// of what the doctor calls a leak.
const ROWS_MAX: usize = 64;
const ALIVE_WORTH_A_ROW: u64 = 500;
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
    /// Adds what is known of each location to `blame`, and returns when that was counted. `None`:
    /// there are too many tasks.
    #[must_use = "what is not known is to be said"]
    pub(crate) fn tell(&self, registry: &Registry, blame: &mut Vec<Blame>) -> Option<u64> {
        let mut last = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let now_ns = clock::now_ns();
        let taken = match last.take() {
            Some(taken) if now_ns < taken.good_until_ns => taken,
            _ => take(registry),
        };
        let taken = last.insert(taken);
        let places = taken.places.as_ref()?;
        for blame in &mut *blame {
            (blame.alive, blame.stranded) = (Some(0), Some(0));
        }
        let rows_len = blame.len();
        let other = blame.iter().position(|blame| blame.spawned_at == OTHER);
        let mut counts: Vec<_> = places.values().collect();
        // Those with most tasks first, which get a row if there is room for some only.
        counts.sort_unstable_by_key(|(location, count)| (Reverse(count.alive), ptr::from_ref(*location).addr()));
        for (location, count) in counts {
            let is_worth_a_row = count.alive >= ALIVE_WORTH_A_ROW && blame.len() - rows_len < ROWS_MAX;
            let place = place_in(blame, other, location.to_string(), is_worth_a_row);
            place.alive = place.alive.map(|alive| alive + count.alive);
            place.stranded = place.stranded.map(|stranded| stranded + count.stranded);
        }
        Some(taken.at_ns)
    }
}

fn take(registry: &Registry) -> Taken {
    taken(|places| {
        registry.walk(TASKS_MAX, |task| {
            let location = task.location();
            let (_, count) = places.entry(ptr::from_ref(location).addr()).or_insert((location, Count::default()));
            count.alive += 1;
            count.stranded += u64::from(task.state.is_stranded());
        })
    })
}

/// What `walk` counts, which returns whether it saw every task.
fn taken(walk: impl FnOnce(&mut Places) -> bool) -> Taken {
    let mut places = Places::new();
    let began_ns = processor_ns();
    let is_complete = walk(&mut places);
    let busy_ns = processor_ns().saturating_sub(began_ns);
    let at_ns = clock::now_ns();
    let good_until_ns = at_ns + REST.saturating_mul(busy_ns).min(REST_MAX_NS);
    Taken { at_ns, good_until_ns, places: is_complete.then_some(places) }
}

/// The processor time that this thread has used.
fn processor_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // Never negative, and 64 bits of ns are 584 years.
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// `other` is the index of the row of that name; rows are only added.
fn place_in(blame: &mut Vec<Blame>, other: Option<usize>, spawned_at: String, is_worth_a_row: bool) -> &mut Blame {
    let known = blame.iter().position(|blame| blame.spawned_at == spawned_at);
    let index = known.or(other.filter(|_| !is_worth_a_row)).unwrap_or_else(|| {
        // Without *other* it is of tasks with a name that were not polled yet.
        let self_wakes = other.is_none().then_some(0);
        blame.push(Blame { spawned_at, self_wakes, alive: Some(0), stranded: Some(0), ..Blame::default() });
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
    use crate::builder::Builder;

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

    /// The table of blame has 128 rows for a worker.
    #[test]
    fn a_leak_at_a_line_beyond_the_rows_of_blame_has_its_place() {
        use volt_diagnosis::doctor::history::History;
        use volt_telemetry::rule::Rule;

        let locations: Vec<&'static Location<'static>> = LOCATIONS.iter().map(|location| location()).collect();
        let mut history = History::default();
        let full = || (0..128).map(|row| Blame { spawned_at: format!("src/{row}.rs:1:1"), ..Blame::default() });
        let other = || Blame { spawned_at: OTHER.into(), self_wakes: Some(0), ..Blame::default() };
        for second in 0..300 {
            // The first leaks; many tasks of the second are alive, a few of the others.
            let alive = |index: usize| [28 * second, 4_000].get(index).copied().unwrap_or(3);
            let count = |index| Count { alive: alive(index), stranded: 0 };
            let places = locations.iter().enumerate().map(|(index, at)| (index, (*at, count(index)))).collect();
            let census = Census::default();
            let at_ns = second * 1_000_000_000;
            *census.0.lock().unwrap() = Some(Taken { at_ns, good_until_ns: u64::MAX, places: Some(places) });
            let mut blame: Vec<_> = full().chain([other()]).collect();
            let alive_counted_at_ns = census.tell(&Registry::new(1), &mut blame);
            assert!(blame.len() <= 129 + 2, "those with a few tasks get no row");
            let counted: u64 = blame.iter().filter_map(|blame| blame.alive).sum();
            assert_eq!(counted, (0..locations.len()).map(alive).sum::<u64>(), "none is lost or counted twice");
            history.check(&volt_telemetry::Snapshot { at_ns, alive_counted_at_ns, blame, ..Default::default() });
        }
        let findings = history.findings(299_000_000_000);
        let places: Vec<_> = findings.iter().map(|finding| (finding.rule, finding.locations[0].at())).collect();
        assert_eq!(places, [(Rule::TaskLeak, locations[0].to_string().as_str())], "{findings:#?}");
    }

    /// Of lines of their own.
    const LOCATIONS: [fn() -> &'static Location<'static>; 4] =
        [|| Location::caller(), || Location::caller(), || Location::caller(), || Location::caller()];

    #[test]
    fn of_too_many_tasks_nothing_is_told() {
        let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let registry = &runtime.handle().shared().registry;
        (0..9).for_each(|_| drop(runtime.spawn(std::future::pending::<()>())));
        let count = |limit| {
            let mut count = 0;
            (registry.walk(limit, |_| count += 1), count)
        };
        while count(usize::MAX) != (true, 9) {
            std::thread::yield_now();
        }
        assert_eq!(count(9), (true, 9));
        assert_eq!(count(8), (false, 8));
    }

    #[test]
    fn a_walk_that_waits_for_a_processor_is_not_used_for_longer() {
        let taken = taken(|_| {
            // As a walk does that the kernel interrupts for others: by time it would be used for 50
            // s.
            std::thread::sleep(std::time::Duration::from_millis(100));
            true
        });
        let rest_ns = taken.good_until_ns - taken.at_ns;
        assert!(rest_ns < REST_MAX_NS / 2, "{rest_ns} ns");
    }

    #[test]
    fn a_walk_of_millions_of_tasks_is_used_for_a_bounded_time() {
        let taken = taken(|_| {
            // Its processor time alone would have it used for 20 s.
            let until_ns = processor_ns() + 40_000_000;
            while processor_ns() < until_ns {}
            true
        });
        assert_eq!(taken.good_until_ns - taken.at_ns, REST_MAX_NS);
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
