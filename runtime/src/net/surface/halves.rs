//! The two halves of a stream, and the methods that split a stream.

/// Defines `split`, `into_split`, and the borrowed and owned halves of a stream.
macro_rules! halves {
    ($stream:ident, $addr:ty) => {
        use std::sync::Arc;
        use std::{error, fmt, io, net};

        use crate::io::{Interest, Ready};

        impl $stream {
            /// Splits the stream into a read half and a write half that borrow it.
            ///
            /// Both halves must stay in one task. To use them in different tasks, call
            /// [`into_split`](Self::into_split).
            pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
                let stream = &*self;
                (ReadHalf(stream), WriteHalf(stream))
            }

            /// Splits the stream into a read half and a write half that own it.
            ///
            /// The halves can be moved to different tasks. Dropping the write half shuts down the
            /// write direction, which signals the end of the stream to the peer.
            pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
                let stream = Arc::new(self);
                (OwnedReadHalf { stream: stream.clone() }, OwnedWriteHalf { stream, shuts_down: true })
            }

            pub(in crate::net) fn shutdown_now(&self, how: net::Shutdown) -> io::Result<()> {
                match self.io.source().shutdown(how) {
                    // The peer has closed the connection first, so the direction is already shut
                    // down.
                    Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
                    result => result,
                }
            }
        }

        /// The borrowed read half of a stream, created by `split`.
        #[derive(Debug)]
        pub struct ReadHalf<'a>(&'a $stream);

        /// The borrowed write half of a stream, created by `split`.
        ///
        /// Dropping it does not shut down the write direction.
        #[derive(Debug)]
        pub struct WriteHalf<'a>(&'a $stream);

        /// The owned read half of a stream, created by `into_split`.
        #[derive(Debug)]
        pub struct OwnedReadHalf {
            stream: Arc<$stream>,
        }

        /// The owned write half of a stream, created by `into_split`.
        ///
        /// Dropping it shuts down the write direction, which signals the end of the stream to the
        /// peer.
        #[derive(Debug)]
        pub struct OwnedWriteHalf {
            stream: Arc<$stream>,
            /// Whether dropping this half shuts down the write direction.
            shuts_down: bool,
        }

        impl OwnedReadHalf {
            /// Reunites the two halves of a stream.
            ///
            /// # Errors
            /// Returns [`ReuniteError`], which contains both halves, if they are from different
            /// streams.
            pub fn reunite(self, other: OwnedWriteHalf) -> Result<$stream, ReuniteError> {
                other.reunite(self)
            }
        }

        impl OwnedWriteHalf {
            /// Reunites the two halves of a stream.
            ///
            /// # Errors
            /// Returns [`ReuniteError`], which contains both halves, if they are from different
            /// streams.
            pub fn reunite(mut self, other: OwnedReadHalf) -> Result<$stream, ReuniteError> {
                if !Arc::ptr_eq(&self.stream, &other.stream) {
                    return Err(ReuniteError(other, self));
                }
                self.shuts_down = false;
                let stream = self.stream.clone();
                drop((self, other));
                Ok(Arc::into_inner(stream).expect("a stream has two halves, and both were dropped"))
            }

            /// Drops this half without shutting down the write direction.
            pub fn forget(mut self) {
                self.shuts_down = false;
            }
        }

        impl Drop for OwnedWriteHalf {
            fn drop(&mut self) {
                if self.shuts_down {
                    // An error cannot be reported here. It means that the connection is already
                    // closed.
                    let _ = self.stream.shutdown_now(net::Shutdown::Write);
                }
            }
        }

        /// The error returned by `reunite` if the two halves are from different streams.
        #[derive(Debug)]
        pub struct ReuniteError(
            /// The read half.
            pub OwnedReadHalf,
            /// The write half.
            pub OwnedWriteHalf,
        );

        impl fmt::Display for ReuniteError {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the two halves belong to different streams")
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
            /// Waits until the stream is ready for at least one operation of `interest`, and
            /// returns the readiness found.
            ///
            /// # Errors
            /// Returns an error if the runtime has been shut down.
            ///
            /// # Cancel safety
            /// This method is cancel safe. It does not clear readiness, so a later call finds it
            /// again.
            pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
                self.$field.ready(interest).await
            }

            /// Returns the remote address that this stream is connected to.
            ///
            /// # Errors
            /// Returns an error if the underlying system call fails.
            pub fn peer_addr(&self) -> io::Result<$addr> {
                self.$field.peer_addr()
            }

            /// Returns the local address that this stream is bound to.
            ///
            /// # Errors
            /// Returns an error if the underlying system call fails.
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
            /// Waits until the stream may have data to read, or has reached the end of the stream.
            ///
            /// # Errors
            /// Returns an error if the runtime has been shut down.
            ///
            /// # Cancel safety
            /// This method is cancel safe. It does not clear readiness, so a later call finds it
            /// again.
            pub async fn readable(&self) -> io::Result<()> {
                self.$field.readable().await
            }

            /// Tries to read available data into `buffer` without waiting, and returns the number
            /// of bytes read.
            ///
            /// `Ok(0)` means that the end of the stream was reached, or that `buffer` is empty.
            ///
            /// # Errors
            /// Returns `ErrorKind::WouldBlock` if no data is available. Also returns an error if
            /// the underlying system call fails.
            pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
                self.$field.try_read(buffer)
            }

            /// Tries to read into several buffers in order, as [`try_read`](Self::try_read) does.
            ///
            /// # Errors
            /// Returns the same errors as [`try_read`](Self::try_read).
            pub fn try_read_vectored(&self, buffers: &mut [io::IoSliceMut<'_>]) -> io::Result<usize> {
                self.$field.try_read_vectored(buffers)
            }

            /// Tries to read into the free part of `buffer`, as [`try_read`](Self::try_read) does.
            ///
            /// # Errors
            /// Returns the same errors as [`try_read`](Self::try_read).
            pub fn try_read_buf<B: bytes::BufMut>(&self, buffer: &mut B) -> io::Result<usize> {
                self.$field.try_read_buf(buffer)
            }
        }
    };
    (@writes $half:ty, $field:tt) => {
        writes!($half, self => self.$field);

        impl $half {
            /// Waits until the stream may have room to write.
            ///
            /// # Errors
            /// Returns an error if the runtime has been shut down.
            ///
            /// # Cancel safety
            /// This method is cancel safe. It does not clear readiness, so a later call finds it
            /// again.
            pub async fn writable(&self) -> io::Result<()> {
                self.$field.writable().await
            }

            /// Tries to write `bytes` without waiting, and returns the number of bytes written.
            /// That number may be less than the length of `bytes`.
            ///
            /// # Errors
            /// Returns `ErrorKind::WouldBlock` if there is no room. Also returns an error if the
            /// underlying system call fails.
            pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
                self.$field.try_write(bytes)
            }

            /// Tries to write several buffers in order, as [`try_write`](Self::try_write) does.
            ///
            /// # Errors
            /// Returns the same errors as [`try_write`](Self::try_write).
            pub fn try_write_vectored(&self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
                self.$field.try_write_vectored(slices)
            }
        }
    };
}

pub(in crate::net) use halves;
