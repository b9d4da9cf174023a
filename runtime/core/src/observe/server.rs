//! The observer's event loop: one thread and one poll for all clients.
//!
//! An ordinary case: a console connects and gets a hello. It subscribes to snapshots. The thread
//! sleeps until the next snapshot is due, takes it, puts it into the client's outbox, sends as much
//! as the kernel accepts, and sleeps again.
//!
//! Protocol of a turn:
//! 1. sleep until an event, the next snapshot of a subscription or the end of a wait or of the
//!    thread's linger; without limit if there is none of these;
//! 2. accept connections;
//! 3. send what is left in each client's outbox, then read one request of each client;
//! 4. mark the subscriptions that are due, send dumps that are complete, and send new records to
//!    clients that record;
//! 5. if any client is owed a snapshot, take one for all of them, after all requests of this turn
//!    were read;
//! 6. drop clients that exceeded a time limit.
//!
//! Invariants:
//! * *one snapshot per turn*, whatever clients request;
//! * *watching is cheap*: after a turn's snapshot the subscriptions pause in proportion to its
//!   processor time. So an expensive snapshot (many workers, incidents with their stacks) is taken
//!   less often than requested;
//! * *a client cannot delay the others*, since each gets one request and one attempt at sending
//!   per turn;
//! * *a panic in a snapshot* leads to an error response and is not passed on.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use mio::net::UnixStream;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use volt_telemetry::socket;
use volt_telemetry::wire::{self, MAX_REPLY_BYTES, Reply, Request};

use super::connection::{Closed, Connection, Requested};
use super::cost::processor_time;
use super::cuts::{encode_cutting, encode_shortening};
use super::dumping::Dumping;
use super::limits::Limits;
use super::listener::Listener;
use super::recording::{FAULT, Recording};
use super::registry::Registry;

/// The token of the waker that ends a turn early. A client's token is its index.
pub(super) const WAKER: Token = Token(usize::MAX);
const LISTENER: Token = Token(usize::MAX - 1);
/// Connections accepted per turn.
const ACCEPTS_PER_TURN: usize = 16;
/// How long accepting pauses after the kernel failed it.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// The reply to a client if the snapshot panics.
pub(super) const PANICKED: &str = "taking the snapshot panicked, see the program's log: report it as a bug";

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Server {
    poll: Poll,
    events: Events,
    listener: Listener,
    limits: Limits,
    /// Places for clients.
    clients: Vec<Option<Connection>>,
    /// For each place, when the processor time of the clients that left it is paid off. There are
    /// as many entries as places, so the memory is bounded. A new client gets the free place that
    /// owes least, so a client that reconnects again and again pays in every place before other
    /// clients do.
    paid_at: Vec<Instant>,
    /// Whether connections may wait to be accepted.
    may_accept: bool,
    /// No connection is accepted before this.
    accept_at: Option<Instant>,
}

impl Server {
    pub(super) fn new(poll: Poll, listener: Listener, limits: Limits) -> io::Result<Self> {
        poll.registry().register(&mut SourceFd(&listener.socket.as_raw_fd()), LISTENER, Interest::READABLE)?;
        let clients = (0..limits.clients).map(|_| None).collect();
        let paid_at = vec![Instant::now(); limits.clients];
        let events = Events::with_capacity(limits.clients + 2);
        Ok(Self { poll, events, listener, limits, clients, paid_at, may_accept: true, accept_at: None })
    }

    /// Runs one turn, which sleeps no longer than until `until`. Returns whether the waker was
    /// called.
    ///
    /// # Errors
    /// Errors of the poll, after which the poll cannot be used again.
    pub(super) fn turn(&mut self, registry: &Registry, until: Option<Instant>) -> io::Result<bool> {
        let is_woken = self.sleep(until)?;
        let now = Instant::now();
        self.accept(registry, now);
        self.serve(registry, now);
        self.answer(registry, now);
        for index in 0..self.clients.len() {
            let Some(client) = &self.clients[index] else { continue };
            if let Err(closed) = client.check(now) {
                self.remove(index, closed, registry);
            }
        }
        Ok(is_woken)
    }

    fn sleep(&mut self, until: Option<Instant>) -> io::Result<bool> {
        let due_at = self.due_at().into_iter().chain(until).min();
        let timeout = due_at.map(|due| due.saturating_duration_since(Instant::now()));
        match self.poll.poll(&mut self.events, timeout) {
            Ok(()) => {}
            // A signal; the events are empty.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(false),
            Err(error) => return Err(error),
        }
        let mut is_woken = false;
        for event in &self.events {
            match event.token() {
                WAKER => is_woken = true,
                LISTENER => self.may_accept = true,
                Token(index) => {
                    if let Some(client) = &mut self.clients[index] {
                        client.wake();
                        if event.is_write_closed() || event.is_error() {
                            client.hang_up();
                        }
                    }
                }
            }
        }
        Ok(is_woken)
    }

    /// Returns when the next turn must begin if no event comes; a time that has passed if something
    /// is left to do.
    pub(super) fn due_at(&self) -> Option<Instant> {
        let now = Instant::now();
        let is_busy = self.clients.iter().flatten().any(|client| client.may_read(now));
        if is_busy || self.may_accept && self.accept_at.is_none() {
            return Some(now);
        }
        self.clients.iter().flatten().filter_map(Connection::due_at).chain(self.accept_at).min()
    }

    fn accept(&mut self, registry: &Registry, now: Instant) {
        if !self.may_accept || self.accept_at.is_some_and(|at| now < at) {
            return;
        }
        self.accept_at = None;
        for _ in 0..ACCEPTS_PER_TURN {
            match self.listener.accept() {
                Ok(socket) => self.admit(socket, registry, now),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.may_accept = false;
                    return;
                }
                Err(error) if matches!(error.raw_os_error(), Some(code) if is_of_one_connection(code)) => {}
                // Usually out of file descriptors. No event will come for a connection that already
                // waits.
                Err(_) => {
                    registry.count(|health| health.accept_failures += 1);
                    self.accept_at = Some(now + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    fn admit(&mut self, socket: UnixStream, registry: &Registry, now: Instant) {
        let own = rustix::process::geteuid().as_raw();
        match socket::peer_user(&socket) {
            Ok(None) => {}
            Ok(Some(peer)) if peer == own || peer == 0 => {}
            Ok(Some(_)) | Err(_) => {
                registry.count(|health| health.refused_foreign += 1);
                return;
            }
        }
        let began = processor_time();
        let free = (0..self.clients.len()).filter(|&index| self.clients[index].is_none());
        let Some(index) = free.min_by_key(|&index| self.paid_at[index]) else {
            let mut client = Connection::new(socket, now, now, &self.limits);
            let attached = self.clients.iter().flatten().filter_map(|client| socket::peer_pid(&client.socket));
            let message = too_many(self.limits.clients, attached);
            if let Ok(frame) = (Reply::Error { message }).to_frame(self.limits.reply_bytes) {
                client.push(frame, &self.limits);
                // It fits into the kernel's buffer, or is not worth waiting for.
                let _ = client.flush(now, &self.limits);
            }
            registry.count(|health| health.refused_full += 1);
            return;
        };
        let Ok(hello) = Reply::Hello(registry.hello()).to_frame(self.limits.reply_bytes) else { return };
        let mut client = Connection::new(socket, now, self.paid_at[index], &self.limits);
        client.push(hello, &self.limits);
        let interest = Interest::READABLE | Interest::WRITABLE;
        if self.poll.registry().register(&mut client.socket, Token(index), interest).is_err() {
            registry.count(|health| health.accept_failures += 1);
            return;
        }
        let has_to_wait = client.charge(processor_time().saturating_sub(began), now, &self.limits);
        self.clients[index] = Some(client);
        registry.count(|health| {
            health.accepted += 1;
            health.clients += 1;
            health.throttles += u64::from(has_to_wait);
        });
    }

    fn serve(&mut self, registry: &Registry, now: Instant) {
        for index in 0..self.clients.len() {
            let Some(client) = &mut self.clients[index] else { continue };
            let may_read = client.may_read(now);
            let began = processor_time();
            let mut served = serve_one(client, registry, &self.limits, now);
            if may_read && client.charge_request(processor_time().saturating_sub(began), now, &self.limits) {
                registry.count(|health| health.throttles += 1);
                served = served.and_then(|()| client.flush(now, &self.limits));
            }
            if let Err(closed) = served {
                self.remove(index, closed, registry);
            }
        }
    }

    fn answer(&mut self, registry: &Registry, now: Instant) {
        for index in 0..self.clients.len() {
            let Some(client) = &mut self.clients[index] else { continue };
            client.tick(now);
            if let Err(closed) = send_dump(client, registry, &self.limits, now) {
                self.remove(index, closed, registry);
                continue;
            }
            let Some(client) = &mut self.clients[index] else { continue };
            if let Err(closed) = client.send_recording(now, &self.limits, registry) {
                self.remove(index, closed, registry);
            }
        }
        if !self.clients.iter().flatten().any(Connection::is_owed) {
            return;
        }
        let began = processor_time();
        let mut reply = take_snapshot(registry);
        let mut answered = Vec::new();
        for index in 0..self.clients.len() {
            let Some(client) = self.clients[index].as_mut().filter(|client| client.is_owed()) else { continue };
            if let Reply::Snapshot { lost, .. } = &mut reply {
                *lost = client.lost();
            }
            let frame = encode_or_explain(&mut reply, self.limits.reply_bytes, registry);
            let is_sent = client.answer(frame, &self.limits);
            answered.push(index);
            registry.count(|health| {
                health.snapshots += u64::from(is_sent);
                health.snapshots_lost += u64::from(!is_sent);
            });
            if let Err(closed) = client.flush(now, &self.limits) {
                self.remove(index, closed, registry);
            }
        }
        let took = processor_time().saturating_sub(began);
        self.clients.iter_mut().flatten().for_each(|client| client.rest(now + took * self.limits.rest));
        for index in answered {
            if let Some(client) = &mut self.clients[index]
                && client.charge(took, now, &self.limits)
            {
                registry.count(|health| health.throttles += 1);
                if let Err(closed) = client.flush(now, &self.limits) {
                    self.remove(index, closed, registry);
                }
            }
        }
    }

    fn remove(&mut self, index: usize, closed: Closed, registry: &Registry) {
        let Some(mut client) = self.clients[index].take() else { return };
        self.paid_at[index] = client.paid_at();
        // Deregistered explicitly: a forked child may hold the descriptor too, and closing ours
        // would then not end its events.
        let _ = self.poll.registry().deregister(&mut client.socket);
        registry.count(|health| {
            health.clients -= 1;
            match closed {
                Closed::Left => {}
                Closed::Malformed => health.dropped_malformed += 1,
                Closed::Silent => health.dropped_silent += 1,
                Closed::Slow => health.dropped_slow += 1,
            }
        });
    }
}

fn serve_one(client: &mut Connection, registry: &Registry, limits: &Limits, now: Instant) -> Result<(), Closed> {
    client.flush(now, limits)?;
    match client.read(now, limits)? {
        Requested::Nothing | Requested::Snapshot => Ok(()),
        Requested::Other(request) => {
            let reply = reply_to(request, client, registry, now);
            match reply.unwrap_or_else(|message| Some(Reply::Error { message })) {
                Some(reply) => send(reply, client, limits, now),
                None => Ok(()),
            }
        }
        Requested::Unknown => {
            let message = format!(
                "this program uses version {} of the protocol, which does not have this request",
                wire::VERSION
            );
            if let Ok(frame) = (Reply::Error { message }).to_frame(limits.reply_bytes) {
                client.push(frame, limits);
            }
            client.flush(now, limits)
        }
    }
}

/// Sends the dump of a client, if it is complete.
fn send_dump(client: &mut Connection, registry: &Registry, limits: &Limits, now: Instant) -> Result<(), Closed> {
    let Some((reply, took)) = client.dumping.as_ref().and_then(Dumping::take) else { return Ok(()) };
    client.dumping = None;
    send(reply, client, limits, now)?;
    if client.charge(took * limits.dump_pays / limits.pays, now, limits) {
        registry.count(|health| health.throttles += 1);
    }
    client.flush(now, limits)
}

fn send(mut reply: Reply, client: &mut Connection, limits: &Limits, now: Instant) -> Result<(), Closed> {
    if let Some(frame) = encode_shortening(&mut reply, limits.reply_bytes) {
        client.push(frame, limits);
    }
    client.flush(now, limits)
}

/// Returns the reply to a request that needs no snapshot, or an error text with the remedy. `None`
/// if the reply will be sent later.
fn reply_to(
    request: Request,
    client: &mut Connection,
    registry: &Registry,
    now: Instant,
) -> Result<Option<Reply>, String> {
    let has_ended = || "the runtime was shut down".to_owned();
    let reply = match request {
        Request::Dump { runtime, query } => {
            let (_, runtime) = registry.find(runtime.as_deref())?;
            client.dumping = Some(Dumping::begin(runtime, query, registry)?);
            return Ok(None);
        }
        Request::Record { runtime, before_ms } => {
            let (name, runtime) = registry.find(runtime.as_deref())?;
            let before = Duration::from_millis(before_ms);
            let (recording, head) = Recording::begin(&name, runtime, before, now).ok_or_else(has_ended)?;
            client.recording = Some(recording);
            Ok(Reply::Recording { head: Box::new(head) })
        }
        Request::Recorder { runtime, is_on } => {
            let (name, runtime) = registry.find(runtime.as_deref())?;
            let runtime = runtime.upgrade().ok_or_else(has_ended)?;
            let recorder = runtime.recorder().ok_or_else(has_ended)?;
            if let Some(is_on) = is_on {
                recorder.switch(is_on);
            }
            let (is_on, capacity) = (recorder.is_on(), recorder.capacity() as u64);
            Ok(Reply::Recorder(wire::Recorder { runtime: name, is_on, capacity }))
        }
        Request::Why { runtime, task } => {
            let (_, runtime) = registry.find(runtime.as_deref())?;
            let runtime = runtime.upgrade().ok_or_else(has_ended)?;
            // As for snapshots: a panic in there affects one answer, not the socket.
            let why = catch_unwind(AssertUnwindSafe(|| runtime.why(&task)));
            let why = why.map_err(|_| FAULT.to_owned())?;
            why.map(Reply::Why).ok_or_else(|| {
                format!(
                    "no live task has the id or name {task:?}: it may have completed, or it has no name and has never \
                     waited; list the tasks with `volt-console tasks`"
                )
            })
        }
        Request::Tasks { runtime, query } => {
            let (_, runtime) = registry.find(runtime.as_deref())?;
            let runtime = runtime.upgrade().ok_or_else(has_ended)?;
            let list = catch_unwind(AssertUnwindSafe(|| runtime.tasks(&query))).map_err(|_| FAULT.to_owned())?;
            Ok(Reply::Tasks(Box::new(list)))
        }
        Request::Processes { runtime, query } => {
            let (_, runtime) = registry.find(runtime.as_deref())?;
            let runtime = runtime.upgrade().ok_or_else(has_ended)?;
            let list = catch_unwind(AssertUnwindSafe(|| runtime.processes(&query))).map_err(|_| FAULT.to_owned())?;
            Ok(Reply::Processes(Box::new(list)))
        }
        _ => Err("this request is not answered with a single reply".to_owned()),
    };
    reply.map(Some)
}

/// Returns whether `accept` failed because of the connection that it accepted, so that the next one
/// may succeed.
pub(super) fn is_of_one_connection(code: i32) -> bool {
    use rustix::io::Errno;
    [Errno::CONNABORTED, Errno::INTR, Errno::PROTO].iter().any(|errno| errno.raw_os_error() == code)
}

/// Returns the error for a client beyond the limit. It names the programs of the attached clients.
fn too_many(limit: usize, pids: impl Iterator<Item = u32>) -> String {
    // One program may have several clients.
    let pids: BTreeSet<_> = pids.collect();
    let pids: Vec<_> = pids.iter().map(ToString::to_string).collect();
    format!("{limit} clients are attached, which is the limit: end one of them (pid {})", pids.join(", "))
}

fn take_snapshot(registry: &Registry) -> Reply {
    match registry.try_program() {
        Some(program) => Reply::Snapshot { program: Box::new(program), lost: 0 },
        None => Reply::Error { message: PANICKED.into() },
    }
}

fn encode_or_explain(reply: &mut Reply, max_bytes: usize, registry: &Registry) -> Vec<u8> {
    encode_cutting(reply, max_bytes, registry).unwrap_or_else(|error| {
        *reply = Reply::Error { message: format!("the snapshot does not fit: {error}") };
        reply.to_frame(MAX_REPLY_BYTES).expect("a line of text is a frame")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_of_attached_clients_are_named_once() {
        let message = too_many(4, [70, 9, 70, 9].into_iter());
        assert!(message.ends_with("end one of them (pid 9, 70)"), "{message}");
    }
}
