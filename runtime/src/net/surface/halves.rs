//! The two halves of a stream.

/// The halves of a stream, borrowed and owned, and `split` and `into_split`.
macro_rules! halves {
    ($stream:ident, $addr:ty) => {
        use std::sync::Arc;
        use std::{error, fmt, io, net};

        use crate::io::{Interest, Ready};

        impl $stream {
            /// Splits it into a half that reads and one that writes, for one task. See
            /// [`into_split`](Self::into_split) for two.
            pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
                let stream = &*self;
                (ReadHalf(stream), WriteHalf(stream))
            }

            /// Splits it into a half that reads and one that writes, which may live in different
            /// tasks. Dropping the writing half tells the peer that nothing more comes.
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

        /// The half that writes, of a stream that was split for two tasks. Dropping it tells the
        /// peer that nothing more comes.
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
                    // Nobody is left to be told of an error, and it means that the connection is
                    // gone.
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

            /// Reads what is there, without waiting; 0 bytes mean the end of the stream (or an
            /// empty buffer).
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

pub(in crate::net) use halves;
