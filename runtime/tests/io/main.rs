//! Sockets, files, timers, signals and child processes through the public API.

#[path = "../folder/mod.rs"]
mod folder;
#[path = "../forked/mod.rs"]
mod forked;
#[path = "../watchdog/mod.rs"]
mod watchdog;

mod signals;

mod accept_emfile;
mod async_fd;
mod axum;
mod bad_peers;
mod children;
mod fork;
mod fs;
mod futures_io;
mod instant;
mod items;
mod net;
mod operations;
mod outside;
mod test_clock;
mod time;
mod tokio_compat;
mod udp;
mod unix;
