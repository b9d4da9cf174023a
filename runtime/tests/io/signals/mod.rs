//! Signals of the operating system: a flood of them has no effect, listeners receive them, SIGPIPE
//! kills no program that writes to a closed connection, and SIGQUIT prints a dump.

mod flood;
mod listeners;
mod sigpipe;
pub mod sigquit;
