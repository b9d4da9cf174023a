//! Captures and resolves the stack of a stuck thread of this program. This works in release builds,
//! without privileges and without frame pointers.
//!
//! The runtime's sentinel uses this module to name the line of code that blocks a worker. The work
//! has three steps. A signal handler on the stuck thread copies its registers and stack. The
//! requester unwinds the copy to a list of calls. Debug information then resolves the calls to
//! functions, files and lines.
//!
//! # Shape
//!
//! Modules, bottom to top:
//!
//! * `forever`: values that are never freed.
//! * `raw`: a copied stack.
//! * `page`: the memory that a thread copies its own stack into.
//! * `signals`: the signal.
//! * `capture`: requests a stack by the protocol of [`request`](crate::request), and answers in the
//!   handler.
//! * `modules`: the loaded files and their unwind tables.
//! * `tape`: copies of a thread's own stack, which it makes itself.
//! * `unwind`: from the copy to calls.
//! * `map` and `elf`: a mapped file, its sections and symbols.
//! * `sections`, `split`, `units` and `lines`: an address in a file's debug information.
//! * `names`: readable names of functions, and whether they are application code.
//! * `symbols`: from calls to lines.

mod elf;
mod map;
pub(crate) mod raw;
pub(super) mod sections;
mod split;
mod units;

mod forever;
mod lines;
mod modules;
mod names;
mod page;
mod signals;
pub(crate) mod unwind;

pub(crate) mod capture;
#[cfg(fuzzing)]
pub mod fuzzing;
pub(crate) mod symbols;
pub(crate) mod tape;

#[cfg(test)]
mod tests;
