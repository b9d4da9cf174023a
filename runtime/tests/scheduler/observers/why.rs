//! Why a task was polled last, requested over the control socket: the chain of wake-ups, down to a
//! timer, a thread or a blocking job.

use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use volt::telemetry::client::Client;
use volt::telemetry::why::{End, State, Why};
use volt::{Builder, Runtime};

/// The maximum time for an event that the test expects.
const LONG: Duration = Duration::from_secs(20);

fn runtime(name: &str) -> (Runtime, Client) {
    let runtime = Builder::new_multi_thread().worker_threads(2).name(name).build().unwrap();
    let client = Client::connect(&volt::observe::socket_path().expect("a control socket")).unwrap();
    (runtime, client)
}

/// Repeats the request until the answer is `as_expected`.
fn why(client: &mut Client, runtime: &str, task: &str, as_expected: impl Fn(&Why) -> bool) -> Why {
    let began = Instant::now();
    loop {
        let reported = client.why(Some(runtime), task);
        match reported {
            Ok(why) if as_expected(&why) => return why,
            reported => assert!(began.elapsed() < LONG, "{reported:?}"),
        }
    }
}

/// Returns the ids of a chain, and what woke each.
fn chain(why: &Why) -> Vec<(u64, &str)> {
    why.links.iter().map(|link| (link.task, link.woken.as_ref().map_or("", |woken| woken.by.as_str()))).collect()
}

async fn pass_on(mut from: UnboundedReceiver<()>, to: Option<UnboundedSender<()>>) {
    while from.recv().await.is_some() {
        to.iter().for_each(|to| _ = to.send(()));
    }
}

#[test]
fn three_tasks_behind_a_timer_form_a_chain_ending_at_the_timer() {
    let (runtime, mut client) = runtime("chained");
    let ((to_second, second), (to_third, third)) = (unbounded_channel(), unbounded_channel());
    let second = runtime.spawn(pass_on(second, Some(to_third)));
    let third = volt::task::Builder::new().name("third").spawn_on(pass_on(third, None), runtime.handle());
    let first = runtime.spawn(async move {
        volt::time::sleep(Duration::from_millis(5)).await;
        to_second.send(()).unwrap();
        std::future::pending::<()>().await;
    });
    let [first, second, third]: [u64; 3] =
        [first.id(), second.id(), third.id()].map(|id| id.to_string().parse().unwrap());
    let expected = [(third, "task"), (second, "task"), (first, "timer")];
    let by_id = why(&mut client, "chained", &third.to_string(), |why| chain(why) == expected);
    assert_eq!(by_id.end, End::Source);
    assert_eq!(by_id.links[0].name.as_deref(), Some("third"));
    let link = &by_id.links[1];
    assert_eq!(link.state, State::Waits);
    assert!(link.spawned_at.contains("tests/scheduler/observers/why.rs"), "{}", link.spawned_at);
    let woken = link.woken.as_ref().unwrap();
    assert_eq!((woken.task, woken.is_spawn, woken.is_later), (Some(first), false, false));
    assert!(
        by_id
            .links
            .windows(2)
            .all(|pair| pair[0].woken.as_ref().unwrap().ago_ns <= pair[1].woken.as_ref().unwrap().ago_ns)
    );
    assert_eq!(why(&mut client, "chained", "third", |_| true).links.len(), 3, "by its name");
}

#[test]
fn tasks_that_wake_each_other_are_a_circle_that_ends() {
    let (runtime, mut client) = runtime("circle");
    let ((to_ping, ping), (to_pong, pong)) = (unbounded_channel(), unbounded_channel());
    to_ping.send(()).unwrap();
    let tasks = [runtime.spawn(pass_on(ping, Some(to_pong))), runtime.spawn(pass_on(pong, Some(to_ping)))];
    let [ping, pong] = tasks.each_ref().map(|task| task.id().to_string().parse::<u64>().unwrap());
    let reported = why(&mut client, "circle", &ping.to_string(), |why| matches!(why.end, End::Cycle { .. }));
    assert_eq!(reported.end, End::Cycle { task: ping });
    assert_eq!(reported.links.iter().map(|link| link.task).collect::<Vec<_>>(), [ping, pong]);
    tasks.iter().for_each(|task| task.abort());
}

#[test]
fn wakes_by_threads_jobs_and_completed_tasks_are_distinct() {
    let (runtime, mut client) = runtime("sources");
    let waiting = |name| {
        let (to, from) = unbounded_channel();
        let task = volt::task::Builder::new().name(name).spawn_on(pass_on(from, None), runtime.handle());
        (task, to)
    };
    let [outside, blocking, ended, spawned] = ["outside", "blocking", "ended", "spawned"].map(waiting);
    let is_waiting = |why: &Why| why.links[0].state == State::Waits;
    for name in ["outside", "blocking", "ended", "spawned"] {
        why(&mut client, "sources", name, is_waiting);
    }
    outside.1.send(()).unwrap();
    let to = blocking.1.clone();
    runtime.block_on(runtime.spawn_blocking(move || to.send(()).unwrap())).unwrap();
    let to = ended.1.clone();
    let waker = runtime.spawn(async move { to.send(()).unwrap() });
    let id: u64 = waker.id().to_string().parse().unwrap();
    runtime.block_on(waker).unwrap();
    let woken = |why: &Why| why.links[0].woken.clone().unwrap();
    let is_woken = |why: &Why| !woken(why).is_spawn;
    let reported = why(&mut client, "sources", "outside", is_woken);
    assert_eq!((woken(&reported).by.as_str(), reported.end), ("outside", End::Source));
    let reported = why(&mut client, "sources", "blocking", is_woken);
    assert_eq!((woken(&reported).by.as_str(), reported.end), ("blocking", End::Source));
    assert!(woken(&reported).spawned_at.is_some_and(|place| place.contains("tests/scheduler/observers/why.rs")));
    // A handle resolves before its task's last poll is over. Until then the task is listed as being
    // polled.
    let reported = why(&mut client, "sources", "ended", |why| is_woken(why) && why.end == End::Ended);
    assert_eq!(woken(&reported).task, Some(id));
    let reported = why(&mut client, "sources", "spawned", |_| true);
    assert_eq!((woken(&reported).by.as_str(), woken(&reported).is_spawn), ("outside", true));
    drop(spawned);
}

#[test]
fn of_tasks_with_one_name_the_longest_waiting_one_is_explained() {
    let (runtime, mut client) = runtime("twins");
    let mut twin = || {
        let (to, from) = unbounded_channel();
        let task = volt::task::Builder::new().name("twin").spawn_on(pass_on(from, None), runtime.handle());
        let id: u64 = task.id().to_string().parse().unwrap();
        why(&mut client, "twins", &id.to_string(), |why| why.links[0].state == State::Waits);
        (id, to, task)
    };
    let twins = [twin(), twin(), twin()];
    let oldest = |client: &mut Client| why(client, "twins", "twin", |_| true).links[0].task;
    let is_woken = |why: &Why| why.links[0].woken.as_ref().is_some_and(|woken| !woken.is_spawn);
    for (id, to, _task) in &twins {
        assert_eq!(oldest(&mut client), *id);
        to.send(()).unwrap();
        why(&mut client, "twins", &id.to_string(), is_woken);
    }
    assert_eq!(oldest(&mut client), twins[0].0);
}

#[test]
fn a_task_that_is_being_polled_is_not_called_queued() {
    let (runtime, mut client) = runtime("polling");
    let (open, is_open) = std::sync::mpsc::channel::<()>();
    let (entered, has_entered) = std::sync::mpsc::channel();
    let blocks = async move {
        entered.send(()).unwrap();
        assert!(is_open.recv().is_err(), "nothing is sent");
    };
    let task = volt::task::Builder::new().name("blocks").spawn_on(blocks, runtime.handle());
    has_entered.recv().unwrap();
    let id = task.id().to_string();
    for task in ["blocks", &id] {
        assert_eq!(why(&mut client, "polling", task, |_| true).links[0].state, State::Polled, "{task}");
    }
    drop(open);
    runtime.block_on(task).unwrap();
}

#[test]
fn the_answer_for_an_unknown_task_lists_the_possible_reasons() {
    let (_runtime, mut client) = runtime("unknowing");
    for task in ["18446744073709551615", "nobody", ""] {
        let error = client.why(Some("unknowing"), task).unwrap_err();
        assert!(error.is_answer() && error.to_string().contains("it may have completed"), "{error}");
    }
    client.snapshot().expect("the connection stays");
}
