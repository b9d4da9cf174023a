//! placeholder
mod clock;
mod shim;
