//! What a dump shows of the primitives that tasks wait for.

use volt::sync::{Semaphore, mpsc};

use super::*;

/// Returns what the tasks of each group await, in the text of the dump.
fn resources(dump: &Dump) -> Vec<String> {
    let resources = dump.groups.iter().flat_map(|group| &group.resources);
    let mut texts: Vec<_> = resources.map(|one| format!("{} × {}", one.tasks, one.describe())).collect();
    assert!(texts.iter().all(|text| dump.text().contains(text.split_once(" × ").unwrap().1)), "{}", dump.text());
    texts.sort_unstable();
    texts
}

#[test]
fn a_dump_shows_the_numbers_of_what_tasks_wait_for() {
    let runtime = runtime(2);
    let (sender, mut receiver) = mpsc::channel::<u32>(8);
    let senders = [sender.clone(), sender.clone()];
    runtime.spawn(async move { receiver.recv().await });
    let (unbounded, mut many) = mpsc::unbounded_channel::<u32>();
    runtime.spawn(async move { many.recv_many(&mut Vec::new(), 3).await });
    let (full, _not_received) = mpsc::channel(1);
    full.try_send(1).unwrap();
    let blocked = full.clone();
    runtime.spawn(async move { blocked.send(2).await });
    let (answer, answered) = oneshot::channel::<u32>();
    runtime.spawn(answered);
    let pool = Arc::new(Semaphore::new(3));
    // The first task that waits gets the permit that is left, and waits for one more.
    let permits = pool.try_acquire_many(2).unwrap();
    for _ in 0..2 {
        let pool = pool.clone();
        runtime.spawn(async move { drop(pool.acquire_many(2).await) });
    }
    let single = Arc::new(Semaphore::new(1));
    runtime.spawn(async move { drop(single.acquire_many(2).await) });
    let meeting = Arc::new(volt::sync::Barrier::new(3));
    runtime.spawn(async move { meeting.wait().await.is_leader() });
    let all = dump(&runtime, &Query::default(), waits(8));
    assert_eq!(
        resources(&all),
        [
            "1 × barrier for 3 tasks",
            "1 × mpsc channel with 1 sender, 0 messages (owners of the senders: unknown)",
            "1 × mpsc channel with 2 senders, 1 of 1 message (owner of the receiver: unknown)",
            "1 × mpsc channel with 3 senders, 0 of 8 messages (owners of the senders: unknown)",
            "1 × oneshot channel with 1 sender (owner of the sender: unknown)",
            "1 × semaphore with 0 available, 2 permits wanted (owners of the others: unknown)",
            "2 × semaphore with 0 available, 2 permits wanted (owners of the others: unknown)",
        ]
    );
    let filtered = |filter: &str| dump_with(&runtime, Query { filter: filter.into(), ..Query::default() }).read;
    assert_eq!(["mpsc", "SEMAPHORE", "barrier"].map(filtered), [3, 3, 1], "by the kind of the primitive");
    let unpolled = dump_with(&runtime, Query { polls: false, ..Query::default() });
    assert!(unpolled.groups.iter().all(|group| group.resources.is_empty()), "not known without a poll");
    drop((senders, sender, unbounded, full, answer, permits));
}
