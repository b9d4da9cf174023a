//! The attributes as programs use them, on a real runtime.

use std::io;

use volt::Handle;
use volt::task::JoinError;

mod facade {
    pub use volt as inside;
}

fn workers() -> usize {
    Handle::current().snapshot().workers.len()
}

#[volt::test]
async fn a_test_has_two_workers_by_default() {
    assert_eq!(workers(), 2);
}

#[volt::test(worker_threads = 3, name = "named by its test")]
async fn the_options_reach_the_builder() {
    assert_eq!(workers(), 3);
    assert_eq!(Handle::current().snapshot().runtime, "named by its test");
}

#[volt::test(crate = crate::attributes::facade::inside, worker_threads = 1)]
async fn volt_may_be_reached_by_another_path() -> Result<(), JoinError> {
    assert_eq!(workers(), 1);
    volt::spawn(async {}).await
}

#[volt::test]
#[should_panic(expected = "as it should")]
async fn other_attributes_keep_their_meaning() {
    panic!("as it should");
}

#[volt::main(worker_threads = 1)]
async fn entry() -> Result<u32, io::Error> {
    let port: u32 = "not a port".parse().map_err(io::Error::other)?;
    Ok(port)
}

#[test]
fn the_plain_function_returns_the_error_of_the_body() {
    assert!(entry().unwrap_err().to_string().contains("invalid digit"));
}

#[volt::main(worker_threads = 1_000_000)]
async fn more_workers_than_may_be() {}

#[test]
#[should_panic(expected = "the Volt runtime of `more_workers_than_may_be` could not be built: ")]
fn a_runtime_that_cannot_be_built_panics_with_the_reason() {
    more_workers_than_may_be();
}
