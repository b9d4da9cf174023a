//! Tests of building a runtime of the drop-in, for cases that Tokio's own tests leave out.

use std::io::ErrorKind;
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
