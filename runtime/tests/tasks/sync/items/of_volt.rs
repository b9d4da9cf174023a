//! The list, compiled with Volt's types.

use volt::sync;

#[path = "uses.rs"]
pub mod uses;
