//! A multi-producer, single-consumer queue for sending values between tasks.
//!
//! [`channel`] creates a bounded queue, whose senders wait while it is full. [`unbounded_channel`]
//! creates a queue without a bound.
//!
//! When all senders are dropped, the receiver receives the values that are left, and then `None`.
//! When the receiver is dropped, sends fail, and the values that are left are dropped. To receive
//! them first, call [`close`](Receiver::close), and then [`recv`](Receiver::recv) until it returns
//! `None`.
//!
//! ```
//! # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
//! # runtime.block_on(async {
//! let (sender, mut receiver) = volt::sync::mpsc::channel(16);
//! for name in ["one", "two"] {
//!     let sender = sender.clone();
//!     volt::spawn(async move { sender.send(name).await });
//! }
//! drop(sender);
//! let mut received = Vec::new();
//! while let Some(name) = receiver.recv().await {
//!     received.push(name);
//! }
//! received.sort();
//! assert_eq!(received, ["one", "two"]);
//! # });
//! # Ok::<(), volt::BuildError>(())
//! ```

pub mod error;

mod receive;

mod bounded;
mod unbounded;

pub use bounded::{OwnedPermit, Receiver, Sender, WeakSender, channel};
pub use unbounded::{UnboundedReceiver, UnboundedSender, WeakUnboundedSender, unbounded_channel};

#[doc(no_inline)]
pub use tokio::sync::mpsc::{Permit, PermitIterator};
