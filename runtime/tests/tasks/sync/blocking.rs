//! Methods that block the thread panic in async code, and block elsewhere.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::watchdog::{alone, builder, watched};
use volt::Builder;
use volt::sync::{Mutex, RwLock, Semaphore, broadcast, mpsc, oneshot};
use volt::task::{LocalSet, block_in_place, spawn_blocking};

/// Calls each blocking method, on objects for which none has to wait, with the name of the method
/// to await instead.
fn each_method(mut call: impl FnMut(&str, &mut dyn FnMut())) {
    let mutex = Arc::new(Mutex::new(1));
    call("Mutex::lock", &mut || drop(mutex.blocking_lock()));
    call("Mutex::lock_owned", &mut || drop(mutex.clone().blocking_lock_owned()));
    let lock = RwLock::new(1);
    call("RwLock::read", &mut || drop(lock.blocking_read()));
    call("RwLock::write", &mut || drop(lock.blocking_write()));
    let permits = Arc::new(Semaphore::new(9));
    call("Semaphore::acquire", &mut || drop(permits.blocking_acquire().unwrap()));
    call("Semaphore::acquire_many", &mut || drop(permits.blocking_acquire_many(2).unwrap()));
    call("Semaphore::acquire_owned", &mut || drop(permits.clone().blocking_acquire_owned().unwrap()));
    call("Semaphore::acquire_many_owned", &mut || drop(permits.clone().blocking_acquire_many_owned(2).unwrap()));
    let (sender, mut receiver) = mpsc::channel(9);
    call("mpsc::Sender::send", &mut || sender.blocking_send(1).unwrap());
    sender.try_send(2).unwrap();
    sender.try_send(3).unwrap();
    call("mpsc::Receiver::recv", &mut || assert!(receiver.blocking_recv().is_some()));
    call("mpsc::Receiver::recv_many", &mut || assert_eq!(receiver.blocking_recv_many(&mut Vec::new(), 1), 1));
    let (sender, mut receiver) = mpsc::unbounded_channel();
    sender.send(1).unwrap();
    sender.send(2).unwrap();
    call("mpsc::UnboundedReceiver::recv", &mut || assert!(receiver.blocking_recv().is_some()));
    call("mpsc::UnboundedReceiver::recv_many", &mut || assert_eq!(receiver.blocking_recv_many(&mut Vec::new(), 1), 1));
    let (sender, receiver) = oneshot::channel();
    sender.send(1).unwrap();
    let mut receiver = Some(receiver);
    call("oneshot::Receiver", &mut || assert_eq!(receiver.take().unwrap().blocking_recv(), Ok(1)));
    let (sender, mut receiver) = broadcast::channel(9);
    sender.send(1).unwrap();
    call("broadcast::Receiver::recv", &mut || assert_eq!(receiver.blocking_recv(), Ok(1)));
}

/// Requires that each blocking method panics here, in this file, with a message that names
/// the remedy.
fn all_panic() {
    each_method(|instead, blocking| {
        let panic = catch_unwind(AssertUnwindSafe(blocking)).expect_err(instead);
        let message = panic.downcast_ref::<String>().unwrap();
        assert!(message.starts_with("Cannot block the current thread from within a runtime"), "{message}");
        assert!(message.contains(&format!("await `{instead}` instead")), "{message}");
    });
}

fn none_panics() {
    each_method(|_, blocking| blocking());
}

#[test]
fn blocking_methods_panic_in_tasks_and_in_block_on() {
    watched(|| {
        let runtime = builder(1).build().unwrap();
        runtime.block_on(runtime.spawn(async { all_panic() })).unwrap();
        runtime.block_on(async { all_panic() });
        LocalSet::new().block_on(&runtime, async { volt::task::spawn_local(async { all_panic() }).await.unwrap() });
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(runtime.spawn(async { all_panic() })).unwrap();
        runtime.block_on(async { all_panic() });
    });
}

#[test]
fn blocking_methods_work_where_blocking_is_allowed() {
    watched(|| {
        none_panics();
        let runtime = builder(1).build().unwrap();
        let _entered = runtime.enter();
        none_panics();
        runtime.block_on(async {
            spawn_blocking(none_panics).await.unwrap();
            volt::spawn(async { block_in_place(none_panics) }).await.unwrap();
        });
    });
}

#[test]
fn a_blocking_method_panics_in_its_callers_file() {
    alone(|| {
        let (reported, sends) = std::sync::mpsc::channel();
        std::panic::set_hook(Box::new(move |panic| {
            let _ = reported.send(panic.location().unwrap().file().to_owned());
        }));
        watched(|| builder(1).build().unwrap().block_on(async { all_panic() }));
        let mut files = 0;
        for file in sends.try_iter() {
            assert_eq!(file, file!());
            files += 1;
        }
        assert_eq!(files, 15);
    });
}
