//! One client: its bytes in, its bytes out, and what it is owed.
//!
//! Shape: `inbox` holds what has come and is not yet a whole request; `outbox` holds whole frames
//! that the kernel has not yet taken. Nothing here blocks, and nothing here takes a snapshot.
//!
//! Who calls: the server's loop only, one thread.
//!
//! Invariants. *One answer at a time*: while one is owed or in the outbox, no further request is
//! read, so the client's own impatience stops it and not our memory. *The inbox is bounded* by one
//! frame and one read; nothing is allocated by a declared length. *A client's share is bounded*:
//! what its answers have taken of a processor is paid off by waiting, during which its next request
//! is not read; it gets a notice, and a client with few requests never notices. A place in the
//! server keeps the unpaid processor time of its last client, so reconnecting does not reset the
//! limit. *The outbox is bounded*: a frame joins it when it is empty, or when it stays below the
//! limit; a snapshot of a subscription that does not fit is skipped and counted. *Every wait ends*:
//! for the first request, for the rest of a request that has begun, for a client to read.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use mio::net::UnixStream;
use volt_telemetry::socket;
use volt_telemetry::wire::{self, MAX_REQUEST_BYTES, MIN_INTERVAL_MS, Reply, Request};

use super::limits::Limits;
use super::recording::Recording;
use super::registry::Registry;

/// Bytes read at once.
const READ_BYTES: usize = 4096;

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
    /// There may be something to read. Set by an event, cleared by a read that finds nothing:
    /// events come once an edge.
    is_readable: bool,
    /// Nobody reads its answers any more.
    is_hung_up: bool,
    /// It asked for a snapshot.
    is_owed: bool,
    /// When all that its answers took is paid off. It may lie ahead of now by the credit's worth.
    paid_at: Instant,
    /// Its next request is not read before.
    read_at: Option<Instant>,
    /// What reading the request took that is not answered yet; it is charged with the answer.
    unpaid: Duration,
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
    /// In a place where `paid_at` is when what earlier clients took is paid off.
    pub(super) fn new(socket: UnixStream, now: Instant, paid_at: Instant, limits: &Limits) -> Self {
        Self {
            socket,
            inbox: Vec::new(),
            outbox: VecDeque::new(),
            outbox_bytes: 0,
            sent: 0,
            is_readable: true,
            is_hung_up: false,
            is_owed: false,
            paid_at,
            read_at: None,
            unpaid: Duration::ZERO,
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

    /// The client has closed its end, so that its answers go nowhere.
    pub(super) fn hang_up(&mut self) {
        self.is_hung_up = true;
    }

    /// When all that its answers took is paid off.
    pub(super) fn paid_at(&self) -> Instant {
        self.paid_at
    }

    /// Whether [`Connection::read`] would do something at `now`.
    pub(super) fn may_read(&self, now: Instant) -> bool {
        self.would_read() && !self.is_waiting(now)
    }

    /// The same, had it nothing to pay off.
    fn would_read(&self) -> bool {
        self.is_readable && self.outbox.is_empty() && !self.is_owed
    }

    /// Reading its request took so much of a processor. Charged later, if its answer is still to
    /// come: the answer joins an empty outbox whatever its size, and beside a notice that it
    /// has to wait it might not fit.
    #[must_use = "it is counted how often clients are made to wait"]
    pub(super) fn charge_request(&mut self, took: Duration, now: Instant, limits: &Limits) -> bool {
        if self.is_owed {
            self.unpaid += took;
            return false;
        }
        self.charge(took, now, limits)
    }

    /// Its answer took so much of a processor. See *A client's share is bounded*. Returns whether
    /// it has to wait from now on; then the outbox has a notice of it, to be flushed.
    #[must_use = "it is counted how often clients are made to wait"]
    pub(super) fn charge(&mut self, took: Duration, now: Instant, limits: &Limits) -> bool {
        let was_waiting = self.is_waiting(now);
        let took = took + std::mem::take(&mut self.unpaid);
        self.paid_at = self.paid_at.max(now) + took * limits.pays;
        self.read_at = self.paid_at.checked_sub(limits.credit * limits.pays).filter(|&at| at > now);
        if let (Some(read_at), Some(request_by)) = (self.read_at, &mut self.request_by) {
            // It is not silent while it is not read.
            *request_by = (*request_by).max(read_at + limits.request);
        }
        let Some(read_at) = self.read_at.filter(|_| !was_waiting) else { return false };
        let wait_ms = u64::try_from((read_at - now).as_millis()).unwrap_or(u64::MAX).max(1);
        if let Ok(frame) = wire::encode(&Reply::Throttled { wait_ms }, limits.reply_bytes) {
            self.push(frame, limits);
        }
        true
    }

    /// Whether its next request is not read at `now`, since it has something to pay off.
    fn is_waiting(&self, now: Instant) -> bool {
        self.read_at.is_some_and(|at| at > now)
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

    /// Owes it a snapshot if its subscription is due. Ticks that were slept through are not made up
    /// for.
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
        if self.is_hung_up && self.is_waiting(now) {
            // Its end is read behind the requests before it, which would be at the end of the wait.
            Err(Gone::Left)
        } else if is_over(self.read_by) {
            Err(Gone::Slow)
        } else if is_over(self.request_by) {
            Err(Gone::Silent)
        } else {
            Ok(())
        }
    }

    /// When it is to be checked again if nothing comes from it.
    pub(super) fn due_at(&self) -> Option<Instant> {
        let tick = self.subscription.as_ref().map(|subscription| subscription.next_at);
        // One that does not read is not collected for.
        let recording = self.recording.as_ref().filter(|_| self.outbox.is_empty()).map(Recording::due_at);
        let request = self.read_at.filter(|_| self.would_read());
        [tick, recording, request, self.request_by, self.read_by].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests;
