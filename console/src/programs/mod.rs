//! Programs: how one is found, and the threads that keep a connection to it.

pub mod list;
pub mod target;

pub mod asker;
pub mod connection;
