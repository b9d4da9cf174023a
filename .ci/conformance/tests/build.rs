//! Tests of building a runtime of the drop-in, for cases that Tokio's own tests leave out.

use std::env;
use std::io::ErrorKind;
use std::panic;
use std::time::Duration;

use tokio::runtime::Builder;

#[test]
fn a_failure_of_the_system_keeps_its_kind() {
    let error = Builder::new_multi_thread().worker_threads(1).thread_stack_size(1 << 60).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
    assert!(error.to_string().contains("thread_stack_size"), "{error}");
}

#[test]
fn more_workers_than_a_runtime_may_have_are_invalid_input() {
    let error = Builder::new_multi_thread().worker_threads(1025).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
}

#[test]
fn threads_for_blocking_work_need_no_limit_and_no_keep_alive() {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.max_blocking_threads(usize::MAX).thread_keep_alive(Duration::ZERO).build().unwrap();
    assert_eq!(runtime.block_on(runtime.spawn_blocking(|| 1)).unwrap(), 1);
}

#[test]
fn the_environment_sets_the_default_number_of_workers() {
    // Each test has its own process, so the variable affects no other test.
    env::set_var("TOKIO_WORKER_THREADS", "3");
    assert_eq!(Builder::new_multi_thread().build().unwrap().metrics().num_workers(), 3);
    let runtime = Builder::new_multi_thread().worker_threads(2).build().unwrap();
    assert_eq!(runtime.metrics().num_workers(), 2, "the program's number comes first");
    for (value, message) in [("many", "must be usize"), ("0", "cannot be set to 0")] {
        env::set_var("TOKIO_WORKER_THREADS", value);
        let runtime = Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.metrics().num_workers(), 1, "it does not read the variable");
        let panic = panic::catch_unwind(|| Builder::new_multi_thread().build()).unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.contains(&format!("\"TOKIO_WORKER_THREADS\" {message}")), "{text}");
    }
}

#[test]
fn a_clock_that_does_not_start_paused_can_be_paused() {
    let runtime = Builder::new_current_thread().enable_all().start_paused(false).build().unwrap();
    runtime.block_on(async { tokio::time::pause() });
}
