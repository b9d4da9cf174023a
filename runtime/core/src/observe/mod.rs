//! The control socket, through which this program exposes its runtimes to the console, the doctor
//! and other clients; and, if the user requests it, a page of metrics for Prometheus.
//!
//! The module keeps the list of the program's runtimes, and a thread `volt-observer` that serves
//! the socket. Its parts, bottom to top:
//! * `cost`: the processor time of a thread, which clients pay for;
//! * `limits`: the limits on the cost of clients;
//! * `listener`: the socket in its folder;
//! * `connection`: one client, the bytes in and the bytes out;
//! * `cuts`: removes parts of a reply that is too large;
//! * `recording`: the flushes for a client that records;
//! * `dumping`: a dump for a client, on a separate thread;
//! * `server`: the event loop;
//! * `registry`: the list of runtimes, and the end of the thread;
//! * `tasks`: dumps and lists of tasks, without the socket;
//! * `observer`: the start and the main function of the thread;
//! * `page`: the page of metrics, with a separate thread and a port;
//! * `request`: a request to a server, counted by its HTTP route;
//! * `quit`: the dump on SIGQUIT, with a separate thread.
//!
//! Invariants:
//! * *Never a worker*: `volt-observer` and `volt-metrics` are plain threads. The locks that they
//!   share with workers, such as those of the registry's shards, of the table of waits and of the
//!   blocking pool, are held for some µs at most and never across user code. So these threads
//!   respond while every worker is stuck. `volt-quit` is a plain thread, too, but it waits for
//!   workers.
//! * *Read-only*: no request changes scheduling. A client can only change whether the flight
//!   recorder records the workers' events, and request a dump, which polls each waiting task once.
//! * *Bounded*: clients, frames, queues and waits each have a limit. A client, frame or item beyond
//!   it is dropped and counted.
//! * *Asleep without clients*: without a client there is no wake-up, except one or two after the
//!   last runtime was shut down.
//! * *It never stops the application*: without a socket the program continues, with a warning.

mod cost;

mod limits;

mod listener;

pub(crate) mod registry;

mod cuts;

mod recording;

mod dumping;

mod connection;

pub(crate) mod quit;

mod request;

mod tasks;

mod server;

mod observer;

pub(crate) mod page;

#[cfg(test)]
mod tests;

// The items of `volt::observe`.
pub use {
    crate::scheduler::readers::processes::ProcessSource,
    page::metrics_addr,
    registry::{health, program, socket_path},
    request::{Renamer, Request},
    tasks::{dump, dump_async, tasks},
};
