//! Bytes in and out of what is registered: the one way in which streams, datagram sockets and pipes
//! read and write.
//!
//! Invariants. *No SIGPIPE*: writing to a connection that the peer has closed is an error of kind
//! `BrokenPipe` even where the host process lets SIGPIPE kill it: sockets are written to with
//! `MSG_NOSIGNAL` (std's `write` does so too, its `write_vectored` does not: it is `writev`). For a
//! pipe there is no such flag. *Only written*: memory that was never initialized goes to `read` or
//! `recvfrom` alone, which write, and which say how many bytes from the first on they filled.
//! *Short reads*: of TCP a read that gives less than was asked for has found the end of what is
//! there, so the next waits for an event, and saves a system call. Of a Unix stream it need not: it
//! ends where a descriptor was sent along, and of a terminal, or a pipe of packets, at a line or a
//! packet. Whoever waited then would wait for an event that came already.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix;
use std::task::{Context, Poll};

use bytes::BufMut;
use rustix::net::SendFlags;
use tokio::io::ReadBuf;

use volt_core::driver::readiness::Direction;
use volt_core::driver::registration::Registration;

/// Slices in one system call: `UIO_MAXIOV`, the same on all systems.
const MAX_SLICES: usize = 1024;

/// See *No SIGPIPE*.
#[cfg(not(target_vendor = "apple"))]
pub(super) const QUIETLY: SendFlags = SendFlags::NOSIGNAL;
/// See *No SIGPIPE*: here the socket itself has `SO_NOSIGPIPE`, set when it was made.
#[cfg(target_vendor = "apple")]
pub(super) const QUIETLY: SendFlags = SendFlags::empty();

/// What bytes are read from and written to.
pub(crate) trait ByteStream: AsFd + AsRawFd {
    /// Whether a read that fills less than the buffer has left nothing: see *Short reads*.
    const SHORT_READ_IS_LAST: bool;

    fn write(&self, bytes: &[u8]) -> io::Result<usize>;
    fn write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;
}

fn send_vectored(socket: impl AsFd, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    Ok(rustix::net::sendmsg(socket, slices, &mut Default::default(), QUIETLY)?)
}

impl ByteStream for net::TcpStream {
    const SHORT_READ_IS_LAST: bool = true;

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self, bytes, QUIETLY)?)
    }

    fn write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        send_vectored(self, slices)
    }
}

impl ByteStream for unix::net::UnixStream {
    const SHORT_READ_IS_LAST: bool = false;

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self, bytes, QUIETLY)?)
    }

    fn write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        send_vectored(self, slices)
    }
}

/// A pipe, or what somebody says is as good as one.
impl ByteStream for OwnedFd {
    const SHORT_READ_IS_LAST: bool = false;

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(self, bytes)?)
    }

    fn write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(rustix::io::writev(self, slices)?)
    }
}

/// Has `receive` fill what is free in `buffer`, from the first byte on.
pub(super) fn fill_read_buf<R>(
    buffer: &mut ReadBuf<'_>,
    receive: impl FnOnce(&mut [MaybeUninit<u8>]) -> io::Result<(usize, R)>,
) -> io::Result<(usize, R)> {
    // SAFETY: Only written: `receive` puts bytes in and takes no initialized byte back.
    let free = unsafe { buffer.unfilled_mut() };
    let (read, rest) = receive(free)?;
    // SAFETY: Only written: this many were filled.
    unsafe { buffer.assume_init(read) };
    buffer.advance(read);
    Ok((read, rest))
}

/// As [`fill_read_buf`], for a buffer that may be in several pieces, of which the first is filled.
pub(super) fn fill_buf_mut<R>(
    buffer: &mut impl BufMut,
    receive: impl FnOnce(&mut [MaybeUninit<u8>]) -> io::Result<(usize, R)>,
) -> io::Result<(usize, R)> {
    let chunk = buffer.chunk_mut();
    // SAFETY: Only written: `receive` puts bytes in and takes no initialized byte back.
    let free = unsafe { chunk.as_uninit_slice_mut() };
    let (read, rest) = receive(free)?;
    // SAFETY: Only written: this many were filled.
    unsafe { buffer.advance_mut(read) };
    Ok((read, rest))
}

/// Reads into memory that may be uninitialized.
fn read_into(source: impl AsFd, free: &mut [MaybeUninit<u8>]) -> io::Result<(usize, ())> {
    let (filled, _) = rustix::io::read(source, free)?;
    Ok((filled.len(), ()))
}

/// Reads into what is free in `buffer`.
pub(crate) fn read_buf(source: impl AsFd, buffer: &mut impl BufMut) -> io::Result<usize> {
    Ok(fill_buf_mut(buffer, |free| read_into(source, free))?.0)
}

pub(crate) fn poll_read<S: ByteStream>(
    io: &Registration<S>,
    cx: &mut Context<'_>,
    buffer: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    let len = buffer.remaining();
    let read = |source: &S| Ok(fill_read_buf(buffer, |free| read_into(source, free))?.0);
    let read = if S::SHORT_READ_IS_LAST {
        io.poll_transfer(cx, Direction::Read, len, read)
    } else {
        io.poll_run(cx, Direction::Read, read)
    };
    read.map_ok(drop)
}

pub(crate) fn poll_write<S: ByteStream>(
    io: &Registration<S>,
    cx: &mut Context<'_>,
    bytes: &[u8],
) -> Poll<io::Result<usize>> {
    io.poll_transfer(cx, Direction::Write, bytes.len(), |sink| sink.write(bytes))
}

pub(crate) fn poll_write_vectored<S: ByteStream>(
    io: &Registration<S>,
    cx: &mut Context<'_>,
    slices: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    // The kernel takes no more in one call; what is left goes with the next. Cut here, so that a
    // call that took all it was given is not mistaken for one that found the buffer full.
    let slices = at_most(slices);
    let len = slices.iter().map(|slice| slice.len()).sum();
    io.poll_transfer(cx, Direction::Write, len, |sink| sink.write_vectored(slices))
}

pub(crate) fn try_read<S: ByteStream>(io: &Registration<S>, buffer: &mut [u8]) -> io::Result<usize> {
    io.try_run(Direction::Read, |source| Ok(rustix::io::read(source, buffer)?))
}

pub(crate) fn try_read_buf<S: ByteStream>(io: &Registration<S>, buffer: &mut impl BufMut) -> io::Result<usize> {
    io.try_run(Direction::Read, |source| read_buf(source, buffer))
}

pub(crate) fn try_read_vectored<S: ByteStream>(
    io: &Registration<S>,
    buffers: &mut [IoSliceMut<'_>],
) -> io::Result<usize> {
    let count = buffers.len().min(MAX_SLICES);
    io.try_run(Direction::Read, |source| Ok(rustix::io::readv(source, &mut buffers[..count])?))
}

pub(crate) fn try_write<S: ByteStream>(io: &Registration<S>, bytes: &[u8]) -> io::Result<usize> {
    io.try_run(Direction::Write, |sink| sink.write(bytes))
}

pub(crate) fn try_write_vectored<S: ByteStream>(io: &Registration<S>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    io.try_run(Direction::Write, |sink| sink.write_vectored(at_most(slices)))
}

fn at_most<'a, 'b>(slices: &'a [IoSlice<'b>]) -> &'a [IoSlice<'b>] {
    &slices[..slices.len().min(MAX_SLICES)]
}
