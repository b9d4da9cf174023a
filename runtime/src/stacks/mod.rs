//! The stack of a thread of this process while it is stuck: in release builds, without rights, without frame pointers.
//!
//! Shape, bottom to top: `forever` (what is never freed), `request` (who is asked, and for which page: the protocol),
//! `raw` (a stack as it was copied), `page` (what a thread writes down of itself), `signals` (the signal), `capture`
//! (asks, and answers in the handler), `modules` (what is loaded, and its unwind tables), `unwind` (from the copy to
//! calls), `units` and `lines` (what a file says of an address), `names` (how functions read, and whose they are),
//! `symbols` (from calls to lines). It knows nothing of tasks and schedulers. On systems where it cannot be done,
//! `unsupported` stands here instead, with the same names.
//!
//! For use: a [`Sampler`] for the process; each thread that may be asked calls [`Sampler::register`] and keeps the
//! guard; a plain thread, never one of these, calls [`Resolver::stack_of`] of its own resolver, with the [`Thread`] and
//! the [`Marker`] of the function at which the stack is to end. Who does not register is never asked: that is the off
//! switch.

mod request;

#[cfg(not(loom))]
mod capture;
#[cfg(not(loom))]
mod forever;
#[cfg(not(loom))]
mod lines;
#[cfg(not(loom))]
mod modules;
#[cfg(not(loom))]
mod names;
#[cfg(not(loom))]
mod page;
#[cfg(not(loom))]
mod raw;
#[cfg(not(loom))]
mod signals;
#[cfg(not(loom))]
mod symbols;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(not(loom))]
mod units;
#[cfg(not(loom))]
mod unwind;

#[cfg(not(loom))]
#[expect(unused_imports, reason = "nobody asks for stacks yet")]
pub(crate) use {
    capture::{CaptureError, Registered, Sampler, Thread},
    raw::RawStack,
    symbols::{Resolved, Resolver},
    unwind::Marker,
};
