//! Unix domain sockets and pipes: their setup (`socket`), and their use (`sockets`).

mod socket;
mod sockets;
