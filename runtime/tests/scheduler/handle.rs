//! What a handle says about its runtime, and the guard that makes a runtime current.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

use volt::Builder;
use volt::runtime::{EnterGuard, Handle, Runtime, RuntimeFlavor};

use crate::watchdog::{builder, runtime, watched};

#[test]
fn every_runtime_has_an_id_of_its_own() {
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
