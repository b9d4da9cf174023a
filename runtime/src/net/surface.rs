//! What sockets have in common in their public faces, each written once: waiting (`waits!`), bytes (`byte_stream!`), the two
//! halves of a stream (`halves!`), datagrams (`datagrams!`), and the descriptor (`descriptor!`).
//!
//! Each type that these are for has a field `io`, its registration. Macros, and no trait of which they would be methods: they are
//! called as Tokio's are, without anything to be imported.
//!
//! Each half polls its own direction only, so the one waker that a direction's slot holds is enough for both.

/// `ready`, `readable`, `writable`, `try_io`, `async_io`, and the poll functions under the names given.
macro_rules! waits {
    ($socket:ty, $poll_read:ident, $poll_write:ident) => {
        impl $socket {
            /// Waits until something of `interest` may be done; what was found. Of a wait for both directions this is the way.
            ///
            /// It only may be done: the attempt can still find that it would block. Then wait again.
            ///
            /// # Errors
            /// The runtime was shut down.
            ///
            /// # Cancel safety
            /// Nothing is lost.
            pub async fn ready(&self, interest: crate::io::Interest) -> std::io::Result<crate::io::Ready> {
                Ok(crate::io::Ready::of(self.io.ready(interest.awaited()).await?.found()))
            }

            /// Waits until there may be something to read, the peer's end of stream included.
            ///
            /// # Errors
            /// The runtime was shut down.
            ///
            /// # Cancel safety
            /// Nothing is lost.
            pub async fn readable(&self) -> std::io::Result<()> {
                self.io.ready(crate::driver::readiness::Direction::Read).await.map(|_| ())
            }

            /// Waits until there may be room to write.
            ///
            /// # Errors
            /// The runtime was shut down.
            ///
            /// # Cancel safety
            /// Nothing is lost.
            pub async fn writable(&self) -> std::io::Result<()> {
                self.io.ready(crate::driver::readiness::Direction::Write).await.map(|_| ())
            }

            /// Polls as [`readable`](Self::readable). Of several tasks that poll to read, the last one is woken.
            ///
            /// # Errors
            /// As [`readable`](Self::readable).
            pub fn $poll_read(&self, cx: &mut std::task::Context<'_>) -> std::task::Poll<std::io::Result<()>> {
                self.io.poll_ready(cx, crate::driver::readiness::Direction::Read).map_ok(|_| ())
            }

            /// Polls as [`writable`](Self::writable). Of several tasks that poll to write, the last one is woken.
            ///
            /// # Errors
            /// As [`writable`](Self::writable).
            pub fn $poll_write(&self, cx: &mut std::task::Context<'_>) -> std::task::Poll<std::io::Result<()>> {
                self.io.poll_ready(cx, crate::driver::readiness::Direction::Write).map_ok(|_| ())
            }

            /// One attempt of `operation`, a system call on this socket, if it may succeed. Where it would have blocked, that is noted
            /// down for the next wait: so `operation` must return `WouldBlock` only if the socket did.
            ///
            /// # Errors
            /// `ErrorKind::WouldBlock` if nothing of `interest` may be done; else what `operation` says.
            pub fn try_io<R>(
                &self,
                interest: crate::io::Interest,
                operation: impl FnOnce() -> std::io::Result<R>,
            ) -> std::io::Result<R> {
                self.io.try_run(interest.awaited(), |_| operation())
            }

            /// Tries `operation`, a system call on this socket, again and again until it does not block, and waits in between.
            ///
            /// # Errors
            /// What `operation` says; the runtime was shut down.
            ///
            /// # Cancel safety
            /// `operation` has either come to an end, and this returns, or it would have blocked.
            pub async fn async_io<R>(
                &self,
                interest: crate::io::Interest,
                mut operation: impl FnMut() -> std::io::Result<R>,
            ) -> std::io::Result<R> {
                self.io.run(interest.awaited(), |_| operation()).await
            }

            /// Takes the socket's pending error, if it has one (`SO_ERROR`).
            ///
            /// # Errors
            /// What the system says.
            pub fn take_error(&self) -> std::io::Result<Option<std::io::Error>> {
                self.io.source().take_error()
            }
        }
    };
}

/// `AsFd` and `AsRawFd`, and the way from and to the standard library's type.
macro_rules! descriptor {
    ($socket:ident, $std:ty, $registered:expr) => {
        impl $socket {
            /// Takes over a socket of the standard library, and puts it into non-blocking mode.
            ///
            /// # Errors
            /// What the system says.
            ///
            /// # Panics
            /// Outside a runtime.
            #[track_caller]
            #[allow(clippy::redundant_closure_call, reason = "some are registered as they are")]
            pub fn from_std(socket: $std) -> std::io::Result<$socket> {
                let driver = crate::context::driver();
                socket.set_nonblocking(true)?;
                Self::register(driver, $registered(socket))
            }

            /// Gives the socket to the standard library, in non-blocking mode.
            ///
            /// # Errors
            /// What the system says when the socket leaves the runtime's driver.
            pub fn into_std(self) -> std::io::Result<$std> {
                self.io.into_source().map(<$std>::from)
            }
        }

        /// As `from_std`.
        impl TryFrom<$std> for $socket {
            type Error = std::io::Error;

            #[track_caller]
            fn try_from(socket: $std) -> std::io::Result<$socket> {
                $socket::from_std(socket)
            }
        }

        impl std::os::fd::AsFd for $socket {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                self.io.source().as_fd()
            }
        }

        impl std::os::fd::AsRawFd for $socket {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                std::os::fd::AsRawFd::as_raw_fd(self.io.source())
            }
        }
    };
}

/// Reading without waiting.
macro_rules! tries_to_read {
    ($io:ident in $source:ty) => {
        impl $source {
            /// Reads what is there, without waiting; 0 bytes mean the end of the stream (or an empty buffer).
            ///
            /// # Errors
            /// `ErrorKind::WouldBlock` if nothing is there; what the system says.
            pub fn try_read(&self, buffer: &mut [u8]) -> std::io::Result<usize> {
                crate::net::bytes::try_read(&self.$io, buffer)
            }

            /// As [`try_read`](Self::try_read), into several buffers, one after the other.
            ///
            /// # Errors
            /// As [`try_read`](Self::try_read).
            pub fn try_read_vectored(&self, buffers: &mut [std::io::IoSliceMut<'_>]) -> std::io::Result<usize> {
                crate::net::bytes::try_read_vectored(&self.$io, buffers)
            }

            /// As [`try_read`](Self::try_read), into what is free in `buffer`.
            ///
            /// # Errors
            /// As [`try_read`](Self::try_read).
            pub fn try_read_buf<B: bytes::BufMut>(&self, buffer: &mut B) -> std::io::Result<usize> {
                crate::net::bytes::try_read_buf(&self.$io, buffer)
            }
        }
    };
}

/// Writing without waiting.
macro_rules! tries_to_write {
    ($io:ident in $sink:ty) => {
        impl $sink {
            /// Writes what fits, without waiting; how many bytes did.
            ///
            /// # Errors
            /// `ErrorKind::WouldBlock` if nothing fits; what the system says.
            pub fn try_write(&self, bytes: &[u8]) -> std::io::Result<usize> {
                crate::net::bytes::try_write(&self.$io, bytes)
            }

            /// As [`try_write`](Self::try_write), of several buffers, one after the other.
            ///
            /// # Errors
            /// As [`try_write`](Self::try_write).
            pub fn try_write_vectored(&self, slices: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                crate::net::bytes::try_write_vectored(&self.$io, slices)
            }
        }
    };
}

/// [`AsyncRead`](tokio::io::AsyncRead) of what `$stream` gives the registration of.
macro_rules! reads {
    ($half:ty, $self:ident => $stream:expr) => {
        impl tokio::io::AsyncRead for $half {
            fn poll_read(
                $self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buffer: &mut tokio::io::ReadBuf<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                crate::net::bytes::poll_read(&$stream.io, cx, buffer)
            }
        }
    };
}

/// [`AsyncWrite`](tokio::io::AsyncWrite) of the same.
macro_rules! writes {
    ($half:ty, $self:ident => $stream:expr) => {
        impl tokio::io::AsyncWrite for $half {
            fn poll_write(
                $self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                bytes: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                crate::net::bytes::poll_write(&$stream.io, cx, bytes)
            }

            fn poll_write_vectored(
                $self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                slices: &[std::io::IoSlice<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                crate::net::bytes::poll_write_vectored(&$stream.io, cx, slices)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            /// Nothing to do: what was written is with the kernel.
            fn poll_flush(
                $self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                std::task::Poll::Ready(Ok(()))
            }

            /// Tells the peer that nothing more comes; reading goes on.
            fn poll_shutdown(
                $self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                std::task::Poll::Ready($stream.shutdown_now(std::net::Shutdown::Write))
            }
        }
    };
}

/// The halves of a stream, borrowed and owned, and `split` and `into_split`.
macro_rules! halves {
    ($stream:ident, $addr:ty) => {
        use std::sync::Arc;
        use std::{error, fmt, io, net};

        use crate::io::{Interest, Ready};

        impl $stream {
            /// Splits it into a half that reads and one that writes, for one task. See [`into_split`](Self::into_split) for two.
            pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
                let stream = &*self;
                (ReadHalf(stream), WriteHalf(stream))
            }

            /// Splits it into a half that reads and one that writes, which may live in different tasks. Dropping the writing half
            /// tells the peer that nothing more comes.
            pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
                let stream = Arc::new(self);
                (OwnedReadHalf { stream: stream.clone() }, OwnedWriteHalf { stream, shuts_down: true })
            }

            pub(in crate::net) fn shutdown_now(&self, how: net::Shutdown) -> io::Result<()> {
                match self.io.source().shutdown(how) {
                    // The peer was first: what was asked for is so.
                    Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
                    result => result,
                }
            }
        }

        /// The half that reads, of a stream that was split for one task.
        #[derive(Debug)]
        pub struct ReadHalf<'a>(&'a $stream);

        /// The half that writes, of a stream that was split for one task.
        #[derive(Debug)]
        pub struct WriteHalf<'a>(&'a $stream);

        /// The half that reads, of a stream that was split for two tasks.
        #[derive(Debug)]
        pub struct OwnedReadHalf {
            stream: Arc<$stream>,
        }

        /// The half that writes, of a stream that was split for two tasks. Dropping it tells the peer that nothing more comes.
        #[derive(Debug)]
        pub struct OwnedWriteHalf {
            stream: Arc<$stream>,
            /// Whether dropping it shuts the direction down.
            shuts_down: bool,
        }

        impl OwnedReadHalf {
            /// Puts the halves together again.
            ///
            /// # Errors
            /// [`ReuniteError`], with both halves in it, if they are of different streams.
            pub fn reunite(self, other: OwnedWriteHalf) -> Result<$stream, ReuniteError> {
                other.reunite(self)
            }
        }

        impl OwnedWriteHalf {
            /// Puts the halves together again.
            ///
            /// # Errors
            /// [`ReuniteError`], with both halves in it, if they are of different streams.
            pub fn reunite(mut self, other: OwnedReadHalf) -> Result<$stream, ReuniteError> {
                if !Arc::ptr_eq(&self.stream, &other.stream) {
                    return Err(ReuniteError(other, self));
                }
                self.shuts_down = false;
                let stream = self.stream.clone();
                drop((self, other));
                Ok(Arc::into_inner(stream).expect("a stream has two halves, and both are gone"))
            }

            /// Drops it without telling the peer anything.
            pub fn forget(mut self) {
                self.shuts_down = false;
            }
        }

        impl Drop for OwnedWriteHalf {
            fn drop(&mut self) {
                if self.shuts_down {
                    // Nobody is left to be told of an error, and it means that the connection is gone.
                    let _ = self.stream.shutdown_now(net::Shutdown::Write);
                }
            }
        }

        /// Two halves that are not of one stream.
        #[derive(Debug)]
        pub struct ReuniteError(
            /// The half that reads.
            pub OwnedReadHalf,
            /// The half that writes.
            pub OwnedWriteHalf,
        );

        impl fmt::Display for ReuniteError {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the two halves are of different streams")
            }
        }

        impl error::Error for ReuniteError {}

        halves!(@ends $stream, $addr, ReadHalf<'_>, 0);
        halves!(@ends $stream, $addr, OwnedReadHalf, stream);
        halves!(@ends $stream, $addr, WriteHalf<'_>, 0);
        halves!(@ends $stream, $addr, OwnedWriteHalf, stream);
        halves!(@reads ReadHalf<'_>, 0);
        halves!(@reads OwnedReadHalf, stream);
        halves!(@writes WriteHalf<'_>, 0);
        halves!(@writes OwnedWriteHalf, stream);
    };
    (@ends $stream:ident, $addr:ty, $half:ty, $field:tt) => {
        impl $half {
            /// Waits until something of `interest` may be done; what was found.
            ///
            /// # Errors
            /// The runtime was shut down.
            ///
            /// # Cancel safety
            /// Nothing is lost.
            pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
                self.$field.ready(interest).await
            }

            /// The address at the other end.
            ///
            /// # Errors
            /// What the system says.
            pub fn peer_addr(&self) -> io::Result<$addr> {
                self.$field.peer_addr()
            }

            /// The address at this end.
            ///
            /// # Errors
            /// What the system says.
            pub fn local_addr(&self) -> io::Result<$addr> {
                self.$field.local_addr()
            }
        }

        impl AsRef<$stream> for $half {
            fn as_ref(&self) -> &$stream {
                &self.$field
            }
        }
    };
    (@reads $half:ty, $field:tt) => {
        reads!($half, self => self.$field);

        impl $half {
            /// Waits until there may be something to read, the end of the stream included.
            ///
            /// # Errors
            /// The runtime was shut down.
            ///
            /// # Cancel safety
            /// Nothing is lost.
            pub async fn readable(&self) -> io::Result<()> {
                self.$field.readable().await
            }

            /// Reads what is there, without waiting; 0 bytes mean the end of the stream (or an empty buffer).
            ///
            /// # Errors
            /// `ErrorKind::WouldBlock` if nothing is there; what the system says.
            pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
                self.$field.try_read(buffer)
            }

            /// As [`try_read`](Self::try_read), into several buffers, one after the other.
            ///
            /// # Errors
            /// As [`try_read`](Self::try_read).
            pub fn try_read_vectored(&self, buffers: &mut [io::IoSliceMut<'_>]) -> io::Result<usize> {
                self.$field.try_read_vectored(buffers)
            }

            /// As [`try_read`](Self::try_read), into what is free in `buffer`.
            ///
            /// # Errors
            /// As [`try_read`](Self::try_read).
            pub fn try_read_buf<B: bytes::BufMut>(&self, buffer: &mut B) -> io::Result<usize> {
                self.$field.try_read_buf(buffer)
            }
        }
    };
    (@writes $half:ty, $field:tt) => {
        writes!($half, self => self.$field);

        impl $half {
            /// Waits until there may be room to write.
            ///
            /// # Errors
            /// The runtime was shut down.
            ///
            /// # Cancel safety
            /// Nothing is lost.
            pub async fn writable(&self) -> io::Result<()> {
                self.$field.writable().await
            }

            /// Writes what fits, without waiting; how many bytes did.
            ///
            /// # Errors
            /// `ErrorKind::WouldBlock` if nothing fits; what the system says.
            pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
                self.$field.try_write(bytes)
            }

            /// As [`try_write`](Self::try_write), of several buffers, one after the other.
            ///
            /// # Errors
            /// As [`try_write`](Self::try_write).
            pub fn try_write_vectored(&self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
                self.$field.try_write_vectored(slices)
            }
        }
    };
}

/// Datagrams, of a socket that has a peer (`send`, `recv`) or not (`recv_from`). Sending to an address is each socket's own.
macro_rules! datagrams {
    ($socket:ident, $addr:ty) => {
        impl $socket {
            /// Sends a datagram to the peer that the socket was connected to, waiting for room; how many bytes went.
            ///
            /// # Errors
            /// What the system says: without a peer, `DestinationAddressRequired` or `NotConnected`; too long a datagram is an error too.
            ///
            /// # Cancel safety
            /// If it did not return, nothing was sent.
            pub async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
                self.io.run(Direction::Write, |socket| socket.send(bytes)).await
            }

            /// Polls as [`send`](Self::send). Of several tasks that poll to send, the last one is woken.
            ///
            /// # Errors
            /// As [`send`](Self::send).
            pub fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
                self.io.poll_run(cx, Direction::Write, |socket| socket.send(bytes))
            }

            /// As [`send`](Self::send), without waiting.
            ///
            /// # Errors
            /// `ErrorKind::WouldBlock` if there is no room; as [`send`](Self::send).
            pub fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
                self.io.try_run(Direction::Write, |socket| socket.send(bytes))
            }

            /// Waits for a datagram and puts it into `buffer`; how many bytes. What has no room there is lost.
            ///
            /// # Errors
            /// What the system says; `ConnectionRefused` if the peer answered that nobody is there.
            ///
            /// # Cancel safety
            /// If it did not return, no datagram was taken.
            pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
                self.io.run(Direction::Read, |socket| socket.recv(buffer)).await
            }

            /// Polls as [`recv`](Self::recv). Of several tasks that poll to receive, the last one is woken.
            ///
            /// # Errors
            /// As [`recv`](Self::recv).
            pub fn poll_recv(&self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
                let receive = |socket: &_| fill_read_buf(buffer, |free| receive(socket, free, RecvFlags::empty()));
                self.io.poll_run(cx, Direction::Read, receive).map_ok(drop)
            }

            /// As [`recv`](Self::recv), without waiting.
            ///
            /// # Errors
            /// `ErrorKind::WouldBlock` if nothing is there; as [`recv`](Self::recv).
            pub fn try_recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
                self.io.try_run(Direction::Read, |socket| socket.recv(buffer))
            }

            /// As [`recv`](Self::recv), into what is free in `buffer`.
            ///
            /// # Errors
            /// As [`recv`](Self::recv).
            ///
            /// # Cancel safety
            /// As [`recv`](Self::recv).
            pub async fn recv_buf<B: BufMut>(&self, buffer: &mut B) -> io::Result<usize> {
                let receive = |socket: &_| fill_buf_mut(buffer, |free| receive(socket, free, RecvFlags::empty()));
                Ok(self.io.run(Direction::Read, receive).await?.0)
            }

            /// As [`recv_buf`](Self::recv_buf), without waiting.
            ///
            /// # Errors
            /// As [`try_recv`](Self::try_recv).
            pub fn try_recv_buf<B: BufMut>(&self, buffer: &mut B) -> io::Result<usize> {
                let receive = |socket: &_| fill_buf_mut(buffer, |free| receive(socket, free, RecvFlags::empty()));
                Ok(self.io.try_run(Direction::Read, receive)?.0)
            }

            /// As [`recv`](Self::recv), with who sent it.
            ///
            /// # Errors
            /// As [`recv`](Self::recv).
            ///
            /// # Cancel safety
            /// As [`recv`](Self::recv).
            pub async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, $addr)> {
                self.io.run(Direction::Read, |socket| socket.recv_from(buffer)).await
            }

            /// Polls as [`recv_from`](Self::recv_from). Of several tasks that poll to receive, the last one is woken.
            ///
            /// # Errors
            /// As [`recv`](Self::recv).
            pub fn poll_recv_from(&self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<$addr>> {
                let receive = |socket: &_| fill_read_buf(buffer, |free| receive(socket, free, RecvFlags::empty()));
                self.io.poll_run(cx, Direction::Read, receive).map_ok(|(_, from)| from)
            }

            /// As [`recv_from`](Self::recv_from), without waiting.
            ///
            /// # Errors
            /// As [`try_recv`](Self::try_recv).
            pub fn try_recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, $addr)> {
                self.io.try_run(Direction::Read, |socket| socket.recv_from(buffer))
            }

            /// As [`recv_from`](Self::recv_from), into what is free in `buffer`.
            ///
            /// # Errors
            /// As [`recv`](Self::recv).
            ///
            /// # Cancel safety
            /// As [`recv`](Self::recv).
            pub async fn recv_buf_from<B: BufMut>(&self, buffer: &mut B) -> io::Result<(usize, $addr)> {
                let receive = |socket: &_| fill_buf_mut(buffer, |free| receive(socket, free, RecvFlags::empty()));
                self.io.run(Direction::Read, receive).await
            }

            /// As [`recv_buf_from`](Self::recv_buf_from), without waiting.
            ///
            /// # Errors
            /// As [`try_recv`](Self::try_recv).
            pub fn try_recv_buf_from<B: BufMut>(&self, buffer: &mut B) -> io::Result<(usize, $addr)> {
                let receive = |socket: &_| fill_buf_mut(buffer, |free| receive(socket, free, RecvFlags::empty()));
                self.io.try_run(Direction::Read, receive)
            }
        }
    };
}

pub(super) use {datagrams, descriptor, halves, tries_to_read, tries_to_write, waits};
/// Pipes to children have these two as well.
pub(crate) use {reads, writes};
