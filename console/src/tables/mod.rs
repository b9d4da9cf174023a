//! Tables: which columns there are, what their cells say, and which of them fit.
//!
//! Screen and text output print from the same columns. No terminal in here.

pub mod cell;

pub mod blame;
pub mod listing;
pub mod processes;
pub mod tasks;
pub mod workers;
