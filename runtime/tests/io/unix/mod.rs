//! Unix domain sockets and pipes: datagrams (`datagrams`), the setup of sockets (`socket`), and
//! streams and pipes (`sockets`).

mod datagrams;
mod socket;
mod sockets;
