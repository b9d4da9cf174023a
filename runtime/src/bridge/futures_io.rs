//! Between Volt's I/O traits, which are Tokio's, and those of the `futures` crate, in both
//! directions.
//!
//! The adapters are tokio-util's: they are known, have no runtime in them and fit Volt's types as
//! they fit Tokio's. `compat()` gives something of Volt's to a library that asks for
//! [`futures_io`](https://docs.rs/futures-io)'s traits; called on something of such a library it
//! gives what Volt's extension traits work on.
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
