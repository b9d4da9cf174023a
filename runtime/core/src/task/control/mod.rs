//! The functions by which code in a task controls how the task runs.
//!
//! The task lets other tasks run (`yield_now`), or defers its cancellation to the end of a section
//! (`shield`). `block_in_place`, which blocks the thread of the task, is in `context`.

pub mod shield;
pub mod yield_now;
