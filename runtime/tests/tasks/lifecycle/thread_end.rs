//! Runtimes and tasks that are used while their thread ends.

use super::*;

thread_local! {
    static AT_END: Cell<Option<Box<dyn FnOnceOnDrop>>> = const { Cell::new(None) };
}

/// The action of a thread-local when its thread ends.
trait FnOnceOnDrop {}

/// Calls a function when it is dropped.
struct CallOnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> FnOnceOnDrop for CallOnDrop<F> {}

impl<F: FnOnce()> Drop for CallOnDrop<F> {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|f| f());
    }
}

/// Returns the message of the panic of `f`.
fn panic_of<R>(f: impl FnOnce() -> R) -> String {
    let payload = catch_unwind(AssertUnwindSafe(f)).err().expect("it panics");
    payload
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap()
}

#[test]
fn runtimes_that_end_with_their_thread_cancel_their_jobs() {
    /// Shuts its runtime down in a destructor of its thread, without waiting for the running job.
    struct EndsWithThread(Option<volt::Runtime>);
    impl Drop for EndsWithThread {
        fn drop(&mut self) {
            self.0.take().expect("it has one").shutdown_background();
        }
    }
    thread_local! {
        static FIRST: Cell<Option<EndsWithThread>> = const { Cell::new(None) };
        static SECOND: Cell<Option<EndsWithThread>> = const { Cell::new(None) };
    }
    // A panic in a thread-local's destructor aborts the program.
    watchdog::alone(|| {
        let (release, is_released) = mpsc::channel::<()>();
        let is_released = Arc::new(std::sync::Mutex::new(is_released));
        let queued = std::thread::spawn(move || {
            [&FIRST, &SECOND].map(|place| {
                let runtime = watchdog::builder(1).max_blocking_threads(1).build().unwrap();
                let (runs, is_running) = mpsc::channel();
                let is_released = is_released.clone();
                drop(runtime.spawn_blocking(move || {
                    runs.send(()).unwrap();
                    let _ = is_released.lock().unwrap().recv();
                }));
                is_running.recv().unwrap();
                let queued = runtime.spawn_blocking(|| ());
                place.set(Some(EndsWithThread(Some(runtime))));
                queued
            })
        });
        let queued = queued.join().expect("no destructor panics");
        let waits = runtime(1);
        for job in queued {
            assert!(waits.block_on(job).unwrap_err().is_cancelled());
        }
        drop(release);
    });
}

#[test]
fn a_thread_local_destructor_wakes_spawns_and_gets_clear_errors() {
    with_one_worker(|runtime| {
        let (report, reported) = mpsc::channel();
        let (give, given) = mpsc::channel();
        let mut is_over = false;
        let waiter = runtime.spawn(poll_fn(move |cx| {
            if std::mem::replace(&mut is_over, true) {
                return Poll::Ready(());
            }
            give.send(cx.waker().clone()).unwrap();
            Poll::Pending
        }));
        let handle = runtime.handle().clone();
        let ended = std::thread::spawn(move || {
            let waker: Waker = given.recv().unwrap();
            // Before the thread enters a runtime, so that thread-locals of the runtime are
            // destroyed first.
            AT_END.set(None);
            let entered = handle.enter();
            let mut sleep = Box::pin(volt::time::sleep(Duration::from_secs(3600)));
            drop(entered);
            handle.block_on(poll_fn(|cx| {
                assert!(sleep.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            }));
            let at_end = move || {
                drop(sleep);
                waker.wake();
                let spawned = handle.spawn(async { task::id() });
                assert_eq!(task::try_id(), None);
                assert!(volt::Handle::try_current().unwrap_err().is_thread_local_destroyed());
                let refused = [
                    panic_of(|| handle.block_on(async {})),
                    panic_of(|| drop(handle.enter())),
                    panic_of(|| volt::spawn(async {})),
                    panic_of(|| volt::time::sleep(Duration::ZERO)),
                    panic_of(|| task::spawn_local(async {})),
                ];
                report.send((spawned, refused)).unwrap();
            };
            AT_END.set(Some(Box::new(CallOnDrop(Some(at_end)))));
        });
        ended.join().unwrap();
        runtime.block_on(waiter).unwrap();
        let (spawned, [block_on, enter, spawn, sleep, spawn_local]) = reported.recv().unwrap();
        runtime.block_on(spawned).unwrap();
        for refused in [block_on, enter, spawn, sleep] {
            assert!(refused.contains("the destructor of a thread-local"), "{refused}");
        }
        assert!(spawn_local.contains("LocalSet"), "{spawn_local}");
    });
}
