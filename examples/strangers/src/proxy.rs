//! A TCP proxy, and the echo server that it is tried with. Volt alone.

use std::io;
use std::net::SocketAddr;

use volt::io::copy_bidirectional;
use volt::net::{TcpListener, TcpStream};

/// Passes each connection on to `to`, until both sides have closed.
pub async fn proxy(listener: TcpListener, to: SocketAddr) -> io::Result<()> {
    loop {
        let (mut client, _) = listener.accept().await?;
        volt::spawn(async move {
            let passed = async {
                let mut server = TcpStream::connect(to).await?;
                copy_bidirectional(&mut client, &mut server).await
            };
            if let Err(error) = passed.await {
                tracing::debug!(%error, "connection ended");
            }
        });
    }
}

/// Gives everybody back what they send.
pub async fn echo(listener: TcpListener) -> io::Result<()> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        volt::spawn(async move {
            let (mut reader, mut writer) = stream.split();
            let _ended = volt::io::copy(&mut reader, &mut writer).await;
        });
    }
}

/// Lets this process have as many descriptors as it may; says how many.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)?;
    Ok(limit.maximum.unwrap_or(u64::MAX))
}
