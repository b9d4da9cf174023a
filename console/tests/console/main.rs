//! Tests of the program `volt-console` as a whole, with stand-ins for running programs, with and
//! without a terminal.

mod documents;
mod program;
mod screen;

mod book;
mod check;
mod commands;
mod connection;
mod crates;
mod doctor;
mod dump;
mod picker;
mod processes;
mod record;
mod tasks;
mod terminal;
