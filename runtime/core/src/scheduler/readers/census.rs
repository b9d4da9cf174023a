//! Census: how many tasks of each spawn location are alive, how many of them can never be woken,
//! and what at least half of them await.
//!
//! The thread that takes a snapshot walks through the registry, a few tasks under a lock at a time,
//! and reads their headers; tasks and workers do nothing for it. The registry contains the tasks
//! that have waited once, or have a name.
//!
//! A task is *stranded* if it waits and its only references are those of the registry and of the
//! JoinHandle: each waker is a reference, and so is the `Notified` in a queue. An AbortHandle, a
//! guard of a shield, or a waker that the task's own future keeps is a reference too, and hides the
//! task. So the count may be too small, and is never too large, except for an instant.
//!
//! The *main await* of a location is the one at which at least half of its tasks wait, as far as
//! their awaits are recorded (`task::details::awaits`). The finding of a leak names it, because the
//! fault is more often there than at the spawn. Only tasks with one waker are counted: one with
//! several, such as a connection that waits for its socket or a shutdown, may wait for the others.
//! (Futures that pass one waker on, such as `FuturesUnordered`, hide that they wait for several.)
//!
//! The table of blame (`stats::blame`) has what the tasks of each spawn location cost and delayed.
//! Its number of rows is bounded; locations without a row share the row *other*. So that a leak of
//! tasks is shown with its location, a location without a row gets a separate row here while it has
//! `ALIVE_WORTH_A_ROW` tasks or more. That row contains only the numbers of tasks alive and
//! stranded; what its tasks did is counted under *other*.
//!
//! Bounds: with more than `TASKS_MAX` tasks, nothing is reported. The result of a walk is reused
//! for `REST` times the processor time that the walk took, so that all readers together spend at
//! most a five-hundredth of a processor on it. But it is reused for at most `REST_MAX_NS`, since a
//! count that is minutes old hides a leak (`TASKS_MAX` tasks then cost a thirtieth). The elapsed
//! time is not used for this: on a busy machine a walk waits for a processor, which costs nothing,
//! and the next walk would be due minutes later. Locations without a row in the table get at most
//! `ROWS_MAX` rows, those with most tasks first. The awaits of at most `AWAITS_MAX` pairs of spawn
//! location and await are counted, those that a walk finds first.
//!
//! Rejected: counts per location that workers maintain: two writes to shared memory per task, for
//! numbers that are seldom read.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::panic::Location;
use std::ptr;
use std::sync::Mutex;

use rustix::time::{ClockId, clock_gettime};
use volt_telemetry::incident::{Blame, MainAwait};
use volt_telemetry::listing::order;
use volt_telemetry::text;

use crate::clock;
use crate::task::details::awaits::Awaits;
use crate::task::header::Header;
use crate::task::registry::Registry;

/// How many tasks are walked through: half a second, if none of them is in a cache.
const TASKS_MAX: usize = 4_000_000;
/// A result is reused for this multiple of the processor time that it took.
const REST: u64 = 500;
/// At most for this time: three times the interval of the doctor's samples, by which it judges
/// growth.
const REST_MAX_NS: u64 = 15_000_000_000;
/// The maximum number of rows for locations that the table of blame has no room for, and the number
/// of tasks that justifies one: half of what the doctor calls a leak.
const ROWS_MAX: usize = 64;
const ALIVE_WORTH_A_ROW: u64 = 500;
/// How many pairs of spawn location and await are counted: 64 KB. A program has a few hundred.
const AWAITS_MAX: usize = 1024;
/// The row of the table of blame for all locations that it has no room for.
const OTHER: &str = "other";

/// The result of the last walk.
#[derive(Default)]
pub(crate) struct Census(Mutex<Option<Taken>>);

struct Taken {
    at_ns: u64,
    /// Until then the result is reused.
    good_until_ns: u64,
    /// `None` = there were too many tasks.
    places: Option<Places>,
}

/// What a walk has counted.
#[derive(Default)]
struct Places {
    /// By the address of the spawn location.
    counts: HashMap<usize, (&'static Location<'static>, Count)>,
    /// How many tasks wait, by the address of their spawn location and by their await.
    awaits: HashMap<(usize, Await), u64>,
    /// By the text of the spawn location; derived from the others when the walk is over.
    main_awaits: HashMap<String, MainAwait>,
}

/// What a task awaits, and the location of the await.
type Await = (Awaits, &'static Location<'static>);

/// The counts of one spawn location.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    alive: u64,
    stranded: u64,
}

impl Census {
    /// Adds the counts of each location to `blame`, and returns when they were taken; `None` if
    /// there are too many tasks.
    #[must_use = "None means that the numbers are unknown, which must be reported"]
    pub(crate) fn count(&self, registry: &Registry, blame: &mut Vec<Blame>) -> Option<u64> {
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
        let mut counts: Vec<_> = places.counts.values().collect();
        // Locations with most tasks first: they get the rows if there is no room for all.
        order::sort_by_key(&mut counts, |(location, count)| (Reverse(count.alive), ptr::from_ref(*location).addr()));
        for (location, count) in counts {
            let is_worth_a_row = count.alive >= ALIVE_WORTH_A_ROW && blame.len() - rows_len < ROWS_MAX;
            let place = place_in(blame, other, text::location(location), is_worth_a_row);
            place.alive = place.alive.map(|alive| alive + count.alive);
            place.stranded = place.stranded.map(|stranded| stranded + count.stranded);
        }
        for blame in &mut *blame {
            blame.main_await = places.main_awaits.get(&blame.spawned_at).cloned();
        }
        Some(taken.at_ns)
    }
}

impl Places {
    fn add(&mut self, task: &Header) {
        let location = task.location();
        let address = ptr::from_ref(location).addr();
        let (_, count) = self.counts.entry(address).or_insert((location, Count::default()));
        count.alive += 1;
        count.stranded += u64::from(task.state.is_stranded());
        // A task that runs has the await of an earlier poll.
        let has_one_wait = task.state.is_idle() && task.state.wakers() == 1;
        let awaits = if has_one_wait { task.awaits() } else { None };
        if let Some((what, Some(at))) = awaits {
            self.add_await(address, (what, at));
        }
    }

    fn add_await(&mut self, spawned_at: usize, awaits: Await) {
        let is_full = self.awaits.len() >= AWAITS_MAX;
        match self.awaits.entry((spawned_at, awaits)) {
            Entry::Occupied(mut tasks) => *tasks.get_mut() += 1,
            Entry::Vacant(new) if !is_full => drop(new.insert(1)),
            Entry::Vacant(_) => (),
        }
    }

    /// Returns the main await of each spawn location that has one, by the location's text. Several
    /// addresses may have the same text.
    fn find_main_awaits(&self) -> HashMap<String, MainAwait> {
        let mut alive: HashMap<String, u64> = HashMap::new();
        for (location, count) in self.counts.values() {
            *alive.entry(text::location(location)).or_default() += count.alive;
        }
        let mut waiting: HashMap<(String, Await), u64> = HashMap::new();
        for ((address, awaits), tasks) in &self.awaits {
            let Some((location, _)) = self.counts.get(address) else { continue };
            *waiting.entry((text::location(location), *awaits)).or_default() += tasks;
        }
        let mut waiting: Vec<_> = waiting.into_iter().collect();
        waiting.retain(|((spawned_at, _), tasks)| alive.get(spawned_at).is_some_and(|alive| 2 * tasks >= *alive));
        // If two awaits have half of the tasks each, the one that comes last here is chosen.
        order::sort_by_key(&mut waiting, |((_, (what, at)), tasks)| (*tasks, Reverse((*at, *what as u8))));
        let main = |((spawned_at, (what, at)), tasks): ((String, Await), u64)| {
            (spawned_at, MainAwait { awaits: what.name().to_owned(), awaits_at: text::location(at), tasks })
        };
        waiting.into_iter().map(main).collect()
    }
}

fn take(registry: &Registry) -> Taken {
    taken(|places| registry.walk(TASKS_MAX, |task| places.add(task)))
}

/// Returns the counts of `walk`, which returns whether it saw every task.
fn taken(walk: impl FnOnce(&mut Places) -> bool) -> Taken {
    let mut places = Places::default();
    let began_ns = processor_ns();
    let is_complete = walk(&mut places);
    places.main_awaits = places.find_main_awaits();
    let busy_ns = processor_ns().saturating_sub(began_ns);
    let at_ns = clock::now_ns();
    let good_until_ns = at_ns + REST.saturating_mul(busy_ns).min(REST_MAX_NS);
    Taken { at_ns, good_until_ns, places: is_complete.then_some(places) }
}

/// Returns the processor time that this thread has used.
pub(in crate::scheduler) fn processor_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // Never negative, and 64 bits of ns are 584 years.
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Finds or adds the row for a location. `other` is the index of the row of that name; rows are
/// only added.
fn place_in(blame: &mut Vec<Blame>, other: Option<usize>, spawned_at: String, is_worth_a_row: bool) -> &mut Blame {
    let known = blame.iter().position(|blame| blame.spawned_at == spawned_at);
    let index = known.or(other.filter(|_| !is_worth_a_row)).unwrap_or_else(|| {
        // If there is no row *other*, the location belongs to tasks with a name that were not
        // polled yet.
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
    fn only_tasks_without_a_waker_are_stranded() {
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
        let counts = || {
            let blame = runtime.handle().snapshot().blame;
            let of = |line: u32| {
                let at = format!("census.rs:{line}:");
                let blame = blame.iter().find(|blame| blame.spawned_at.contains(&at));
                blame.map_or((0, 0), |blame| (blame.alive.unwrap(), blame.stranded.unwrap()))
            };
            [of(here + 1), of(here + 2), of(here + 3)]
        };
        let until = |wanted: [(u64, u64); 3]| {
            while counts() != wanted {
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
    fn a_task_that_waits_is_counted_at_its_await() {
        let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (here, at) = (line!(), Location::caller());
        let kept: Arc<Mutex<Vec<Waker>>> = Arc::default();
        let spawn = |awaits: Awaits, wakers: usize| {
            let kept = kept.clone();
            let wait = poll_fn(move |cx| {
                awaits.note(at);
                kept.lock().unwrap().extend((0..wakers).map(|_| cx.waker().clone()));
                Poll::<()>::Pending
            });
            drop(runtime.spawn(wait));
        };
        // Returns the main await that is counted after the worker has polled all tasks. The number
        // of wakers that are kept then is known.
        let main_await = |alive: u64, wakers: usize| {
            while kept.lock().unwrap().len() < wakers || !runtime.handle().snapshot().is_parked(0) {
                std::thread::yield_now();
            }
            let parked_at_ns = clock::now_ns();
            loop {
                let snapshot = runtime.handle().snapshot();
                if snapshot.alive_counted_at_ns < Some(parked_at_ns) {
                    std::thread::yield_now();
                    continue;
                }
                let at = format!("census.rs:{}:", here + 9);
                let blame = snapshot.blame.into_iter().find(|blame| blame.spawned_at.contains(&at)).unwrap();
                assert_eq!(blame.alive, Some(alive));
                return blame.main_await;
            }
        };
        [Awaits::Room, Awaits::Notice, Awaits::Room].into_iter().for_each(|awaits| spawn(awaits, 1));
        let room = MainAwait { awaits: "room".into(), awaits_at: text::location(at), tasks: 2 };
        assert_eq!(main_await(3, 3), Some(room.clone()));
        // This one has another waker, so it may wait for something else.
        spawn(Awaits::Room, 2);
        assert_eq!(main_await(4, 5), Some(room));
    }

    #[test]
    fn the_main_await_is_that_of_half_of_the_tasks() {
        let [spawn, first, second, third] = LOCATIONS.map(|location| location());
        // Two addresses of one location, with this many tasks, of which some wait for these.
        let main_await = |alive: u64, awaits: &[Await]| {
            let mut places = Places::default();
            for (address, alive) in [(1, alive), (2, alive)] {
                places.counts.insert(address, (spawn, Count { alive, stranded: 0 }));
            }
            awaits
                .iter()
                .zip([1, 2].into_iter().cycle())
                .for_each(|(awaits, address)| places.add_await(address, *awaits));
            let found = places.find_main_awaits();
            found.get(&text::location(spawn)).map(|main| (main.awaits.clone(), main.awaits_at.clone(), main.tasks))
        };
        let is = |awaits: Awaits, at: &Location<'_>, tasks| Some((awaits.name().to_owned(), text::location(at), tasks));
        let (room, message) = ((Awaits::Room, first), (Awaits::Message, second));
        assert_eq!(main_await(2, &[room, room, message]), is(Awaits::Room, first, 2), "of both addresses");
        assert_eq!(main_await(2, &[message, room, room, message]), is(Awaits::Room, first, 2), "the first line");
        assert_eq!(main_await(2, &[message, room, (Awaits::Value, third)]), None);
        assert_eq!(main_await(2, &[room, (Awaits::Lock, first)]), None, "another kind is another await");
        assert_eq!(main_await(2, &[]), None);
    }

    #[test]
    fn the_number_of_awaits_is_limited() {
        let mut places = Places::default();
        let awaits = (Awaits::Room, Location::caller());
        (0..2 * AWAITS_MAX).for_each(|address| places.add_await(address, awaits));
        places.add_await(0, awaits);
        assert_eq!((places.awaits.len(), places.awaits[&(0, awaits)]), (AWAITS_MAX, 2));
    }

    /// The table of blame has 128 rows per worker.
    #[test]
    fn a_leak_at_a_line_beyond_the_rows_of_blame_has_its_place() {
        use volt_diagnosis::doctor::history::History;
        use volt_telemetry::rule::Rule;

        let locations: Vec<&'static Location<'static>> = LOCATIONS.iter().map(|location| location()).collect();
        let mut history = History::default();
        let full = || (0..128).map(|row| Blame { spawned_at: format!("src/{row}.rs:1:1"), ..Blame::default() });
        let other = || Blame { spawned_at: OTHER.into(), self_wakes: Some(0), ..Blame::default() };
        for second in 0..300 {
            // The first location leaks; the second has many tasks alive, and the others a few.
            let alive = |index: usize| [28 * second, 4_000].get(index).copied().unwrap_or(3);
            let count = |index| Count { alive: alive(index), stranded: 0 };
            let counts = locations.iter().enumerate().map(|(index, at)| (index, (*at, count(index)))).collect();
            let places = Places { counts, ..Places::default() };
            let census = Census::default();
            let at_ns = second * 1_000_000_000;
            *census.0.lock().unwrap() = Some(Taken { at_ns, good_until_ns: u64::MAX, places: Some(places) });
            let mut blame: Vec<_> = full().chain([other()]).collect();
            let alive_counted_at_ns = census.count(&Registry::new(1), &mut blame);
            assert!(blame.len() <= 129 + 2, "those with a few tasks get no row");
            let counted: u64 = blame.iter().filter_map(|blame| blame.alive).sum();
            assert_eq!(counted, (0..locations.len()).map(alive).sum::<u64>(), "none is lost or counted twice");
            history.check(&volt_telemetry::Snapshot { at_ns, alive_counted_at_ns, blame, ..Default::default() });
        }
        let findings = history.findings(299_000_000_000);
        let places: Vec<_> = findings.iter().map(|finding| (finding.rule, finding.locations[0].at())).collect();
        assert_eq!(places, [(Rule::TaskLeak, locations[0].to_string().as_str())], "{findings:#?}");
    }

    /// Each on a separate line.
    const LOCATIONS: [fn() -> &'static Location<'static>; 4] =
        [|| Location::caller(), || Location::caller(), || Location::caller(), || Location::caller()];

    #[test]
    fn a_walk_ends_at_its_limit_and_reports_that() {
        let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let registry = &runtime.handle().shared().workers.registry;
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
            // Like a walk that the kernel interrupts for other threads. By elapsed time it would be
            // reused for 50 s.
            std::thread::sleep(std::time::Duration::from_millis(100));
            true
        });
        let rest_ns = taken.good_until_ns - taken.at_ns;
        assert!(rest_ns < REST_MAX_NS / 2, "{rest_ns} ns");
    }

    #[test]
    fn a_walk_of_millions_of_tasks_is_used_for_a_bounded_time() {
        let taken = taken(|_| {
            // By its processor time alone it would be reused for 20 s.
            let until_ns = processor_ns() + 40_000_000;
            while processor_ns() < until_ns {}
            true
        });
        assert_eq!(taken.good_until_ns - taken.at_ns, REST_MAX_NS);
    }

    #[test]
    fn a_walk_is_reported_again_while_it_is_valid() {
        let (census, registry) = (Census::default(), Registry::new(1));
        let place = Location::caller();
        let counts = HashMap::from([(0, (place, Count { alive: 3, stranded: 2 }))]);
        let places = Places { counts, ..Places::default() };
        *census.0.lock().unwrap() = Some(Taken { at_ns: 7, good_until_ns: u64::MAX, places: Some(places) });
        let mut blame = vec![Blame { spawned_at: OTHER.into(), ..Blame::default() }];
        assert_eq!(census.count(&registry, &mut blame), Some(7));
        assert_eq!((blame.len(), blame[0].alive, blame[0].stranded), (1, Some(3), Some(2)), "no place of its own");
        *census.0.lock().unwrap() = Some(Taken { at_ns: 7, good_until_ns: u64::MAX, places: None });
        assert_eq!(census.count(&registry, &mut vec![Blame::default()]), None);
        *census.0.lock().unwrap() = Some(Taken { at_ns: 7, good_until_ns: 0, places: None });
        let mut blame = vec![Blame::default()];
        assert!(census.count(&registry, &mut blame).is_some_and(|at_ns| at_ns > 7), "it is walked again");
        assert_eq!((blame[0].alive, blame[0].stranded), (Some(0), Some(0)));
    }
}
