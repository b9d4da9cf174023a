//! What sockets have in common in their public faces, each written once: waiting (`waits!`), bytes
//! (`byte_stream!`), the two halves of a stream (`halves!`), datagrams (`datagrams!`), and the
//! descriptor (`descriptor!`).
//!
//! Each type that these are for has a field `io`, its registration. Macros, and no trait of which
//! they would be methods: they are called as Tokio's are, without anything to be imported.
//!
//! Each half polls its own direction only, so the one waker that a direction's slot holds is enough
//! for both.

pub(super) mod datagrams;
pub(super) mod halves;

/// `ready`, `readable`, `writable`, `try_io`, `async_io`, and the poll functions under the names
/// given.
macro_rules! waits {
    ($socket:ty, $poll_read:ident, $poll_write:ident) => {
        impl $socket {
            /// Waits until something of `interest` may be done; what was found. Of a wait for both
            /// directions this is the way.
            ///
            /// It only may be done: the attempt can still find that it would block. Then wait
            /// again.
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
                self.io.ready(volt_core::driver::readiness::Direction::Read).await.map(|_| ())
            }

            /// Waits until there may be room to write.
            ///
            /// # Errors
            /// The runtime was shut down.
            ///
            /// # Cancel safety
            /// Nothing is lost.
            pub async fn writable(&self) -> std::io::Result<()> {
                self.io.ready(volt_core::driver::readiness::Direction::Write).await.map(|_| ())
            }

            /// Polls as [`readable`](Self::readable). Of several tasks that poll to read, the last
            /// one is woken.
            ///
            /// # Errors
            /// As [`readable`](Self::readable).
            pub fn $poll_read(&self, cx: &mut std::task::Context<'_>) -> std::task::Poll<std::io::Result<()>> {
                self.io.poll_ready(cx, volt_core::driver::readiness::Direction::Read).map_ok(|_| ())
            }

            /// Polls as [`writable`](Self::writable). Of several tasks that poll to write, the last
            /// one is woken.
            ///
            /// # Errors
            /// As [`writable`](Self::writable).
            pub fn $poll_write(&self, cx: &mut std::task::Context<'_>) -> std::task::Poll<std::io::Result<()>> {
                self.io.poll_ready(cx, volt_core::driver::readiness::Direction::Write).map_ok(|_| ())
            }

            /// One attempt of `operation`, a system call on this socket, if it may succeed. Where
            /// it would have blocked, that is noted down for the next wait: so `operation` must
            /// return `WouldBlock` only if the socket did.
            ///
            /// # Errors
            /// `ErrorKind::WouldBlock` if nothing of `interest` may be done; else what `operation`
            /// says.
            pub fn try_io<R>(
                &self,
                interest: crate::io::Interest,
                operation: impl FnOnce() -> std::io::Result<R>,
            ) -> std::io::Result<R> {
                self.io.try_run(interest.awaited(), |_| operation())
            }

            /// Tries `operation`, a system call on this socket, again and again until it does not
            /// block, and waits in between.
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
                let driver = volt_core::context::driver();
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
            /// Reads what is there, without waiting; 0 bytes mean the end of the stream (or an
            /// empty buffer).
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

pub(super) use {descriptor, tries_to_read, tries_to_write, waits};
/// Pipes to children have these two as well.
pub(crate) use {reads, writes};
