//! Adapters between Volt's I/O traits, which are Tokio's, and those of the `futures` crate.
//!
//! The adapters are those of tokio-util, which do not depend on a runtime. `compat()` adapts a Volt
//! type for a library that requires the traits of [`futures_io`](https://docs.rs/futures-io). It
//! also works in the other direction: it adapts a type of such a library for Volt's extension
//! traits.
//!
//! ```
//! use futures_util::{AsyncReadExt, AsyncWriteExt};
//! use volt::futures_io::TokioAsyncReadCompatExt;
//!
//! # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
//! # runtime.block_on(async {
//! let (here, there) = volt::net::UnixStream::pair()?;
//! // From here on both are of the `futures` crate's kind.
//! let (mut here, mut there) = (here.compat(), there.compat());
//! here.write_all(b"ping").await?;
//! here.close().await?;
//! let mut text = String::new();
//! there.read_to_string(&mut text).await?;
//! assert_eq!(text, "ping");
//! # Ok::<(), std::io::Error>(())
//! # }).unwrap();
//! ```

#[doc(no_inline)]
pub use tokio_util::compat::{
    Compat, FuturesAsyncReadCompatExt, FuturesAsyncWriteCompatExt, TokioAsyncReadCompatExt, TokioAsyncWriteCompatExt,
};
