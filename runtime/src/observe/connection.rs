//! One client: its bytes in, its bytes out, and what it is owed.
//!
//! Shape: `inbox` holds what has come and is not yet a whole request; `outbox` holds whole frames that the kernel has not yet
//! taken. Nothing here blocks, and nothing here takes a snapshot.
//!
//! Who calls: the server's loop only, one thread.
//!
//! Invariants. *One answer at a time*: while one is owed or in the outbox, no further request is read, so the client's own
//! impatience stops it and not our memory. *The inbox is bounded* by one frame and one read; nothing is allocated by a declared
//! length. *A client's share is bounded*: what its answers have taken of a processor is paid off by waiting, during which its next
//! request is not read; a client that asks now and then never notices. *The outbox is bounded*: a frame joins it when it is empty, or when it stays below the limit; a snapshot of a
//! subscription that does not fit is skipped and counted. *Every wait ends*: for the first request, for the rest of a request
//! that has begun, for a client to read.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use mio::net::UnixStream;
use volt_telemetry::socket;
use volt_telemetry::wire::{self, MAX_REPLY_BYTES, MAX_REQUEST_BYTES, MIN_INTERVAL_MS, Reply, Request};

use super::recording::Recording;
use super::registry::Registry;

/// Bytes read at once.
const READ_BYTES: usize = 4096;

/// What a client may cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Clients at once.
    pub(super) clients: usize,
    /// How long the first request may take, and each request from its first byte to its last.
    pub(super) request: Duration,
    /// How long the outbox may stay unread.
    pub(super) unread: Duration,
    /// Bytes in the outbox, unless it is a single frame.
    pub(super) outbox_bytes: usize,
    /// Bytes of a reply.
    pub(super) reply_bytes: usize,
    /// How many times what a snapshot took of a processor subscriptions rest after it: 200 for 0.5 % of one, however often is wished for; what it takes to listen comes to that.
    pub(super) rest: u32,
    /// How many times what its answers took of a processor a client waits for its next one: 50 for 2 % of a processor a client.
    pub(super) pays: u32,
    /// What its answers may take of a processor before it waits.
    pub(super) credit: Duration,
}

impl Limits {
    pub(super) const DEFAULT: Limits = Limits {
        clients: 8,
        request: Duration::from_secs(5),
        unread: Duration::from_secs(30),
        outbox_bytes: 256 * 1024,
        reply_bytes: MAX_REPLY_BYTES,
        rest: 200,
        pays: 50,
        credit: Duration::from_millis(100),
    };
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    /// The client left.
    Left,
    /// It sent what is no request.
    Malformed,
    /// It asked nothing, or did not end what it began.
    Silent,
    /// It did not read.
    Slow,
}

#[derive(Debug)]
struct Subscription {
    interval: Duration,
    next_at: Instant,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: UnixStream,
    inbox: Vec<u8>,
    outbox: VecDeque<Vec<u8>>,
    outbox_bytes: usize,
    /// Bytes of the first frame in the outbox that the kernel has taken.
    sent: usize,
    /// There may be something to read. Set by an event, cleared by a read that finds nothing: events come once an edge.
    is_readable: bool,
    /// It asked for a snapshot.
    is_owed: bool,
    /// When all that its answers took is paid off. It may lie ahead of now by the credit's worth.
    paid_at: Instant,
    /// Its next request is not read before.
    read_at: Option<Instant>,
    subscription: Option<Subscription>,
    /// What it records.
    pub(super) recording: Option<Recording>,
    /// When a request must be whole.
    request_by: Option<Instant>,
    /// When the outbox must have moved on.
    read_by: Option<Instant>,
    lost: u64,
}

/// What came out of [`Connection::read`].
#[derive(Debug, PartialEq)]
pub(super) enum Asked {
    Nothing,
    /// Something that is answered by the next snapshot.
    Snapshot,
    /// Something that is answered at once.
    Other(Request),
    /// Something that this version does not know.
    Unknown,
}

impl Connection {
    pub(super) fn new(socket: UnixStream, now: Instant, limits: &Limits) -> Self {
        Self {
            socket,
            inbox: Vec::new(),
            outbox: VecDeque::new(),
            outbox_bytes: 0,
            sent: 0,
            is_readable: true,
            is_owed: false,
            paid_at: now,
            read_at: None,
            subscription: None,
            recording: None,
            request_by: Some(now + limits.request),
            read_by: None,
            lost: 0,
        }
    }

    /// An event came for it.
    pub(super) fn wake(&mut self) {
        self.is_readable = true;
    }

    /// Whether [`Connection::read`] would do something at `now`.
    pub(super) fn may_read(&self, now: Instant) -> bool {
        self.would_read() && self.read_at.is_none_or(|at| at <= now)
    }

    /// The same, had it nothing to pay off.
    fn would_read(&self) -> bool {
        self.is_readable && self.outbox.is_empty() && !self.is_owed
    }

    /// Its answer took so much of a processor. See *A client's share is bounded*.
    pub(super) fn charge(&mut self, took: Duration, now: Instant, limits: &Limits) {
        self.paid_at = self.paid_at.max(now) + took * limits.pays;
        self.read_at = self.paid_at.checked_sub(limits.credit * limits.pays).filter(|&at| at > now);
    }

    /// Whether it is owed a snapshot.
    pub(super) fn is_owed(&self) -> bool {
        self.is_owed
    }

    /// Snapshots that it missed so far.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Reads until there is one request, or nothing more to read.
    pub(super) fn read(&mut self, now: Instant, limits: &Limits) -> Result<Asked, Gone> {
        let mut buffer = [0; READ_BYTES];
        loop {
            if !self.may_read(now) {
                return Ok(Asked::Nothing);
            }
            if let Some(request) = self.take_request()? {
                self.request_by = None;
                return Ok(self.accept(request, now));
            }
            match socket::receive(&self.socket, &mut buffer) {
                Ok(0) => return Err(Gone::Left),
                Ok(count) => self.inbox.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_readable = false;
                    if !self.inbox.is_empty() && self.request_by.is_none() {
                        self.request_by = Some(now + limits.request);
                    }
                }
                Err(_) => return Err(Gone::Left),
            }
        }
    }

    fn take_request(&mut self) -> Result<Option<Request>, Gone> {
        let Some(prefix) = self.inbox.first_chunk::<4>() else { return Ok(None) };
        let length = wire::body_len(*prefix, MAX_REQUEST_BYTES).map_err(|_| Gone::Malformed)?;
        let Some(body) = self.inbox[4..].get(..length) else { return Ok(None) };
        let request = wire::decode(body).map_err(|_| Gone::Malformed)?;
        self.inbox.drain(..4 + length);
        if self.inbox.is_empty() {
            // One long request is no reason to keep its memory.
            self.inbox = Vec::new();
        }
        Ok(Some(request))
    }

    fn accept(&mut self, request: Request, now: Instant) -> Asked {
        match request {
            Request::Snapshot => self.is_owed = true,
            Request::Subscribe { interval_ms } => {
                let interval = Duration::from_millis(interval_ms.max(MIN_INTERVAL_MS));
                self.subscription = Some(Subscription { interval, next_at: now });
            }
            request @ (Request::Record { .. }
            | Request::Recorder { .. }
            | Request::Why { .. }
            | Request::Tasks { .. }
            | Request::Processes { .. }) => {
                return Asked::Other(request);
            }
            _ => return Asked::Unknown,
        }
        Asked::Snapshot
    }

    /// Owes it a snapshot if its subscription is due. Ticks that were slept through are not made up for.
    pub(super) fn tick(&mut self, now: Instant) {
        let Some(subscription) = &mut self.subscription else { return };
        if subscription.next_at <= now {
            self.is_owed = true;
            subscription.next_at += subscription.interval;
            if subscription.next_at <= now {
                subscription.next_at = now + subscription.interval;
            }
        }
    }

    /// The next snapshot of its subscription is not due before `until`.
    pub(super) fn rest(&mut self, until: Instant) {
        if let Some(subscription) = &mut self.subscription {
            subscription.next_at = subscription.next_at.max(until);
        }
    }

    /// Puts the next frames of its recording into the outbox, as long as the kernel takes them.
    pub(super) fn send_recording(&mut self, now: Instant, limits: &Limits, registry: &Registry) -> Result<(), Gone> {
        while self.outbox.is_empty()
            && let Some(recording) = &mut self.recording
        {
            match recording.next_frame(now, limits.reply_bytes, registry) {
                Ok(None) => break,
                Ok(Some(frame)) => _ = self.push(frame, limits),
                Err(message) => {
                    self.recording = None;
                    if let Ok(frame) = wire::encode(&Reply::Error { message }, limits.reply_bytes) {
                        self.push(frame, limits);
                    }
                }
            }
            self.flush(now, limits)?;
        }
        Ok(())
    }

    /// Sends what it is owed; `false` if that is skipped because it reads too slowly.
    pub(super) fn answer(&mut self, frame: Vec<u8>, limits: &Limits) -> bool {
        self.is_owed = false;
        let fits = self.push(frame, limits);
        self.lost += u64::from(!fits);
        fits
    }

    /// Puts a frame into the outbox, if it fits.
    pub(super) fn push(&mut self, frame: Vec<u8>, limits: &Limits) -> bool {
        let fits = self.outbox.is_empty() || self.outbox_bytes + frame.len() <= limits.outbox_bytes;
        if fits {
            self.outbox_bytes += frame.len();
            self.outbox.push_back(frame);
        }
        fits
    }

    /// Sends what the kernel takes.
    pub(super) fn flush(&mut self, now: Instant, limits: &Limits) -> Result<(), Gone> {
        while let Some(frame) = self.outbox.front() {
            match socket::send(&self.socket, &frame[self.sent..]) {
                Ok(count) => {
                    self.sent += count;
                    self.read_by = None;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.read_by.get_or_insert(now + limits.unread);
                    return Ok(());
                }
                Err(_) => return Err(Gone::Left),
            }
            if self.sent == frame.len() {
                self.outbox_bytes -= frame.len();
                self.sent = 0;
                self.outbox.pop_front();
            }
        }
        Ok(())
    }

    /// Whether it made somebody wait too long.
    pub(super) fn check(&self, now: Instant) -> Result<(), Gone> {
        let is_over = |by: Option<Instant>| by.is_some_and(|by| by <= now);
        if is_over(self.read_by) {
            Err(Gone::Slow)
        } else if is_over(self.request_by) {
            Err(Gone::Silent)
        } else {
            Ok(())
        }
    }

    /// When it is to be looked at again if nothing comes from it.
    pub(super) fn due_at(&self) -> Option<Instant> {
        let tick = self.subscription.as_ref().map(|subscription| subscription.next_at);
        // One that does not read is not collected for.
        let recording = self.recording.as_ref().filter(|_| self.outbox.is_empty()).map(Recording::due_at);
        let request = self.read_at.filter(|_| self.would_read());
        [tick, recording, request, self.request_by, self.read_by].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const LIMITS: Limits = Limits { unread: SECOND, ..Limits::DEFAULT };

    /// A connection, the client's end of it, and the moment at which it was made.
    fn pair() -> (Connection, std::os::unix::net::UnixStream, Instant) {
        let (server, client) = std::os::unix::net::UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        let now = Instant::now();
        (Connection::new(UnixStream::from_std(server), now, &LIMITS), client, now)
    }

    fn ask(connection: &mut Connection, client: &std::os::unix::net::UnixStream, request: Request, now: Instant) {
        wire::write_frame(client, &request, MAX_REQUEST_BYTES).unwrap();
        connection.wake();
        assert_eq!(connection.read(now, &LIMITS), Ok(Asked::Snapshot));
    }

    #[test]
    fn an_interval_shorter_than_the_shortest_is_raised_to_it() {
        let (mut connection, client, now) = pair();
        ask(&mut connection, &client, Request::Subscribe { interval_ms: 0 }, now);
        connection.tick(now);
        assert!(connection.is_owed(), "the first at once");
        assert!(connection.answer(vec![0], &LIMITS));
        let shortest = Duration::from_millis(MIN_INTERVAL_MS);
        assert_eq!(connection.due_at(), Some(now + shortest));
        connection.tick(now + shortest - Duration::from_nanos(1));
        assert!(!connection.is_owed(), "not before it is due");
    }

    #[test]
    fn ticks_that_were_slept_through_are_not_made_up_for() {
        let (mut connection, client, now) = pair();
        ask(&mut connection, &client, Request::Subscribe { interval_ms: 1000 }, now);
        connection.tick(now + SECOND / 2);
        assert_eq!(connection.due_at(), Some(now + SECOND), "the beat is kept when a tick is a little late");
        connection.tick(now + 10 * SECOND);
        assert_eq!(connection.due_at(), Some(now + 11 * SECOND));
    }

    #[test]
    fn a_rest_puts_the_next_tick_off_and_never_brings_it_forward() {
        let (mut connection, client, now) = pair();
        ask(&mut connection, &client, Request::Subscribe { interval_ms: 1000 }, now);
        connection.tick(now);
        connection.rest(now + SECOND / 2);
        assert_eq!(connection.due_at(), Some(now + SECOND));
        connection.rest(now + 3 * SECOND);
        assert_eq!(connection.due_at(), Some(now + 3 * SECOND));
    }

    #[test]
    fn a_client_that_floods_waits_until_its_answers_are_paid_off() {
        let (mut connection, client, now) = pair();
        // As it would be with a request of each at hand.
        let may_read = |connection: &mut Connection, now| {
            wire::write_frame(&client, &Request::Snapshot, MAX_REQUEST_BYTES).unwrap();
            connection.wake();
            let asked = connection.read(now, &LIMITS).unwrap();
            connection.answer(vec![], &LIMITS);
            connection.flush(now, &LIMITS).unwrap();
            connection.outbox.clear();
            asked == Asked::Snapshot
        };
        connection.charge(LIMITS.credit, now, &LIMITS);
        assert!(may_read(&mut connection, now), "its credit");
        let took = Duration::from_millis(10);
        connection.charge(took, now, &LIMITS);
        assert!(!may_read(&mut connection, now), "it is read again");
        let paid_at = now + took * LIMITS.pays;
        assert_eq!(connection.due_at(), Some(paid_at), "the server comes back for it");
        assert!(!may_read(&mut connection, paid_at - Duration::from_nanos(1)));
        assert!(may_read(&mut connection, paid_at));
        // Whoever asks once a second for what takes its share never waits.
        let mut later = paid_at + LIMITS.credit * LIMITS.pays;
        for _ in 0..1_000 {
            connection.charge(SECOND / LIMITS.pays, later, &LIMITS);
            later += SECOND;
            assert!(may_read(&mut connection, later));
        }
    }

    #[test]
    fn a_client_is_slow_from_when_it_last_read() {
        let (mut connection, mut client, now) = pair();
        ask(&mut connection, &client, Request::Snapshot, now);
        let frame = vec![0; 4 * 1024 * 1024];
        assert!(connection.answer(frame, &LIMITS), "one frame always fits");
        connection.flush(now, &LIMITS).unwrap();
        assert_eq!(connection.due_at(), Some(now + SECOND), "the kernel's buffer is full");
        let later = now + SECOND / 2;
        connection.flush(later, &LIMITS).unwrap();
        assert_eq!(connection.due_at(), Some(now + SECOND), "no byte went: no new time");
        assert_eq!(connection.check(later), Ok(()));
        assert_eq!(connection.check(now + SECOND), Err(Gone::Slow));

        let mut left = 4 * 1024 * 1024;
        left -= client.read(&mut [0; 128 * 1024]).unwrap();
        connection.flush(later, &LIMITS).unwrap();
        assert_eq!(connection.due_at(), Some(later + SECOND), "it has read, its time begins anew");
        while left > 0 {
            left -= client.read(&mut [0; 64 * 1024]).unwrap();
            connection.flush(later, &LIMITS).unwrap();
        }
        assert_eq!(connection.due_at(), None, "nothing to wait for");
    }

    #[test]
    fn the_outbox_takes_one_frame_of_any_size_or_several_below_its_limit() {
        let (mut connection, _client, _) = pair();
        assert!(connection.push(vec![0; LIMITS.outbox_bytes - 10], &LIMITS));
        assert!(!connection.answer(vec![0; 11], &LIMITS));
        assert_eq!(connection.lost(), 1);
        assert!(connection.answer(vec![0; 10], &LIMITS));
        assert!(!connection.answer(vec![0], &LIMITS));
        assert_eq!(connection.lost(), 2);
        let (mut connection, _client, _) = pair();
        assert!(connection.push(vec![0; LIMITS.outbox_bytes + 1], &LIMITS));
    }

    #[test]
    fn the_rest_of_a_request_has_its_own_time() {
        let (mut connection, mut client, now) = pair();
        let frame = wire::encode(&Request::Snapshot, MAX_REQUEST_BYTES).unwrap();
        let both = [&frame[..], &frame[..5]].concat();
        io::Write::write_all(&mut client, &both).unwrap();
        assert_eq!(connection.read(now, &LIMITS), Ok(Asked::Snapshot));
        assert_eq!(connection.due_at(), None, "while it is owed an answer it need not ask");
        assert!(connection.answer(vec![0], &LIMITS));
        connection.flush(now, &LIMITS).unwrap();
        let later = now + 100 * SECOND;
        assert_eq!(connection.read(later, &LIMITS), Ok(Asked::Nothing));
        assert_eq!(connection.due_at(), Some(later + LIMITS.request));
        assert_eq!(connection.check(later + LIMITS.request), Err(Gone::Silent));
    }
}
