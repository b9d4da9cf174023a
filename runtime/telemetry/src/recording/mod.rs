//! What a recording consists of, as it travels from the flight recorder to a console.
//!
//! [`event`] defines what a runtime notes down and [`record`] the 24 bytes of one event. A
//! [`flush`] is everything that was collected at one moment, and [`trigger`] says why something was
//! recorded. Files, replay and traces are in the crate `volt-recording`.

pub mod event;
pub mod record;

pub mod trigger;

pub mod flush;
