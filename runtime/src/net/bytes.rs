//! Reading and writing of bytes, shared by all streams, datagram sockets and pipes.
//!
//! The functions of this module work on a [`Registration`]: a descriptor that the driver watches.
//! They make the system call. If it would block, the `poll_` functions wait for the driver's next
//! event, and the `try_` functions return an error.
//!
//! # Invariants
//!
//! *No SIGPIPE*: writing to a connection that the peer has closed returns an error of kind
//! `BrokenPipe`. It never raises SIGPIPE, even in a program that has not disabled that signal.
//! Sockets are therefore written to with `MSG_NOSIGNAL`. (The standard library's `write` does the
//! same; its `write_vectored` uses `writev` and does not.) Pipes have no such flag.
//!
//! *Only written*: uninitialized memory is passed to `read`, `recv` and `recvfrom` only. These
//! calls never read the memory, and return how many bytes they filled, starting at the first.
//!
//! *Short reads*: a read from a TCP socket that fills only part of the buffer has emptied the
//! kernel's queue. The next read then waits for an event without trying first, which saves a system
//! call. This does not hold for a TCP socket whose peer has sent urgent data, at which a read ends;
//! the registration then checks for more data. It does not hold for other sources either. A read
//! from a Unix stream also ends where a descriptor was sent along. A read from a terminal ends at a
//! line, and a read from a packet pipe at a packet. A reader that waited after such a short read
//! would wait for an event that has already happened.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix;
use std::task::{Context, Poll};

use bytes::BufMut;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags};
use tokio::io::ReadBuf;

use volt_core::driver::readiness::Direction;
use volt_core::driver::registration::Registration;

/// Maximum number of slices in one system call: `UIO_MAXIOV`, the same on all systems.
const MAX_SLICES: usize = 1024;

/// Flags for sending; see *No SIGPIPE*.
#[cfg(not(target_vendor = "apple"))]
pub(super) const QUIETLY: SendFlags = SendFlags::NOSIGNAL;
/// Flags for sending; see *No SIGPIPE*. On this system the socket itself has `SO_NOSIGPIPE`, which
/// is set when it is created.
#[cfg(target_vendor = "apple")]
pub(super) const QUIETLY: SendFlags = SendFlags::empty();

/// A descriptor that a stream of bytes is read from and written to.
pub(crate) trait ByteStream: AsFd + AsRawFd {
    /// Whether a read that fills only part of the buffer has emptied the source: see *Short reads*.
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

/// A pipe, or another descriptor that the caller uses as one.
impl ByteStream for OwnedFd {
    const SHORT_READ_IS_LAST: bool = false;

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(self, bytes)?)
    }

    fn write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(rustix::io::writev(self, slices)?)
    }
}

/// Lets `receive` fill the free part of `buffer`, starting at its first byte.
pub(super) fn fill_read_buf<R>(
    buffer: &mut ReadBuf<'_>,
    receive: impl FnOnce(&mut [MaybeUninit<u8>]) -> io::Result<(usize, R)>,
) -> io::Result<(usize, R)> {
    // SAFETY: *Only written*: `receive` writes bytes, and de-initializes none.
    let free = unsafe { buffer.unfilled_mut() };
    let (read, rest) = receive(free)?;
    // SAFETY: *Only written*: `receive` has filled this many bytes.
    unsafe { buffer.assume_init(read) };
    buffer.advance(read);
    Ok((read, rest))
}

/// Like [`fill_read_buf`], but for a buffer that may consist of several chunks. Fills the first
/// free chunk.
pub(super) fn fill_buf_mut<R>(
    buffer: &mut impl BufMut,
    receive: impl FnOnce(&mut [MaybeUninit<u8>]) -> io::Result<(usize, R)>,
) -> io::Result<(usize, R)> {
    let chunk = buffer.chunk_mut();
    // SAFETY: *Only written*: `receive` writes bytes, and de-initializes none.
    let free = unsafe { chunk.as_uninit_slice_mut() };
    let (read, rest) = receive(free)?;
    // SAFETY: *Only written*: `receive` has filled this many bytes.
    unsafe { buffer.advance_mut(read) };
    Ok((read, rest))
}

/// Receives a datagram into memory that may be uninitialized. Not a read, which would leave a
/// datagram without bytes in the queue.
pub(super) fn receive_into(socket: impl AsFd, free: &mut [MaybeUninit<u8>]) -> io::Result<(usize, ())> {
    let ((filled, _), _) = rustix::net::recv(socket, free, RecvFlags::empty())?;
    Ok((filled.len(), ()))
}

/// Reads into memory that may be uninitialized.
fn read_into(source: impl AsFd, free: &mut [MaybeUninit<u8>]) -> io::Result<(usize, ())> {
    let (filled, _) = rustix::io::read(source, free)?;
    Ok((filled.len(), ()))
}

/// Reads into the free part of `buffer`.
pub(crate) fn read_buf(source: impl AsFd, buffer: &mut impl BufMut) -> io::Result<usize> {
    Ok(fill_buf_mut(buffer, |free| read_into(source, free))?.0)
}

/// Returns whether the source is readable at this moment. If the system call fails, that is
/// unknown, and the next attempt finds it out. At the mark of urgent data, a TCP socket is readable
/// only if there is data behind the mark (`tcp_poll` in the kernel).
fn is_readable(source: &impl AsFd) -> bool {
    poll(&mut [PollFd::new(source, PollFlags::IN)], Some(&Timespec::default())) != Ok(0)
}

pub(crate) fn poll_read<S: ByteStream>(
    io: &Registration<S>,
    cx: &mut Context<'_>,
    buffer: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    let len = buffer.remaining();
    let read = |source: &S| Ok(fill_read_buf(buffer, |free| read_into(source, free))?.0);
    let read = if S::SHORT_READ_IS_LAST {
        io.poll_transfer(cx, Direction::Read, len, read, is_readable)
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
    io.poll_transfer(cx, Direction::Write, bytes.len(), |sink| sink.write(bytes), |_| false)
}

pub(crate) fn poll_write_vectored<S: ByteStream>(
    io: &Registration<S>,
    cx: &mut Context<'_>,
    slices: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    // The kernel accepts at most this many slices in one call; the caller passes the rest again.
    // The slices are cut before their length is computed. Otherwise a call that accepted the
    // maximum would look like one that found the buffer full.
    let slices = at_most(slices);
    let len = slices.iter().map(|slice| slice.len()).sum();
    io.poll_transfer(cx, Direction::Write, len, |sink| sink.write_vectored(slices), |_| false)
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
