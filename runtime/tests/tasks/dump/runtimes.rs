//! Dumps of runtimes that no thread drives, whose workers are stuck, or that shut down; and dumps
//! that are slow or dropped.

use std::future::{pending, poll_fn};
use std::task::Poll;
use std::time::Duration;

use volt::telemetry::dump::Query;
use volt::{Builder, Runtime};

use super::{dump, dump_with, runtime, waits};

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
fn an_undriven_runtime_has_the_reason_why_there_is_no_chain() {
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
    (0..50).for_each(|_| drop(stuck.spawn(async {})));
    let handle = stuck.handle().clone();
    let dump = runtime(1).block_on(async move { handle.dump().await });
    assert_eq!((dump.waiting, dump.read), (1, 0));
    assert_eq!((dump.alive, dump.queued), (52, 50), "also those that were never polled");
    assert!(dump.remarks.iter().any(|remark| remark.contains("no worker polled")), "{}", dump.text());
    let running: Vec<_> = dump.running.iter().map(|running| running.task.id.to_string()).collect();
    assert_eq!(running, [task.id().to_string()]);
    drop(release);
}

#[test]
fn a_dump_during_a_shutdown_ends() {
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
