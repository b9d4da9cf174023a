//! The futures of `block_on` in a dump.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use volt::sync::{Notify, oneshot};
use volt::telemetry::dump::{Dump, Query};
use volt::{Builder, Handle, Runtime};

use super::{LONG, dump as dump_until, dump_with, runtime};
use crate::watchdog::watched;

/// Returns the line of this file with this comment.
fn line(marker: &str) -> u32 {
    let wanted = format!("// LINE: {marker}");
    let found = include_str!("block_on.rs").lines().position(|line| line.ends_with(&wanted));
    found.unwrap_or_else(|| panic!("no line {wanted}")) as u32 + 1
}

/// Dumps the runtime of `handle` from another one, so that none of its `block_on` awaits the dump.
fn dump_from(other: &Runtime, handle: &Handle, is_as_expected: impl Fn(&Dump) -> bool) -> Dump {
    let began = Instant::now();
    loop {
        let dump = other.block_on(handle.dump());
        if is_as_expected(&dump) {
            return dump;
        }
        assert!(began.elapsed() < LONG, "{}", dump.text());
    }
}

async fn serves(end: Arc<Notify>) {
    end.notified().await; // LINE: serves
}

fn is_at(dump: &Dump, place: u32) -> bool {
    dump.block_on.iter().any(|block_on| block_on.chain.iter().any(|link| link.is_user_code && link.line == Some(place)))
}

/// Calls a function when it is dropped, also by a failed assertion, so that a thread of a scope
/// ends.
struct Finally<F: Fn()>(F);

impl<F: Fn()> Drop for Finally<F> {
    fn drop(&mut self) {
        self.0();
    }
}

#[cfg_attr(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))), ignore)]
#[test]
fn a_dump_names_the_await_of_block_on() {
    let (runtime, other) = (runtime(2), runtime(1));
    let end = Arc::new(Notify::new());
    thread::scope(|scope| {
        let (handle, ends) = (runtime.handle(), end.clone());
        scope.spawn(move || handle.block_on(async { serves(ends).await })); // LINE: called
        let _end = Finally(|| end.notify_one());
        let dump = dump_from(&other, handle, |dump| is_at(dump, line("serves")));
        let [block_on] = &dump.block_on[..] else { panic!("one: {}", dump.text()) };
        assert!(block_on.called_at.contains(&format!("block_on.rs:{}:", line("called"))), "{}", dump.text());
        assert_eq!((dump.alive, dump.waiting, &block_on.error), (0, 0, &None), "it is no task: {}", dump.text());
        let is_longer = |dump: &Dump| dump.block_on.iter().any(|again| again.waiting_ns > block_on.waiting_ns);
        dump_from(&other, handle, is_longer);
        // The caller's own `block_on` awaits the dump, and is left out.
        dump_until(&runtime, &Query::default(), |dump| is_at(dump, line("serves")) && dump.block_on.len() == 1);
        let filtered = |filter: &str| Query { filter: filter.into(), ..Query::default() };
        dump_until(&runtime, &filtered("serves"), |dump| dump.block_on.len() == 1);
        assert_eq!(dump_with(&runtime, filtered("other")).block_on.len(), 0);
        assert_eq!(dump_with(&runtime, Query { polls: false, ..Query::default() }).block_on.len(), 0);
    });
    assert_eq!(other.block_on(runtime.handle().dump()).block_on.len(), 0, "it has returned");
}

#[cfg_attr(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))), ignore)]
#[test]
fn a_dump_names_the_await_of_a_current_thread_main() {
    let (other, end) = (runtime(1), Arc::new(Notify::new()));
    let (started, handle) = mpsc::channel();
    let ends = end.clone();
    let thread = thread::spawn(move || {
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            volt::spawn(serves(Arc::default()));
            started.send(Handle::current()).unwrap();
            serves(ends).await;
        });
    });
    let handle = handle.recv().unwrap();
    let dump = dump_from(&other, &handle, |dump| is_at(dump, line("serves")) && dump.waiting == 1);
    assert_eq!((dump.block_on.len(), dump.groups.len()), (1, 1), "{}", dump.text());
    end.notify_one();
    thread.join().unwrap();
}

#[test]
fn a_block_on_that_is_being_polled_is_named() {
    let (runtime, other, is_over) = (runtime(1), runtime(1), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            runtime.block_on(async {
                while !is_over.load(Ordering::Acquire) {
                    thread::sleep(Duration::from_millis(1));
                }
            });
        });
        let _end = Finally(|| is_over.store(true, Ordering::Release));
        let dump = dump_from(&other, runtime.handle(), |dump| dump.block_on.len() == 1);
        let block_on = &dump.block_on[0];
        assert_eq!((block_on.waiting_ns, block_on.chain.len()), (None, 0), "{}", dump.text());
    });
}

/// Each message is sent beside one dump, or after it. The next dump, whose poll would find a lost
/// message, is made only after the message has arrived.
fn no_message_is_lost(runtime: &Runtime) {
    const MESSAGES: u32 = 500;
    let other = super::runtime(1);
    let (dumper, requests) = mpsc::channel::<oneshot::Sender<()>>();
    thread::scope(|scope| {
        scope.spawn(|| {
            for (number, message) in requests.into_iter().enumerate() {
                if number % 2 == 0 {
                    other.block_on(runtime.handle().dump());
                    message.send(()).unwrap();
                } else {
                    let handle = runtime.handle().clone();
                    let dump = other.spawn(async move { handle.dump().await });
                    message.send(()).unwrap();
                    other.block_on(dump).unwrap();
                }
            }
        });
        runtime.block_on(async move {
            for number in 0..MESSAGES {
                let (sender, receiver) = oneshot::channel();
                dumper.send(sender).unwrap();
                let received = volt::time::timeout(LONG, receiver).await;
                assert_eq!(received, Ok(Ok(())), "message {number} is lost");
            }
        });
    });
}

#[test]
fn dumps_lose_no_wake_up_of_block_on() {
    watched(|| no_message_is_lost(&runtime(2)));
}

#[test]
fn dumps_lose_no_wake_up_of_a_current_thread_main() {
    watched(|| no_message_is_lost(&Builder::new_current_thread().build().unwrap()));
}
