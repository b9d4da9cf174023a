//! Cycles through a reader-writer lock.

use volt::sync::{RwLock, RwLockWriteGuard};

use super::*;

#[test]
fn a_cycle_through_a_write_lock_is_found() {
    watched(|| {
        let runtime = builder(2).build().unwrap();
        let (prices, lock) = (Arc::new(RwLock::new((1, 2))), Arc::new(Mutex::new(())));
        let (others, met) = ((prices.clone(), lock.clone()), Arc::new(volt::sync::Barrier::new(2)));
        let other_met = met.clone();
        let lines = [line!() + 2, line!() + 7];
        drop(runtime.spawn(async move {
            let _part = RwLockWriteGuard::map(prices.write().await, |prices| &mut prices.0);
            met.wait().await;
            drop(lock.lock().await);
        }));
        drop(runtime.spawn(async move {
            let _guard = others.1.lock().await;
            other_met.wait().await;
            drop(others.0.read().await);
        }));
        let finding = found(&runtime);
        assert_eq!((finding.severity, finding.tasks.len()), (Severity::Critical, 2), "{finding:#?}");
        for line in [lines[0], lines[0] + 2, lines[1], lines[1] + 2] {
            assert!(text(&finding).contains(&at(line)), "{line}: {finding:#?}");
        }
    });
}

/// Spawns a reader that reads again, and a writer that waits in between. Returns the line of the
/// first read.
fn reader_and_writer(runtime: &Runtime, prices: &Arc<RwLock<u32>>) -> u32 {
    let (reads, writes) = (prices.clone(), prices.clone());
    let (begun, waits) = (Arc::new(volt::sync::Notify::new()), Arc::new(volt::sync::Notify::new()));
    let (begins, is_waiting) = (begun.clone(), waits.clone());
    drop(runtime.spawn(async move {
        begun.notified().await;
        let mut write = std::pin::pin!(writes.write());
        assert!(futures_lite::future::poll_once(&mut write).await.is_none());
        waits.notify_one();
        drop(write.await);
    }));
    drop(runtime.spawn(async move {
        let _first = reads.read().await;
        begins.notify_one();
        is_waiting.notified().await;
        drop(reads.read().await);
    }));
    line!() - 5
}

#[test]
fn a_reader_that_reads_again_is_not_certain() {
    watched(|| {
        let runtime = builder(2).build().unwrap();
        let prices = Arc::new(RwLock::new(1));
        let line = reader_and_writer(&runtime, &prices);
        // A cycle of one: the writer that waits in between could be cancelled.
        let cycle = loop {
            if let [cycle] = &runtime.handle().snapshot().deadlocks.unwrap()[..] {
                break cycle.clone();
            }
        };
        assert!(!cycle.is_certain && cycle.links.len() == 1, "{cycle:#?}");
        assert!(cycle.links[0].held_at.as_ref().unwrap().contains(&at(line)), "{cycle:#?}");
    });
}

#[test]
fn one_of_several_readers_is_not_reported_as_the_holder() {
    watched(|| {
        let runtime = builder(2).build().unwrap();
        let prices = Arc::new(RwLock::new(1));
        let another = runtime.block_on(prices.clone().read_owned());
        reader_and_writer(&runtime, &prices);
        assert_eq!(reported(&runtime), []);
        drop(another);
    });
}

#[test]
fn a_write_lock_that_is_handed_on_is_not_reported() {
    watched(|| {
        let runtime = builder(2).build().unwrap();
        let locks = Arc::new([RwLock::new(0_u64), RwLock::new(0)]);
        let tasks: Vec<_> = (0..8)
            .map(|task| {
                let locks = locks.clone();
                runtime.spawn(async move {
                    loop {
                        let mut first = locks[0].write().await;
                        let second = if task % 2 == 0 { Some(locks[1].read().await) } else { None };
                        *first += second.as_deref().copied().unwrap_or(1);
                        let first = first.downgrade();
                        volt::task::yield_now().await;
                        drop(first);
                        volt::task::yield_now().await;
                        drop(second);
                    }
                })
            })
            .collect();
        assert_eq!(reported(&runtime), []);
        tasks.iter().for_each(|task| task.abort());
    });
}
