//! Tests of the registry: places, look-ups by id, walks, and the close.

use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::task::cell::{Nowhere, new_task};
use crate::task::details::origin::Extra;
use crate::task::header::Notified;
use crate::task::id::Id;
use crate::task::join::JoinHandle;

fn task(name: Option<&str>) -> (Notified, JoinHandle<()>) {
    let location = Location::caller();
    let none = tracing::Span::none;
    let extra = name.map(|name| Box::new(Extra { location, name: Some(name.into()), span: none(), console: none() }));
    new_task(async {}, Nowhere, Id::next(), location, extra)
}

#[test]
fn slots_are_reused_and_no_task_is_found_by_an_old_place() {
    let registry = Registry::new(2);
    let tasks: Vec<_> = (0..5).map(|_| task(Some("first"))).collect();
    tasks.iter().for_each(|(task, _)| assert!(!registry.keep(task.task(), 0)));
    let places: Vec<_> = tasks.iter().map(|(task, _)| task.header().place()).collect();
    for (task, _) in [&tasks[3], &tasks[1]] {
        assert_eq!(registry.remove(task.header()).unwrap().header().id, task.header().id);
        assert!(registry.remove(task.header()).is_none(), "it is not in there any more");
    }
    assert_eq!(registry.len(), 3);
    let late: Vec<_> = (0..3).map(|_| task(None)).collect();
    late.iter().for_each(|(task, _)| assert!(!registry.keep(task.task(), 2)));
    let late_places: Vec<_> = late.iter().map(|(task, _)| task.header().place()).collect();
    assert_eq!(late_places[..2], [places[1], places[3]], "the slot that was freed last is reused first");
    assert_eq!(registry.len(), 6);
    let id_of = |(task, _): &(Notified, JoinHandle<()>)| task.header().id.as_u64();
    assert_eq!(registry.name_of(id_of(&tasks[0]), places[0]).as_deref(), Some("first"));
    assert_eq!(registry.name_of(id_of(&tasks[1]), places[1]), None, "another task has its place");
    assert_eq!(registry.name_of(id_of(&tasks[1]), NO_PLACE), None);
    assert_eq!(registry.describe(9, &[id_of(&tasks[0])]).len(), 5);
    for (task, _) in tasks.iter().chain(&late) {
        drop(registry.remove(task.header()));
    }
    assert_eq!(registry.len(), 0);
}

#[test]
fn a_task_that_has_a_name_is_found_by_its_id_until_it_goes() {
    let registry = Registry::new(3);
    let tasks = [task(Some("first")), task(None), task(Some("second"))];
    let id_of = |(task, _): &(Notified, JoinHandle<()>)| task.header().id.as_u64();
    tasks.iter().enumerate().for_each(|(worker, task)| assert!(!registry.keep(task.0.task(), worker)));
    let names = || tasks.each_ref().map(|task| registry.name_by_id(id_of(task)));
    assert_eq!(names(), [Some("first".to_owned()), None, Some("second".to_owned())]);
    drop(registry.remove(tasks[0].0.header()));
    assert_eq!(names(), [None, None, Some("second".to_owned())]);
    tasks[1..].iter().for_each(|(task, _)| drop(registry.remove(task.header())));
}

#[test]
fn a_close_cancels_tasks_and_is_reported_to_later_ones() {
    let registry = Registry::new(1);
    let (before, after) = (task(None), task(None));
    assert!(!registry.keep(before.0.task(), 7));
    registry.close();
    assert!(registry.keep(after.0.task(), 7));
    let (mut cancelled, mut polled) = (before.1, after.1);
    drop(registry.remove(before.0.header()));
    drop(registry.remove(after.0.header()));
    let (_, _) = (before.0.run(0), after.0.run(0));
    let finish = |join: &mut JoinHandle<()>| {
        let mut cx = Context::from_waker(Waker::noop());
        Pin::new(join).poll(&mut cx)
    };
    assert!(matches!(finish(&mut cancelled), Poll::Ready(Err(error)) if error.is_cancelled()));
    assert!(matches!(finish(&mut polled), Poll::Ready(Ok(()))));
}

#[test]
fn a_walk_in_several_pieces_covers_each_task_once() {
    let registry = Registry::new(2);
    let count = if cfg!(miri) { WALK_BATCH + 3 } else { 3 * WALK_BATCH };
    let tasks: Vec<_> = (0..count).map(|_| task(None)).collect();
    // Most tasks are in one shard, and some in the other.
    let shard_of = |index: usize| usize::from(index % 9 == 8);
    for (index, (task, _)) in tasks.iter().enumerate() {
        assert!(!registry.keep(task.task(), shard_of(index)));
    }
    let gone: Vec<_> = tasks.iter().step_by(7).map(|(task, _)| task.header().id.as_u64()).collect();
    tasks.iter().step_by(7).for_each(|(task, _)| drop(registry.remove(task.header())));
    let mut seen = Vec::new();
    assert!(registry.walk(count, |task| seen.push(task.id.as_u64())));
    seen.sort_unstable();
    let ids = tasks.iter().map(|(task, _)| task.header().id.as_u64());
    let mut wanted: Vec<_> = ids.filter(|id| !gone.contains(id)).collect();
    wanted.sort_unstable();
    assert_eq!(seen, wanted);
    for (task, _) in &tasks {
        drop(registry.remove(task.header()));
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes over a minute, and `a_walk_in_several_pieces_covers_each_task_once` walks as well")]
fn a_walk_lets_waiting_threads_in() {
    let registry = Registry::new(1);
    let count = 200 * WALK_BATCH;
    let crowd: Vec<_> = (0..count).map(|_| task(None)).collect();
    crowd.iter().for_each(|(task, _)| assert!(!registry.keep(task.task(), 0)));
    let late = task(None);
    let is_waiting = || registry.shards[0].waiting.load(Ordering::Relaxed) > 0;
    let (mut seen, mut let_in_after) = (0, None);
    thread::scope(|scope| {
        registry.walk(count, |_| {
            seen += 1;
            if seen == 1 {
                scope.spawn(|| assert!(!registry.keep(late.0.task(), 0)));
                while !is_waiting() {
                    thread::yield_now();
                }
            } else if !is_waiting() {
                let_in_after.get_or_insert(seen);
            }
        });
    });
    // Usually before the second batch of the walk. On a busy machine, the thread may have to wait
    // for a processor after it was woken, and that for several batches. Without `let_others_in`, it
    // waits for the whole walk.
    assert!(let_in_after.is_some_and(|seen| seen <= count / 2), "{let_in_after:?} of {count}");
    crowd.iter().chain([&late]).for_each(|(task, _)| drop(registry.remove(task.header())));
}

#[test]
fn a_search_ends_at_the_first_match() {
    let registry = Registry::new(2);
    let tasks: Vec<_> = (0..9).map(|_| task(None)).collect();
    tasks.iter().enumerate().for_each(|(at, (task, _))| assert!(!registry.keep(task.task(), at)));
    let mut seen = 0;
    let second = registry.find(|task| {
        seen += 1;
        (seen == 2).then_some(task.id)
    });
    assert_eq!((second, seen), (Some(tasks[2].0.header().id), 2));
    assert_eq!(registry.find(|_| None::<()>), None);
    tasks.iter().for_each(|(task, _)| drop(registry.remove(task.header())));
}

#[test]
fn memory_is_released_after_many_tasks_have_completed() {
    let registry = Registry::new(1);
    let slots = || registry.shards[0].lock().slots.slots.capacity();
    let crowd: Vec<_> = (0..8 * SLOTS_KEPT).map(|_| task(None)).collect();
    crowd.iter().for_each(|(task, _)| assert!(!registry.keep(task.task(), 0)));
    assert!(slots() >= 8 * SLOTS_KEPT);
    // Two tasks stay: one at the front, one further back.
    let stays = |at: usize| at == 3 || at == SLOTS_KEPT + 5;
    let leaving = crowd.iter().enumerate().filter(|(at, _)| !stays(*at));
    leaving.for_each(|(_, (task, _))| drop(registry.remove(task.header())));
    assert!(slots() <= SLOTS_KEPT + 6, "{} slots for two tasks", slots());
    // Places are still valid: the tasks that stayed are found, and others can be added.
    let late = task(Some("late"));
    assert!(!registry.keep(late.0.task(), 0));
    assert_eq!(late.0.header().place().slot, 0, "from the front");
    assert_eq!(registry.len(), 3);
    for (task, _) in [&crowd[3], &crowd[SLOTS_KEPT + 5], &late] {
        assert_eq!(registry.remove(task.header()).unwrap().header().id, task.header().id);
    }
    assert!(registry.len() == 0 && slots() <= SLOTS_KEPT + 6);
}

#[test]
fn remaining_tasks_are_released() {
    let registry = Registry::new(1);
    let (notified, join) = task(None);
    assert!(!registry.keep(notified.task(), 0));
    drop((notified, join));
    // Only Miri checks that this was the last reference: otherwise it reports a leak.
    drop(registry);
}
