//! The parts of a flight recording, as sent from the flight recorder to a console.
//!
//! [`event`] defines the events that a runtime records, and [`record`] the 24 bytes of one event. A
//! [`flush`] contains everything that was collected at one moment, and [`trigger`] is the reason
//! for a recording. [`black_box`] is the layout of the file that outlives a killed program. Files,
//! replay and traces are in the crate `volt-recording`.

pub mod event;
pub mod record;

pub mod trigger;

pub mod flush;

pub mod black_box;
