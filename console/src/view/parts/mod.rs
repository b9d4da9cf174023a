//! Parts that several screens share, and the lines above every screen.

pub mod layout;

pub mod header;
pub mod help;

pub mod detail;
pub mod grouped;
pub mod lamps;
pub mod lines;
pub mod panels;
pub mod stack;
pub(crate) mod table;
pub mod workers;
