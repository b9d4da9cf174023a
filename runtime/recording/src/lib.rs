//! Recordings of the flight recorder: files that can be replayed, searched and exported.
//!
//! The flight recorder is the part of the runtime that keeps its latest scheduler events in memory.
//! A recording is a file with a head, followed by flushes. A flush is the data that the recorder
//! delivers at one time: events, names, and sometimes a snapshot; see
//! [`volt_telemetry::recording`].
//!
//! This crate writes recordings to files and reads them back. It needs no running program and no
//! runtime. The console uses it. A recorded program does not use it: it sends its events through
//! the control socket.
//!
//! Reading order: [`frame`] is the file format. [`writer`] and [`reader`] write and read it, with
//! [`files`] for recordings of several files, and [`error`] for errors. [`timeline`] merges the
//! events of all tracks into one order. [`chrome_trace`] converts a recording to a trace for
//! Perfetto. [`windows`] decides which time spans to record. [`black_box`] reads the file that a
//! killed program leaves.
#![forbid(unsafe_code)]

pub mod error;

pub mod files;
pub mod frame;
pub mod reader;
pub mod writer;

pub mod timeline;

pub mod chrome_trace;

pub mod windows;

pub mod black_box;

#[cfg(test)]
mod scratch;

// The example in the README, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
