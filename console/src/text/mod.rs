//! Formats figures and strings for screens and text output.

pub mod awaits;
pub mod clean;
pub mod figures;
