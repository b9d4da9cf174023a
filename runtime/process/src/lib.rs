//! Processes for Volt: state machines and async functions with an address, a bounded mailbox and
//! supervision. The model is that of Erlang/OTP.
//!
//! A process is a state machine. The runtime calls its [`step`](Process::step) with the [`Event`]s
//! that arrived since the last step: messages, completed yields, exits of other processes. The step
//! declares in its [`Output`] what the process waits for, and which operations (its *yields*) run
//! in the meantime. Other processes send messages to its [`Pid`]. A process has a bounded mailbox,
//! a parent, [monitors](Context::monitor) and [links](Context::link). It runs as one task: the
//! runtime schedules, counts and lists it like any other task.
//!
//! [`from_fn`] turns an async function into a process. A [`Supervisor`] is a process that starts
//! other processes and restarts them when they fail.
//!
//! A [`Relay`] connects systems in several programs or on several machines. `volt-nats` is a relay
//! over NATS; [`Hub`] connects systems within one program. The pid of a process on another node is
//! used like any other pid, with these differences:
//!
//! - Only [bytes](Payload::bytes) and [empty payloads](Payload::empty) can be sent to another node.
//! - A message arrives at most once. Messages from one sender arrive in order.
//! - A full mailbox rejects messages from other nodes, whatever its policy. Only calls report that.
//! - When a node is lost, calls to it fail, and monitors and links report
//!   [`NoConnection`](ExitReason::NoConnection).
//!
//! ```
//! use volt_process::{Context, Event, Events, Failure, Output, Payload, Process, Spawn, System};
//!
//! /// Counts messages, and replies to calls with the count.
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

mod room;

mod state;

mod stopping;

#[cfg(not(loom))]
mod messages;

#[cfg(not(loom))]
mod registry;

#[cfg(not(loom))]
mod entry;

#[cfg(not(loom))]
mod output;

#[cfg(not(loom))]
mod nodes;

#[cfg(not(loom))]
mod report;

#[cfg(not(loom))]
mod system;

#[cfg(not(loom))]
mod remote;

#[cfg(not(loom))]
mod steps;

#[cfg(not(loom))]
mod builder;

#[cfg(not(loom))]
mod supervisor;

#[cfg(not(loom))]
pub use {
    builder::{BuildError, Builder},
    entry::mailbox::Overflow,
    messages::{
        event::{Event, Events, Message, MonitorId, Reply},
        failure::{ExitReason, Failure},
        payload::Payload,
        pid::{Node, ParseError, Pid},
    },
    nodes::{FRAME_BYTES_MAX, Hub, HubRelay, Incoming, Peer, Relay, RelayCounts, RelayError},
    output::{Output, Status, command::CommandId},
    remote::sending::LookupError,
    report::info::ProcessInfo,
    state::Lifecycle,
    steps::{
        context::Context,
        dispatch::{Completion, Handler, Request},
        inbox::{Inbox, from_fn},
        machine::Process,
        spawn::{Spawn, SpawnError},
    },
    supervisor::{Backoff, ChildInfo, ChildSpec, Restart, Strategy, Supervisor, SupervisorError, SupervisorRef},
    system::{
        call::CallError,
        core::System,
        send::{SendAfter, SendError},
        shutdown::ShutdownReport,
    },
};

// The example in the README, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
