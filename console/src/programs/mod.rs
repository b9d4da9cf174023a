//! Finds programs, and keeps connections to them on separate threads.
//!
//! `list` finds all running programs, `target` the one that an argument selects, and `again` finds
//! that one again. `connection` keeps a subscription to snapshots, and `requester` requests the
//! data that it does not include. `sources` reads source files.

pub(crate) mod sources;

pub mod again;

pub mod connection;
pub mod list;
pub mod target;

pub mod requester;
