//! The lists, compiled with Volt's types.

use volt::{self as this, runtime, task, time};

#[path = "runtimes.rs"]
pub mod runtimes;

#[path = "sets.rs"]
pub mod sets;

#[path = "tasks.rs"]
pub mod tasks;

#[path = "times.rs"]
pub mod times;
