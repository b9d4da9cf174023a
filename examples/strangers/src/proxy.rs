//! A TCP proxy, and an echo server to test it with. Both use only Tokio.

use std::io;
use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

/// Forwards each connection to `to`, until both sides have closed it.
pub async fn proxy(listener: TcpListener, to: SocketAddr) -> io::Result<()> {
    loop {
        let (mut client, _) = listener.accept().await?;
        tokio::spawn(async move {
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

/// Sends all data back to the client that sent it.
pub async fn echo(listener: TcpListener) -> io::Result<()> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            let (mut reader, mut writer) = stream.split();
            let _ended = tokio::io::copy(&mut reader, &mut writer).await;
        });
    }
}

/// Raises this program's limit on file descriptors to the maximum, and returns it.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)?;
    Ok(limit.maximum.unwrap_or(u64::MAX))
}
