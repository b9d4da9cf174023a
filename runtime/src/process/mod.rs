//! Processes of two kinds: Volt's own, state machines with mailboxes, and the operating system's, started by [`Command`].
//!
//! A process of Volt's is a state machine that is stepped with what has happened to it ([`Event`]s: messages, completed yields, the
//! ends of others) and says what it waits for and what it wants done meanwhile ([`Output`]). It has a [`Pid`], by which others send to it, a
//! mailbox with a bound, and relations: who starts it, who watches it ([`monitor`](Context::monitor)), whose ends are tied to its own
//! ([`link`](Context::link)). It runs as one task, and is scheduled, counted and shown as one.
//!
//! An async function becomes a process by [`from_fn`]. A [`Supervisor`] is a process that starts others, and starts them again when they fail.
//!
//! Systems on several machines, or in several programs, reach each other's processes by a [`Relay`]: `volt-nats` is one over NATS, [`Hub`] one within a
//! program. A pid of another node is used as any other. What differs: only [bytes](Payload::bytes) and [nothing](Payload::empty) go there; a message
//! arrives once or not at all, those of one sender in their order; a full mailbox refuses them, whatever its policy, and only callers are told; and a
//! node that is lost ends calls, watches and links with [`NoConnection`](ExitReason::NoConnection).
//!
//! ```
//! use volt::process::{Context, Event, Events, Failure, Output, Payload, Process, Spawn, System};
//!
//! /// Counts what it is sent, and tells whoever asks.
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
//!
//! Child processes:
//!
//! ```
//! use volt::process::Command;
//!
//! # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
//! # runtime.block_on(async {
//! let output = Command::new("echo").arg("hello").output().await?;
//! assert!(output.status.success());
//! assert_eq!(output.stdout, b"hello\n");
//! # Ok::<(), std::io::Error>(())
//! # }).unwrap();
//! ```

mod state;

#[cfg(not(loom))]
mod call;
#[cfg(not(loom))]
mod commands;
#[cfg(not(loom))]
mod context;
#[cfg(not(loom))]
mod dispatch;
#[cfg(not(loom))]
mod ends;
#[cfg(not(loom))]
mod entry;
#[cfg(not(loom))]
mod event;
#[cfg(not(loom))]
mod failure;
#[cfg(not(loom))]
mod inbox;
#[cfg(not(loom))]
mod info;
#[cfg(not(loom))]
mod listing;
#[cfg(not(loom))]
mod machine;
#[cfg(not(loom))]
mod mailbox;
#[cfg(not(loom))]
mod nodes;
#[cfg(not(loom))]
mod output;
#[cfg(not(loom))]
mod payload;
#[cfg(not(loom))]
mod pid;
#[cfg(not(loom))]
mod registry;
#[cfg(not(loom))]
mod relations;
#[cfg(not(loom))]
mod runner;
#[cfg(not(loom))]
mod send;
#[cfg(not(loom))]
mod shutdown;
#[cfg(not(loom))]
mod spawn;
#[cfg(not(loom))]
mod supervisor;
#[cfg(not(loom))]
mod survey;
#[cfg(not(loom))]
mod system;
#[cfg(not(loom))]
mod work;

#[cfg(not(loom))]
pub use {
    crate::children::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    call::CallError,
    context::Context,
    dispatch::{CommandId, Completion, Handler, Request},
    event::{Event, Events, Message, MonitorId, Reply},
    failure::{ExitReason, Failure},
    inbox::{Inbox, from_fn},
    info::ProcessInfo,
    machine::Process,
    mailbox::Overflow,
    nodes::{FRAME_BYTES_MAX, Hub, HubRelay, Incoming, LookupError, Peer, Relay, RelayCounts, RelayError},
    output::{Output, Status},
    payload::Payload,
    pid::{Node, ParseError, Pid},
    send::{SendAfter, SendError},
    shutdown::ShutdownReport,
    spawn::{Spawn, SpawnError},
    state::Lifecycle,
    supervisor::{Backoff, ChildInfo, ChildSpec, Restart, Strategy, Supervisor, SupervisorError, SupervisorRef},
    system::{BuildError, Builder, System},
};
