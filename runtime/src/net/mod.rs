//! TCP, UDP and Unix sockets.
//!
//! - [`TcpListener`] and [`TcpStream`] provide communication over TCP. [`TcpSocket`] sets options
//!   before a TCP socket connects or listens.
//! - [`UdpSocket`] provides communication over UDP.
//! - [`UnixListener`], [`UnixStream`] and [`UnixDatagram`] provide communication over Unix domain
//!   sockets. [`UnixSocket`] sets options before a Unix socket connects, listens or receives.
//! - [`unix::pipe`] provides communication over pipes.
//!
//! All sockets except [`TcpSocket`] and [`UnixSocket`] must be created in the context of a runtime,
//! because the driver of that runtime watches them. So creating one also panics on a runtime whose
//! I/O is [disabled](crate::Builder::disable_io). Once created, a socket can be used from any
//! thread for as long as that runtime runs. After the runtime has been shut down, operations that
//! read, write or wait fail with an error of kind
//! [`ErrorKind::Other`](std::io::ErrorKind::Other); see
//! [`is_rt_shutdown_err`](crate::runtime::is_rt_shutdown_err). The `try_` functions still read data
//! that has arrived before.
//!
//! ```
//! use volt::io::{AsyncReadExt, AsyncWriteExt};
//! use volt::net::{TcpListener, TcpStream};
//!
//! # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
//! # runtime.block_on(async {
//! let listener = TcpListener::bind("127.0.0.1:0").await?;
//! let addr = listener.local_addr()?;
//! volt::spawn(async move {
//!     let (mut stream, _) = listener.accept().await?;
//!     let (mut reader, mut writer) = stream.split();
//!     volt::io::copy(&mut reader, &mut writer).await
//! });
//!
//! let mut stream = TcpStream::connect(addr).await?;
//! stream.write_all(b"echo").await?;
//! stream.shutdown().await?;
//! let mut text = String::new();
//! stream.read_to_string(&mut text).await?;
//! assert_eq!(text, "echo");
//! # Ok::<(), std::io::Error>(())
//! # }).unwrap();
//! ```

mod acceptor;
mod addr;
pub(crate) mod bytes;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod device;
pub(crate) mod surface;

mod tcp_stream;

mod tcp_socket;

pub mod tcp;
mod tcp_listener;
mod udp_socket;
pub mod unix;

pub use addr::{ToSocketAddrs, lookup_host};
pub use tcp_listener::TcpListener;
pub use tcp_socket::TcpSocket;
pub use tcp_stream::TcpStream;
pub use udp_socket::UdpSocket;
pub use unix::datagram::UnixDatagram;
pub use unix::listener::UnixListener;
pub use unix::socket::UnixSocket;
pub use unix::stream::UnixStream;
