//! The two halves that a [`TcpStream`] can be split into, to read and to write in different tasks.
//!
//! ```
//! use volt::io::{AsyncReadExt, AsyncWriteExt};
//! use volt::net::{TcpListener, TcpStream};
//!
//! # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
//! # runtime.block_on(async {
//! let listener = TcpListener::bind("127.0.0.1:0").await?;
//! let client = TcpStream::connect(listener.local_addr()?).await?;
//! let (mut server, _) = listener.accept().await?;
//! let (mut reader, mut writer) = client.into_split();
//! volt::spawn(async move { writer.write_all(b"ping").await });
//! let mut bytes = [0; 4];
//! server.read_exact(&mut bytes).await?;
//! server.write_all(&bytes).await?;
//! reader.read_exact(&mut bytes).await?;
//! assert_eq!(&bytes, b"ping");
//! # Ok::<(), std::io::Error>(())
//! # }).unwrap();
//! ```

use std::task::{Context, Poll};

use tokio::io::ReadBuf;

use crate::net::surface::halves::halves;
use crate::net::surface::{reads, writes};
use crate::net::tcp_stream::TcpStream;

halves!(TcpStream, net::SocketAddr);

impl ReadHalf<'_> {
    /// Receives data without removing it from the queue; see [`TcpStream::peek`].
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    ///
    /// # Cancel safety
    /// This method is cancel safe. It removes no data from the queue.
    pub async fn peek(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.peek(buffer).await
    }

    /// Polls for data as [`peek`](Self::peek) does.
    ///
    /// # Errors
    /// Returns the same errors as [`peek`](Self::peek).
    pub fn poll_peek(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        self.0.poll_peek(cx, buffer)
    }
}

impl OwnedReadHalf {
    /// Receives data without removing it from the queue; see [`TcpStream::peek`].
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    ///
    /// # Cancel safety
    /// This method is cancel safe. It removes no data from the queue.
    pub async fn peek(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.peek(buffer).await
    }

    /// Polls for data as [`peek`](Self::peek) does.
    ///
    /// # Errors
    /// Returns the same errors as [`peek`](Self::peek).
    pub fn poll_peek(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        self.stream.poll_peek(cx, buffer)
    }
}
