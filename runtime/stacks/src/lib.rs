//! What a stuck thread of this program is doing: its stack, line by line, and why the kernel does
//! not run it.
//!
//! Shape, bottom to top: [`fork`] (which process something was made in), [`kernel`] (a thread's
//! times, its state and the cause of its delay, as the kernel reports them), `request` (how one
//! thread asks another for its stack: the protocol), `reader` (takes the stack and makes it
//! readable). This crate has no tasks and no schedulers.
//!
//! To read stacks, make one [`Sampler`] for the program. Each thread that may be asked calls
//! [`Sampler::register`] and keeps the guard. A plain thread, never one of these, calls
//! [`Resolver::stack_of`] on a resolver of its own, with the [`Thread`] and the [`Marker`] of the
//! function at which the stack ends. A thread that does not register is never asked: that is the
//! way to switch stacks off.
//!
//! Stacks are read on Linux, on x86-64 and aarch64. Elsewhere, and under Miri and loom,
//! `unsupported` defines the same names, and [`Sampler::new`] returns an error.
#![cfg_attr(loom, allow(dead_code))]

pub mod fork;
pub mod kernel;

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(any(loom, miri))))]
mod reader;
#[cfg(any(loom, all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
mod request;
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(any(loom, miri)))))]
mod unsupported;

cfg_select! {
    all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(any(loom, miri))) => {
        pub use reader::capture::{CaptureError, Registered, Sampler, Thread};
        pub use reader::raw::RawStack;
        pub use reader::symbols::{Resolved, Resolver};
        pub use reader::unwind::Marker;
    }
    _ => {
        pub use unsupported::{CaptureError, Marker, RawStack, Registered, Resolved, Resolver, Sampler, Thread};
    }
}
