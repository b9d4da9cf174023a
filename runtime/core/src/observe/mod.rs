//! What shows this process to the outside: the list of its runtimes, and the control socket with a
//! thread of its own.
//!
//! Shape, bottom to top: `listener` (the socket in its folder), `connection` (one
//! client: bytes in, bytes out), `cuts` (what a snapshot loses that is too large), `recording`
//! (what is owed to a client that records), `server` (the one loop), `registry` (who is alive;
//! starts and ends the thread).
//!
//! Invariants. *Never a worker*: the thread `volt-observer` is a plain one, and the locks that it
//! shares with workers (of the shard of the registry that has a polled task's name, and of the
//! blocking pool) are held for a few instructions and never across user code, so it answers while
//! every worker is stuck. *Read-only*: no request changes scheduling; what a client may change is
//! whether the flight recorder notes down what the workers do. *Bounded*: clients, frames, queues
//! and waits each have a limit, and what goes over it is dropped and counted. *Asleep unless
//! asked*: no client, no wake-up. *It never stops the application*: without a socket the program
//! runs on, with a warning.

mod connection;
mod cuts;
mod limits;
mod listener;
mod observer;
mod recording;
pub mod registry;
mod server;
#[cfg(test)]
mod tests;
