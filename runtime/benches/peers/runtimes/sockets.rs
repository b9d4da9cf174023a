//! The functions of a runtime that the workloads with connections need, and the adapter that its
//! users put between it and hyper.
//!
//! The adapter is `volt::hyper` for Volt, `hyper-util` for Tokio, `smol-hyper` for smol.

use std::future::Future;
use std::io;
use std::net;

use async_io::Async;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::peer::Peer;
use super::smol::Smol;
use super::tokio::{Tokio, Watch};
use super::volt::Volt;

/// See the header of this file.
pub(crate) trait Sockets: Peer {
    type Listener: Send + Sync + 'static;
    type Stream: Send + 'static;
    type Http: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static;

    /// The listener is already in non-blocking mode.
    fn listener(listener: net::TcpListener) -> io::Result<Self::Listener>;
    fn accept(listener: &Self::Listener) -> impl Future<Output = io::Result<Self::Stream>> + Send;
    /// The stream is already in non-blocking mode.
    fn stream(stream: net::TcpStream) -> io::Result<Self::Stream>;
    fn read(stream: &mut Self::Stream, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send;
    fn write_all(stream: &mut Self::Stream, bytes: &[u8]) -> impl Future<Output = io::Result<()>> + Send;
    fn http(stream: Self::Stream) -> Self::Http;
}

impl Sockets for Volt {
    type Listener = volt::net::TcpListener;
    type Stream = volt::net::TcpStream;
    type Http = volt::hyper::VoltIo<Self::Stream>;

    fn listener(listener: net::TcpListener) -> io::Result<Self::Listener> {
        volt::net::TcpListener::from_std(listener)
    }

    async fn accept(listener: &Self::Listener) -> io::Result<Self::Stream> {
        listener.accept().await.map(|(stream, _peer)| stream)
    }

    fn stream(stream: net::TcpStream) -> io::Result<Self::Stream> {
        volt::net::TcpStream::from_std(stream)
    }

    async fn read(stream: &mut Self::Stream, buffer: &mut [u8]) -> io::Result<usize> {
        stream.read(buffer).await
    }

    async fn write_all(stream: &mut Self::Stream, bytes: &[u8]) -> io::Result<()> {
        stream.write_all(bytes).await
    }

    fn http(stream: Self::Stream) -> Self::Http {
        volt::hyper::VoltIo::new(stream)
    }
}

impl<W: Watch> Sockets for Tokio<W> {
    type Listener = tokio::net::TcpListener;
    type Stream = tokio::net::TcpStream;
    type Http = hyper_util::rt::TokioIo<Self::Stream>;

    fn listener(listener: net::TcpListener) -> io::Result<Self::Listener> {
        tokio::net::TcpListener::from_std(listener)
    }

    async fn accept(listener: &Self::Listener) -> io::Result<Self::Stream> {
        listener.accept().await.map(|(stream, _peer)| stream)
    }

    fn stream(stream: net::TcpStream) -> io::Result<Self::Stream> {
        tokio::net::TcpStream::from_std(stream)
    }

    async fn read(stream: &mut Self::Stream, buffer: &mut [u8]) -> io::Result<usize> {
        stream.read(buffer).await
    }

    async fn write_all(stream: &mut Self::Stream, bytes: &[u8]) -> io::Result<()> {
        stream.write_all(bytes).await
    }

    fn http(stream: Self::Stream) -> Self::Http {
        hyper_util::rt::TokioIo::new(stream)
    }
}

impl Sockets for Smol {
    type Listener = Async<net::TcpListener>;
    type Stream = Async<net::TcpStream>;
    type Http = smol_hyper::rt::FuturesIo<Self::Stream>;

    fn listener(listener: net::TcpListener) -> io::Result<Self::Listener> {
        Async::new_nonblocking(listener)
    }

    async fn accept(listener: &Self::Listener) -> io::Result<Self::Stream> {
        listener.accept().await.map(|(stream, _peer)| stream)
    }

    fn stream(stream: net::TcpStream) -> io::Result<Self::Stream> {
        Async::new_nonblocking(stream)
    }

    async fn read(stream: &mut Self::Stream, buffer: &mut [u8]) -> io::Result<usize> {
        futures_lite::AsyncReadExt::read(stream, buffer).await
    }

    async fn write_all(stream: &mut Self::Stream, bytes: &[u8]) -> io::Result<()> {
        futures_lite::AsyncWriteExt::write_all(stream, bytes).await
    }

    fn http(stream: Self::Stream) -> Self::Http {
        smol_hyper::rt::FuturesIo::new(stream)
    }
}
