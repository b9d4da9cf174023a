//! Volt's processes across machines, over [NATS](https://nats.io).
//!
//! Every node is a [`System`](volt_process::System) with the relay of this package; all that know
//! the same server and the same cluster's name reach each other. What holds across nodes, however
//! they are joined, `volt_process` says: at most once, in the order of each sender, and a node that
//! is lost ends calls, watches and links with `NoConnection`.
//!
//! ```no_run
//! use std::time::Duration;
//! use volt_process::{Payload, System};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // async-nats is bound to Tokio: the runtime needs one beside it.
//! let runtime = volt::Builder::new_multi_thread().tokio_compat(true).build()?;
//! runtime.block_on(async {
//!     let relay = volt_nats::Options::new("shop", "alpha".parse()?).connect("127.0.0.1:4222").await?;
//!     let system = System::builder().relay(relay).build(&volt::Handle::current())?;
//!
//!     let beta = "beta".parse()?;
//!     system.wait_for_node(beta).await;
//!     if let Some(store) = system.whereis_on(beta, "store").await? {
//!         let answer = system.call(store, Payload::bytes("apples"), Duration::from_secs(1)).await?;
//!         println!("{answer:?}");
//!     }
//!     system.shutdown(None).await;
//!     Ok(())
//! })
//! # }
//! ```
//! A whole program of two nodes is `src/bin/ping.rs`.
//!
//! # What goes over NATS
//!
//! | subject | who publishes | what |
//! |---|---|---|
//! | `volt.CLUSTER.frame.NODE.INCARNATION` | who has something for that life of that node | one frame |
//! | `volt.CLUSTER.presence` | every node, each [`HEARTBEAT`] | `up`, or `bye` when it leaves |
//! | `volt.CLUSTER.name.NODE` | who wants that name | nothing; who bears it answers |
//!
//! Who publishes stands in the reply subject: its own frame subject. A frame for an earlier life of
//! a node has no subscriber, and so reaches nobody.
//!
//! # What happens when
//!
//! * *A node is killed, stopped or cut off*: the others lose it [`LOSS`] after its last heartbeat,
//!   at most a quarter of a heartbeat later. One that shuts down says `bye`, and is lost at once.
//!   One that was stopped is back with its first heartbeat; what was tied to it before stays ended.
//! * *The server is restarted*: async-nats connects again by itself, with growing pauses of at most
//!   4 s. Nodes that hear from each other again within [`LOSS`] stay connected, unless frames were
//!   lost meanwhile: then, and after a longer outage, all that was tied between them ends as
//!   `NoConnection`, and they are connected anew.
//! * *A node does not keep up*: NATS drops what is beyond [`BACKLOG`] messages for it (*slow
//!   consumer*, [counted](Counts::slow_consumer)); the gap breaks its conversations off, as a loss
//!   would.
//! * *The queue to the server is full*: messages are refused
//!   ([`is_full`](volt_process::SendError::is_full)), and counted.
//! * *Two nodes have one name*: the second is refused when it connects. Of two that connect at the
//!   same moment, the later one leaves again, with an error in the log.
//!
//! Nodes of a cluster trust each other, and whoever may publish to its subjects: let the server ask
//! for credentials ([`Options::client`]).
//!
//! # Figures
//!
//! Two nodes in two programs and a `nats-server` 2.9 on one machine of two processors under other
//! load (load average 7), release build, payloads of 8 bytes, the middle of three runs (`ping
//! SERVER alpha beta 5000`, and `ping loopback 5000` for a [`Hub`](volt_process::Hub) within one
//! program):
//!
//! | | one by one, median | 99th percentile | 64 at once |
//! |---|---|---|---|
//! | NATS | 141 µs | 620 µs | 108,000 round trips a second |
//! | `Hub` | 12.5 µs | 35 µs | 868,000 round trips a second |

mod connect;
mod presence;
mod relay;
mod subject;

pub use connect::{ConnectError, Options};
pub use presence::{HEARTBEAT, LOSS};
pub use relay::{BACKLOG, Counts, Nats, QUEUE};
