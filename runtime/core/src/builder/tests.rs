//! Tests of settings out of bounds, missing backends, the names of runtimes, and the variable for
//! spare workers.

use std::time::Duration;

use super::check::wanted_spares;
use super::{Builder, DEFAULT_NAME};
use crate::config::{Backend, ParkSpin};
use crate::runtime::Runtime;

#[test]
fn invalid_builder_settings_are_errors_with_a_remedy() {
    let base = Builder::new_multi_thread;
    let zero = Duration::ZERO;
    let cases = [
        (base().worker_threads(1025), "worker_threads is 1025: give 1 to 1024, or 0 for one per processor"),
        (base().budget_per_tick(0), "budget_per_tick is 0: give 1 to 65536"),
        (base().coop_budget(0), "coop_budget is 0: give 1 to 4294967295"),
        (base().max_lifo_polls_per_tick(128), "max_lifo_polls_per_tick is 128: give less than budget_per_tick, 128"),
        (
            base().max_lifo_polls_per_tick(1).budget_per_tick(1),
            "max_lifo_polls_per_tick is 1: give less than budget_per_tick, 1",
        ),
        (base().local_queue_capacity(100), "local_queue_capacity is 100: give a power of two from 2 to 32768"),
        (base().global_queue_batch_size(1), "global_queue_batch_size is 1: give a power of two from 2 to 32768"),
        (base().global_queue_batch_bounds(0, 4), "global_queue_batch_bounds is 0 to 4: give 1 <= min <= max"),
        (base().global_queue_capacity(0), "global_queue_capacity is 0: give 1 to 18446744073709551615"),
        (base().target_global_queue_latency(zero), "target_global_queue_latency is 0: give a duration longer than 0"),
        (base().ewma_alpha(0.0), "ewma_alpha is out of bounds: give 0.0005 to 1"),
        (base().ewma_alpha(f64::NAN), "ewma_alpha is out of bounds: give 0.0005 to 1"),
        (base().default_avg_task(zero), "default_avg_task is 0: give a duration longer than 0"),
        (base().global_queue_interval_bounds(9, 8), "global_queue_interval_bounds is 9 to 8: give 1 <= min <= max"),
        (base().park_timeout(Some(zero)), "park_timeout is 0: give a duration longer than 0"),
        (
            base().max_park_timeout(Duration::from_millis(1)),
            "max_park_timeout is 1ms: give at least park_timeout, 10ms",
        ),
        (
            base().park_spin(ParkSpin::Adaptive { at_most: Duration::from_millis(2) }),
            "park_spin is 2ms: give more than 0 and at most 1ms, or ParkSpin::Off",
        ),
        (
            base().park_spin(ParkSpin::Adaptive { at_most: zero }),
            "park_spin is 0ns: give more than 0 and at most 1ms, or ParkSpin::Off",
        ),
        (base().sentinel_interval(Some(zero)), "sentinel_interval is 0: give a duration longer than 0"),
        (base().max_io_completions(0), "max_io_completions is 0: give 1 to 65536"),
        (base().max_blocking_threads(0), "max_blocking_threads is 0: give 1 to 4294967295"),
        (base().thread_keep_alive(zero), "thread_keep_alive is 0: give a duration longer than 0"),
        (base().flight_records(1000), "flight_records is 1000: give a power of two from 1024 to 1048576"),
        (base().flight_records(1 << 21), "flight_records is 2097152: give a power of two from 1024 to 1048576"),
        (base().name(""), "name is 0 bytes long: give 1 to 64 bytes"),
        (base().name(" "), "name is \" \": give one that is not blank"),
        (base().name("a\u{1b}[2J"), "name is \"a\\u{1b}[2J\": leave out control characters"),
        (base().thread_name("a\0b"), "thread_name is \"a\\0b\": leave out NUL"),
    ];
    for (builder, message) in cases {
        let error = builder.build().expect_err(message);
        assert!(error.is_invalid_setting());
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn the_builder_rejects_a_backend_this_machine_lacks() {
    let foreign = if cfg!(target_os = "linux") { Backend::Kqueue } else { Backend::Epoll };
    let error = Builder::new_multi_thread().backend_type(Some(foreign)).build().unwrap_err();
    assert!(error.is_system() && std::error::Error::source(&error).is_some());
    assert!(error.to_string().starts_with(&format!("backend_type {foreign:?} cannot be used")), "{error}");
}

#[test]
fn runtime_names_are_unique_and_freed_with_the_runtime() {
    let named = |name| Builder::new_multi_thread().worker_threads(1).control_socket(false).name(name).build().unwrap();
    let name_of = |runtime: &Runtime| runtime.handle().snapshot().runtime;
    let (first, second) = (named("twin"), named("twin"));
    assert_eq!((name_of(&first), name_of(&second)), ("twin".to_owned(), "twin-2".to_owned()));
    let gone = first.handle().clone();
    drop(first);
    assert_eq!(name_of(&named("twin")), "twin", "though a handle of its former owner is left");
    drop(gone);

    let nameless = [(); 2].map(|()| Builder::new_multi_thread().worker_threads(1).build().unwrap());
    let [one, other] = nameless.each_ref().map(name_of);
    assert!(one != other && [&one, &other].into_iter().all(|name| name.starts_with(DEFAULT_NAME)), "{one} {other}");
}

#[test]
fn the_variable_for_spare_workers_is_a_count_or_an_error() {
    let of = |value: &str| wanted_spares(Some(value.into())).map_err(|error| error.to_string());
    assert_eq!((wanted_spares(None).unwrap(), of(""), of("0"), of("16 ")), (None, Ok(None), Ok(Some(0)), Ok(Some(16))));
    for bad in ["-1", "many", "1025"] {
        let expected = format!("VOLT_MAX_SPARE_WORKERS is \"{bad}\": give 0 to 1024, or unset it");
        assert_eq!(of(bad), Err(expected));
    }
}

#[test]
#[cfg_attr(miri, ignore = "no stack is too large for its threads")]
fn a_build_that_fails_inside_async_code_returns_its_error() {
    let outer = Builder::new_current_thread().control_socket(false).build().unwrap();
    let inner = Builder::new_multi_thread().worker_threads(1).control_socket(false);
    // More than a process can address.
    let inner = inner.thread_stack_size(usize::MAX >> 4);
    let error = outer.block_on(async { inner.build().unwrap_err() });
    assert!(error.to_string().starts_with("thread worker-0 of 1 workers cannot be started"), "{error}");
}
