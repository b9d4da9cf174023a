//! Operations on processes of other nodes, and what happens to processes when a node is lost.
//!
//! `sending` sends a frame for each operation, and `receiving` handles the frames that arrive. Both
//! use the conversations in `nodes`.

pub(crate) mod receiving;
pub(crate) mod sending;
