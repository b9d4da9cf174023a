//! The task dump: each waiting task's chain of awaits, with the lines of this file.

use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use volt::sync::{Mutex, Semaphore, mpsc, oneshot};
use volt::telemetry::dump::{Dump, Group, Query};
use volt::{Builder, Runtime};

/// The maximum time for an event that the test expects.
const LONG: Duration = Duration::from_secs(20);

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

async fn asks(lock: Arc<Mutex<u32>>) -> u32 {
    takes(lock).await + 1 // LINE: asks
}

fn line(marker: &str) -> u32 {
    let wanted = format!("// LINE: {marker}");
    let found = include_str!("dump.rs").lines().position(|line| line.ends_with(&wanted));
    found.unwrap_or_else(|| panic!("no line {wanted}")) as u32 + 1
}

#[cfg_attr(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))), ignore)]
#[test]
fn a_dump_names_each_await_down_to_the_lock() {
    let runtime = runtime(2);
    let lock = Arc::new(Mutex::new(1));
    let held = runtime.block_on(lock.clone().lock_owned());
    (0..3).for_each(|_| drop(runtime.spawn(asks(lock.clone()))));
    let dump = dump(&runtime, &Query::default(), waits(3));
    let [group] = &dump.groups[..] else { panic!("one group: {}", dump.text()) };
    assert_eq!((group.tasks, group.examples.len()), (3, 3));
    assert_eq!(chain(group), [("asks".to_owned(), line("asks")), ("takes".to_owned(), line("takes"))]);
    // With or without the name of an inlined function.
    assert!(["Mutex", "volt::sync::lock"].iter().any(|name| leaf(group).contains(name)), "{}", dump.text());
    assert_eq!(group.awaits.as_deref(), Some("lock"));
    let text = dump.text();
    assert!(text.contains("3 tasks waiting") && text.contains(&format!("dump.rs:{}", line("takes"))), "{text}");
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
        order.push(runtime.spawn(asks(lock.clone())).id().to_string().parse::<u64>().unwrap());
        // They join the queue one after the other.
        dump(&runtime, &unpolled, |dump| waits(waiting)(dump) && dump.queued == 0 && dump.running.is_empty());
    }
    for query in [unpolled, Query::default()] {
        let dump = dump(&runtime, &query, waits(4));
        let group = dump.groups.iter().find(|group| group.tasks == 3).unwrap_or_else(|| panic!("{}", dump.text()));
        let [held] = &group.locks[..] else { panic!("one lock: {}", dump.text()) };
        assert_eq!((held.tasks, held.waiters_len, &held.queue), (3, Some(3), &order));
        assert_eq!(held.held_by.map(|id| id.to_string()), Some(holder.id().to_string()));
        assert!(held.held_at.contains(&format!("dump.rs:{}:", line("holds"))), "{held:?}");
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
fn a_future_without_a_waker_is_said_to_have_none() {
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
        Query { filter: format!("DUMP.rs:{line}"), ..Query::default() },
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
    (0..3).for_each(|_| drop(runtime.spawn(asks(lock.clone()))));
    // A leaf that records nothing: only its chain has the line.
    runtime.spawn(async { futures_like().await });
    dump(&runtime, &Query::default(), waits(4));
    let found = |filter: &str, polls| {
        let dump = dump_with(&runtime, Query { filter: filter.into(), polls, ..Query::default() });
        assert_eq!((dump.groups.iter().map(|group| group.tasks).sum(), dump.progressed), (dump.read, 0));
        (dump.waiting, dump.read)
    };
    assert_eq!([true, false].map(|polls| found("LOCK", polls)), [(3, 3); 2]);
    let at = |marker: &str| format!("dump.rs:{}", line(marker));
    assert_eq!([true, false].map(|polls| found(&at("takes"), polls)), [(3, 3); 2], "the line that was recorded");
    assert_eq!(found(&at("asks"), true), (3, 3), "a line of the chain");
    assert_eq!(found(&at("asks"), false), (0, 0), "no chain without polls");
    assert_eq!(found(&at("leaf"), true), (1, 1));
    assert_eq!(found("no such line", true), (0, 0));
    for _ in 0..50 {
        let dump = dump_with(&runtime, Query { filter: at("asks"), ..Query::default() });
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

#[test]
fn a_task_that_can_continue_continues_in_the_poll_of_a_dump() {
    let runtime = runtime(1);
    let (is_open, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (gate, end) = (is_open.clone(), ended.clone());
    let task = runtime.spawn(async move {
        // Nothing wakes it.
        poll_fn(|_| if gate.load(Ordering::Acquire) == 0 { Poll::Pending } else { Poll::Ready(()) }).await;
        end.store(1, Ordering::Release);
        7
    });
    dump(&runtime, &Query::default(), waits(1));
    is_open.store(1, Ordering::Release);
    let dump = dump_with(&runtime, Query::default());
    assert_eq!((dump.waiting, dump.read, dump.progressed), (1, 0, 1));
    assert_eq!(runtime.block_on(task).unwrap(), 7);
    assert_eq!(ended.load(Ordering::Acquire), 1);
    let began = Instant::now();
    while runtime.handle().snapshot().tasks.alive > 0 {
        assert!(began.elapsed() < LONG, "its end is counted");
    }
}

#[test]
fn a_task_that_panics_in_the_poll_of_a_dump_fails_as_usual() {
    let runtime = runtime(1);
    let polls = AtomicUsize::new(0);
    let task = runtime.spawn(poll_fn(move |_| {
        assert_eq!(polls.fetch_add(1, Ordering::Relaxed), 0, "the second poll");
        Poll::<()>::Pending
    }));
    dump(&runtime, &Query::default(), |dump| dump.progressed == 1);
    assert!(runtime.block_on(task).unwrap_err().is_panic());
}

#[test]
fn a_task_that_wakes_itself_during_a_dump_is_polled_again() {
    let runtime = runtime(1);
    let polls = Arc::new(AtomicUsize::new(0));
    let counted = polls.clone();
    let task = runtime.spawn(poll_fn(move |cx| match counted.fetch_add(1, Ordering::Relaxed) {
        0 => Poll::Pending,
        1 => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
        _ => Poll::Ready(()),
    }));
    dump(&runtime, &Query::default(), |dump| dump.progressed == 1);
    runtime.block_on(task).unwrap();
    assert_eq!(polls.load(Ordering::Relaxed), 3);
}

#[test]
fn dumps_lose_no_message_and_keep_the_order_of_waiters() {
    const TASKS: u64 = 20;
    const ROUNDS: u64 = 200;
    let runtime = runtime(2);
    let turns = Arc::new(Semaphore::new(0));
    let (order, came) = mpsc::unbounded_channel();
    // They join the queue one after the other.
    for number in 0..TASKS {
        let (waiting, order) = (turns.clone(), order.clone());
        runtime.spawn(async move {
            waiting.acquire().await.unwrap().forget();
            order.send(number).unwrap();
        });
        dump(&runtime, &Query { polls: false, ..Query::default() }, |dump| dump.waiting == number + 1);
    }
    dump_with(&runtime, Query::default());
    let mut came = came;
    let passed: Vec<u64> = runtime.block_on(async {
        let mut passed = Vec::new();
        for _ in 0..TASKS {
            turns.add_permits(1);
            passed.push(came.recv().await.unwrap());
        }
        passed
    });
    assert_eq!(passed, Vec::from_iter(0..TASKS));

    // Messages go round while dumps are made all the time.
    let sum = Arc::new(AtomicU64::new(0));
    let rings: Vec<_> = (0..TASKS)
        .map(|_| {
            let ((to, mut from), (back, mut done)) = (mpsc::channel(1), mpsc::channel(1));
            let sum = sum.clone();
            runtime.spawn(async move {
                while let Some(message) = from.recv().await {
                    sum.fetch_add(message, Ordering::Relaxed);
                    back.send(()).await.unwrap();
                }
            });
            runtime.spawn(async move {
                for message in 0..ROUNDS {
                    to.send(message).await.unwrap();
                    done.recv().await.unwrap();
                }
            })
        })
        .collect();
    let mut dumps = 0;
    while rings.iter().any(|ring| !ring.is_finished()) {
        dump_with(&runtime, Query::default());
        dumps += 1;
    }
    assert!(dumps > 0);
    assert_eq!(sum.load(Ordering::Relaxed), TASKS * (0..ROUNDS).sum::<u64>(), "each message arrived once");
}

#[test]
fn a_current_thread_runtime_is_dumped_while_a_thread_drives_it() {
    let runtime = Builder::new_current_thread().name("single").build().unwrap();
    let dump = runtime.block_on(async {
        let handle = volt::runtime::Handle::current();
        handle.spawn(pending::<()>());
        loop {
            let dump = handle.dump().await;
            if dump.waiting == 1 {
                return dump;
            }
        }
    });
    assert_eq!((dump.read, dump.runtime.as_str()), (1, "single"));
}

#[test]
fn an_undriven_runtime_says_why_there_is_no_chain() {
    let runtime = Builder::new_current_thread().name("undriven").build().unwrap();
    runtime.spawn(pending::<()>());
    runtime.block_on(volt::task::yield_now());
    let other = self::runtime(1);
    let handle = runtime.handle().clone();
    let dump = other.block_on(async move { handle.dump().await });
    assert_eq!((dump.waiting, dump.read), (1, 0));
    assert!(dump.remarks[0].contains("no thread drives"), "{}", dump.text());
}

/// Spawns a task whose second poll, which is that of a dump, runs `in_dump`. Waits until this is
/// the only task that was added to those that wait.
fn spawn_for_dump(runtime: &Runtime, waiting: u64, in_dump: impl FnOnce() + Send + 'static) -> String {
    let (mut is_first, mut in_dump) = (true, Some(in_dump));
    let task = runtime.spawn(poll_fn(move |_| {
        if !std::mem::take(&mut is_first) {
            in_dump.take().into_iter().for_each(|in_dump| in_dump());
        }
        Poll::<()>::Pending
    }));
    dump(runtime, &Query { polls: false, ..Query::default() }, |dump| dump.waiting == waiting);
    task.id().to_string()
}

#[test]
fn a_dump_with_a_stuck_poll_keeps_what_it_has_read() {
    let runtime = runtime(1);
    let (release, stuck) = std::sync::mpsc::channel::<()>();
    // It waits longest, so it comes last.
    let id = spawn_for_dump(&runtime, 1, move || _ = stuck.recv());
    // Longer than a slice of the dump.
    (2..4).for_each(|waiting| _ = spawn_for_dump(&runtime, waiting, || std::thread::sleep(Duration::from_millis(1))));
    let dump = dump_with(&runtime, Query::default());
    assert_eq!((dump.waiting, dump.read), (3, 2), "{}", dump.text());
    assert!(dump.remarks.iter().any(|remark| remark.contains(&format!("task #{id}"))), "{}", dump.text());
    assert_eq!(dump.running, [], "the dump's own task is not listed");
    drop(release);
}

#[test]
fn a_dump_that_progresses_slowly_is_completed() {
    const TASKS: u64 = 4;
    let runtime = runtime(1);
    // Together longer than a dump waits without progress.
    for waiting in 1..=TASKS {
        spawn_for_dump(&runtime, waiting, || std::thread::sleep(Duration::from_millis(900)));
    }
    let dump = dump_with(&runtime, Query::default());
    assert_eq!((dump.waiting, dump.read, &dump.remarks[..]), (TASKS, TASKS, &[][..]), "{}", dump.text());
}

#[test]
fn a_dump_of_a_local_runtime_polls_its_local_tasks() {
    let runtime = volt::runtime::LocalRuntime::new().unwrap();
    let polls = std::rc::Rc::new(std::cell::Cell::new(0));
    let counted = polls.clone();
    runtime.spawn_local(poll_fn(move |_| {
        counted.set(counted.get() + 1);
        Poll::<()>::Pending
    }));
    let dump = runtime.block_on(async {
        loop {
            let dump = volt::runtime::Handle::current().dump().await;
            if dump.waiting == 1 {
                return dump;
            }
        }
    });
    assert_eq!(dump.read, 1);
    assert!(polls.get() >= 2, "by its worker, and for the dump");
}

#[test]
fn a_dump_of_a_runtime_with_stuck_workers_has_a_remark() {
    let stuck = Builder::new_multi_thread().worker_threads(1).max_spare_workers(0).name("stuck").build().unwrap();
    stuck.spawn(pending::<()>());
    dump(&stuck, &Query { polls: false, ..Query::default() }, |dump| dump.waiting == 1);
    let ((entered, is_in), (release, wait)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
    let task = stuck.spawn(async move {
        entered.send(()).unwrap();
        _ = wait.recv();
    });
    is_in.recv().unwrap();
    let handle = stuck.handle().clone();
    let dump = runtime(1).block_on(async move { handle.dump().await });
    assert_eq!((dump.waiting, dump.read), (1, 0));
    assert!(dump.remarks.iter().any(|remark| remark.contains("no worker polled")), "{}", dump.text());
    let running: Vec<_> = dump.running.iter().map(|running| running.task.id.to_string()).collect();
    assert_eq!(running, [task.id().to_string()]);
    drop(release);
}

#[test]
fn dumps_during_a_shutdown_end_and_delay_it_no_further() {
    for _ in 0..10 {
        let ending = runtime(2);
        (0..200).for_each(|_| drop(ending.spawn(pending::<()>())));
        dump(&ending, &Query { polls: false, ..Query::default() }, waits(200));
        let (handle, (begun, begins)) = (ending.handle().clone(), std::sync::mpsc::channel());
        let dumps = std::thread::spawn(move || {
            let other = runtime(1);
            begun.send(()).unwrap();
            loop {
                let handle = handle.clone();
                let dump = other.block_on(async move { handle.dump().await });
                if dump.waiting == 0 {
                    return dump;
                }
            }
        });
        begins.recv().unwrap();
        drop(ending);
        assert_eq!(dumps.join().unwrap().read, 0);
    }
}

#[test]
fn a_dump_whose_future_is_dropped_delays_no_other_dump() {
    let runtime = runtime(1);
    let (entered, is_in) = std::sync::mpsc::channel();
    let (release, stuck) = std::sync::mpsc::channel::<()>();
    spawn_for_dump(&runtime, 1, move || {
        entered.send(()).unwrap();
        _ = stuck.recv();
    });
    let handle = runtime.handle().clone();
    let first = runtime.spawn(async move { handle.dump().await });
    is_in.recv().unwrap();
    first.abort();
    drop(release);
    let after = dump(&runtime, &Query::default(), waits(1));
    assert_eq!(after.remarks, [] as [String; 0], "{}", after.text());
}

/// A future that must not be polled after it has completed, nor by two threads.
struct Strict(bool, Pin<Box<dyn Future<Output = ()> + Send>>);

impl Future for Strict {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<()> {
        assert!(!self.0, "polled after completion");
        let polled = self.1.as_mut().poll(cx);
        self.0 = polled.is_ready();
        polled
    }
}

#[test]
fn a_dump_beside_ends_and_aborts_polls_nothing_that_ended() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let began = Instant::now();
    let mut dumps = 0;
    while dumps < 10 && began.elapsed() < LONG {
        let tasks: Vec<_> = (0..50)
            .map(|number| {
                let wait = volt::time::sleep(Duration::from_micros(number * 20));
                runtime.spawn(Strict(false, Box::pin(wait)))
            })
            .collect();
        tasks.iter().step_by(7).for_each(|task| task.abort());
        dump_with(&runtime, Query::default());
        dumps += 1;
        for task in tasks {
            let ended = runtime.block_on(task);
            assert!(ended.as_ref().err().is_none_or(|error| error.is_cancelled()), "{ended:?}");
        }
    }
}

/// Spawns a task whose poll in a dump calls `act` once. Returns after that dump, which must end.
fn act_in_a_dump(runtime: &Runtime, act: impl FnOnce() + Send + 'static) -> Dump {
    let (mut polls, mut act) = (0, Some(act));
    let acts = poll_fn(move |cx| {
        polls += 1;
        if polls > 1 {
            act.take().into_iter().for_each(|act| act());
        }
        let _waker = cx.waker().clone();
        Poll::<()>::Pending
    });
    let task = volt::task::Builder::new().name("acts").spawn_on(acts, runtime.handle());
    let query = Query { task: Some("acts".into()), ..Query::default() };
    dump(runtime, &Query { polls: false, ..query.clone() }, waits(1));
    let dump = dump_with(runtime, query);
    assert_eq!((dump.waiting, dump.read), (1, 1), "{}", dump.text());
    task.abort();
    dump
}

#[test]
fn a_task_may_spawn_another_in_the_poll_of_a_dump() {
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let (sender, spawned) = std::sync::mpsc::channel();
        act_in_a_dump(&runtime, move || sender.send(volt::spawn(async { 7 })).unwrap());
        assert_eq!(runtime.block_on(spawned.recv().unwrap()).unwrap(), 7);
    }
}

#[test]
fn a_task_may_wake_or_abort_another_in_the_poll_of_a_dump() {
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let (sender, receiver) = oneshot::channel();
        let (woken, aborted) = (runtime.spawn(receiver), runtime.spawn(pending::<()>()));
        dump(&runtime, &Query { polls: false, ..Query::default() }, waits(2));
        let abort = aborted.abort_handle();
        act_in_a_dump(&runtime, move || {
            sender.send(7).unwrap();
            abort.abort();
        });
        assert_eq!(runtime.block_on(woken).unwrap(), Ok(7));
        assert!(runtime.block_on(aborted).unwrap_err().is_cancelled());
    }
}

#[test]
fn a_task_may_request_a_dump_in_the_poll_of_a_dump() {
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let handle = runtime.handle().clone();
        let (sender, requested) = std::sync::mpsc::channel();
        act_in_a_dump(&runtime, move || {
            let inner = handle.clone();
            sender.send(handle.spawn(async move { inner.dump().await })).unwrap();
        });
        let dump = runtime.block_on(requested.recv().unwrap()).unwrap();
        assert_eq!(dump.runtime, runtime.handle().snapshot().runtime);
        // A task that awaits a dump is itself polled by others.
        let handle = runtime.handle().clone();
        let dumps = runtime.spawn(async move {
            for _ in 0..5 {
                handle.dump().await;
            }
        });
        while !dumps.is_finished() {
            dump_with(&runtime, Query::default());
        }
        runtime.block_on(dumps).unwrap();
    }
}
