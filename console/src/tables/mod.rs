//! Tables: their columns and cells, and which columns fit.
//!
//! Screen and text output use the same columns. Independent of the terminal.

pub mod cell;
pub mod grouped;

pub mod blame;
pub mod listing;
pub mod processes;
pub mod routes;
pub mod tasks;
pub mod workers;
