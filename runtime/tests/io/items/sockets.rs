//! Every public item of `super::net` for TCP and UDP: nothing here runs, but all of it has to
//! compile with Volt's types and with Tokio's.

#![allow(deprecated, reason = "programs use these too")]

use std::fmt::Debug;
use std::hint::black_box;
use std::io::{IoSlice, IoSliceMut, Result};
use std::net::{self, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::task::{Context, Poll};
use std::time::Duration;

use super::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use super::net::tcp::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
use super::net::{TcpListener, TcpSocket, TcpStream, ToSocketAddrs, UdpSocket, lookup_host};

fn is_socket<T: AsFd + AsRawFd + Debug + Send + Sync + Unpin + UnwindSafe + RefUnwindSafe>() {}
fn is_half<T: AsRef<TcpStream> + Debug + Send + Sync + Unpin>() {}
fn reads<T: AsyncRead>() {}
fn writes<T: AsyncWrite>() {}
fn is_addr<T: ToSocketAddrs + ?Sized>() {}
fn is_error<T: std::error::Error>() {}

/// Refers to all that follows.
pub fn all() {
    black_box((listener, socket, options_of_socket, stream, waits_of_stream, borrowed_halves, owned_halves));
    black_box((udp, udp_sends, udp_receives, udp_peeks, udp_options, traits, addresses));
}

fn traits() {
    is_socket::<TcpListener>();
    is_socket::<TcpSocket>();
    is_socket::<TcpStream>();
    is_socket::<UdpSocket>();
    is_half::<TcpStream>();
    is_half::<ReadHalf<'_>>();
    is_half::<WriteHalf<'_>>();
    is_half::<OwnedReadHalf>();
    is_half::<OwnedWriteHalf>();
    reads::<TcpStream>();
    reads::<ReadHalf<'_>>();
    reads::<OwnedReadHalf>();
    writes::<TcpStream>();
    writes::<WriteHalf<'_>>();
    writes::<OwnedWriteHalf>();
    is_error::<ReuniteError>();
}

async fn addresses() {
    is_addr::<&SocketAddr>();
    is_addr::<SocketAddrV4>();
    is_addr::<SocketAddrV6>();
    is_addr::<(net::IpAddr, u16)>();
    is_addr::<(Ipv4Addr, u16)>();
    is_addr::<(Ipv6Addr, u16)>();
    is_addr::<&[SocketAddr]>();
    is_addr::<(&str, u16)>();
    is_addr::<(String, u16)>();
    is_addr::<str>();
    is_addr::<String>();
    drop(lookup_host::<&str>("").await.map(|addrs| addrs.collect::<Vec<SocketAddr>>()));
}

async fn listener(std: net::TcpListener, cx: &mut Context<'_>) -> Result<()> {
    let listener: TcpListener = TcpListener::bind::<&str>("").await?;
    let _: (TcpStream, SocketAddr) = listener.accept().await?;
    let _: Poll<Result<(TcpStream, SocketAddr)>> = listener.poll_accept(cx);
    let _: (SocketAddr, u32) = (listener.local_addr()?, listener.ttl()?);
    listener.set_ttl(1)?;
    let _: net::TcpListener = listener.into_std()?;
    let listener: TcpListener = TcpListener::from_std(std)?;
    let _: Result<TcpListener> = TcpListener::try_from(listener.into_std()?);
    Ok(())
}

async fn socket(addr: SocketAddr, std: net::TcpStream) -> Result<()> {
    let _: TcpSocket = TcpSocket::new_v6()?;
    let socket: TcpSocket = TcpSocket::from_std_stream(std);
    socket.bind(addr)?;
    let _: TcpStream = socket.connect(addr).await?;
    let socket = TcpSocket::new_v4()?;
    // SAFETY: nothing here runs.
    let socket: TcpSocket = unsafe { TcpSocket::from_raw_fd(socket.into_raw_fd()) };
    let _: TcpListener = socket.listen(1_u32)?;
    Ok(())
}

fn options_of_socket(socket: &TcpSocket) -> Result<()> {
    socket.set_keepalive(socket.keepalive()?)?;
    socket.set_reuseaddr(socket.reuseaddr()?)?;
    socket.set_reuseport(socket.reuseport()?)?;
    socket.set_nodelay(socket.nodelay()?)?;
    let (send, receive): (u32, u32) = (socket.send_buffer_size()?, socket.recv_buffer_size()?);
    socket.set_send_buffer_size(send)?;
    socket.set_recv_buffer_size(receive)?;
    let linger: Option<Duration> = socket.linger()?;
    socket.set_linger(linger)?;
    socket.set_zero_linger()?;
    let (class, tos, old_tos): (u32, u32, u32) = (socket.tclass_v6()?, socket.tos_v4()?, socket.tos()?);
    socket.set_tclass_v6(class)?;
    socket.set_tos_v4(tos)?;
    socket.set_tos(old_tos)?;
    let device: Option<Vec<u8>> = socket.device()?;
    socket.bind_device(device.as_deref())?;
    let _: (Option<std::io::Error>, SocketAddr) = (socket.take_error()?, socket.local_addr()?);
    Ok(())
}

async fn stream(std: net::TcpStream, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Result<()> {
    let stream: TcpStream = TcpStream::connect::<SocketAddr>(std.local_addr()?).await?;
    let _: (SocketAddr, SocketAddr) = (stream.local_addr()?, stream.peer_addr()?);
    let _: Option<std::io::Error> = stream.take_error()?;
    let _: Poll<Result<usize>> = stream.poll_peek(cx, buffer);
    let _: usize = stream.peek(&mut []).await?;
    stream.set_nodelay(stream.nodelay()?)?;
    stream.set_quickack(stream.quickack()?)?;
    let linger: Option<Duration> = stream.linger()?;
    stream.set_linger(linger)?;
    stream.set_zero_linger()?;
    let ttl: u32 = stream.ttl()?;
    stream.set_ttl(ttl)?;
    let _: net::TcpStream = stream.into_std()?;
    let stream: TcpStream = TcpStream::from_std(std)?;
    let _: Result<TcpStream> = TcpStream::try_from(stream.into_std()?);
    Ok(())
}

async fn waits_of_stream(stream: TcpStream, cx: &mut Context<'_>) -> Result<()> {
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

async fn borrowed_halves(mut stream: TcpStream, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Result<()> {
    let (mut read, write): (ReadHalf<'_>, WriteHalf<'_>) = stream.split();
    let _: Poll<Result<usize>> = read.poll_peek(cx, buffer);
    let _: usize = read.peek(&mut []).await?;
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

async fn owned_halves(stream: TcpStream, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Result<()> {
    let (mut read, write): (OwnedReadHalf, OwnedWriteHalf) = stream.into_split();
    let _: Poll<Result<usize>> = read.poll_peek(cx, buffer);
    let _: usize = read.peek(&mut []).await?;
    let _: Ready = read.ready(Interest::READABLE).await?;
    let _: () = read.readable().await?;
    let _: usize = read.try_read(&mut [])? + read.try_read_vectored(&mut [])? + read.try_read_buf(&mut Vec::new())?;
    let _: (SocketAddr, SocketAddr) = (read.local_addr()?, read.peer_addr()?);
    let _: Ready = write.ready(Interest::WRITABLE).await?;
    let _: () = write.writable().await?;
    let _: usize = write.try_write(&[])? + write.try_write_vectored(&[])?;
    let _: (SocketAddr, SocketAddr) = (write.local_addr()?, write.peer_addr()?);
    let reunited: std::result::Result<TcpStream, ReuniteError> = read.reunite(write);
    let ReuniteError(read, write) = reunited.unwrap_err();
    let _: std::result::Result<TcpStream, ReuniteError> = write.reunite(read);
    let (_, write) = TcpStream::connect("").await?.into_split();
    write.forget();
    Ok(())
}

async fn udp(std: net::UdpSocket, cx: &mut Context<'_>) -> Result<()> {
    let socket: UdpSocket = UdpSocket::bind::<&str>("").await?;
    socket.connect::<&str>("").await?;
    let _: (SocketAddr, SocketAddr) = (socket.local_addr()?, socket.peer_addr()?);
    let _: Ready = socket.ready(Interest::READABLE).await?;
    let _: ((), ()) = (socket.readable().await?, socket.writable().await?);
    let _: [Poll<Result<()>>; 2] = [socket.poll_recv_ready(cx), socket.poll_send_ready(cx)];
    let _: u8 = socket.try_io(Interest::WRITABLE, || Ok(1))?;
    let _: u8 = socket.async_io(Interest::WRITABLE, || Ok(1)).await?;
    let _: Option<std::io::Error> = socket.take_error()?;
    let _: net::UdpSocket = socket.into_std()?;
    let socket: UdpSocket = UdpSocket::from_std(std)?;
    let _: Result<UdpSocket> = UdpSocket::try_from(socket.into_std()?);
    Ok(())
}

async fn udp_sends(socket: UdpSocket, cx: &mut Context<'_>, addr: SocketAddr) -> Result<()> {
    let _: usize = socket.send(&[]).await? + socket.try_send(&[])?;
    let _: usize = socket.send_to::<&str>(&[], "").await? + socket.try_send_to(&[], addr)?;
    let _: [Poll<Result<usize>>; 2] = [socket.poll_send(cx, &[]), socket.poll_send_to(cx, &[], addr)];
    Ok(())
}

async fn udp_receives(socket: UdpSocket, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Result<()> {
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

async fn udp_peeks(socket: UdpSocket, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Result<()> {
    let _: usize = socket.peek(&mut []).await? + socket.try_peek(&mut [])?;
    let _: (usize, SocketAddr) = socket.peek_from(&mut []).await?;
    let _: (usize, SocketAddr) = socket.try_peek_from(&mut [])?;
    let _: [SocketAddr; 2] = [socket.peek_sender().await?, socket.try_peek_sender()?];
    let _: Poll<Result<()>> = socket.poll_peek(cx, buffer);
    let _: [Poll<Result<SocketAddr>>; 2] = [socket.poll_peek_from(cx, buffer), socket.poll_peek_sender(cx)];
    Ok(())
}

fn udp_options(socket: &UdpSocket, v4: Ipv4Addr, v6: &Ipv6Addr) -> Result<()> {
    socket.set_broadcast(socket.broadcast()?)?;
    socket.set_multicast_loop_v4(socket.multicast_loop_v4()?)?;
    socket.set_multicast_loop_v6(socket.multicast_loop_v6()?)?;
    socket.join_multicast_v4(v4, v4)?;
    socket.join_multicast_v6(v6, 1)?;
    socket.leave_multicast_v4(v4, v4)?;
    socket.leave_multicast_v6(v6, 1)?;
    let (multicast_ttl, ttl): (u32, u32) = (socket.multicast_ttl_v4()?, socket.ttl()?);
    socket.set_multicast_ttl_v4(multicast_ttl)?;
    socket.set_ttl(ttl)?;
    let (class, tos, old_tos): (u32, u32, u32) = (socket.tclass_v6()?, socket.tos_v4()?, socket.tos()?);
    socket.set_tclass_v6(class)?;
    socket.set_tos_v4(tos)?;
    socket.set_tos(old_tos)?;
    let device: Option<Vec<u8>> = socket.device()?;
    socket.bind_device(device.as_deref())
}
