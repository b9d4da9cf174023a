//! Macros for the public methods that several socket types share.
//!
//! Each macro defines one group of methods: waiting for readiness (`waits!`), reading and writing
//! bytes (`tries_to_read!`, `tries_to_write!`, `reads!`, `writes!`), the two halves of a stream
//! (`halves!`), datagrams (`datagrams!`), and conversions from and to descriptors (`descriptor!`).
//!
//! Each type that uses them has a field `io`: its registration with the driver, or the `Acceptor`
//! of a listener. These are macros instead of a trait because, as in Tokio, users call the methods
//! without importing a trait.
//!
//! Each half of a stream polls only its own direction. So it is sufficient that a registration has
//! one waker slot for each direction.

pub(super) mod datagrams;
pub(super) mod halves;

/// Defines `ready`, `readable`, `writable`, `try_io`, `async_io`, `take_error`, and the poll
/// functions under the given names.
macro_rules! waits {
    ($socket:ty, $poll_read:ident, $poll_write:ident) => {
        impl $socket {
            /// Waits until the socket is ready for at least one operation of `interest`, and
            /// returns the readiness found. Use it to wait for both directions at the same time.
            ///
            /// Readiness is a hint: an attempt can still fail with `ErrorKind::WouldBlock`. In that
            /// case, wait again.
            ///
            /// # Errors
            /// Returns an error if the runtime has been shut down.
            ///
            /// # Cancel safety
            /// This method is cancel safe. It does not clear readiness, so a later call finds it
            /// again.
            pub async fn ready(&self, interest: crate::io::Interest) -> std::io::Result<crate::io::Ready> {
                Ok(crate::io::Ready::of(self.io.ready(interest.awaited()).await?.found()))
            }

            /// Waits until the socket may have data to read, or has reached the end of the stream.
            ///
            /// # Errors
            /// Returns an error if the runtime has been shut down.
            ///
            /// # Cancel safety
            /// This method is cancel safe. It does not clear readiness, so a later call finds it
            /// again.
            pub async fn readable(&self) -> std::io::Result<()> {
                self.io.ready(volt_core::driver::readiness::Direction::Read).await.map(|_| ())
            }

            /// Waits until the socket may have room to write.
            ///
            /// # Errors
            /// Returns an error if the runtime has been shut down.
            ///
            /// # Cancel safety
            /// This method is cancel safe. It does not clear readiness, so a later call finds it
            /// again.
            pub async fn writable(&self) -> std::io::Result<()> {
                self.io.ready(volt_core::driver::readiness::Direction::Write).await.map(|_| ())
            }

            /// Polls for readiness as [`readable`](Self::readable) does. If several tasks poll for
            /// reading, only the task that polled last is woken.
            ///
            /// # Errors
            /// Returns the same errors as [`readable`](Self::readable).
            pub fn $poll_read(&self, cx: &mut std::task::Context<'_>) -> std::task::Poll<std::io::Result<()>> {
                self.io.poll_ready(cx, volt_core::driver::readiness::Direction::Read).map_ok(|_| ())
            }

            /// Polls for readiness as [`writable`](Self::writable) does. If several tasks poll for
            /// writing, only the task that polled last is woken.
            ///
            /// # Errors
            /// Returns the same errors as [`writable`](Self::writable).
            pub fn $poll_write(&self, cx: &mut std::task::Context<'_>) -> std::task::Poll<std::io::Result<()>> {
                self.io.poll_ready(cx, volt_core::driver::readiness::Direction::Write).map_ok(|_| ())
            }

            /// Tries `operation`, a system call on this socket, once if the socket may be ready.
            ///
            /// If `operation` returns `WouldBlock`, the readiness is cleared, and the next wait is
            /// for a new event. So `operation` must return `WouldBlock` only if the socket did.
            ///
            /// # Errors
            /// Returns `ErrorKind::WouldBlock` if the socket is not ready for `interest`. Otherwise
            /// returns the error of `operation`.
            pub fn try_io<R>(
                &self,
                interest: crate::io::Interest,
                operation: impl FnOnce() -> std::io::Result<R>,
            ) -> std::io::Result<R> {
                self.io.try_run(interest.awaited(), |_| operation())
            }

            /// Calls `operation`, a system call on this socket, until it does not return
            /// `WouldBlock`. Waits for readiness between the calls.
            ///
            /// # Errors
            /// Returns any other error of `operation`. Also returns an error if the runtime has
            /// been shut down.
            ///
            /// # Cancel safety
            /// This method is cancel safe. The poll in which `operation` completes returns its
            /// result, so dropping the future loses no result.
            pub async fn async_io<R>(
                &self,
                interest: crate::io::Interest,
                mut operation: impl FnMut() -> std::io::Result<R>,
            ) -> std::io::Result<R> {
                self.io.run(interest.awaited(), |_| operation()).await
            }

            /// Returns and clears the socket's pending error, if there is one (`SO_ERROR`).
            ///
            /// # Errors
            /// Returns an error if the underlying system call fails.
            pub fn take_error(&self) -> std::io::Result<Option<std::io::Error>> {
                self.io.source().take_error()
            }
        }
    };
}

/// Defines the conversions from and to the standard library's type, and implements `AsFd` and
/// `AsRawFd`.
macro_rules! descriptor {
    ($socket:ident, $std:ty, $registered:expr) => {
        impl $socket {
            /// Creates a socket from a socket of the standard library, and sets it to non-blocking
            /// mode.
            ///
            /// # Errors
            /// Returns an error if the underlying system call fails.
            ///
            /// # Panics
            /// Panics if called outside the context of a runtime.
            #[track_caller]
            #[allow(clippy::redundant_closure_call, reason = "some are registered as they are")]
            pub fn from_std(socket: $std) -> std::io::Result<$socket> {
                let driver = volt_core::context::driver();
                socket.set_nonblocking(true)?;
                Self::register(driver, $registered(socket))
            }

            /// Converts the socket into a socket of the standard library. It stays in non-blocking
            /// mode.
            ///
            /// # Errors
            /// Returns an error if the socket cannot be removed from the runtime's driver.
            pub fn into_std(self) -> std::io::Result<$std> {
                self.io.into_source().map(<$std>::from)
            }
        }

        /// Equivalent to `from_std`.
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

/// Defines the methods that read without waiting.
macro_rules! tries_to_read {
    ($io:ident in $source:ty) => {
        impl $source {
            /// Tries to read available data into `buffer` without waiting, and returns the number
            /// of bytes read.
            ///
            /// `Ok(0)` means that the end of the stream was reached, or that `buffer` is empty.
            ///
            /// # Errors
            /// Returns `ErrorKind::WouldBlock` if no data is available. Also returns an error if
            /// the underlying system call fails.
            pub fn try_read(&self, buffer: &mut [u8]) -> std::io::Result<usize> {
                crate::net::bytes::try_read(&self.$io, buffer)
            }

            /// Tries to read into several buffers in order, as [`try_read`](Self::try_read) does.
            ///
            /// # Errors
            /// Returns the same errors as [`try_read`](Self::try_read).
            pub fn try_read_vectored(&self, buffers: &mut [std::io::IoSliceMut<'_>]) -> std::io::Result<usize> {
                crate::net::bytes::try_read_vectored(&self.$io, buffers)
            }

            /// Tries to read into the free part of `buffer`, as [`try_read`](Self::try_read) does.
            ///
            /// # Errors
            /// Returns the same errors as [`try_read`](Self::try_read).
            pub fn try_read_buf<B: bytes::BufMut>(&self, buffer: &mut B) -> std::io::Result<usize> {
                crate::net::bytes::try_read_buf(&self.$io, buffer)
            }
        }
    };
}

/// Defines the methods that write without waiting.
macro_rules! tries_to_write {
    ($io:ident in $sink:ty) => {
        impl $sink {
            /// Tries to write `bytes` without waiting, and returns the number of bytes written.
            /// That number may be less than the length of `bytes`.
            ///
            /// # Errors
            /// Returns `ErrorKind::WouldBlock` if there is no room. Also returns an error if the
            /// underlying system call fails.
            pub fn try_write(&self, bytes: &[u8]) -> std::io::Result<usize> {
                crate::net::bytes::try_write(&self.$io, bytes)
            }

            /// Tries to write several buffers in order, as [`try_write`](Self::try_write) does.
            ///
            /// # Errors
            /// Returns the same errors as [`try_write`](Self::try_write).
            pub fn try_write_vectored(&self, slices: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                crate::net::bytes::try_write_vectored(&self.$io, slices)
            }
        }
    };
}

/// Implements [`AsyncRead`](tokio::io::AsyncRead) through the registration in `$stream.io`.
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

/// Implements [`AsyncWrite`](tokio::io::AsyncWrite) through the registration in `$stream.io`.
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

            /// Does nothing: all written data has already been passed to the kernel.
            fn poll_flush(
                $self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                std::task::Poll::Ready(Ok(()))
            }

            /// Shuts down the write direction, which signals the end of the stream to the peer.
            /// Reading remains possible.
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
/// Pipes to child processes use these two as well.
pub(crate) use {reads, writes};
