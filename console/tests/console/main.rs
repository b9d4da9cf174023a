//! The program `volt-console` as a whole, against stand-ins for running programs, without a
//! terminal and on one.

mod check;
mod commands;
mod connection;
mod crates;
mod doctor;
mod picker;
mod record;
mod terminal;

mod processes;
mod program;
mod screen;
mod tasks;
