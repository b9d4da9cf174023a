//! The task dump: each waiting task's chain of awaits, with the lines of this file. `polls` has
//! what tasks do in the polls of a dump, `block_on` the futures that are not tasks, `local_set` the
//! tasks of such a set, `repeat` the next dumps of the same tasks, `resources` the primitives that
//! they wait for, `permits` the holders of permits, and `runtimes` the runtimes that cannot run it
//! as usual.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use volt::sync::{Mutex, oneshot};
use volt::telemetry::dump::{Dump, Group, Query};
use volt::{Builder, Runtime};

mod block_on;
mod local_set;
mod permits;
mod polls;
mod repeat;
mod resources;
mod runtimes;

/// The maximum time for an event that the test expects.
const LONG: Duration = Duration::from_secs(60);

fn runtime(workers: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(workers).name("dumped").build().unwrap()
}

fn dump_with(runtime: &Runtime, query: Query) -> Dump {
    let handle = runtime.handle().clone();
    runtime.block_on(async move { handle.dump_with(query).await })
}

/// Repeats the dump until `is_as_expected`.
fn dump(runtime: &Runtime, query: &Query, is_as_expected: impl Fn(&Dump) -> bool) -> Dump {
    let began = Instant::now();
    loop {
        let dump = dump_with(runtime, query.clone());
        if is_as_expected(&dump) {
            return dump;
        }
        assert!(began.elapsed() < LONG, "{}", dump.text());
    }
}

fn waits(count: u64) -> impl Fn(&Dump) -> bool {
    move |dump| dump.waiting == count && dump.read == count
}

/// Returns the number in the id of a task.
fn id<T>(task: &volt::task::JoinHandle<T>) -> u64 {
    task.id().to_string().parse().unwrap()
}

/// The functions of a chain without their modules, with the lines of this file.
fn chain(group: &Group) -> Vec<(String, u32)> {
    let links = group.chain.iter().filter(|link| link.is_user_code);
    links
        .map(|link| {
            let function = link.function.as_deref().unwrap_or("?");
            (function.rsplit("::").next().unwrap_or(function).to_owned(), link.line.unwrap_or(0))
        })
        .collect()
}

fn leaf(group: &Group) -> &str {
    group.chain.last().and_then(|link| link.function.as_deref()).unwrap_or("?")
}

async fn takes(lock: Arc<Mutex<u32>>) -> u32 {
    let taken = lock.lock().await; // LINE: takes
    *taken
}

async fn adds_one(lock: Arc<Mutex<u32>>) -> u32 {
    takes(lock).await + 1 // LINE: adds_one
}

fn line(marker: &str) -> u32 {
    let wanted = format!("// LINE: {marker}");
    let found = include_str!("mod.rs").lines().position(|line| line.ends_with(&wanted));
    found.unwrap_or_else(|| panic!("no line {wanted}")) as u32 + 1
}

#[cfg_attr(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))), ignore)]
#[test]
fn a_dump_names_each_await_down_to_the_lock() {
    let runtime = runtime(2);
    let lock = Arc::new(Mutex::new(1));
    let held = runtime.block_on(lock.clone().lock_owned());
    (0..3).for_each(|_| drop(runtime.spawn(adds_one(lock.clone()))));
    let dump = dump(&runtime, &Query::default(), waits(3));
    let [group] = &dump.groups[..] else { panic!("one group: {}", dump.text()) };
    assert_eq!((group.tasks, group.examples.len()), (3, 3));
    assert_eq!(chain(group), [("adds_one".to_owned(), line("adds_one")), ("takes".to_owned(), line("takes"))]);
    // With or without the name of an inlined function.
    assert!(["Mutex", "volt::sync::lock"].iter().any(|name| leaf(group).contains(name)), "{}", dump.text());
    assert_eq!(group.awaits.as_deref(), Some("lock"));
    let text = dump.text();
    assert!(text.contains("3 tasks waiting") && text.contains(&format!("dump/mod.rs:{}", line("takes"))), "{text}");
    drop(held);
}

/// Keeps the lock until it receives a message.
async fn holds(lock: Arc<Mutex<u32>>, end: oneshot::Receiver<()>) {
    let _held = lock.lock().await; // LINE: holds
    let _ = end.await;
}

#[test]
fn a_dump_shows_the_holder_of_a_lock_and_its_waiters_in_order() {
    let runtime = runtime(2);
    let lock = Arc::new(Mutex::new(1));
    let (_end, ended) = oneshot::channel();
    let holder = volt::task::Builder::new().name("till").spawn_on(holds(lock.clone(), ended), runtime.handle());
    let unpolled = Query { polls: false, ..Query::default() };
    dump(&runtime, &unpolled, |dump| dump.groups.iter().any(|group| group.awaits.as_deref() == Some("value")));
    let mut order = Vec::new();
    for waiting in 2..=4 {
        order.push(runtime.spawn(adds_one(lock.clone())).id().to_string().parse::<u64>().unwrap());
        // They join the queue one after the other.
        dump(&runtime, &unpolled, |dump| waits(waiting)(dump) && dump.queued == 0 && dump.running.is_empty());
    }
    for query in [unpolled, Query::default()] {
        let dump = dump(&runtime, &query, waits(4));
        let group = dump.groups.iter().find(|group| group.tasks == 3).unwrap_or_else(|| panic!("{}", dump.text()));
        let [held] = &group.locks[..] else { panic!("one lock: {}", dump.text()) };
        assert_eq!((held.tasks, held.waiters_len, &held.queue), (3, Some(3), &order));
        assert_eq!(held.held_by.map(|id| id.to_string()), Some(holder.id().to_string()));
        assert!(held.held_at.contains(&format!("dump/mod.rs:{}:", line("holds"))), "{held:?}");
        let text = format!("held by task {} \"till\" for ", holder.id());
        assert!(dump.text().contains(&text), "{}", dump.text());
    }
}

#[cfg_attr(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))), ignore)]
#[test]
fn a_task_that_awaits_several_operations_has_a_branch_for_each() {
    let runtime = runtime(1);
    let (_sender, receiver) = oneshot::channel::<u32>();
    runtime.spawn(async {
        volt::select! {
            _ = receiver => {}
            () = volt::time::sleep(Duration::from_secs(1000)) => {}
        }
    });
    let dump = dump(&runtime, &Query::default(), waits(1));
    let leaves: Vec<_> = dump.groups[0].chain.iter().filter(|link| !link.is_user_code).collect();
    let has = |name: &str| leaves.iter().any(|link| link.function.as_deref().is_some_and(|leaf| leaf.contains(name)));
    assert!(has("oneshot") && has("Sleep"), "{}", dump.text());
}

#[test]
fn a_dump_wakes_no_task_and_keeps_the_age_of_its_wait() {
    let runtime = runtime(1);
    let polls = Arc::new(AtomicUsize::new(0));
    let counted = polls.clone();
    let task = runtime.spawn(poll_fn(move |cx| {
        counted.fetch_add(1, Ordering::Relaxed);
        // Kept by nothing: only the dump polls it again.
        let _waker = cx.waker().clone();
        Poll::<()>::Pending
    }));
    let before = dump(&runtime, &Query::default(), waits(1));
    let (polled, waited) = (polls.load(Ordering::Relaxed), before.groups[0].oldest_ns);
    let after = dump_with(&runtime, Query::default());
    assert_eq!(polls.load(Ordering::Relaxed), polled + 1, "once for a dump");
    assert!(after.groups[0].oldest_ns > waited, "the wait goes on");
    dump_with(&runtime, Query { polls: false, ..Query::default() });
    assert_eq!(polls.load(Ordering::Relaxed), polled + 1, "not polled if that is not wanted");
    task.abort();
}

#[test]
fn a_future_without_a_waker_is_reported_to_have_none() {
    let runtime = runtime(1);
    runtime.spawn(pending::<()>());
    let dump = dump(&runtime, &Query::default(), waits(1));
    assert!(dump.groups[0].error.as_deref().unwrap().contains("no waker registered"), "{}", dump.text());
}

#[test]
fn a_query_selects_by_id_name_and_spawn_line() {
    let runtime = runtime(1);
    let (ours, line) = (volt::task::Builder::new().name("ours").spawn_on(pending::<()>(), runtime.handle()), line!());
    runtime.spawn(pending::<()>());
    let all = dump(&runtime, &Query::default(), waits(2));
    assert_eq!(all.groups.len(), 2, "they were spawned at different lines");
    for query in [
        Query { task: Some("ours".into()), ..Query::default() },
        Query { task: Some(ours.id().to_string()), ..Query::default() },
        Query { task: Some(format!("#{}", ours.id())), ..Query::default() },
        Query { filter: format!("DUMP/MOD.rs:{line}"), ..Query::default() },
    ] {
        let dump = dump_with(&runtime, query.clone());
        assert_eq!((dump.waiting, dump.read, dump.queued), (1, 1, 0), "{query:?}");
        assert_eq!(dump.groups[0].examples[0].name.as_deref(), Some("ours"));
    }
    let sampled = dump_with(&runtime, Query { sample: 1, ..Query::default() });
    assert_eq!((sampled.waiting, sampled.read), (2, 1));
    let none = dump_with(&runtime, Query { task: Some("theirs".into()), ..Query::default() });
    assert_eq!((none.waiting, none.groups.len()), (0, 0));
}

#[cfg_attr(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))), ignore)]
#[test]
fn a_filter_finds_the_kind_and_the_line_of_an_await() {
    let runtime = runtime(1);
    let lock = Arc::new(Mutex::new(1));
    let _held = runtime.block_on(lock.clone().lock_owned());
    (0..3).for_each(|_| drop(runtime.spawn(adds_one(lock.clone()))));
    // A leaf that records nothing: only its chain has the line.
    runtime.spawn(async { futures_like().await });
    dump(&runtime, &Query::default(), waits(4));
    let found = |filter: &str, polls| {
        let dump = dump_with(&runtime, Query { filter: filter.into(), polls, ..Query::default() });
        assert_eq!((dump.groups.iter().map(|group| group.tasks).sum(), dump.progressed), (dump.read, 0));
        (dump.waiting, dump.read)
    };
    assert_eq!([true, false].map(|polls| found("LOCK", polls)), [(3, 3); 2]);
    assert_eq!([true, false].map(|polls| found("a lock", polls)), [(3, 3); 2], "as it is shown");
    let at = |marker: &str| format!("dump/mod.rs:{}", line(marker));
    assert_eq!([true, false].map(|polls| found(&at("takes"), polls)), [(3, 3); 2], "the line that was recorded");
    assert_eq!(found(&at("adds_one"), true), (3, 3), "a line of the chain");
    assert_eq!(found(&at("adds_one"), false), (0, 0), "no chain without polls");
    assert_eq!(found(&at("leaf"), true), (1, 1));
    assert_eq!(found("no such line", true), (0, 0));
    for _ in 0..50 {
        let dump = dump_with(&runtime, Query { filter: at("adds_one"), ..Query::default() });
        assert!(dump.running.is_empty(), "the dump's own task is not shown: {}", dump.text());
        let dump = dump_with(&runtime, Query::default());
        assert!(dump.running.iter().all(|task| !task.spawned_at.contains("dump/batch.rs")), "{}", dump.text());
    }
    let sampled = Query { filter: "lock".into(), sample: 2, ..Query::default() };
    let sampled = dump_with(&runtime, sampled);
    assert_eq!((sampled.waiting, sampled.read), (3, 2), "those that match by name come first");
    assert!(sampled.text().contains("1 more waiting task not read"), "{}", sampled.text());
}

async fn futures_like() {
    let mut kept = None;
    poll_fn(|cx| {
        kept = Some(cx.waker().clone()); // LINE: leaf
        Poll::<()>::Pending
    })
    .await
}
