//! The load of the HTTP workload, in a separate program: 64 connections that send requests. The
//! header of `http` has the protocol between the two.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::client::Client;
use crate::quantile::quantile;

/// The argument that makes this program the load.
pub(crate) const LOAD: &str = "http_load";
pub(super) const CONNECTIONS: usize = 64;
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
/// The body of each answer.
pub(super) const HELLO: &[u8] = b"Hello, World!";
const END_OF_HEAD: &[u8] = b"\r\n\r\n";

/// Returns the length of the answer. The server's date always has the same length.
fn answer_bytes(address: SocketAddr) -> io::Result<usize> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(REQUEST)?;
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(END_OF_HEAD) {
        stream.read_exact(&mut byte)?;
        answer.extend(byte);
    }
    let mut body = [0; HELLO.len()];
    stream.read_exact(&mut body)?;
    if !answer.starts_with(b"HTTP/1.1 200 OK\r\n") || body != HELLO {
        return Err(io::Error::other("the server does not return hello"));
    }
    Ok(answer.len() + body.len())
}

/// Runs the load, in the child.
///
/// # Errors
/// Errors of its sockets, and any unexpected answer of the server.
pub(crate) fn load(address: &str, counted_ms: &str) -> io::Result<()> {
    let invalid = || io::Error::from(ErrorKind::InvalidInput);
    let address = address.parse().map_err(|_error| invalid())?;
    let counted = Duration::from_millis(counted_ms.parse().map_err(|_error| invalid())?);
    let mut client = Client::connect(address, CONNECTIONS, REQUEST, answer_bytes(address)?)?;
    client.run(counted / 4)?;
    println!("warm");
    io::stdin().read_line(&mut String::new())?;
    let began = Instant::now();
    let mut took_us = client.run(counted)?;
    println!("{} {} {}", took_us.len(), began.elapsed().as_nanos(), quantile(&mut took_us, 0.99));
    Ok(())
}
