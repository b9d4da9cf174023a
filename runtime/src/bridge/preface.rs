//! Distinguishes HTTP/2 from HTTP/1 by the first bytes of a connection.
//!
//! A client with prior knowledge that the server supports HTTP/2 begins with a fixed *preface*. No
//! HTTP/1 request begins with these bytes (RFC 9113, section 3.4).
//!
//! Bound: reads at most the 24 bytes of the preface. The caller must limit the time.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use super::stall::Unstalled;

/// The first bytes that an HTTP/2 client sends.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Reads the preface. Returns whether the client uses HTTP/2, and a stream that yields all bytes
/// again.
///
/// # Errors
/// Returns the error of the stream.
pub(super) async fn read_preface(mut stream: Unstalled) -> io::Result<(bool, Rewound)> {
    let (mut bytes, mut len) = ([0; PREFACE.len()], 0);
    while len < bytes.len() && bytes[..len] == PREFACE[..len] {
        match stream.read(&mut bytes[len..]).await? {
            0 => break,
            read => len += read,
        }
    }
    let is_http2 = len == bytes.len() && bytes == *PREFACE;
    Ok((is_http2, Rewound { bytes, given: 0, len, stream }))
}

/// A stream that first yields the bytes that were already read.
pub(super) struct Rewound {
    bytes: [u8; PREFACE.len()],
    /// How many of `bytes` have been yielded again; `len` is how many were read.
    given: usize,
    len: usize,
    stream: Unstalled,
}

impl AsyncRead for Rewound {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.given < this.len {
            let rest = &this.bytes[this.given..this.len];
            let taken = rest.len().min(buffer.remaining());
            buffer.put_slice(&rest[..taken]);
            this.given += taken;
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut this.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Rewound {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }
}
