//! The code that the fuzz targets share. Each target is a program in `bin`; `run` builds and runs
//! them.
//!
//! A target gives arbitrary bytes to one reader of the product. It finds panics, and it checks what
//! must be true of any input: what was read can be written and read again, a reader returns no more
//! than the input can contain, and memory is bounded ([`memory`]).

pub mod libraries;
pub mod memory;
pub mod sealed;
