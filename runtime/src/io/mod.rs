//! Traits, functions and types for asynchronous I/O.
//!
//! The traits and most helpers are Tokio's own, from the part of Tokio that does not depend on its
//! runtime. So code written for `tokio::io::AsyncRead` accepts a
//! [`volt::net::TcpStream`](crate::net::TcpStream) unchanged, and code written for Volt accepts
//! other types that implement Tokio's traits.
//!
//! This module also provides the standard streams of the program, and [`unix::AsyncFd`] for other
//! file descriptors.
//!
//! ```
//! use volt::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
//! # runtime.block_on(async {
//! let (mut here, mut there) = volt::io::duplex(64);
//! here.write_all(b"ping").await?;
//! let mut buffer = [0; 4];
//! there.read_exact(&mut buffer).await?;
//! assert_eq!(&buffer, b"ping");
//! # Ok::<(), std::io::Error>(())
//! # }).unwrap();
//! ```

mod interest;
mod memory;
pub(crate) mod offload;
mod stdio;
pub mod unix;

pub use interest::{Interest, Ready};
pub use memory::{
    DuplexStream, Empty, Repeat, SimplexStream, Sink, copy, copy_buf, duplex, empty, repeat, simplex, sink,
};
#[doc(no_inline)]
pub use std::io::{Error, ErrorKind, Result, SeekFrom};
pub use stdio::{Stderr, Stdin, Stdout, stderr, stdin, stdout};
#[doc(no_inline)]
pub use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncSeek, AsyncSeekExt, AsyncWrite, AsyncWriteExt,
    BufReader, BufStream, BufWriter, Chain, Join, Lines, ReadBuf, ReadHalf, Split, Take, WriteHalf, copy_bidirectional,
    copy_bidirectional_with_sizes, join, split,
};
