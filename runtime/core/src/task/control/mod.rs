//! The functions by which code in a task controls how the task runs.
//!
//! The task lets other tasks run (`yield_now`), blocks its thread (`block_in_place`), or defers its
//! cancellation to the end of a section (`shield`).

pub mod block_in_place;
pub mod shield;
pub mod yield_now;
