//! The conversation with one incarnation of another node. It detects lost frames by numbering them,
//! and contains the *bonds* of the two nodes: pending calls, monitors and links.
//!
//! An ordinary case: two nodes connect. Each sends a hello, and replies to the other's hello with
//! a welcome. From then on, they exchange numbered frames, and each node finds every number exactly
//! once.
//!
//! The problem: a relay may lose frames. The two nodes may also disagree on whether they have lost
//! each other, for example because one was stopped for a while. Then the bonds must end on both
//! sides. Otherwise, a caller or a monitor would wait forever for a frame that was lost. For that
//! purpose, each side numbers its frames:
//!
//! * `session`: the sender's number of this conversation. It takes a fresh, higher one whenever it
//!   starts anew. Every frame contains it, and in `received_session` the last session that the
//!   sender has received from the other side.
//! * `number`: the number of the frame within its session, from 0.
//!
//! # Protocol
//!
//! "We" is this node, "they" the other.
//!
//! 1. *Hello*: each side sends a hello when the relay reports the peer, and again whenever the
//!    relay repeats that, until 3.
//! 2. *Welcome*: a side that receives a hello replies with a welcome. So does a side for which a
//!    welcome opens the conversation.
//! 3. *Open*: the conversation is open for us once a frame contains our session in
//!    `received_session`. Before that, we send nothing except 1 and 2.
//! 4. *Stale*: a frame with a lower session than the one we have received, or without our session
//!    in `received_session`, belongs to an earlier conversation. It is ignored, unless it is a
//!    hello.
//! 5. *Duplicate*: a frame whose number we have received already is ignored. So frames are handled
//!    at most once and in order, whatever the relay does.
//! 6. *Gap*: a skipped number means that frames were lost. So does a higher session in a frame that
//!    is no hello: their hello was lost. The conversation is broken off: all its bonds end with
//!    `NoConnection`, and we start anew with a hello of a fresh session.
//! 7. *Forgotten*: a hello with a higher session means that they have started anew. The
//!    conversation is broken off here, too, and we reply from a fresh session.
//!
//! 6 and 7 terminate: a hello of a fresh session is answered by a welcome, which opens the
//! conversation, and never by another hello.
//!
//! # Invariants
//!
//! * *ONE ORDER*: frames are numbered and passed to the relay under the lock `conversation`.
//! * *SEVERED BEFORE ANEW*: breaking off takes the bonds out, takes the next session and forgets
//!   theirs, all under one lock. Until `begin`, no frame is handled or sent. So all old bonds end
//!   and no new ones. If two threads break off at the same time, only one gets the bonds.
//! * *NEVER REFUSED*: frames that are sent for their effect and not for their content (monitor,
//!   link, down, exit, cancel, kill, …) wait in `backlog` if the relay's queue is full. While
//!   `backlog` is not empty, all other frames are refused, so that none overtakes. When it reaches
//!   `BACKLOG_MAX`, the conversation is broken off.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;

use super::frame::{Frame, Head, Outcome, Place, put_head};
use super::relay::{Peer, Relay};
use super::traffic::Traffic;
use crate::entry::relations::Watcher;
use crate::messages::event::MonitorId;
use crate::messages::pid::Pid;
use volt::sync::oneshot;

/// The maximum number of monitors and links that a peer may have on processes of this node. This is
/// more than a relay can serve, and bounds the memory.
pub(crate) const BONDS_MAX: usize = 1 << 20;
/// The maximum number of frames in the backlog. A peer that exceeds it does not keep up, and is
/// disconnected.
const BACKLOG_MAX: usize = 1 << 16;

/// The conversation with one incarnation of another node. See the module's documentation.
#[derive(Debug)]
pub(crate) struct Line {
    pub peer: Peer,
    conversation: Mutex<Conversation>,
}

/// The source of the session numbers for all conversations of a system.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sessions(Arc<AtomicU64>);

impl Sessions {
    /// Returns the next session. 0 means that there is no session.
    fn next(&self) -> u64 {
        // ORDERING: Relaxed; it only has to be unique and increasing.
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

struct Conversation {
    sessions: Sessions,
    session: u64,
    next_number: u64,
    received_session: Option<u64>,
    expected: u64,
    stage: Stage,
    backlog: VecDeque<BytesMut>,
    bonds: Bonds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Steps 1 and 2.
    Greeting,
    Open,
    /// Broken off, until [`Line::begin`].
    Severed,
    /// The peer is lost, and does not come back with this incarnation.
    Lost,
}

/// Everything that ends with a conversation.
#[derive(Default)]
pub(crate) struct Bonds {
    /// Pending calls and lookups of this node, by their numbers.
    pub pending: HashMap<u64, oneshot::Sender<Outcome>>,
    /// Processes of the other node that this node watches, by the numbers of our monitors.
    pub watching: HashMap<MonitorId, (Place, Watcher)>,
    /// Processes of this node that the other node watches, by the numbers of its monitors.
    pub watched: HashMap<u64, (Pid, MonitorId)>,
    /// Links: our process and theirs.
    pub links: HashSet<(Pid, Pid)>,
}

/// Why a frame was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotSent {
    NoConnection,
    /// The relay's queue is full.
    Full,
    /// The frame is too large for the relay.
    TooLarge,
}

/// The result of sending a frame that must not be refused.
#[must_use]
pub(crate) enum Sent {
    Done,
    /// The frame is the first in the backlog. The caller must retry [`flush`](Line::flush) until
    /// the backlog is empty.
    Waits,
    /// The backlog was full, and the conversation is broken off. The caller must end these bonds,
    /// and then call [`Line::begin`] with a hello.
    Broken(Box<Bonds>),
}

/// The action that the caller must take after a received frame. `is_opened`: the frame has opened
/// the conversation.
pub(crate) enum Received {
    /// Handle its content.
    Act { is_opened: bool },
    /// Nothing.
    Nothing,
    /// Reply with a welcome if `answers`: the frame was part of the greeting.
    Greeted { is_opened: bool, answers: bool },
    /// End these bonds, then call [`Line::begin`], with a welcome if `answers`: the conversation is
    /// broken off.
    Broken { bonds: Box<Bonds>, answers: bool },
}

impl Line {
    pub(crate) fn new(peer: Peer, sessions: &Sessions) -> Self {
        let conversation = Conversation {
            sessions: sessions.clone(),
            session: sessions.next(),
            next_number: 0,
            received_session: None,
            expected: 0,
            stage: Stage::Greeting,
            backlog: VecDeque::new(),
            bonds: Bonds::default(),
        };
        Self { peer, conversation: Mutex::new(conversation) }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.conversation().is_open()
    }

    /// Passes the bonds to `change`. Returns `None` if the conversation is not open; then it has no
    /// bonds.
    pub(crate) fn bonds<T>(&self, change: impl FnOnce(&mut Bonds) -> T) -> Option<T> {
        let mut conversation = self.conversation();
        conversation.is_open().then(|| change(&mut conversation.bonds))
    }

    /// Sends a frame that may be refused. If it was sent, adds its bond by `note`.
    pub(crate) fn send(
        &self,
        relay: &dyn Relay,
        traffic: &Traffic,
        frame: &Frame,
        note: impl FnOnce(&mut Bonds),
    ) -> Result<(), NotSent> {
        let bytes = frame.encode();
        let mut conversation = self.conversation();
        if !conversation.is_open() {
            return Err(NotSent::NoConnection);
        }
        if !conversation.backlog.is_empty() {
            traffic.refused.add(1);
            return Err(NotSent::Full);
        }
        conversation.hand_over(self.peer, relay, traffic, bytes).map_err(|(not_sent, _bytes)| not_sent)?;
        note(&mut conversation.bonds);
        Ok(())
    }

    /// Sends a frame that must not be refused, if `note` returns true. Returns `None` if the
    /// conversation is not open.
    pub(crate) fn must_send(
        &self,
        relay: &dyn Relay,
        traffic: &Traffic,
        frame: &Frame,
        note: impl FnOnce(&mut Bonds) -> bool,
    ) -> Option<Sent> {
        let bytes = frame.encode();
        let mut conversation = self.conversation();
        let is_wanted = conversation.is_open().then(|| note(&mut conversation.bonds))?;
        Some(if is_wanted { conversation.queue(self.peer, relay, traffic, bytes) } else { Sent::Done })
    }

    /// Step 1 or 2.
    pub(crate) fn greet(&self, relay: &dyn Relay, traffic: &Traffic, is_answer: bool) -> Sent {
        self.conversation().greet(self.peer, relay, traffic, is_answer)
    }

    /// Passes the backlog to the relay. Returns false if some of it is left.
    pub(crate) fn flush(&self, relay: &dyn Relay, traffic: &Traffic) -> bool {
        let mut conversation = self.conversation();
        while let Some(bytes) = conversation.backlog.pop_front() {
            if let Err((NotSent::Full, bytes)) = conversation.hand_over(self.peer, relay, traffic, bytes) {
                conversation.backlog.push_front(bytes);
                return false;
            }
        }
        true
    }

    /// Receives a frame: steps 2 to 7.
    pub(crate) fn receive(&self, traffic: &Traffic, head: Head, is_hello: bool, is_welcome: bool) -> Received {
        let mut conversation = self.conversation();
        if matches!(conversation.stage, Stage::Severed | Stage::Lost) {
            traffic.stale.add(1);
            return Received::Nothing;
        }
        let knows_ours = head.received_session == conversation.session;
        match conversation.received_session {
            Some(received_session) if head.session < received_session => {
                traffic.stale.add(1);
                return Received::Nothing;
            }
            Some(received_session) if head.session > received_session && is_hello => {
                let bonds = conversation.break_off();
                (conversation.received_session, conversation.expected) = (Some(head.session), head.number + 1);
                return Received::Broken { bonds, answers: true };
            }
            Some(received_session) if head.session > received_session => {
                // Their hello was lost.
                traffic.lost.add(head.number);
                return Received::Broken { bonds: conversation.break_off(), answers: false };
            }
            Some(_) => {}
            None if is_hello || (is_welcome && knows_ours) => {
                conversation.received_session = Some(head.session);
                conversation.expected = head.number;
            }
            None => {
                traffic.stale.add(1);
                return Received::Nothing;
            }
        }
        if head.number < conversation.expected {
            traffic.duplicates.add(1);
            return Received::Nothing;
        }
        if head.number > conversation.expected {
            traffic.lost.add(head.number - conversation.expected);
            return Received::Broken { bonds: conversation.break_off(), answers: false };
        }
        conversation.expected += 1;
        if !knows_ours && !is_hello {
            traffic.stale.add(1);
            return Received::Nothing;
        }
        let is_opened = knows_ours && conversation.stage == Stage::Greeting;
        if is_opened {
            conversation.stage = Stage::Open;
        }
        match is_hello || is_welcome {
            true => Received::Greeted { is_opened, answers: is_hello || is_opened },
            false => Received::Act { is_opened },
        }
    }

    /// Starts anew, after all bonds of the conversation that was broken off have ended.
    pub(crate) fn begin(&self, relay: &dyn Relay, traffic: &Traffic, is_answer: bool) -> Sent {
        let mut conversation = self.conversation();
        if conversation.stage == Stage::Severed {
            conversation.stage = Stage::Greeting;
        }
        conversation.greet(self.peer, relay, traffic, is_answer)
    }

    /// Ends the conversation because the peer is lost. Returns the bonds.
    pub(crate) fn lose(&self) -> Box<Bonds> {
        let mut conversation = self.conversation();
        let bonds = conversation.break_off();
        conversation.stage = Stage::Lost;
        bonds
    }

    fn conversation(&self) -> MutexGuard<'_, Conversation> {
        // If a relay panics under this lock, a frame may be lost, which the peer detects as a gap.
        self.conversation.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Conversation {
    fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    fn greet(&mut self, peer: Peer, relay: &dyn Relay, traffic: &Traffic, is_answer: bool) -> Sent {
        let is_due = self.stage == Stage::Greeting || (self.is_open() && is_answer);
        // Frames in the backlog will carry the same sessions as a greeting would.
        if !is_due || !self.backlog.is_empty() {
            return Sent::Done;
        }
        let frame = if is_answer { Frame::Welcome } else { Frame::Hello };
        self.queue(peer, relay, traffic, frame.encode())
    }

    /// Passes a frame to the relay, or adds it to the backlog if the relay's queue is full.
    fn queue(&mut self, peer: Peer, relay: &dyn Relay, traffic: &Traffic, bytes: BytesMut) -> Sent {
        let bytes = match self.backlog.is_empty() {
            true => match self.hand_over(peer, relay, traffic, bytes) {
                Err((NotSent::Full, bytes)) => bytes,
                // If the peer is lost, `peer_down` ends the bonds, and the frame is not needed.
                Ok(()) | Err(_) => return Sent::Done,
            },
            false => bytes,
        };
        if self.backlog.len() == BACKLOG_MAX {
            return Sent::Broken(self.break_off());
        }
        self.backlog.push_back(bytes);
        // The thread that added the first frame retries the whole backlog.
        if self.backlog.len() == 1 { Sent::Waits } else { Sent::Done }
    }

    fn hand_over(
        &mut self,
        peer: Peer,
        relay: &dyn Relay,
        traffic: &Traffic,
        mut bytes: BytesMut,
    ) -> Result<(), (NotSent, BytesMut)> {
        let head = Head {
            session: self.session,
            received_session: self.received_session.unwrap_or(0),
            number: self.next_number,
        };
        put_head(&mut bytes, head);
        let bytes = bytes.freeze();
        match relay.send(peer, bytes.clone()) {
            Ok(()) => {
                self.next_number += 1;
                traffic.sent.add(1);
                Ok(())
            }
            Err(error) => {
                traffic.refused.add(1);
                let not_sent = match error {
                    _ if error.is_full() => NotSent::Full,
                    _ if error.is_too_large() => NotSent::TooLarge,
                    _ => NotSent::NoConnection,
                };
                Err((not_sent, bytes.into()))
            }
        }
    }

    /// Breaks the conversation off, and returns its bonds. The session is taken under the lock.
    /// Otherwise a later hello might carry the lower session, and be ignored as stale.
    fn break_off(&mut self) -> Box<Bonds> {
        self.stage = Stage::Severed;
        (self.session, self.next_number) = (self.sessions.next(), 0);
        (self.received_session, self.expected) = (None, 0);
        self.backlog.clear();
        Box::new(std::mem::take(&mut self.bonds))
    }
}

impl std::fmt::Debug for Conversation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conversation").field("stage", &self.stage).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::atomic::AtomicBool;

    use bytes::Bytes;

    use super::*;
    use crate::messages::pid::Node;
    use crate::nodes::relay::{Incoming, RelayError};

    const PEER: Peer = Peer { node: Node::LOCAL, incarnation: 1 };

    /// A relay that accepts all frames, or reports a full queue.
    #[derive(Default)]
    struct Sink {
        is_full: AtomicBool,
    }

    impl Relay for Sink {
        fn node(&self) -> Node {
            Node::LOCAL
        }

        fn start(&self, _incoming: Incoming) -> Result<(), RelayError> {
            Ok(())
        }

        fn send(&self, _to: Peer, _frame: Bytes) -> Result<(), RelayError> {
            // ORDERING: Relaxed; one thread.
            if self.is_full.load(Ordering::Relaxed) { Err(RelayError::full()) } else { Ok(()) }
        }

        fn leave(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
            Box::pin(std::future::ready(()))
        }
    }

    /// Returns an open conversation, in which the peer has sent a hello and a welcome in its
    /// session 7.
    fn open(traffic: &Traffic) -> Line {
        let line = Line::new(PEER, &Sessions::default());
        let hello = line.receive(traffic, Head { session: 7, received_session: 0, number: 0 }, true, false);
        assert!(matches!(hello, Received::Greeted { is_opened: false, answers: true }));
        let welcome = line.receive(traffic, Head { session: 7, received_session: 1, number: 1 }, false, true);
        assert!(matches!(welcome, Received::Greeted { is_opened: true, answers: true }));
        line
    }

    /// Sends frames that must not be refused to a relay whose queue is full, until the conversation
    /// is broken off.
    fn overrun(line: &Line, sink: &Sink, traffic: &Traffic) -> Box<Bonds> {
        // ORDERING: Relaxed; one thread.
        sink.is_full.store(true, Ordering::Relaxed);
        loop {
            if let Sent::Broken(bonds) = line.must_send(sink, traffic, &Frame::Probe, |_| true).unwrap() {
                // ORDERING: Relaxed; one thread.
                sink.is_full.store(false, Ordering::Relaxed);
                return bonds;
            }
        }
    }

    #[test]
    fn a_broken_line_reopens_with_a_new_session_after_notification() {
        let (sink, traffic) = (Sink::default(), Traffic::default());
        let line = open(&traffic);
        line.bonds(|bonds| bonds.watched.insert(3, (Pid::new(Node::LOCAL, 1, 1), MonitorId(4))));
        assert_eq!(overrun(&line, &sink, &traffic).watched.len(), 1);
        // A frame that the peer sent before it noticed, and a hello of a new session.
        for (session, number, is_hello) in [(7, 2, false), (8, 0, true), (8, 1, false)] {
            let received_session =
                line.receive(&traffic, Head { session, received_session: 1, number }, is_hello, false);
            assert!(matches!(received_session, Received::Nothing) && !line.is_open(), "{session} {number}");
        }
        assert!(line.must_send(&sink, &traffic, &Frame::Probe, |_| true).is_none());
        assert!(matches!(line.greet(&sink, &traffic, false), Sent::Done));
        let sent = traffic.counts().sent;
        assert!(matches!(line.begin(&sink, &traffic, false), Sent::Done));
        assert_eq!(traffic.counts().sent, sent + 1, "a hello");
        let welcome = line.receive(&traffic, Head { session: 8, received_session: 2, number: 2 }, false, true);
        assert!(matches!(welcome, Received::Greeted { is_opened: true, answers: true }));
    }

    #[test]
    fn frames_of_a_lost_peer_are_ignored() {
        let (sink, traffic) = (Sink::default(), Traffic::default());
        let line = open(&traffic);
        drop(line.lose());
        let hello = line.receive(&traffic, Head { session: 8, received_session: 0, number: 0 }, true, false);
        assert!(matches!(hello, Received::Nothing));
        assert!(matches!(line.begin(&sink, &traffic, true), Sent::Done));
        assert_eq!((line.is_open(), traffic.counts().sent), (false, 0));
    }
}
