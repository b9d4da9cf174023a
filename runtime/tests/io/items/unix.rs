//! Every public item of `super::net` for Unix sockets and pipes, and of `super::io::unix`: nothing
//! here runs, but all of it has to compile with Volt's types and with Tokio's.

#![allow(deprecated, reason = "programs use these too")]

use std::cell::Cell;
use std::error::Error;
use std::fmt::{Debug, Display};
use std::fs::File;
use std::hash::Hash;
use std::hint::black_box;
use std::io::{IoSlice, IoSliceMut, Result};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::net;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::path::Path;
use std::task::{Context, Poll};

use super::io::unix::{
    AsyncFd, AsyncFdReadyGuard, AsyncFdReadyMutGuard, AsyncFdRegisterError, AsyncFdTryNewError, TryIoError,
};
use super::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use super::net::unix::{
    OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, SocketAddr, UCred, WriteHalf, gid_t, pid_t, pipe, uid_t,
};
use super::net::{UnixDatagram, UnixListener, UnixSocket, UnixStream};

/// A descriptor that is `Send`, and not `Sync`.
struct Plain(OwnedFd, #[expect(dead_code, reason = "it makes the type what it is")] Cell<u8>);

impl AsRawFd for Plain {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.as_raw_fd()
    }
}

fn is_socket<T: AsFd + AsRawFd + Debug + Send + Sync + Unpin + UnwindSafe + RefUnwindSafe>() {}
fn is_pipe<T: AsFd + AsRawFd + Debug + Send + Sync + Unpin>() {}
fn is_half<T: AsRef<UnixStream> + Debug + Send + Sync + Unpin>() {}
fn is_send<T: Send>(value: T) {
    drop(value);
}
fn is_value<T: Copy + Debug + Eq + Hash>() {}
fn reads<T: AsyncRead>() {}
fn writes<T: AsyncWrite>() {}
fn is_error<T: Error + Debug + Display>() {}

/// Refers to all that follows.
pub fn all() {
    black_box((listener, socket, stream, waits_of_stream, borrowed_halves, owned_halves, datagram, datagram_sends));
    black_box((datagram_receives, address, pipes, sender, receiver, traits));
    black_box((async_fd::<OwnedFd>, async_fd_operations::<OwnedFd>, guards::<OwnedFd>, mutable_futures_are_send));
}

fn traits() {
    is_socket::<UnixListener>();
    is_socket::<UnixStream>();
    is_socket::<UnixDatagram>();
    is_socket::<UnixSocket>();
    is_half::<UnixStream>();
    is_half::<ReadHalf<'_>>();
    is_half::<WriteHalf<'_>>();
    is_half::<OwnedReadHalf>();
    is_half::<OwnedWriteHalf>();
    is_pipe::<pipe::Sender>();
    is_pipe::<pipe::Receiver>();
    is_pipe::<AsyncFd<OwnedFd>>();
    reads::<UnixStream>();
    reads::<ReadHalf<'_>>();
    reads::<OwnedReadHalf>();
    reads::<pipe::Receiver>();
    writes::<UnixStream>();
    writes::<WriteHalf<'_>>();
    writes::<OwnedWriteHalf>();
    writes::<pipe::Sender>();
    is_error::<ReuniteError>();
    is_error::<AsyncFdRegisterError<u8>>();
    is_value::<UCred>();
}

async fn listener(std: net::UnixListener, cx: &mut Context<'_>, addr: &SocketAddr) -> Result<()> {
    let listener: UnixListener = UnixListener::bind::<&str>("")?;
    let _: UnixListener = UnixListener::bind_addr(addr)?;
    let _: (UnixStream, SocketAddr) = listener.accept().await?;
    let _: Poll<Result<(UnixStream, SocketAddr)>> = listener.poll_accept(cx);
    let _: (SocketAddr, Option<std::io::Error>) = (listener.local_addr()?, listener.take_error()?);
    let _: net::UnixListener = listener.into_std()?;
    let listener: UnixListener = UnixListener::from_std(std)?;
    let _: Result<UnixListener> = UnixListener::try_from(listener.into_std()?);
    Ok(())
}

async fn socket() -> Result<()> {
    let socket: UnixSocket = UnixSocket::new_stream()?;
    socket.bind("")?;
    let _: UnixStream = socket.connect("").await?;
    let _: UnixListener = UnixSocket::new_stream()?.listen(1_u32)?;
    // SAFETY: nothing here runs.
    let socket: UnixSocket = unsafe { UnixSocket::from_raw_fd(UnixSocket::new_datagram()?.into_raw_fd()) };
    let _: UnixDatagram = socket.datagram()?;
    Ok(())
}

fn address(std: net::SocketAddr) {
    let addr: SocketAddr = SocketAddr::from(std);
    let _: (bool, Option<&Path>, Option<&[u8]>) = (addr.is_unnamed(), addr.as_pathname(), addr.as_abstract_name());
    let _: String = format!("{addr:?}");
    let _: net::SocketAddr = net::SocketAddr::from(addr.clone());
}

async fn stream(std: net::UnixStream, addr: &SocketAddr) -> Result<()> {
    let _: UnixStream = UnixStream::connect::<&str>("").await?;
    let stream: UnixStream = UnixStream::connect_addr(addr).await?;
    let _: (UnixStream, UnixStream) = UnixStream::pair()?;
    let _: (SocketAddr, SocketAddr) = (stream.local_addr()?, stream.peer_addr()?);
    let cred: UCred = stream.peer_cred()?;
    let _: (uid_t, gid_t, Option<pid_t>) = (cred.uid(), cred.gid(), cred.pid());
    let _: Option<std::io::Error> = stream.take_error()?;
    let _: net::UnixStream = stream.into_std()?;
    let stream: UnixStream = UnixStream::from_std(std)?;
    let _: Result<UnixStream> = UnixStream::try_from(stream.into_std()?);
    Ok(())
}

async fn waits_of_stream(stream: UnixStream, cx: &mut Context<'_>) -> Result<()> {
    let _: Ready = stream.ready(Interest::READABLE).await?;
    let _: ((), ()) = (stream.readable().await?, stream.writable().await?);
    let _: [Poll<Result<()>>; 2] = [stream.poll_read_ready(cx), stream.poll_write_ready(cx)];
    let _: [usize; 2] = [stream.try_read(&mut [])?, stream.try_read_vectored(&mut [IoSliceMut::new(&mut [])])?];
    let _: usize = stream.try_read_buf::<Vec<u8>>(&mut Vec::new())?;
    let _: [usize; 2] = [stream.try_write(&[])?, stream.try_write_vectored(&[IoSlice::new(&[])])?];
    let _: u8 = stream.try_io(Interest::WRITABLE, || Ok(1))?;
    let _: u8 = stream.async_io(Interest::WRITABLE, || Ok(1)).await?;
    Ok(())
}

async fn borrowed_halves(mut stream: UnixStream) -> Result<()> {
    let (read, write): (ReadHalf<'_>, WriteHalf<'_>) = stream.split();
    let _: Ready = read.ready(Interest::READABLE).await?;
    let _: () = read.readable().await?;
    let _: usize = read.try_read(&mut [])? + read.try_read_vectored(&mut [])? + read.try_read_buf(&mut Vec::new())?;
    let _: (SocketAddr, SocketAddr) = (read.local_addr()?, read.peer_addr()?);
    let _: Ready = write.ready(Interest::WRITABLE).await?;
    let _: () = write.writable().await?;
    let _: usize = write.try_write(&[])? + write.try_write_vectored(&[])?;
    let _: (SocketAddr, SocketAddr) = (write.local_addr()?, write.peer_addr()?);
    Ok(())
}

async fn owned_halves(stream: UnixStream) -> Result<()> {
    let (read, write): (OwnedReadHalf, OwnedWriteHalf) = stream.into_split();
    let _: Ready = read.ready(Interest::READABLE).await?;
    let _: () = read.readable().await?;
    let _: usize = read.try_read(&mut [])? + read.try_read_vectored(&mut [])? + read.try_read_buf(&mut Vec::new())?;
    let _: (SocketAddr, SocketAddr) = (read.local_addr()?, read.peer_addr()?);
    let _: Ready = write.ready(Interest::WRITABLE).await?;
    let _: () = write.writable().await?;
    let _: usize = write.try_write(&[])? + write.try_write_vectored(&[])?;
    let _: (SocketAddr, SocketAddr) = (write.local_addr()?, write.peer_addr()?);
    let reunited: std::result::Result<UnixStream, ReuniteError> = read.reunite(write);
    let ReuniteError(read, write) = reunited.unwrap_err();
    let _: std::result::Result<UnixStream, ReuniteError> = write.reunite(read);
    let (_, write) = UnixStream::connect("").await?.into_split();
    write.forget();
    Ok(())
}

async fn datagram(std: net::UnixDatagram, cx: &mut Context<'_>) -> Result<()> {
    let socket: UnixDatagram = UnixDatagram::bind::<&str>("")?;
    let _: (UnixDatagram, UnixDatagram) = UnixDatagram::pair()?;
    let _: UnixDatagram = UnixDatagram::unbound()?;
    socket.connect::<&str>("")?;
    let _: (SocketAddr, SocketAddr) = (socket.local_addr()?, socket.peer_addr()?);
    let _: Ready = socket.ready(Interest::READABLE).await?;
    let _: ((), ()) = (socket.readable().await?, socket.writable().await?);
    let _: [Poll<Result<()>>; 2] = [socket.poll_recv_ready(cx), socket.poll_send_ready(cx)];
    let _: u8 = socket.try_io(Interest::WRITABLE, || Ok(1))?;
    let _: u8 = socket.async_io(Interest::WRITABLE, || Ok(1)).await?;
    let _: Option<std::io::Error> = socket.take_error()?;
    socket.shutdown(Shutdown::Both)?;
    let _: net::UnixDatagram = socket.into_std()?;
    let socket: UnixDatagram = UnixDatagram::from_std(std)?;
    let _: Result<UnixDatagram> = UnixDatagram::try_from(socket.into_std()?);
    Ok(())
}

async fn datagram_sends(socket: UnixDatagram, cx: &mut Context<'_>) -> Result<()> {
    let _: usize = socket.send(&[]).await? + socket.try_send(&[])?;
    let _: usize = socket.send_to::<&str>(&[], "").await? + socket.try_send_to::<&str>(&[], "")?;
    let _: [Poll<Result<usize>>; 2] = [socket.poll_send(cx, &[]), socket.poll_send_to::<&str>(cx, &[], "")];
    Ok(())
}

async fn datagram_receives(socket: UnixDatagram, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Result<()> {
    let _: usize = socket.recv(&mut []).await? + socket.try_recv(&mut [])?;
    let _: usize = socket.recv_buf(&mut Vec::new()).await? + socket.try_recv_buf(&mut Vec::new())?;
    let _: (usize, SocketAddr) = socket.recv_from(&mut []).await?;
    let _: (usize, SocketAddr) = socket.try_recv_from(&mut [])?;
    let _: (usize, SocketAddr) = socket.recv_buf_from(&mut Vec::new()).await?;
    let _: (usize, SocketAddr) = socket.try_recv_buf_from(&mut Vec::new())?;
    let _: Poll<Result<()>> = socket.poll_recv(cx, buffer);
    let _: Poll<Result<SocketAddr>> = socket.poll_recv_from(cx, buffer);
    Ok(())
}

fn pipes() -> Result<()> {
    let _: (pipe::Sender, pipe::Receiver) = pipe::pipe()?;
    let mut options: pipe::OpenOptions = pipe::OpenOptions::new();
    let options: &mut pipe::OpenOptions = options.read_write(true).unchecked(true);
    let _: pipe::OpenOptions = (pipe::OpenOptions::default(), options.clone()).1;
    let _: pipe::Receiver = options.open_receiver::<&str>("")?;
    let _: pipe::Sender = options.open_sender::<&str>("")?;
    Ok(())
}

async fn sender(sender: pipe::Sender, file: fn() -> File, cx: &mut Context<'_>) -> Result<()> {
    let _: [pipe::Sender; 2] = [pipe::Sender::from_file(file())?, pipe::Sender::from_file_unchecked(file())?];
    let _: pipe::Sender = pipe::Sender::from_owned_fd(file().into())?;
    let _: pipe::Sender = pipe::Sender::from_owned_fd_unchecked(file().into())?;
    let _: Ready = sender.ready(Interest::WRITABLE).await?;
    let _: () = sender.writable().await?;
    let _: Poll<Result<()>> = sender.poll_write_ready(cx);
    let _: usize = sender.try_write(&[])? + sender.try_write_vectored(&[])?;
    let _: u8 = sender.try_io(|| Ok(1))?;
    let _: OwnedFd = pipe::Sender::from_owned_fd(sender.into_blocking_fd()?)?.into_nonblocking_fd()?;
    Ok(())
}

async fn receiver(receiver: pipe::Receiver, file: fn() -> File, cx: &mut Context<'_>) -> Result<()> {
    let _: [pipe::Receiver; 2] = [pipe::Receiver::from_file(file())?, pipe::Receiver::from_file_unchecked(file())?];
    let _: pipe::Receiver = pipe::Receiver::from_owned_fd(file().into())?;
    let _: pipe::Receiver = pipe::Receiver::from_owned_fd_unchecked(file().into())?;
    let _: Ready = receiver.ready(Interest::READABLE).await?;
    let _: () = receiver.readable().await?;
    let _: Poll<Result<()>> = receiver.poll_read_ready(cx);
    let _: usize = receiver.try_read(&mut [])? + receiver.try_read_vectored(&mut [])?;
    let _: usize = receiver.try_read_buf::<Vec<u8>>(&mut Vec::new())?;
    let _: u8 = receiver.try_io(|| Ok(1))?;
    let _: OwnedFd = pipe::Receiver::from_owned_fd(receiver.into_blocking_fd()?)?.into_nonblocking_fd()?;
    Ok(())
}

fn async_fd<T: AsRawFd + Debug>(inner: fn() -> T) -> Result<T> {
    let (_, _): (AsyncFd<T>, AsyncFd<T>) =
        (AsyncFd::new(inner())?, AsyncFd::with_interest(inner(), Interest::READABLE)?);
    let _: std::result::Result<AsyncFd<T>, AsyncFdTryNewError<T>> = AsyncFd::try_new(inner());
    let _: std::result::Result<AsyncFd<T>, AsyncFdRegisterError<T>> =
        AsyncFd::try_with_interest(inner(), Interest::READABLE);
    // SAFETY: nothing here runs.
    let fd: AsyncFd<T> = unsafe { AsyncFd::register_with_interest(inner(), Interest::READABLE) }?;
    // SAFETY: nothing here runs.
    let fd = match (fd, unsafe { AsyncFd::register(inner()) }) {
        (_, Ok(fd)) => fd,
        (fd, Err(error)) => (fd, error.into_parts()).0,
    };
    Ok(fd.into_inner())
}

async fn async_fd_operations<T: AsRawFd>(mut fd: AsyncFd<T>) -> Result<()> {
    let _: &T = fd.get_ref();
    let _: &mut T = fd.get_mut();
    let _: u8 = fd.async_io(Interest::READABLE, |_: &T| Ok(1)).await?;
    let _: u8 = fd.async_io_mut(Interest::READABLE, |_: &mut T| Ok(1)).await?;
    let _: u8 = fd.try_io(Interest::READABLE, |_: &T| Ok(1))?;
    let _: u8 = fd.try_io_mut(Interest::READABLE, |_: &mut T| Ok(1))?;
    Ok(())
}

async fn guards<T: AsRawFd + Debug>(mut fd: AsyncFd<T>, cx: &mut Context<'_>) -> Result<()> {
    let _: Poll<Result<AsyncFdReadyGuard<'_, T>>> = fd.poll_read_ready(cx);
    let _: Poll<Result<AsyncFdReadyGuard<'_, T>>> = fd.poll_write_ready(cx);
    let _: Poll<Result<AsyncFdReadyMutGuard<'_, T>>> = fd.poll_read_ready_mut(cx);
    let _: Poll<Result<AsyncFdReadyMutGuard<'_, T>>> = fd.poll_write_ready_mut(cx);
    let _: [AsyncFdReadyGuard<'_, T>; 2] = [fd.readable().await?, fd.writable().await?];
    let _: &mut AsyncFd<T> = fd.readable_mut().await?.get_mut();
    let _: &mut T = fd.writable_mut().await?.get_inner_mut();
    let mut guard: AsyncFdReadyGuard<'_, T> = fd.ready(Interest::READABLE).await?;
    guard.clear_ready();
    guard.clear_ready_matching(Ready::READABLE);
    guard.retain_ready();
    let _: (Ready, &AsyncFd<T>, &T) = (guard.ready(), guard.get_ref(), guard.get_inner());
    let _: std::result::Result<Result<u8>, TryIoError> = guard.try_io(|_: &AsyncFd<T>| Ok(1));
    let mut guard: AsyncFdReadyMutGuard<'_, T> = fd.ready_mut(Interest::READABLE).await?;
    guard.clear_ready();
    guard.clear_ready_matching(Ready::READABLE);
    guard.retain_ready();
    let _: (Ready, &AsyncFd<T>, &T) = (guard.ready(), guard.get_ref(), guard.get_inner());
    let _: std::result::Result<Result<u8>, TryIoError> = guard.try_io(|_: &mut AsyncFd<T>| Ok(1));
    Ok(())
}

fn mutable_futures_are_send(mut fd: AsyncFd<Plain>) {
    is_send(fd.readable_mut());
    is_send(fd.writable_mut());
    is_send(fd.ready_mut(Interest::READABLE));
    is_send(fd.async_io_mut(Interest::READABLE, |_| Ok(1)));
    is_send(fd);
}
