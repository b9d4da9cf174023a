//! Finds programs, and keeps connections to them on separate threads.

pub mod list;
pub mod target;

pub mod asker;
pub mod connection;
