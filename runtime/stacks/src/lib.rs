//! Shows what a stuck thread of this program is doing: its stack, resolved to source lines, and why
//! the kernel does not run it.
//!
//! The runtime's sentinel, the thread that detects stuck polls, uses this crate when a poll exceeds
//! the stall threshold. Two samples of the worker's thread give the cause of the stall.
//!
//! # Shape
//!
//! Modules, bottom to top:
//!
//! * [`fork`] detects that a value was made in a parent process.
//! * [`loaded`] keeps a library that contains Volt loaded.
//! * [`kernel`] reads a thread's times, its state and the cause of its delay from the kernel.
//! * `request` is the protocol by which one thread requests the stack of another.
//! * `reader` captures the stack and resolves it to functions, files and lines.
//!
//! This crate has no tasks and no schedulers.
//!
//! # Usage
//!
//! Each runtime creates a [`Sampler`]; all samplers of a program share one slot for requests. Each
//! thread whose stack may be captured calls [`Sampler::register`] and keeps the guard. A plain
//! thread, never a registered one, calls [`Resolver::stack_of`] on its own resolver. The arguments
//! are the [`Thread`] and the [`Marker`] of the function at which the stack ends. The stack of an
//! unregistered thread is never requested: not registering switches stacks off.
//!
//! A thread that needs its own stack uses a [`Tape`], without a signal.
//!
//! # Platforms
//!
//! Stacks are supported on Linux, on x86-64 and aarch64. On other systems, and under Miri and loom,
//! `unsupported` defines the same names, and [`Sampler::new`] returns an error.
#![cfg_attr(loom, allow(dead_code))]

pub mod fork;
pub mod kernel;
pub mod loaded;

#[cfg(any(loom, all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
mod request;

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(any(loom, miri))))]
mod reader;

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(any(loom, miri)))))]
mod unsupported;

#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    //! The entry points of the fuzz targets.
    pub use crate::kernel::fuzzing::texts;
    pub use crate::reader::fuzzing::{build_id, lines, names, unwind};
}

cfg_select! {
    all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(any(loom, miri))) => {
        pub use reader::capture::{CaptureError, Registered, Sampler, Thread};
        pub use reader::raw::RawStack;
        pub use reader::sections::build_id;
        pub use reader::symbols::{Calls, Resolved, Resolver};
        pub use reader::tape::{Recorded, Tape};
        pub use reader::unwind::Marker;
    }
    _ => {
        pub use unsupported::{
            Calls, CaptureError, Marker, RawStack, Recorded, Registered, Resolved, Resolver, Sampler, Tape, Thread,
            build_id,
        };
    }
}
