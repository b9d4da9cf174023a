//! One client of the control socket: the bytes that it sends, the bytes sent to it, and the answers
//! that are due to it.
//!
//! Only the thread of the server's loop uses it. `inbox` contains the bytes received that are not
//! yet a whole request. `outbox` contains whole frames that the kernel has not yet accepted.
//! Nothing here blocks, and nothing here takes a snapshot.
//!
//! An ordinary case: a console requests a snapshot. Its bytes are read into the inbox until the
//! request is complete. An answer is due now. The server takes the snapshot, and its frame goes to
//! the outbox, and from there to the kernel, as far as the kernel accepts it. When all of it is
//! sent, the next request is read.
//!
//! Invariants:
//! * *One answer at a time*: while an answer is due or in the outbox, no further request is read.
//!   So a client that sends too many requests blocks itself instead of using our memory.
//! * *The inbox is bounded* by one frame and one read; a declared length allocates nothing.
//! * *A client's share is bounded*: the processor time of its answers is paid off by waiting,
//!   during which its next request is not read. It gets a notice. A client with few requests never
//!   has to wait. A place in the server keeps the unpaid processor time of its last client, so
//!   reconnecting does not reset the limit.
//! * *The outbox is bounded*: a frame is added if the outbox is empty or stays below the limit; a
//!   snapshot of a subscription that does not fit is skipped and counted.
//! * *Every wait ends*: for the first request, for the rest of a request that has begun, for a
//!   client to read.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use mio::net::UnixStream;
use volt_telemetry::socket;
use volt_telemetry::wire::{self, MAX_REQUEST_BYTES, MIN_INTERVAL_MS, Reply, Request};

use super::dumping::Dumping;
use super::limits::Limits;
use super::recording::Recording;
use super::registry::Registry;

/// Bytes per read.
const READ_BYTES: usize = 4096;

/// The reason why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// The client closed it.
    Left,
    /// The client sent an invalid request.
    Malformed,
    /// The client sent no request, or did not complete one.
    Silent,
    /// The client did not read its answers.
    Slow,
}

#[derive(Debug)]
struct Subscription {
    interval: Duration,
    next_at: Instant,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: UnixStream,
    inbox: Vec<u8>,
    outbox: VecDeque<Vec<u8>>,
    outbox_bytes: usize,
    /// Bytes of the first frame in the outbox that the kernel has accepted.
    sent: usize,
    /// Whether there may be something to read. Set by an event and cleared by a read that finds
    /// nothing, since events are edge-triggered.
    is_readable: bool,
    /// Whether the client has stopped reading its answers for good.
    is_hung_up: bool,
    /// Whether it requested a snapshot that was not sent yet.
    is_owed: bool,
    /// When the processor time of all its answers is paid off. It may be ahead of now by the
    /// credit.
    paid_at: Instant,
    /// Its next request is not read before this.
    read_at: Option<Instant>,
    /// Processor time of reading a request whose answer is not sent yet. It is charged with the
    /// answer.
    unpaid: Duration,
    subscription: Option<Subscription>,
    /// The recording that it receives.
    pub(super) recording: Option<Recording>,
    /// The dump that is being made for it.
    pub(super) dumping: Option<Dumping>,
    /// When a request must be complete.
    request_by: Option<Instant>,
    /// When some of the outbox must have been sent.
    read_by: Option<Instant>,
    lost: u64,
}

/// The result of [`Connection::read`].
#[derive(Debug, PartialEq)]
pub(super) enum Requested {
    Nothing,
    /// A request for the next snapshot.
    Snapshot,
    /// A request that is answered immediately.
    Other(Request),
    /// A request that this version does not support.
    Unknown,
}

impl Connection {
    /// Creates a connection in a place whose earlier clients have paid off their processor time at
    /// `paid_at`.
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
            dumping: None,
            request_by: Some(now + limits.request),
            read_by: None,
            lost: 0,
        }
    }

    /// Records that an event came for this client.
    pub(super) fn wake(&mut self) {
        self.is_readable = true;
    }

    /// Records that the client has closed its end, so that its answers go nowhere.
    pub(super) fn hang_up(&mut self) {
        self.is_hung_up = true;
    }

    /// Returns when the processor time of all its answers is paid off.
    pub(super) fn paid_at(&self) -> Instant {
        self.paid_at
    }

    /// Returns whether [`Connection::read`] would do something at `now`.
    pub(super) fn may_read(&self, now: Instant) -> bool {
        self.would_read() && !self.is_waiting(now)
    }

    /// The same without regard to what it has to pay off.
    fn would_read(&self) -> bool {
        self.is_readable && self.outbox.is_empty() && !self.is_owed && self.dumping.is_none()
    }

    /// Charges the processor time of reading its request. If the answer is still to come, charges
    /// it later: the answer is added to an empty outbox whatever its size, but might not fit after
    /// a notice that the client has to wait.
    #[must_use = "true means that the client has to wait; the caller counts that"]
    pub(super) fn charge_request(&mut self, took: Duration, now: Instant, limits: &Limits) -> bool {
        if self.is_owed {
            self.unpaid += took;
            return false;
        }
        self.charge(took, now, limits)
    }

    /// Charges the processor time of its answer. See *A client's share is bounded*. Returns whether
    /// the client has to wait from now on; then there is a notice in the outbox, which the caller
    /// has to flush.
    #[must_use = "true means that the client has to wait; the caller counts that"]
    pub(super) fn charge(&mut self, took: Duration, now: Instant, limits: &Limits) -> bool {
        let was_waiting = self.is_waiting(now);
        let took = took + std::mem::take(&mut self.unpaid);
        self.paid_at = self.paid_at.max(now) + took * limits.pays;
        self.read_at = self.paid_at.checked_sub(limits.credit * limits.pays).filter(|&at| at > now);
        if let (Some(read_at), Some(request_by)) = (self.read_at, &mut self.request_by) {
            // The client does not count as silent while its requests are not read.
            *request_by = (*request_by).max(read_at + limits.request);
        }
        let Some(read_at) = self.read_at.filter(|_| !was_waiting) else { return false };
        let wait_ms = u64::try_from((read_at - now).as_millis()).unwrap_or(u64::MAX).max(1);
        if let Ok(frame) = (Reply::Throttled { wait_ms }).to_frame(limits.reply_bytes) {
            self.push(frame, limits);
        }
        true
    }

    /// Returns whether its next request is not read at `now`, because it has something to pay off.
    fn is_waiting(&self, now: Instant) -> bool {
        self.read_at.is_some_and(|at| at > now)
    }

    /// Returns whether it is owed a snapshot.
    pub(super) fn is_owed(&self) -> bool {
        self.is_owed
    }

    /// Returns the number of snapshots that were skipped so far.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Reads until there is one whole request, or nothing more to read.
    pub(super) fn read(&mut self, now: Instant, limits: &Limits) -> Result<Requested, Closed> {
        let mut buffer = [0; READ_BYTES];
        loop {
            if !self.may_read(now) {
                return Ok(Requested::Nothing);
            }
            if let Some(request) = self.take_request()? {
                self.request_by = None;
                return Ok(self.accept(request, now));
            }
            match socket::receive(&self.socket, &mut buffer) {
                Ok(0) => return Err(Closed::Left),
                Ok(count) => self.inbox.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_readable = false;
                    if !self.inbox.is_empty() && self.request_by.is_none() {
                        self.request_by = Some(now + limits.request);
                    }
                }
                Err(_) => return Err(Closed::Left),
            }
        }
    }

    fn take_request(&mut self) -> Result<Option<Request>, Closed> {
        let Some(prefix) = self.inbox.first_chunk::<4>() else { return Ok(None) };
        let length = wire::body_len(*prefix, MAX_REQUEST_BYTES).map_err(|_| Closed::Malformed)?;
        let Some(body) = self.inbox[4..].get(..length) else { return Ok(None) };
        let request = Request::from_body(body).map_err(|_| Closed::Malformed)?;
        self.inbox.drain(..4 + length);
        if self.inbox.is_empty() {
            // One long request is no reason to keep its memory.
            self.inbox = Vec::new();
        }
        Ok(Some(request))
    }

    fn accept(&mut self, request: Request, now: Instant) -> Requested {
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
            | Request::Processes { .. }
            | Request::Dump { .. }) => {
                return Requested::Other(request);
            }
            _ => return Requested::Unknown,
        }
        Requested::Snapshot
    }

    /// Marks a snapshot as owed if the subscription is due. Missed snapshots are not sent later.
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

    /// Delays the next snapshot of its subscription until `until`.
    pub(super) fn rest(&mut self, until: Instant) {
        if let Some(subscription) = &mut self.subscription {
            subscription.next_at = subscription.next_at.max(until);
        }
    }

    /// Adds the next frames of its recording to the outbox, as long as the kernel accepts them.
    pub(super) fn send_recording(&mut self, now: Instant, limits: &Limits, registry: &Registry) -> Result<(), Closed> {
        while self.outbox.is_empty()
            && let Some(recording) = &mut self.recording
        {
            match recording.next_frame(now, limits.reply_bytes, registry) {
                Ok(None) => break,
                Ok(Some(frame)) => _ = self.push(frame, limits),
                Err(message) => {
                    self.recording = None;
                    if let Ok(frame) = (Reply::Error { message }).to_frame(limits.reply_bytes) {
                        self.push(frame, limits);
                    }
                }
            }
            self.flush(now, limits)?;
        }
        Ok(())
    }

    /// Sends the snapshot that is owed. Returns `false` if it is skipped because the client reads
    /// too slowly.
    pub(super) fn answer(&mut self, frame: Vec<u8>, limits: &Limits) -> bool {
        self.is_owed = false;
        let fits = self.push(frame, limits);
        self.lost += u64::from(!fits);
        fits
    }

    /// Adds a frame to the outbox, if it fits.
    pub(super) fn push(&mut self, frame: Vec<u8>, limits: &Limits) -> bool {
        let fits = self.outbox.is_empty() || self.outbox_bytes + frame.len() <= limits.outbox_bytes;
        if fits {
            self.outbox_bytes += frame.len();
            self.outbox.push_back(frame);
        }
        fits
    }

    /// Sends as much as the kernel accepts.
    pub(super) fn flush(&mut self, now: Instant, limits: &Limits) -> Result<(), Closed> {
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
                Err(_) => return Err(Closed::Left),
            }
            if self.sent == frame.len() {
                self.outbox_bytes -= frame.len();
                self.sent = 0;
                self.outbox.pop_front();
            }
        }
        Ok(())
    }

    /// Returns an error if the client has exceeded a time limit.
    pub(super) fn check(&self, now: Instant) -> Result<(), Closed> {
        let is_over = |by: Option<Instant>| by.is_some_and(|by| by <= now);
        if self.is_hung_up && (self.is_waiting(now) || self.dumping.is_some()) {
            // The end of the stream is read only after the requests before it, which would be after
            // the wait, or after the dump.
            Err(Closed::Left)
        } else if is_over(self.read_by) {
            Err(Closed::Slow)
        } else if is_over(self.request_by) {
            Err(Closed::Silent)
        } else {
            Ok(())
        }
    }

    /// Returns when the client is to be checked again if no event comes from it.
    pub(super) fn due_at(&self) -> Option<Instant> {
        let tick = self.subscription.as_ref().map(|subscription| subscription.next_at);
        // Nothing is collected for a client that does not read.
        let recording = self.recording.as_ref().filter(|_| self.outbox.is_empty()).map(Recording::due_at);
        let request = self.read_at.filter(|_| self.would_read());
        let dump = self.dumping.as_ref().map(Dumping::due_at);
        [tick, recording, request, dump, self.request_by, self.read_by].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests;
