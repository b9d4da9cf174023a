//! Figures and strings as they are printed, on the screen and as text.

pub mod clean;
pub mod figures;
