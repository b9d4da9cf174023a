//! Tests of the program `volt-console` as a whole, with stand-ins for running programs, with and
//! without a terminal.

mod book;
mod check;
mod commands;
mod connection;
mod crates;
mod doctor;
mod dump;
mod picker;
mod record;
mod terminal;

mod processes;
mod program;
mod screen;
mod tasks;

mod documents;
