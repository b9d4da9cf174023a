//! Processes for Volt: state machines and async functions with an address, a bounded mailbox, and
//! supervision.
//!
//! A process is a state machine. The runtime steps it with what has happened to it ([`Event`]s:
//! messages, completed yields, exits of other processes), and a step returns what the process waits
//! for and what it wants done meanwhile ([`Output`]). Other processes send to its [`Pid`]. It has a
//! bounded mailbox, a parent, [monitors](Context::monitor) and [links](Context::link). It
//! runs as one task, and is scheduled, counted and shown as one.
//!
//! An async function becomes a process by [`from_fn`]. A [`Supervisor`] is a process that starts
//! other processes, and starts them again when they fail.
//!
//! Systems in several programs or on several machines reach each other's processes by a [`Relay`]:
//! `volt-nats` is one over NATS, [`Hub`] one within a program. The pid of another node is used like
//! any other, with these differences: only [bytes](Payload::bytes) and [empty
//! payloads](Payload::empty) cross; a message arrives at most once, and messages from one sender
//! arrive in order; a full mailbox refuses them, whatever its policy, and only calls report that;
//! and the loss of a node ends calls, monitors and links with
//! [`NoConnection`](ExitReason::NoConnection).
//!
//! ```
//! use volt_process::{Context, Event, Events, Failure, Output, Payload, Process, Spawn, System};
//!
//! /// Counts messages, and answers calls with the count.
//! #[derive(Default)]
//! struct Counter {
//!     count: u64,
//! }
//!
//! impl Process for Counter {
//!     fn init(&mut self, _context: &Context, _method: &str, _input: Payload) -> Result<(), Failure> {
//!         Ok(())
//!     }
//!
//!     fn step(&mut self, events: Events<'_>, out: &mut Output) -> Result<(), Failure> {
//!         for event in events {
//!             match event {
//!                 Event::Message(message) => match message.reply {
//!                     Some(reply) => reply.send(Payload::new(self.count)),
//!                     None => self.count += 1,
//!                 },
//!                 Event::Cancel => out.done(),
//!                 _ => {}
//!             }
//!         }
//!         Ok(())
//!     }
//! }
//!
//! # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
//! # runtime.block_on(async {
//! let system = System::new(&volt::Handle::current());
//! let counter = system.spawn(Spawn::new(Counter::default())).unwrap();
//! for _ in 0..3 {
//!     system.send(counter, Payload::empty()).await.unwrap();
//! }
//! let count = system.call(counter, Payload::empty(), std::time::Duration::from_secs(5)).await.unwrap();
//! assert_eq!(count.downcast::<u64>().unwrap(), 3);
//! assert!(system.shutdown(None).await.forced.is_empty());
//! # });
//! # Ok::<(), volt::BuildError>(())
//! ```

mod state;

#[cfg(not(loom))]
mod entry;
#[cfg(not(loom))]
mod messages;
#[cfg(not(loom))]
mod nodes;
#[cfg(not(loom))]
mod registry;
#[cfg(not(loom))]
mod report;
#[cfg(not(loom))]
mod steps;
#[cfg(not(loom))]
mod supervisor;
#[cfg(not(loom))]
mod system;

#[cfg(not(loom))]
pub use {
    entry::mailbox::Overflow,
    messages::{
        event::{Event, Events, Message, MonitorId, Reply},
        failure::{ExitReason, Failure},
        payload::Payload,
        pid::{Node, ParseError, Pid},
    },
    nodes::{FRAME_BYTES_MAX, Hub, HubRelay, Incoming, LookupError, Peer, Relay, RelayCounts, RelayError},
    report::info::ProcessInfo,
    state::Lifecycle,
    steps::{
        command::CommandId,
        context::Context,
        dispatch::{Completion, Handler, Request},
        inbox::{Inbox, from_fn},
        machine::Process,
        output::{Output, Status},
        spawn::{Spawn, SpawnError},
    },
    supervisor::{Backoff, ChildInfo, ChildSpec, Restart, Strategy, Supervisor, SupervisorError, SupervisorRef},
    system::{
        builder::{BuildError, Builder},
        call::CallError,
        core::System,
        send::{SendAfter, SendError},
        shutdown::ShutdownReport,
    },
};
