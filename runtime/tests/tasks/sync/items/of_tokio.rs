//! The list, compiled with Tokio's types.

use tokio::sync;

#[path = "uses.rs"]
#[expect(clippy::duplicate_mod, reason = "one list, compiled twice")]
pub mod uses;
