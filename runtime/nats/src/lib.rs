//! Connects Volt's processes on several machines over [NATS](https://nats.io).
//!
//! Each node is a [`System`](volt_process::System) with the relay of this crate. Nodes that use the
//! same server and the same cluster name can reach each other. The crate `volt_process` documents
//! the guarantees of every relay: messages arrive at most once and in the order of each sender, and
//! the loss of a node ends calls, monitors and links with `NoConnection`.
//!
//! ```no_run
//! use std::time::Duration;
//! use volt_process::{Payload, System};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // async-nats requires Tokio: enable the compatibility of the runtime.
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
//! `src/bin/ping.rs` is a complete program of two nodes.
//!
//! # What is sent over NATS
//!
//! | subject | published by | content |
//! |---|---|---|
//! | `volt.CLUSTER.frame.NODE.INCARNATION` | any node that sends to NODE | one frame |
//! | `volt.CLUSTER.presence` | every node, each [`HEARTBEAT`] | `up`, or `bye` when it leaves |
//! | `volt.CLUSTER.name.NODE` | a node that starts under the name NODE | empty |
//!
//! A *frame* is a message between two nodes. An *incarnation* is one system with the name of a
//! node; each later one has another number. A frame for an earlier incarnation has no subscriber,
//! and is not delivered. If the name of a node is taken, the node that has it replies to the
//! request on the third subject. The reply subject of each message is the publisher's own frame
//! subject, and identifies the publisher.
//!
//! # Failures
//!
//! * *A node is killed, paused (SIGSTOP) or disconnected*: the other nodes count it as lost
//!   [`LOSS`] after its last message, or up to a quarter of a heartbeat later. A node that shuts
//!   down sends `bye`, and is lost immediately. A node that was paused is connected again with its
//!   first heartbeat. Its earlier calls, monitors and links have ended.
//! * *The server restarts*: async-nats reconnects by itself, with growing pauses of at most 4 s.
//!   Nodes that receive each other's messages again within [`LOSS`] stay connected, unless frames
//!   were lost. Otherwise, all calls, monitors and links between them end with `NoConnection`, and
//!   they connect anew.
//! * *A node does not keep up*: its NATS client drops messages beyond [`BACKLOG`] (*slow
//!   consumer*, [counted](Counts::slow_consumer)). The node detects the gap. All calls, monitors
//!   and links between it and the senders end with `NoConnection`, as after a loss.
//! * *The queue to the server is full*: messages are rejected
//!   ([`is_full`](volt_process::SendError::is_full)) and counted.
//! * *Two nodes have the same name*: the second one gets an error when it connects. If both connect
//!   at the same moment, the later one leaves again, and logs an error.
//!
//! Nodes of a cluster trust each other and every client that can publish to its subjects. Configure
//! the server to require credentials ([`Options::client`]).
//!
//! # Measure round trips
//!
//! The program `ping` measures round trips: `ping SERVER alpha beta 5000` between two nodes in two
//! programs, and `ping loopback 5000` over a [`Hub`](volt_process::Hub) within one program.

mod subject;

mod presence;
mod relay;

mod connect;

pub use connect::{ConnectError, Options};
pub use presence::{HEARTBEAT, LOSS};
pub use relay::{BACKLOG, Counts, Nats, QUEUE};
