//! The program `volt-console` as a whole, against stand-ins for running programs, without a terminal and on one.

mod commands;
mod doctor;
mod terminal;

mod program;
mod screen;
