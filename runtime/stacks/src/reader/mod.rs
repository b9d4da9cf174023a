//! The stack of a thread of this program while it is stuck: in release builds, without privileges,
//! without frame pointers.
//!
//! Shape, bottom to top: `forever` (values that are never freed), `raw` (a stack as it was copied),
//! `page` (the copy that a thread makes of its own stack), `signals` (the signal), `capture` (asks
//! by the protocol of [`request`](crate::request), and answers in the handler), `modules` (what is
//! loaded, and its unwind tables), `unwind` (from the copy to calls), `units` and `lines` (an
//! address in a file's debug information), `names` (readable names of functions, and whether the
//! application wrote them), `symbols` (from calls to lines).

pub(crate) mod capture;
mod forever;
mod lines;
mod modules;
mod names;
mod page;
pub(crate) mod raw;
mod signals;
pub(crate) mod symbols;
#[cfg(test)]
mod tests;
mod units;
pub(crate) mod unwind;
