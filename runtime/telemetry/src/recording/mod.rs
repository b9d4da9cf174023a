//! Recordings: what a flight recorder has seen, in a file that can be replayed, searched and exported.
//!
//! [`event`] is what is noted down, [`record`] how; [`flush`] what is collected at once; [`frame`] the file; [`writer`]
//! and [`reader`] its two ends; [`timeline`] puts all tracks in one order; [`chrome_trace`] turns a recording into what
//! Perfetto opens; [`trigger`] says when to record.

pub mod error;
pub mod event;
pub mod record;
pub mod trigger;

pub mod files;
pub mod flush;
pub mod frame;
pub mod reader;
pub mod writer;

pub mod timeline;

pub mod chrome_trace;
