//! The list of a runtime's tasks, requested over the control socket.

use std::future::Future;
use std::sync::mpsc;
use std::task::Poll;
use std::time::{Duration, Instant};

use volt::telemetry::client::Client;
use volt::telemetry::listing::MAX_ROWS;
use volt::telemetry::tasks::{Query, Rank, State, Task, TaskList};
use volt::{Builder, Runtime};

/// The maximum time for an event that the test expects.
const LONG: Duration = Duration::from_secs(20);

fn runtime(name: &str, workers: usize) -> (Runtime, Client) {
    let runtime =
        Builder::new_multi_thread().worker_threads(workers).sentinel_interval(None).name(name).build().unwrap();
    let client = Client::connect(&volt::observe::socket_path().expect("a control socket")).unwrap();
    (runtime, client)
}

fn query(rank: Rank, filter: &str) -> Query {
    Query { rank, filter: filter.into(), limit: 100, ..Query::default() }
}

/// Repeats the request until the answer is `as_expected`.
#[track_caller]
fn request(client: &mut Client, runtime: &str, query: &Query, as_expected: impl Fn(&TaskList) -> bool) -> TaskList {
    let began = Instant::now();
    loop {
        let list = client.tasks(Some(runtime), query).unwrap();
        // A list that was made for another query is marked as such.
        if list.query.filter == query.filter && list.query.rank == query.rank && as_expected(&list) {
            return list;
        }
        assert!(began.elapsed() < LONG, "{list:?}");
        std::thread::yield_now();
    }
}

fn spawn_named(runtime: &Runtime, name: &str, future: impl Future<Output = ()> + Send + 'static) -> u64 {
    let task = volt::task::Builder::new().name(name).spawn_on(future, runtime.handle());
    task.id().to_string().parse().unwrap()
}

fn names(list: &TaskList) -> Vec<&str> {
    list.rows.iter().map(|task| task.name.as_deref().unwrap_or("")).collect()
}

#[test]
fn the_task_list_reports_polls_busy_time_last_wake_and_wakers() {
    let (runtime, mut client) = runtime("accounts", 1);
    let polls = 7;
    let id = spawn_named(&runtime, "spins", async move {
        for _ in 1..polls {
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(3) {}
            volt::task::yield_now().await;
        }
        // Keeps its own waker.
        let mut own = None;
        std::future::poll_fn(|cx| {
            own = Some(cx.waker().clone());
            Poll::<()>::Pending
        })
        .await;
    });
    let is_there = |list: &TaskList| list.rows.first().is_some_and(|task| task.state == State::Waits);
    let list = request(&mut client, "accounts", &query(Rank::Busy, "SPINS"), is_there);
    let task = &list.rows[0];
    assert_eq!((task.id, task.name.as_deref(), task.polls), (id, Some("spins"), Some(polls)));
    assert!(task.spawned_at.contains("tests/tasks/listing.rs:"), "{task:?}");
    let (busy, longest) = (task.busy_ns.unwrap(), task.longest_ns.unwrap());
    assert!(busy >= 18_000_000 && longest >= 2_800_000 && longest <= busy, "{task:?}");
    assert_eq!((task.woken_by.as_deref(), task.waker_task, task.wakers), (Some("task"), Some(id), Some(1)));
    assert_eq!((list.matching, list.alive, list.unseen()), (1, 1, 0));
}

#[test]
fn a_task_that_waited_behind_another_has_suffered_the_delay() {
    let (runtime, mut client) = runtime("delayed", 1);
    let began = spawn_named(&runtime, "blocks", async {
        drop(spawn_inside("waits"));
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(50) {}
        std::future::pending().await
    });
    fn spawn_inside(name: &str) -> volt::task::JoinHandle<()> {
        volt::task::Builder::new().name(name).spawn(std::future::pending())
    }
    let have_both = |list: &TaskList| list.rows.iter().filter(|task| task.polls == Some(1)).count() == 2;
    let list = request(&mut client, "delayed", &query(Rank::Delay, ""), have_both);
    assert_eq!(names(&list), ["waits", "blocks"]);
    assert!(list.rows[0].delay_ns.unwrap() >= 45_000_000, "{:?}", list.rows[0]);
    assert_eq!(list.rows[1].id, began);
}

#[test]
fn the_highest_rank_is_first_and_the_others_are_counted() {
    let (runtime, mut client) = runtime("ranked", 2);
    let polls_of = |count: u64| async move {
        for _ in 0..count {
            volt::task::yield_now().await;
        }
        std::future::pending::<()>().await;
    };
    (0..30).for_each(|count| _ = spawn_named(&runtime, &format!("t{count:02}"), polls_of(count)));
    let wanted = Query { limit: 3, ..query(Rank::Polls, "") };
    let have_waited = |list: &TaskList| list.seen == 30 && list.rows.iter().all(|task| task.state == State::Stranded);
    let list = request(&mut client, "ranked", &wanted, |list| have_waited(list) && names(list)[0] == "t29");
    assert_eq!(names(&list), ["t29", "t28", "t27"]);
    assert_eq!((list.matching, list.alive, list.is_cut), (30, 30, false));
    let inverted = Query { is_inverted: true, ..wanted };
    let list = request(&mut client, "ranked", &inverted, |list| list.query.is_inverted);
    assert_eq!(names(&list), ["t00", "t01", "t02"]);
    let all = Query { limit: u32::MAX, ..query(Rank::Id, file!()) };
    let list = request(&mut client, "ranked", &all, |list| list.rows.len() == 30);
    assert_eq!(list.query.limit as usize, MAX_ROWS, "a larger limit is lowered");
    assert!(list.rows.is_sorted_by_key(|task| std::cmp::Reverse(task.id)));
    let by_state = request(&mut client, "ranked", &query(Rank::Id, "strand"), |list| list.matching == 30);
    assert_eq!(by_state.rows.len(), 30);
    let of_id = by_state.rows[4].id;
    let by_id = request(&mut client, "ranked", &query(Rank::Id, &format!("#{of_id}")), |list| list.matching >= 1);
    assert!(by_id.rows.iter().any(|task| task.id == of_id) && by_id.matching < 30);
    assert_eq!(request(&mut client, "ranked", &query(Rank::Id, "nothing"), |_| true).matching, 0);
}

#[test]
fn a_task_stuck_in_its_first_poll_is_listed_and_others_counted() {
    let (runtime, mut client) = runtime("stuck", 1);
    let (release, is_released) = mpsc::channel::<()>();
    let stuck = runtime.spawn(async move {
        for _ in 0..5 {
            drop(volt::spawn(async {}));
        }
        let _ = is_released.recv();
    });
    let is_stuck = |list: &TaskList| list.rows.len() == 1 && list.alive == 6;
    let list = request(&mut client, "stuck", &query(Rank::Longest, "polled"), is_stuck);
    let Task { id, state, worker, in_poll_ns, polls, .. } = &list.rows[0];
    assert_eq!((*id, *state, *worker, *polls), (stuck.id().to_string().parse().unwrap(), State::Polled, Some(0), None));
    assert!(in_poll_ns.is_some());
    assert_eq!(list.unseen(), 5, "they wait in the queue for their first poll");
    drop(release);
    // The rows and the counts are read one after the other, while the task ends.
    let is_over = |list: &TaskList| list.alive == 0 && list.rows.is_empty();
    let list = request(&mut client, "stuck", &query(Rank::Longest, ""), is_over);
    assert_eq!((list.rows.len(), list.unseen()), (0, 0));
}

#[test]
fn an_unknown_runtime_is_an_error_that_keeps_the_connection() {
    let (_runtime, mut client) = runtime("there", 1);
    let error = client.tasks(Some("elsewhere"), &Query::default()).unwrap_err();
    assert!(error.is_answer(), "{error}");
    assert!(client.tasks(Some("there"), &Query::default()).is_ok());
}

#[test]
fn a_task_reports_its_current_await_point() {
    let (runtime, mut client) = runtime("awaits", 1);
    let lock = std::sync::Arc::new(volt::sync::Mutex::new(()));
    let (sender, mut receiver) = volt::sync::mpsc::channel::<()>(1);
    let held = runtime.block_on(lock.clone().lock_owned());
    let line = line!() + 2;
    spawn_named(&runtime, "locks", async move {
        drop(lock.lock().await);
        receiver.recv().await;
        std::future::pending().await
    });
    let mut reported = |what: Option<&str>| {
        let list = request(&mut client, "awaits", &query(Rank::Id, "locks"), |list| {
            list.rows.len() == 1 && list.rows[0].awaits.as_deref() == what
        });
        list.rows[0].awaits_at.clone()
    };
    let at = reported(Some("lock")).unwrap();
    assert!(at.contains(&format!("{}:{line}:", file!())), "{at}");
    drop(held);
    let at = reported(Some("message")).unwrap();
    assert!(at.contains(&format!("{}:{}:", file!(), line + 1)), "{at}");
    // Its next wait has no description.
    runtime.block_on(sender.send(())).unwrap();
    assert_eq!(reported(None), None);
}

#[test]
fn a_task_that_awaits_a_lock_reports_its_holder() {
    let (runtime, mut client) = runtime("holders", 1);
    let lock = std::sync::Arc::new(volt::sync::Mutex::new(()));
    let (release, released) = volt::sync::oneshot::channel::<()>();
    let held = lock.clone();
    let line = line!() + 2;
    let holder = spawn_named(&runtime, "holds", async move {
        let _guard = held.lock().await;
        released.await.unwrap();
    });
    let waits = |name| {
        let lock = lock.clone();
        spawn_named(&runtime, name, async move {
            let _guard = lock.lock().await;
            std::future::pending().await
        })
    };
    let mut holder_of = |name, id| {
        let query = query(Rank::Id, name);
        let list = request(&mut client, "holders", &query, |list| list.rows.first().and_then(|row| row.held_by) == id);
        list.rows[0].clone()
    };
    assert_eq!(holder_of("holds", None).waiting_ns, None);
    let next = waits("waits first");
    let row = holder_of("waits first", Some(holder));
    assert!(row.held_at.as_ref().unwrap().contains(&format!("{}:{line}:", file!())), "{row:?}");
    assert!(row.held_ns >= row.waiting_ns && row.waiting_ns > Some(0), "{row:?}");
    waits("waits last");
    assert_eq!(holder_of("waits last", Some(holder)).held_at, row.held_at);
    release.send(()).unwrap();
    // The lock was handed on.
    let row = holder_of("waits last", Some(next));
    assert!(row.held_at.as_ref().unwrap().contains(&format!("{}:{}:", file!(), line + 6)), "{row:?}");
    assert_eq!(holder_of("waits first", None).held_at, None);
}

#[test]
fn a_wait_for_permits_lists_the_tasks_that_acquired_them() {
    let (runtime, mut client) = runtime("permits", 1);
    let pool = std::sync::Arc::new(volt::sync::Semaphore::new(2));
    let held = pool.clone();
    let (release, released) = volt::sync::oneshot::channel::<()>();
    let line = line!() + 2;
    let holder = spawn_named(&runtime, "holds", async move {
        let permit = held.acquire_owned().await.unwrap();
        released.await.unwrap();
        drop(permit);
        std::future::pending().await
    });
    let all = pool.clone();
    let waiting = spawn_named(&runtime, "waits for both", async move {
        let _permits = all.acquire_many(2).await.unwrap();
        std::future::pending().await
    });
    let last = spawn_named(&runtime, "waits for one", async move {
        let _permit = pool.acquire().await.unwrap();
        std::future::pending().await
    });
    let of = |client: &mut Client, task| {
        let is_there = |list: &TaskList| {
            list.rows.first().is_some_and(|row| row.permit_holders.first().is_some_and(|first| first.task == task))
        };
        request(client, "permits", &query(Rank::Id, "waits for one"), is_there).rows.remove(0)
    };
    let row = of(&mut client, Some(holder));
    let [first] = &row.permit_holders[..] else { panic!("one: {row:?}") };
    assert!(first.acquired_at.contains(&format!("{}:{line}:", file!())), "{row:?}");
    assert_eq!((first.permits, first.name.as_deref(), row.permit_holders_left_out), (1, Some("holds"), 0));
    assert_eq!((row.waiter_index, row.waiters_len, row.held_at.as_ref()), (Some(1), Some(2), None));
    assert!(row.waiting_ns > Some(0), "{row:?}");
    let why = client.why(Some("permits"), &last.to_string()).unwrap();
    assert_eq!(why.links[0].permit_holders[0].task, Some(holder), "{why:?}");
    release.send(()).unwrap();
    let row = of(&mut client, Some(waiting));
    assert_eq!((row.permit_holders.len(), row.permit_holders[0].permits, row.waiter_index), (1, 2, Some(0)));
}

#[test]
fn a_thread_that_waits_for_many_permits_is_in_the_queue() {
    let (runtime, mut client) = runtime("a thread in the queue", 1);
    let pool = std::sync::Arc::new(volt::sync::Semaphore::new(2));
    let permit = pool.clone().try_acquire_owned().unwrap();
    let both = pool.clone();
    let thread = std::thread::spawn(move || drop(both.blocking_acquire_many(2).unwrap()));
    let began = Instant::now();
    // The thread takes the permit that is left, and waits for the other one.
    while pool.available_permits() > 0 {
        assert!(began.elapsed() < LONG, "{pool:?}");
        std::thread::yield_now();
    }
    spawn_named(&runtime, "waits for one", async move { drop(pool.acquire().await) });
    let list = request(&mut client, "a thread in the queue", &query(Rank::Id, "waits for one"), |list| {
        list.rows.first().is_some_and(|row| row.waiters_len.is_some())
    });
    assert_eq!((list.rows[0].waiter_index, list.rows[0].waiters_len), (Some(1), Some(2)), "behind the thread");
    drop(permit);
    thread.join().unwrap();
}

#[test]
fn a_task_that_awaits_another_reports_which() {
    let (runtime, mut client) = runtime("joins", 1);
    let child = volt::task::Builder::new().name("child").spawn_on(std::future::pending::<()>(), runtime.handle());
    let id = child.id().to_string().parse().ok();
    let parent = spawn_named(&runtime, "parent", async move { child.await.unwrap() });
    let parents = query(Rank::Id, "parent");
    request(&mut client, "joins", &parents, |list| {
        list.rows.first().is_some_and(|row| row.awaits.as_deref() == Some("others") && row.awaited_task == id)
    });
    let why = client.why(Some("joins"), &parent.to_string()).unwrap();
    assert_eq!((why.links[0].awaits.as_deref(), why.links[0].awaited_task), (Some("others"), id));
    // A barrier is not the end of a task.
    spawn_named(&runtime, "meets", async { _ = volt::sync::Barrier::new(2).wait().await });
    let list = request(&mut client, "joins", &query(Rank::Id, "meets"), |list| {
        list.rows.first().is_some_and(|row| row.awaits.as_deref() == Some("others"))
    });
    assert_eq!(list.rows[0].awaited_task, None);
}

#[test]
fn a_poll_function_and_a_timed_send_record_their_callers_line() {
    let (runtime, mut client) = runtime("callers", 1);
    let (sender, mut receiver) = volt::sync::mpsc::channel::<()>(1);
    let (full, _keeps_it_open) = volt::sync::mpsc::channel::<()>(1);
    full.try_send(()).unwrap();
    let line = line!() + 1;
    spawn_named(&runtime, "polls", async move { std::future::poll_fn(|cx| receiver.poll_recv(cx)).await.unwrap() });
    spawn_named(&runtime, "sends", async move { full.send_timeout((), LONG).await.unwrap() });
    for (name, what, line) in [("polls", "message", line), ("sends", "room", line + 1)] {
        let list = request(&mut client, "callers", &query(Rank::Id, name), |list| {
            list.rows.len() == 1 && list.rows[0].awaits.as_deref() == Some(what)
        });
        let at = list.rows[0].awaits_at.clone().unwrap();
        assert!(at.contains(&format!("{}:{line}:", file!())), "{at}");
    }
    drop(sender);
}

#[test]
fn a_task_does_not_await_an_operation_that_it_has_dropped() {
    let (runtime, mut client) = runtime("dropped", 1);
    let lock = std::sync::Arc::new(volt::sync::Mutex::new(()));
    let (_sender, receiver) = volt::sync::oneshot::channel::<()>();
    let permits = volt::sync::Semaphore::new(1);
    let _held = runtime.block_on(lock.clone().lock_owned());
    spawn_named(&runtime, "lost", async move {
        volt::select! {
            biased;
            _ = permits.acquire_many(2) => unreachable!("there is one"),
            () = std::future::ready(()) => {}
        }
        std::future::pending().await
    });
    spawn_named(&runtime, "late", async move {
        volt::time::timeout(Duration::from_millis(1), lock.lock()).await.unwrap_err();
        std::future::pending().await
    });
    spawn_named(&runtime, "gone", async move {
        let mut receiver = Some(Box::pin(receiver));
        std::future::poll_fn(move |cx| {
            assert!(receiver.as_mut().is_none_or(|receiver| receiver.as_mut().poll(cx).is_pending()));
            receiver = None;
            Poll::<()>::Pending
        })
        .await
    });
    let (_messages, mut inbox) = volt::sync::mpsc::channel::<()>(1);
    spawn_named(&runtime, "unheard", async move {
        volt::select! {
            biased;
            _ = inbox.recv() => unreachable!("nothing is sent"),
            () = std::future::ready(()) => {}
        }
        std::future::pending().await
    });
    let notice = volt::sync::Notify::new();
    spawn_named(&runtime, "unnoticed", async move {
        volt::select! {
            biased;
            () = notice.notified() => unreachable!("nothing is notified"),
            () = std::future::ready(()) => {}
        }
        std::future::pending().await
    });
    for (name, polls) in [("lost", 1), ("late", 2), ("gone", 1), ("unheard", 1), ("unnoticed", 1)] {
        let list = request(&mut client, "dropped", &query(Rank::Id, name), |list| {
            list.rows.len() == 1 && list.rows[0].state != State::Polled && list.rows[0].polls >= Some(polls)
        });
        assert_eq!(list.rows[0].awaits, None, "{name}");
    }
}

#[test]
fn tasks_of_a_local_runtime_are_listed_like_all_others() {
    let builder = Builder::new_current_thread().sentinel_interval(None).name("of one thread");
    let runtime = builder.build_local(volt::runtime::LocalOptions::default()).unwrap();
    let mut client = Client::connect(&volt::observe::socket_path().expect("a control socket")).unwrap();
    let (sender, mut receiver) = volt::sync::mpsc::channel::<std::rc::Rc<()>>(1);
    let line = line!() + 3;
    let waits = async move {
        // Not Send: the message, and so the task.
        receiver.recv().await;
    };
    let entered = runtime.enter();
    drop(volt::task::Builder::new().name("waits here").spawn_local(waits));
    drop(entered);
    runtime.block_on(volt::task::yield_now());
    let list = request(&mut client, "of one thread", &query(Rank::Id, "waits"), |list| list.rows.len() == 1);
    let task = &list.rows[0];
    assert_eq!((task.name.as_deref(), task.polls, list.alive), (Some("waits here"), Some(1), 1));
    assert_eq!(task.awaits.as_deref(), Some("message"));
    assert!(task.awaits_at.as_ref().unwrap().contains(&format!("{}:{line}:", file!())), "{task:?}");
    runtime.block_on(sender.send(std::rc::Rc::new(()))).unwrap();
    runtime.block_on(volt::task::yield_now());
    let list = request(&mut client, "of one thread", &query(Rank::Id, ""), |list| list.rows.is_empty());
    assert_eq!(list.alive, 0);
}

#[test]
fn a_filter_finds_what_tasks_await_and_at_which_line() {
    let (runtime, mut client) = runtime("awaiting", 1);
    let lock = std::sync::Arc::new(volt::sync::Mutex::new(()));
    let _held = runtime.block_on(lock.clone().lock_owned());
    let awaits = async move { drop(lock.lock().await) };
    let at = format!("listing.rs:{}", line!() - 1);
    spawn_named(&runtime, "first", awaits);
    spawn_named(&runtime, "other", std::future::pending());
    let is_there = |list: &TaskList| list.matching == 1 && list.rows.len() == 1;
    for filter in ["LOCK", &at] {
        let list = request(&mut client, "awaiting", &query(Rank::Id, filter), is_there);
        assert_eq!(names(&list), ["first"], "{filter}");
        assert_eq!((list.rows[0].waiter_index, list.rows[0].waiters_len), (Some(0), Some(1)), "alone in the queue");
        assert!(list.rows[0].awaits_at.as_ref().is_some_and(|found| found.contains(&at)), "{list:?}");
    }
}
