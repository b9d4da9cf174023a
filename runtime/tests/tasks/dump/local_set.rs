//! The tasks of a `LocalSet` in a dump: branches of the chain of the future that runs the set.

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc as threads};
use std::thread;
use std::time::Instant;

use volt::sync::{Notify, mpsc};
use volt::task::{LocalSet, spawn_local};
use volt::telemetry::dump::{BlockOn, Dump};
use volt::{Builder, Handle};

use super::{LONG, runtime};
use crate::watchdog::watched;

/// Returns the line of this file with this comment.
fn line(marker: &str) -> u32 {
    let wanted = format!("// LINE: {marker}");
    let found = include_str!("local_set.rs").lines().position(|line| line.ends_with(&wanted));
    found.unwrap_or_else(|| panic!("no line {wanted}")) as u32 + 1
}

/// Runs `body` on another thread, in the set of a current-thread runtime. Dumps that runtime until
/// `is_as_expected`, and then calls `end`.
fn dumped<F: Future<Output = ()>>(
    body: impl FnOnce() -> F + Send + 'static,
    is_as_expected: impl Fn(&Dump) -> bool,
    end: impl FnOnce(),
) -> BlockOn {
    let (started, handle) = threads::channel();
    let thread = thread::spawn(move || {
        let runtime = Builder::new_current_thread().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            started.send(Handle::current()).unwrap();
            body().await;
        });
    });
    let (other, handle, began) = (runtime(1), handle.recv().unwrap(), Instant::now());
    let mut dump = loop {
        let dump = other.block_on(handle.dump());
        if is_as_expected(&dump) {
            break dump;
        }
        assert!(began.elapsed() < LONG, "{}", dump.text());
    };
    assert_eq!(dump.block_on.len(), 1, "{}", dump.text());
    end();
    thread.join().unwrap();
    dump.block_on.remove(0)
}

async fn receives(mut receiver: mpsc::Receiver<u32>) -> Option<u32> {
    receiver.recv().await // LINE: receives
}

async fn is_notified(end: Arc<Notify>) {
    end.notified().await; // LINE: is_notified
}

/// The number of branches that end at this line of the application.
fn ends_at(block_on: &BlockOn, place: u32) -> usize {
    block_on.chain.iter().filter(|link| link.is_user_code && link.line == Some(place)).count()
}

#[cfg_attr(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))), ignore)]
#[test]
fn a_dump_names_the_awaits_of_a_local_set() {
    let (end, (sender, receiver)) = (Arc::new(Notify::new()), mpsc::channel(1));
    let ended = end.clone();
    let body = || async move {
        let received = spawn_local(receives(receiver));
        spawn_local(is_notified(ended)).await.unwrap(); // LINE: joins
        assert_eq!(received.await.unwrap(), Some(5));
    };
    let lines = ["receives", "is_notified", "joins"].map(line);
    let is_complete = move |dump: &Dump| {
        dump.block_on.iter().any(|block_on| lines.iter().all(|&place| ends_at(block_on, place) == 1))
    };
    let block_on = dumped(body, is_complete, || {
        sender.try_send(5).unwrap();
        end.notify_one();
    });
    assert_eq!(block_on.error, None);
}

#[cfg_attr(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))), ignore)]
#[test]
fn a_dump_reports_the_tasks_of_a_set_that_it_left_out() {
    let end = Arc::new(Notify::new());
    let ended = end.clone();
    let body = || async move {
        (0..100).for_each(|_| drop(spawn_local(pending::<()>())));
        ended.notified().await;
    };
    let left_out =
        |block_on: &BlockOn| block_on.error.as_deref() == Some("it waits for more operations than are shown");
    dumped(body, |dump| dump.block_on.iter().any(left_out), || end.notify_one());
}

#[test]
fn dumps_of_a_local_set_lose_no_message() {
    const MESSAGES: u32 = 2_000;
    watched(|| {
        let (is_over, dumps) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
        let (over, dumped_once) = (is_over.clone(), dumps.clone());
        let (started, handle) = threads::channel();
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread().build().unwrap();
            LocalSet::new().block_on(&runtime, async {
                started.send(Handle::current()).unwrap();
                dumped_once.notified().await;
                let ((there, mut first), (back, mut second)) = (mpsc::channel(1), mpsc::channel(1));
                let echo = spawn_local(async move {
                    while let Some(message) = first.recv().await {
                        back.send(message).await.unwrap();
                    }
                });
                let sends = spawn_local(async move {
                    for message in 0..MESSAGES {
                        there.send(message).await.unwrap();
                        assert_eq!(second.recv().await, Some(message));
                    }
                });
                sends.await.unwrap();
                echo.await.unwrap();
            });
            over.store(true, Ordering::Release);
        });
        let (other, handle) = (runtime(1), handle.recv().unwrap());
        while !is_over.load(Ordering::Acquire) {
            let _dump = other.block_on(handle.dump());
            dumps.notify_one();
        }
        thread.join().unwrap();
    });
}
