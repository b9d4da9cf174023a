//! The lists, compiled with Tokio's types.

use tokio::{self as this, runtime, task, time};

#[path = "runtimes.rs"]
#[expect(clippy::duplicate_mod, reason = "one list, compiled twice")]
pub mod runtimes;

#[path = "sets.rs"]
#[expect(clippy::duplicate_mod, reason = "one list, compiled twice")]
pub mod sets;

#[path = "tasks.rs"]
#[expect(clippy::duplicate_mod, reason = "one list, compiled twice")]
pub mod tasks;

#[path = "times.rs"]
#[expect(clippy::duplicate_mod, reason = "one list, compiled twice")]
pub mod times;
