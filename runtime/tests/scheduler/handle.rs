//! The facts that a handle returns about its runtime, the guard that makes a runtime current, and
//! the settings of the Builder under Tokio's names.

use std::panic::{RefUnwindSafe, UnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::Duration;

use volt::Builder;
use volt::runtime::{EnterGuard, Handle, Runtime, RuntimeFlavor};

use crate::watchdog::{alone, builder, runtime, watched};

#[test]
fn every_runtime_has_its_own_id() {
    watched(|| {
        let (one, other) = (runtime(1), runtime(1));
        let id = one.handle().id();
        assert_eq!(one.block_on(one.spawn(async { Handle::current().id() })).unwrap(), id);
        assert_ne!(other.handle().id(), id);
        let gone = other.handle().id();
        drop(other);
        let later = runtime(1).handle().id();
        assert!(later != gone && later != id, "an id is used once");
    });
}

#[test]
fn a_handle_returns_the_flavour() {
    watched(|| {
        assert_eq!(runtime(1).handle().runtime_flavor(), RuntimeFlavor::MultiThread);
        let runtime = Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.handle().runtime_flavor(), RuntimeFlavor::CurrentThread);
    });
}

#[test]
fn a_handle_returns_the_name_that_was_given() {
    watched(|| {
        assert_eq!(runtime(1).handle().name(), None);
        let named = || builder(1).name("given").build().unwrap();
        let (one, other) = (named(), named());
        assert_eq!((one.handle().name(), other.handle().name()), (Some("given"), Some("given")));
        assert_ne!(one.handle().snapshot().runtime, other.handle().snapshot().runtime);
    });
}

#[test]
fn a_guard_lives_on_while_its_runtime_is_shut_down() {
    watched(|| {
        let runtime = runtime(1);
        let id = runtime.handle().id();
        let refused = {
            let _entered = runtime.enter();
            runtime.shutdown_timeout(Duration::from_secs(10));
            assert_eq!(Handle::current().id(), id);
            volt::spawn(async {})
        };
        assert!(Handle::try_current().unwrap_err().is_missing_context());
        assert!(crate::watchdog::runtime(1).block_on(refused).unwrap_err().is_cancelled());
    });
}

#[test]
fn handles_and_runtimes_pass_through_catch_unwind() {
    fn passes<T: UnwindSafe + RefUnwindSafe + Send + Sync>() {}
    fn is_shared<T: Sync>() {}
    passes::<Handle>();
    passes::<Runtime>();
    is_shared::<EnterGuard<'_>>();
}

/// Returns the message of the panic in `f`, and the file that it names as its place.
fn panic_of(f: impl FnOnce() + UnwindSafe) -> (String, String) {
    static AT: Mutex<String> = Mutex::new(String::new());
    std::panic::set_hook(Box::new(|panic| *AT.lock().unwrap() = panic.location().unwrap().file().to_owned()));
    let payload = catch_unwind(f).unwrap_err();
    drop(std::panic::take_hook());
    let message = payload.downcast_ref::<&str>().copied().map(str::to_owned);
    (message.or_else(|| payload.downcast_ref().cloned()).unwrap(), AT.lock().unwrap().clone())
}

#[test]
fn an_interval_of_0_panics_in_the_caller() {
    alone(|| {
        let cases: [(fn() -> Builder, _); 3] = [
            (|| Builder::new_multi_thread().event_interval(0), "event_interval must be greater than 0"),
            (|| Builder::new_multi_thread().global_queue_interval(0), "global_queue_interval must be greater than 0"),
            (|| Builder::new_multi_thread().max_io_events_per_tick(0), "max_io_events_per_tick must be non-zero"),
        ];
        for (set, message) in cases {
            assert_eq!(panic_of(|| drop(set())), (message.to_owned(), file!().to_owned()));
        }
    });
}

#[test]
fn any_other_interval_is_accepted() {
    watched(|| {
        for (given, taken) in [(1, 1), (2, 2), (61, 61), (u32::MAX, 65_536)] {
            let set = builder(1).event_interval(given).global_queue_interval(given);
            let runtime = set.max_io_events_per_tick(given as usize).build().unwrap();
            let config = runtime.handle().snapshot().config;
            assert_eq!(config.budget_per_tick, taken);
            assert_eq!(config.max_lifo_polls_per_tick, 3.min(taken - 1));
            assert_eq!((config.min_global_queue_interval, config.max_global_queue_interval), (given, given));
            let yields = (0..10).map(|_| {
                runtime.spawn(async {
                    for _ in 0..10 {
                        volt::task::yield_now().await;
                    }
                    volt::time::sleep(Duration::from_millis(1)).await;
                })
            });
            yields.collect::<Vec<_>>().into_iter().for_each(|task| runtime.block_on(task).unwrap());
        }
    });
}
