//! The primitives that tasks wait for, as a dump shows them.

use volt::sync::{Notify, RwLock, Semaphore, broadcast, mpsc, watch};
use volt::task::JoinSet;

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
            "1 × semaphore with 0 of 1 permit available, 2 permits wanted (holders: unknown)",
            "2 × semaphore with 0 of 3 permits available, 2 permits wanted",
        ]
    );
    let filtered = |filter: &str| dump_with(&runtime, Query { filter: filter.into(), ..Query::default() }).read;
    assert_eq!(["mpsc", "SEMAPHORE", "barrier"].map(filtered), [3, 3, 1], "by the kind of the primitive");
    let unpolled = dump_with(&runtime, Query { polls: false, ..Query::default() });
    assert!(unpolled.groups.iter().all(|group| group.resources.is_empty()), "not known without a poll");
    drop((senders, sender, unbounded, full, answer, permits));
}

#[test]
fn a_dump_shows_the_numbers_of_values_notices_and_ends() {
    let runtime = runtime(2);
    let changed = Arc::new(Notify::new());
    for _ in 0..2 {
        let changed = changed.clone();
        runtime.spawn(async move { changed.notified().await });
    }
    runtime.spawn(changed.clone().notified_owned());
    let (news, mut reader) = broadcast::channel::<u32>(8);
    let (weak, _other) = (news.downgrade(), news.subscribe());
    let senders = [weak.upgrade().unwrap(), news];
    runtime.spawn(async move { reader.recv().await });
    let (price, mut buyer) = watch::channel(1);
    let (others, prices) = ([buyer.clone(), price.subscribe()], price.clone());
    runtime.spawn(async move { buyer.changed().await });
    let (mut end, _left) = (others[0].clone(), others);
    runtime.spawn(async move { end.wait_for(|price| *price > 1).await.map(|price| *price) });
    let (last, _only) = watch::channel(1);
    runtime.spawn(async move { last.closed().await });
    let (last, _both) = broadcast::channel(8);
    let _late = [last.subscribe(), last.subscribe()];
    last.send(1).unwrap();
    runtime.spawn(async move { last.closed().await });
    let shared = Arc::new(RwLock::new(1));
    let _readers = [shared.clone().try_read_owned().unwrap(), shared.clone().try_read_owned().unwrap()];
    let writes = shared.clone();
    runtime.spawn(async move { *writes.write().await = 2 });
    let pay = volt::task::Builder::new().name("pay").spawn_on(pending::<()>(), runtime.handle());
    let paid = id(&pay);
    runtime.spawn(pay);
    let mut set = JoinSet::new();
    let mut ids = [0, 1].map(|_| set.spawn_on(pending::<()>(), runtime.handle()).id().to_string());
    ids.sort_unstable_by_key(|id| id.parse::<u64>().unwrap());
    runtime.spawn(async move { set.join_next().await.is_some() });
    let all = dump(&runtime, &Query::default(), waits(14));
    assert_eq!(
        resources(&all),
        [
            format!("1 × JoinSet with 2 tasks: {}", ids.map(|id| format!("#{id}")).join(", ")),
            "1 × Notify (notifiers: unknown)".into(),
            "1 × RwLock for write access (holders: not recorded, because there were several readers)".into(),
            "1 × broadcast channel with 2 senders and 2 receivers (owners of the senders: unknown)".into(),
            "1 × broadcast channel with 3 receivers, the slowest receiver is 1 message behind (owners of the receivers: \
             unknown)"
                .into(),
            format!("1 × end of task #{paid} \"pay\""),
            "1 × watch channel with 1 receiver (owner of the receiver: unknown)".into(),
            "1 × watch channel with 2 senders and 4 receivers, value seen (owners of the senders: unknown)".into(),
            "1 × watch channel with 2 senders and 4 receivers, value seen (owners of the senders: unknown)".into(),
            "2 × Notify (notifiers: unknown)".into(),
        ]
    );
    let text = all.text();
    assert!(text.contains("  awaited by 3 tasks: #"), "those in two groups: {text}");
    // Two tasks await a change of one channel, at different lines, and one its receiver of another.
    let resources = all.groups.iter().flat_map(|group| &group.resources);
    let watched: Vec<_> = resources.filter(|one| one.kind == "watch").map(|one| one.waiters_len).collect();
    assert_eq!(watched.iter().filter(|waiters| **waiters == Some(2)).count(), 2, "{watched:?}");
    let filtered = |filter: &str| dump_with(&runtime, Query { filter: filter.into(), ..Query::default() }).read;
    let kinds = ["notify", "broadcast", "watch", "rwlock", "join_handle", "join_set"];
    assert_eq!(kinds.map(filtered), [3, 2, 3, 1, 1, 1]);
    drop((senders, price, prices));
}

#[test]
fn a_dump_shows_the_tasks_that_await_a_cell_that_is_set_once() {
    let runtime = runtime(2);
    let ready = Arc::new(volt::sync::SetOnce::<u16>::new());
    for _ in 0..2 {
        let ready = ready.clone();
        runtime.spawn(async move { *ready.wait().await });
    }
    let all = dump(&runtime, &Query::default(), waits(2));
    assert_eq!(resources(&all), ["2 × SetOnce (setter: unknown)"]);
    assert_eq!(all.groups[0].resources[0].waiters_len, Some(2), "{}", all.text());
}

#[test]
fn a_dump_shows_the_order_of_tasks_at_a_semaphore_and_channel() {
    let runtime = runtime(2);
    let unpolled = Query { polls: false, ..Query::default() };
    let pool = Arc::new(Semaphore::new(2));
    let permits = pool.try_acquire_many(2).unwrap();
    let (full, _not_received) = mpsc::channel(1);
    full.try_send(0).unwrap();
    let (mut at_pool, mut at_channel) = (Vec::new(), Vec::new());
    // They join the queues one after the other.
    let settled = |count| {
        dump(&runtime, &unpolled, |dump| waits(count)(dump) && dump.queued == 0 && dump.running.is_empty());
    };
    for round in 0..3_u64 {
        let pool = pool.clone();
        at_pool.push(id(&runtime.spawn(async move { pool.acquire().await.is_ok() })));
        settled(2 * round + 1);
        let full = full.clone();
        at_channel.push(id(&runtime.spawn(async move { full.send(1).await.is_ok() })));
        settled(2 * round + 2);
    }
    let other = pool.clone();
    at_pool.push(id(&runtime.spawn(async move { other.acquire_many(2).await.is_ok() })));
    settled(7);
    let all = dump(&runtime, &Query::default(), waits(7));
    let queues = |kind: &str| {
        let resources = all.groups.iter().flat_map(|group| &group.resources).filter(|resource| resource.kind == kind);
        resources.map(|resource| (resource.waiters_len, resource.queue.clone())).collect::<Vec<_>>()
    };
    assert_eq!(queues("semaphore"), [(Some(4), at_pool.clone()), (Some(4), at_pool.clone())], "{}", all.text());
    assert_eq!(queues("mpsc"), [(Some(3), at_channel)], "{}", all.text());
    let order = at_pool.iter().map(|id| format!("#{id}")).collect::<Vec<_>>().join(", ");
    assert!(all.text().contains(&format!("  awaited by 4 tasks: {order}\n")), "{}", all.text());
    // The other tasks that wait for it were not polled.
    let alone = dump_with(&runtime, Query { task: Some(at_pool[0].to_string()), ..Query::default() });
    assert_eq!(alone.groups[0].resources[0].waiters_len, None, "{}", alone.text());
    drop(permits);
}

#[test]
fn a_dump_shows_how_far_the_slowest_receiver_is_behind() {
    let runtime = runtime(2);
    let (news, mut keeps_up) = broadcast::channel(5);
    let mut lags = news.subscribe();
    runtime.spawn(async move { while keeps_up.recv().await.is_ok() {} });
    let shown = |behind: &str| {
        let rest = "(owners of the senders: unknown)";
        let expected = [format!("1 × broadcast channel with 1 sender and 2 receivers{behind} {rest}")];
        dump(&runtime, &Query::default(), |dump| waits(1)(dump) && resources(dump) == expected);
    };
    shown("");
    (0..3).for_each(|number| assert_eq!(news.send(number).unwrap(), 2));
    shown(", the slowest receiver is 3 messages behind");
    // It loses the oldest of these: the channel keeps 8.
    (3..10).for_each(|number| assert_eq!(news.send(number).unwrap(), 2));
    shown(", the slowest receiver is 8 messages or more behind");
    assert!(matches!(lags.try_recv(), Err(broadcast::error::TryRecvError::Lagged(2))));
    assert_eq!(lags.try_recv(), Ok(2));
    shown(", the slowest receiver is 7 messages behind");
    while lags.try_recv().is_ok() {}
    shown("");
    let weak = news.downgrade();
    assert_eq!((news.weak_count(), weak.weak_count(), lags.sender_weak_count()), (1, 1, 1));
    drop(news);
    assert_eq!((weak.weak_count(), lags.sender_weak_count(), weak.strong_count()), (1, 1, 0));
}

#[test]
fn a_dump_names_the_task_that_receives_from_a_full_channel() {
    let runtime = runtime(2);
    let (sender, mut receiver) = mpsc::channel(1);
    let receives = runtime.spawn(async move {
        receiver.recv().await;
        pending::<()>().await;
    });
    runtime.spawn(async move { while sender.send(1).await.is_ok() {} });
    let full = dump(&runtime, &Query::default(), waits(2));
    let expected =
        format!("1 × mpsc channel with 1 sender, 1 of 1 message (task #{} received from it last)", id(&receives));
    assert_eq!(resources(&full), [expected]);
}

#[test]
fn a_dump_counts_primitives_with_the_same_numbers() {
    let runtime = runtime(2);
    let mut answers = Vec::new();
    for _ in 0..3 {
        let (answer, answered) = oneshot::channel::<u32>();
        answers.push(answer);
        runtime.spawn(answered);
    }
    let ends: Vec<_> = (0..2).map(|_| runtime.spawn(pending::<()>())).collect();
    let mut ids: Vec<_> = ends.iter().map(id).collect();
    ids.sort_unstable();
    ends.into_iter().for_each(|end| drop(runtime.spawn(end)));
    let all = dump(&runtime, &Query::default(), waits(7));
    assert_eq!(
        resources(&all),
        [
            format!("2 × ends of 2 tasks: #{}, #{}", ids[0], ids[1]),
            "3 × 3 × oneshot channel with 1 sender (owner of the sender: unknown)".into(),
        ]
    );
    assert!(!all.text().contains("awaited by"), "each is awaited by one task: {}", all.text());
}
