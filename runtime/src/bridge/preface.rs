//! Tells HTTP/2 from HTTP/1 by the first bytes of a connection (RFC 9113, section 3.4: a client
//! that knows that the server speaks HTTP/2 begins with a preface that no HTTP/1 request begins
//! with).
//!
//! Bound: the preface's 24 bytes; the caller bounds the time.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use super::stall::Unstalled;

/// What a client of HTTP/2 begins with.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Whether the other side speaks HTTP/2, and the stream as it was before anything was read.
///
/// # Errors
/// As the stream's.
pub(super) async fn tell(mut stream: Unstalled) -> io::Result<(bool, Rewound)> {
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

/// A stream whose first bytes were read already, and are read again.
pub(super) struct Rewound {
    bytes: [u8; PREFACE.len()],
    /// Of `bytes`, those that were read again, and those that there are.
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
