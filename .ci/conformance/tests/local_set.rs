//! Tests of `LocalSet` with `--cfg tokio_unstable`, where it is a type of the drop-in itself.
#![cfg(tokio_unstable)]

use std::cell::RefCell;
use std::rc::Rc;

use tokio::runtime::Builder;
use tokio::task::{JoinSet, LocalSet, spawn_local};

#[test]
fn a_local_set_runs_tasks_in_each_of_its_ways() {
    let runtime = Builder::new_current_thread().build().unwrap();
    let done = Rc::new(RefCell::new(Vec::new()));
    let task = |name| {
        let done = Rc::clone(&done);
        async move { done.borrow_mut().push(name) }
    };
    let local = LocalSet::new();
    local.block_on(&runtime, async { spawn_local(task("block_on")).await }).unwrap();
    runtime.block_on(local.run_until(local.spawn_local(task("run_until")))).unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn_local_on(task("spawn_local_on"), &local);
    runtime.block_on(local);
    assert_eq!(*done.borrow(), ["block_on", "run_until", "spawn_local_on"]);
}
