//! The tasks that acquired the permits of a semaphore, as a dump shows them to those that wait.

use volt::sync::{OwnedSemaphorePermit, Semaphore};
use volt::task::JoinHandle;
use volt::telemetry::dump::Resource;

use super::*;

/// Spawns a task with this name.
fn named<T: Send + 'static>(
    runtime: &Runtime,
    name: &str,
    future: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    volt::task::Builder::new().name(name).spawn_on(future, runtime.handle())
}

/// Spawns a task that waits for a permit.
fn waiter(runtime: &Runtime, pool: &Arc<Semaphore>) -> JoinHandle<bool> {
    let pool = pool.clone();
    runtime.spawn(async move { pool.acquire().await.is_ok() })
}

/// Waits until this number of permits is available.
fn await_available(pool: &Semaphore, permits: usize) {
    let began = Instant::now();
    while pool.available_permits() != permits {
        assert!(began.elapsed() < LONG, "{pool:?}");
        std::thread::yield_now();
    }
}

/// Returns the semaphore of a dump with `waiting` tasks, of which one or more wait for permits.
fn semaphore(runtime: &Runtime, waiting: u64) -> (Resource, String) {
    // The first dump with chains is slow, so the tasks wait before it.
    let unpolled = Query { polls: false, ..Query::default() };
    dump(runtime, &unpolled, |dump| waits(waiting)(dump) && dump.queued == 0 && dump.running.is_empty());
    let dump = dump(runtime, &Query::default(), waits(waiting));
    let mut resources = dump.groups.iter().flat_map(|group| &group.resources);
    let found = resources.find(|resource| resource.kind == "semaphore").unwrap_or_else(|| panic!("{}", dump.text()));
    (found.clone(), dump.text())
}

/// Returns the holders: the task, and the number of permits.
fn holders(semaphore: &Resource) -> Vec<(Option<u64>, u64)> {
    semaphore.permit_holders.iter().map(|holder| (holder.task, holder.permits)).collect()
}

#[test]
fn a_dump_names_the_tasks_that_acquired_the_permits() {
    let (runtime, pool) = (runtime(2), Arc::new(Semaphore::new(4)));
    let (of_first, of_second) = (pool.clone(), pool.clone());
    let line = line!() + 2;
    let first = named(&runtime, "reader", async move {
        let _permit = of_first.acquire().await.unwrap();
        pending::<()>().await;
    });
    await_available(&pool, 3);
    // It returns a permit, and acquires three at another line.
    let second = named(&runtime, "batch", async move {
        drop(of_second.acquire().await.unwrap());
        let permits = of_second.acquire_many(3).await.unwrap();
        pending::<()>().await;
        drop(permits);
    });
    await_available(&pool, 0);
    waiter(&runtime, &pool);
    let (found, text) = semaphore(&runtime, 3);
    assert_eq!(holders(&found), [(Some(id(&first)), 1), (Some(id(&second)), 3)], "{text}");
    assert_eq!((found.permits, found.capacity, found.permit_holders_left_out), (Some(0), Some(4), 0));
    let [reader, batch] = &found.permit_holders[..] else { panic!("two: {text}") };
    assert_eq!(reader.name.as_deref(), Some("reader"));
    assert!(reader.acquired_at.contains(&format!("{}:{line}:", file!())), "{reader:?}");
    assert!(batch.acquired_at.contains(&format!("{}:{}:", file!(), line + 7)), "{batch:?}");
    assert!(reader.acquired_ago_ns >= batch.acquired_ago_ns && batch.acquired_ago_ns.is_some(), "{text}");
    assert!(text.contains("  semaphore with 0 of 4 permits available, 1 permit wanted\n"), "{text}");
    assert!(text.contains(&format!("  3 permits acquired by task {} \"batch\" ", id(&second))), "{text}");
    // A task that ends returns its permits.
    second.abort();
    await_available(&pool, 3);
    runtime.spawn(async move { pool.acquire_many(4).await.is_ok() });
    let (found, text) = semaphore(&runtime, 2);
    assert_eq!(holders(&found), [(Some(id(&first)), 1)], "{text}");
}

#[test]
fn a_moved_permit_is_named_until_another_task_drops_it() {
    let (runtime, pool) = (runtime(2), Arc::new(Semaphore::new(2)));
    let (sender, moved) = oneshot::channel::<OwnedSemaphorePermit>();
    let (release, released) = oneshot::channel::<()>();
    let acquires = pool.clone();
    let owner = runtime.spawn(async move { sender.send(acquires.acquire_owned().await.unwrap()).is_ok() });
    runtime.spawn(async move {
        let permit = moved.await.unwrap();
        released.await.unwrap();
        drop(permit);
        pending::<()>().await;
    });
    let acquired_by = id(&owner);
    assert!(runtime.block_on(owner).unwrap());
    let outside = pool.clone().try_acquire_owned().unwrap();
    waiter(&runtime, &pool);
    // The permit may have been moved, so the dump does not report that this task holds it now.
    let (found, text) = semaphore(&runtime, 2);
    assert_eq!(holders(&found), [(Some(acquired_by), 1), (None, 1)], "{text}");
    assert!(text.contains(&format!("  1 permit acquired by task {acquired_by} ")), "{text}");
    assert!(text.contains("  1 permit acquired by code outside of tasks at "), "{text}");
    release.send(()).unwrap();
    // The waiter got it, returned it, and ended.
    await_available(&pool, 1);
    let _waits = runtime.spawn(async move { pool.acquire_many(2).await.is_ok() });
    let (found, text) = semaphore(&runtime, 2);
    assert_eq!(holders(&found), [(None, 1)], "{text}");
    drop(outside);
}

#[test]
fn permits_that_were_forgotten_or_added_have_no_holder() {
    let (runtime, pool) = (runtime(2), Arc::new(Semaphore::new(3)));
    let (forgets, keeps) = (pool.clone(), pool.clone());
    runtime.block_on(runtime.spawn(async move { forgets.acquire_many(2).await.unwrap().forget() })).unwrap();
    pool.add_permits(1);
    let keeper = runtime.spawn(async move {
        let mut all = keeps.acquire_many(2).await.unwrap();
        all.split(1).unwrap().forget();
        pending::<()>().await;
        drop(all);
    });
    await_available(&pool, 0);
    waiter(&runtime, &pool);
    let (found, text) = semaphore(&runtime, 2);
    assert_eq!((holders(&found), found.capacity), (vec![(Some(id(&keeper)), 1)], None), "{text}");
    assert!(text.contains("  semaphore with 0 available, 1 permit wanted\n"), "{text}");
}

#[test]
fn the_oldest_holders_of_permits_are_named_first() {
    let (runtime, pool) = (runtime(2), Arc::new(Semaphore::new(6)));
    let mut ids = Vec::new();
    for left in (0..6).rev() {
        let holds = pool.clone();
        ids.push(id(&runtime.spawn(async move {
            let _permit = holds.acquire_owned().await.unwrap();
            pending::<()>().await;
        })));
        await_available(&pool, left);
    }
    waiter(&runtime, &pool);
    let (found, text) = semaphore(&runtime, 7);
    let expected: Vec<_> = ids[..4].iter().map(|id| (Some(*id), 1)).collect();
    assert_eq!((holders(&found), found.permit_holders_left_out), (expected, 2), "{text}");
    assert!(text.contains("  and permits with 2 other holders\n"), "{text}");
}

/// Such a semaphore is a lock. As a signal, it has neither a holder nor permits to hold.
#[test]
fn a_semaphore_of_one_permit_has_a_holder_or_none() {
    let (runtime, pool) = (runtime(2), Arc::new(Semaphore::new(1)));
    let permit = pool.try_acquire().unwrap();
    waiter(&runtime, &pool);
    let locked = dump(&runtime, &Query::default(), |dump| waits(1)(dump) && !dump.groups[0].locks.is_empty());
    assert!(locked.groups[0].resources.is_empty(), "{}", locked.text());
    permit.forget();
    let (found, text) = semaphore(&runtime, 1);
    assert!(found.permit_holders.is_empty(), "{text}");
    assert!(text.contains("  semaphore with 0 available, 1 permit wanted (holders: unknown)\n"), "{text}");
}
