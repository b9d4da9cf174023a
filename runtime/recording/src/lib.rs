//! Recordings of the flight recorder: files that can be replayed, searched and exported.
//!
//! A recording is a head and then one flush after another, the data of
//! [`volt_telemetry::recording`]. This crate writes them to files and reads them back; it needs no
//! running program and no runtime. The console uses it. A program that is recorded does not: it
//! sends its events through the control socket.
//!
//! Reading order: [`frame`] is the file format; [`writer`] and [`reader`] are its two ends, with
//! [`files`] for recordings of several files and [`error`] for what may go wrong. [`timeline`] puts
//! the events of all tracks in one order, and [`chrome_trace`] turns a recording into a trace for
//! Perfetto. [`windows`] decides which spans of time are worth writing down.
#![forbid(unsafe_code)]

pub mod error;

pub mod files;
pub mod frame;
pub mod reader;
pub mod writer;

pub mod timeline;

pub mod chrome_trace;

pub mod windows;

#[cfg(test)]
mod scratch;
