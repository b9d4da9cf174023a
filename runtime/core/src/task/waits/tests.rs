//! Tests of the content of the table while operations wait, in one thread and in several.

use std::panic::Location;
use std::task::{Context, Waker};

use super::table::shard_of;
use super::*;
use crate::task::cell::{Nowhere, new_task};
use crate::task::current;
use crate::task::details::awaits::Awaits;
use crate::task::header::Task;
use crate::task::id::Id;

/// The number of locks, and of turns of each thread, in a test with threads.
const LOCKS: usize = 4;
const TURNS: usize = if cfg!(miri) { 40 } else { 20_000 };

fn task() -> Task {
    let (notified, _join) = new_task(async {}, Nowhere, Id::next(), Location::caller(), None);
    notified.task().clone()
}

/// Returns the copy of this holder's lock; other tests use the table at the same time.
fn copy_of(holder: &Holder) -> Option<Held> {
    held(usize::MAX, usize::MAX).into_iter().find(|held| held.key == holder.key())
}

fn pending(wait: &mut Wait<'_>) {
    wait.pending(&Context::from_waker(Waker::noop()), Awaits::Lock, Location::caller());
}

fn tickets(holder: &Holder) -> Vec<u64> {
    copy_of(holder).map_or(Vec::new(), |held| held.waiters.iter().map(|waiter| waiter.ticket).collect())
}

#[test]
fn a_wait_has_the_holder_as_of_its_last_poll() {
    let (holder, at) = (Holder::new(), Location::caller());
    holder.acquired(at, Guard::Owned);
    let mut wait = Wait::new(&holder);
    assert!(copy_of(&holder).is_none(), "it is not pending yet");
    pending(&mut wait);
    let holding = copy_of(&holder).unwrap().holding.unwrap();
    assert_eq!((holding.task, holding.since_ns, holding.guard), (None, None, Guard::Owned), "acquired by no task");
    assert_eq!(holding.at, at);
    holder.released();
    assert!(copy_of(&holder).unwrap().holding.is_some(), "outdated until the next poll");
    pending(&mut wait);
    assert_eq!(copy_of(&holder).unwrap().holding, None);
    drop(wait);
    assert!(copy_of(&holder).is_none());
}

#[test]
fn a_correction_updates_the_copy_without_a_poll() {
    let holder = Holder::new();
    let mut wait = Wait::new(&holder);
    pending(&mut wait);
    holder.acquired(Location::caller(), Guard::Borrowed);
    assert_eq!(copy_of(&holder).unwrap().holding, None, "outdated");
    holder.copy_again();
    assert!(copy_of(&holder).unwrap().holding.is_some());
    holder.released();
    holder.copy_again();
    assert_eq!(copy_of(&holder).unwrap().holding, None);
    drop(wait);
    holder.copy_again();
    assert!(copy_of(&holder).is_none(), "nothing waits");
}

#[test]
fn a_wait_for_several_permits_hides_the_holder_of_the_lock() {
    let holder = Holder::new();
    holder.acquired(Location::caller(), Guard::Borrowed);
    let mut waits = [Wait::for_permits(&holder, 7), Wait::new(&holder)];
    waits.iter_mut().for_each(pending);
    let held = copy_of(&holder).unwrap();
    assert_eq!((held.holding, held.semaphore, held.waiting), (None, Some(7), 2));
    let [several, _one] = waits;
    drop(several);
    let held = copy_of(&holder).unwrap();
    assert!(held.holding.is_some() && held.semaphore.is_none(), "{held:?}");
}

#[test]
fn a_holder_with_shared_access_is_known_until_another_comes() {
    let holder = Holder::new();
    let mut wait = Wait::new(&holder);
    let mut guard = || {
        pending(&mut wait);
        copy_of(&holder).unwrap().holding.map(|holding| holding.guard)
    };
    holder.acquired(Location::caller(), Guard::Owned);
    assert_eq!(guard(), Some(Guard::Owned));
    holder.share();
    assert_eq!(guard(), Some(Guard::Shared));
    holder.forget();
    assert_eq!(guard(), None);
    holder.acquired(Location::caller(), Guard::Shared);
    assert_eq!(guard(), Some(Guard::Shared));
}

#[test]
fn the_end_of_a_wait_updates_the_others() {
    let holder = Holder::new();
    let mut waits = [const { None }; 3];
    for wait in &mut waits {
        pending(wait.insert(Wait::new(&holder)));
    }
    let [first, second, third] = tickets(&holder)[..] else { panic!("three wait") };
    assert!(first < second && second < third);
    // One gives up, and another acquires the lock.
    waits[1] = None;
    assert_eq!(tickets(&holder), [first, third]);
    holder.acquired(Location::caller(), Guard::Borrowed);
    waits[0] = None;
    let held = copy_of(&holder).unwrap();
    assert_eq!((held.waiters.len(), held.holding.unwrap().guard), (1, Guard::Borrowed));
}

#[test]
fn the_owner_is_the_task_that_is_polled() {
    let (polled, holder) = (task(), Holder::new());
    let mut wait = Wait::new(&holder);
    current::run_as(&polled, || {
        holder.acquired(Location::caller(), Guard::Borrowed);
        pending(&mut wait);
    });
    let held = copy_of(&holder).unwrap();
    let id = Some(polled.header().id.as_u64());
    assert_eq!((held.holding.unwrap().task, held.waiters[0].task), (id, id));
    assert!(!held.waiters[0].has_own_waker, "it is a waker that does nothing");
}

/// The entry remains, and is never followed to the lock.
#[test]
fn a_forgotten_wait_may_outlive_its_lock() {
    let holder = Box::new(Holder::new());
    holder.acquired(Location::caller(), Guard::Borrowed);
    let mut wait = Wait::new(&holder);
    pending(&mut wait);
    std::mem::forget(wait);
    let key = holder.key();
    drop(holder);
    let held = held(usize::MAX, usize::MAX).into_iter().find(|held| held.key == key).unwrap();
    assert!(held.holding.is_some());
    // Removes the entry, since the locks of other tests may get the same address.
    shard_of(key).waiting -= 1;
    shard_of(key).resources.remove(&key);
}

#[test]
fn threads_that_wait_and_copies_of_the_table_do_not_interfere() {
    let holders: [Holder; LOCKS] = Default::default();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let holders = &holders;
            scope.spawn(move || {
                for turn in 0..TURNS {
                    let holder = &holders[(turn + thread) % LOCKS];
                    let mut wait = Wait::new(holder);
                    pending(&mut wait);
                    holder.acquired(Location::caller(), Guard::Borrowed);
                    drop(wait);
                    holder.released();
                }
            });
        }
        for _ in 0..TURNS / 10 {
            let copies = held(usize::MAX, 2);
            assert!(copies.iter().all(|held| !held.waiters.is_empty() && held.waiters.len() <= 2));
            assert!(copies.iter().all(|held| held.waiters.is_sorted_by_key(|waiter| waiter.ticket)));
        }
    });
    assert!(holders.iter().all(|holder| copy_of(holder).is_none()));
}
