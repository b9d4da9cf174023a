//! The messages of panics that programs and libraries search for Tokio's, and the lines at which
//! they are reported.

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use volt::time::{Instant, interval, interval_at, sleep, sleep_until, timeout, timeout_at};
use volt::{Builder, Handle, task};

use crate::watchdog::{alone, runtime, watched};

/// Returns the message of the panic of `f`.
fn message(f: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(f)).expect_err("it panics");
    panic.downcast_ref::<&str>().map_or_else(|| panic.downcast_ref::<String>().unwrap().clone(), |text| (*text).into())
}

#[test]
fn outside_a_runtime_the_message_contains_that_of_tokio() {
    let text = "there is no reactor running, must be called from the context of a Tokio 1.x runtime";
    assert!(message(|| drop(volt::spawn(async {}))).contains(text));
    assert!(message(|| drop(sleep(Duration::ZERO))).contains(text));
    assert!(message(|| drop(Handle::current())).contains(text));
    assert!(Handle::try_current().unwrap_err().to_string().contains(text));
}

#[test]
fn code_that_would_block_a_task_is_refused_as_on_tokio() {
    watched(|| {
        for outer in [Builder::new_current_thread().build().unwrap(), runtime(1)] {
            let nested = message(|| outer.block_on(async { Handle::current().block_on(async {}) }));
            assert!(nested.starts_with("Cannot start a runtime from within a runtime. This happens"), "{nested}");
            let dropped = message(|| outer.block_on(async { drop(runtime(1)) }));
            assert!(dropped.starts_with("Cannot drop a runtime in a context where blocking is not"), "{dropped}");
            // Waits for nothing.
            outer.block_on(async { runtime(1).shutdown_timeout(Duration::ZERO) });
        }
        let current = Builder::new_current_thread().build().unwrap();
        let blocks = message(|| current.block_on(async { task::block_in_place(|| ()) }));
        assert!(blocks.starts_with("can call blocking only when running on the multi-threaded runtime"), "{blocks}");
    });
}

#[test]
fn a_sleep_after_the_shutdown_panics_as_on_tokio() {
    watched(|| {
        for is_created_first in [true, false] {
            let runtime = runtime(1);
            let handle = runtime.handle().clone();
            let _entered = handle.enter();
            let hour = Duration::from_secs(3600);
            let created = is_created_first.then(|| sleep(hour));
            runtime.shutdown_timeout(Duration::from_secs(1000));
            let text = message(|| handle.block_on(async { created.unwrap_or_else(|| sleep(hour)).await }));
            assert!(text.contains("A Tokio 1.x context was found, but it is being shutdown."), "{text}");
        }
    });
}

#[test]
fn files_after_the_shutdown_fail_as_on_tokio() {
    watched(|| {
        for runtime in [Builder::new_current_thread().build().unwrap(), runtime(1)] {
            let handle = runtime.handle().clone();
            let _entered = runtime.enter();
            runtime.shutdown_timeout(Duration::from_secs(1000));
            let error = handle.block_on(volt::fs::read("/")).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::Other);
            let inner = error.get_ref().unwrap();
            assert_eq!(inner.to_string(), "background task failed");
            assert!(inner.source().unwrap().to_string().contains("was cancelled"));
            assert_eq!(handle.block_on(async { 1 }), 1);
        }
    });
}

#[test]
fn panics_are_reported_in_the_file_of_the_caller() {
    alone(|| {
        let at = Arc::new(Mutex::new(None));
        let hook_at = at.clone();
        let file = |panic: &std::panic::PanicHookInfo<'_>| panic.location().unwrap().file().to_owned();
        std::panic::set_hook(Box::new(move |panic| *hook_at.lock().unwrap() = Some(file(panic))));
        let mut elsewhere = Vec::new();
        let mut is_here = |f: &dyn Fn(), what| {
            let is_caught = catch_unwind(AssertUnwindSafe(f)).is_err();
            let at = at.lock().unwrap().take();
            if !is_caught || at.as_deref() != Some(file!()) {
                elsewhere.push((what, at));
            }
        };
        let now = Instant::now();
        is_here(&|| drop(volt::spawn(async {})), "spawn");
        is_here(&|| drop(task::spawn_blocking(|| ())), "spawn_blocking");
        is_here(&|| drop(sleep(Duration::ZERO)), "sleep");
        is_here(&|| drop(sleep_until(now)), "sleep_until");
        is_here(&|| drop(timeout(Duration::ZERO, pending::<()>())), "timeout");
        is_here(&|| drop(timeout_at(now, pending::<()>())), "timeout_at");
        is_here(&|| drop(interval(Duration::from_secs(1))), "interval");
        is_here(&|| drop(interval_at(now, Duration::ZERO)), "interval_at");
        is_here(&|| drop(Handle::current()), "Handle::current");
        is_here(&|| _ = task::id(), "id");
        let runtime = Builder::new_current_thread().build().unwrap();
        is_here(&|| runtime.block_on(async { Handle::current().block_on(async {}) }), "block_on");
        is_here(&|| runtime.block_on(async { task::block_in_place(|| ()) }), "block_in_place");
        let nested = || Builder::new_current_thread().build().unwrap();
        is_here(&|| runtime.block_on(async { nested().shutdown_timeout(Duration::MAX) }), "shutdown_timeout");
        let cancelled = || {
            let task = runtime.spawn(pending::<()>());
            task.abort();
            drop(runtime.block_on(task).unwrap_err().into_panic());
        };
        is_here(&cancelled, "into_panic");
        is_here(&|| runtime.block_on(async { volt::time::pause() }), "pause");
        is_here(&|| runtime.block_on(async { volt::time::resume() }), "resume");
        drop(std::panic::take_hook());
        assert!(elsewhere.is_empty(), "{elsewhere:?}");
    });
}
