//! The program `volt-console` as a whole, against stand-ins for running programs, without a terminal and on one.

mod commands;
mod terminal;

mod program;
mod screen;
