//! The conversation with one life of another node: numbers that tell what was lost, and what hangs
//! on it.
//!
//! A relay may lose frames, and two nodes may not agree whether they have lost each other: one was
//! stopped for a while, say. What hangs on a conversation (calls, watches, links) must end at both
//! sides then, or somebody would wait for ever. So each side numbers what it does:
//!
//! * `session`: ours; a fresh, higher number whenever we begin anew. Every frame bears it, and in
//!   `heard` the last that we heard of theirs.
//! * `number`: of the frame in its session, from 0 on.
//!
//! Protocol:
//! 1. *Hello*: when the peer is up, and as often as the relay says so until 3, each says hello.
//! 2. *Welcome*: who hears a hello answers with a welcome; so does who is opened by a welcome.
//! 3. *Open*: the conversation is open for us once a frame bears our session as heard. Before that
//!    nothing but 1 and 2 is said.
//! 4. *Stale*: a frame that bears another session than the one heard, or has not heard ours, is of
//!    an earlier conversation; it is left.
//! 5. *Duplicate*: a frame with a number that was had is left: at most once, in order, whatever the
//!    relay does.
//! 6. *Gap*: a number that was skipped means frames lost. The conversation is broken off: all that
//!    hangs on it ends as `NoConnection`, and we begin anew with a hello of a fresh session.
//! 7. *Forgotten*: a hello with a higher session means that they have begun anew. It is broken off
//!    here, too, and answered from a fresh session.
//!
//! 6 and 7 come to an end: a hello of a fresh session is answered by a welcome, which opens, and
//! never by a hello.
//!
//! Invariants:
//! * *One order*: numbers are given under `talk`, and frames handed to the relay under it.
//! * *Severed before anew*: a break-off takes the bonds out, takes the next session and forgets
//!   theirs, all under one lock; until `begin` nothing is heard or said. So what ends is all of the
//!   old and none of the new, and of two who would break off only one does.
//! * *Never refused*: what is said for its effect and not for its content (monitor, link, down,
//!   exit, cancel, kill, …) waits in `backlog` if the relay's queue is full. While it is not empty,
//!   everything else is refused, so that nothing overtakes; when it has `BACKLOG_MAX`, the
//!   conversation is broken off.

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

/// Watches and links that a peer may have on processes here. More than a relay serves, and few
/// enough for memory.
pub(crate) const BONDS_MAX: usize = 1 << 20;
/// Frames that wait for a relay whose queue is full, and that must not be refused. Beyond, the peer
/// is not keeping up, and is cut.
const BACKLOG_MAX: usize = 1 << 16;

/// See the header of this file.
#[derive(Debug)]
pub(crate) struct Line {
    pub peer: Peer,
    talk: Mutex<Talk>,
}

/// Where the sessions of all conversations of a system come from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sessions(Arc<AtomicU64>);

impl Sessions {
    /// 0 is none.
    fn next(&self) -> u64 {
        // ORDERING: Relaxed; only unique and rising.
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

struct Talk {
    sessions: Sessions,
    session: u64,
    next_number: u64,
    heard: Option<u64>,
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
    /// The peer is gone for good.
    Lost,
}

/// What hangs on a conversation.
#[derive(Default)]
pub(crate) struct Bonds {
    /// Calls and questions of ours, by their numbers.
    pub asked: HashMap<u64, oneshot::Sender<Outcome>>,
    /// Whom we watch there, by the numbers of our monitors.
    pub watching: HashMap<MonitorId, (Place, Watcher)>,
    /// Whom they watch here, by the numbers of their monitors.
    pub watched: HashMap<u64, (Pid, MonitorId)>,
    /// Ours and theirs.
    pub links: HashSet<(Pid, Pid)>,
}

/// A frame was not said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsaid {
    NoConnection,
    /// The relay's queue is full.
    Full,
    /// The relay does not take frames of that size.
    TooLarge,
}

/// What became of a frame that must not be refused.
#[must_use]
pub(crate) enum Said {
    Done,
    /// It waits, and somebody has to [`flush`](Line::flush) until nothing does.
    Waits,
    /// Too many wait, and the conversation is broken off: [`Line::begin`] with a hello after these
    /// were told.
    Broken(Box<Bonds>),
}

/// What is to be done about a frame that came.
pub(crate) enum Heard {
    /// What it says.
    Act { is_opened: bool },
    /// Nothing.
    Nothing,
    /// It opened the conversation, or was part of the greeting.
    Greeted { is_opened: bool, answers: bool },
    /// The conversation is broken off: [`Line::begin`] after these were told, with a welcome if it
    /// answers.
    Broken { bonds: Box<Bonds>, answers: bool },
}

impl Line {
    pub(crate) fn new(peer: Peer, sessions: &Sessions) -> Self {
        let talk = Talk {
            sessions: sessions.clone(),
            session: sessions.next(),
            next_number: 0,
            heard: None,
            expected: 0,
            stage: Stage::Greeting,
            backlog: VecDeque::new(),
            bonds: Bonds::default(),
        };
        Self { peer, talk: Mutex::new(talk) }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.talk().is_open()
    }

    /// What hangs on it, to be changed. `None` if it is not open: then nothing does.
    pub(crate) fn bonds<T>(&self, change: impl FnOnce(&mut Bonds) -> T) -> Option<T> {
        let mut talk = self.talk();
        talk.is_open().then(|| change(&mut talk.bonds))
    }

    /// Says what may be refused, and notes what hangs on it if it was not.
    pub(crate) fn say(
        &self,
        relay: &dyn Relay,
        traffic: &Traffic,
        frame: &Frame,
        note: impl FnOnce(&mut Bonds),
    ) -> Result<(), Unsaid> {
        let bytes = frame.encode();
        let mut talk = self.talk();
        if !talk.is_open() {
            return Err(Unsaid::NoConnection);
        }
        if !talk.backlog.is_empty() {
            traffic.refused.add(1);
            return Err(Unsaid::Full);
        }
        talk.hand_over(self.peer, relay, traffic, bytes).map_err(|(unsaid, _bytes)| unsaid)?;
        note(&mut talk.bonds);
        Ok(())
    }

    /// Says what must not be refused, if `note` finds that there is reason to. `None` if it is not
    /// open.
    pub(crate) fn must_say(
        &self,
        relay: &dyn Relay,
        traffic: &Traffic,
        frame: &Frame,
        note: impl FnOnce(&mut Bonds) -> bool,
    ) -> Option<Said> {
        let bytes = frame.encode();
        let mut talk = self.talk();
        let is_said = talk.is_open().then(|| note(&mut talk.bonds))?;
        Some(if is_said { talk.queue(self.peer, relay, traffic, bytes) } else { Said::Done })
    }

    /// Step 1 or 2.
    pub(crate) fn greet(&self, relay: &dyn Relay, traffic: &Traffic, is_answer: bool) -> Said {
        self.talk().greet(self.peer, relay, traffic, is_answer)
    }

    /// Hands over what has waited; false if some still does.
    pub(crate) fn flush(&self, relay: &dyn Relay, traffic: &Traffic) -> bool {
        let mut talk = self.talk();
        while let Some(bytes) = talk.backlog.pop_front() {
            if let Err((Unsaid::Full, bytes)) = talk.hand_over(self.peer, relay, traffic, bytes) {
                talk.backlog.push_front(bytes);
                return false;
            }
        }
        true
    }

    /// A frame came. Steps 2 to 7.
    pub(crate) fn hear(&self, traffic: &Traffic, head: Head, is_hello: bool, is_welcome: bool) -> Heard {
        let mut talk = self.talk();
        if matches!(talk.stage, Stage::Severed | Stage::Lost) {
            traffic.stale.add(1);
            return Heard::Nothing;
        }
        let knows_ours = head.heard == talk.session;
        match talk.heard {
            Some(heard) if head.session < heard => {
                traffic.stale.add(1);
                return Heard::Nothing;
            }
            Some(heard) if head.session > heard && is_hello => {
                let bonds = talk.break_off();
                (talk.heard, talk.expected) = (Some(head.session), head.number + 1);
                return Heard::Broken { bonds, answers: true };
            }
            Some(heard) if head.session > heard => {
                // Their hello was lost.
                traffic.lost.add(head.number);
                return Heard::Broken { bonds: talk.break_off(), answers: false };
            }
            Some(_) => {}
            None if is_hello || (is_welcome && knows_ours) => {
                talk.heard = Some(head.session);
                talk.expected = head.number;
            }
            None => {
                traffic.stale.add(1);
                return Heard::Nothing;
            }
        }
        if head.number < talk.expected {
            traffic.duplicates.add(1);
            return Heard::Nothing;
        }
        if head.number > talk.expected {
            traffic.lost.add(head.number - talk.expected);
            return Heard::Broken { bonds: talk.break_off(), answers: false };
        }
        talk.expected += 1;
        if !knows_ours && !is_hello {
            traffic.stale.add(1);
            return Heard::Nothing;
        }
        let is_opened = knows_ours && talk.stage == Stage::Greeting;
        if is_opened {
            talk.stage = Stage::Open;
        }
        match is_hello || is_welcome {
            true => Heard::Greeted { is_opened, answers: is_hello || is_opened },
            false => Heard::Act { is_opened },
        }
    }

    /// Begins anew, once those are told who had to do with what was broken off.
    pub(crate) fn begin(&self, relay: &dyn Relay, traffic: &Traffic, is_answer: bool) -> Said {
        let mut talk = self.talk();
        if talk.stage == Stage::Severed {
            talk.stage = Stage::Greeting;
        }
        talk.greet(self.peer, relay, traffic, is_answer)
    }

    /// The peer is gone.
    pub(crate) fn lose(&self) -> Box<Bonds> {
        let mut talk = self.talk();
        let bonds = talk.break_off();
        talk.stage = Stage::Lost;
        bonds
    }

    fn talk(&self) -> MutexGuard<'_, Talk> {
        // A relay that panics under it leaves a frame unsaid, which is a gap.
        self.talk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Talk {
    fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    fn greet(&mut self, peer: Peer, relay: &dyn Relay, traffic: &Traffic, is_answer: bool) -> Said {
        let is_due = self.stage == Stage::Greeting || (self.is_open() && is_answer);
        // What waits in the backlog bears the same sessions as a greeting would.
        if !is_due || !self.backlog.is_empty() {
            return Said::Done;
        }
        let frame = if is_answer { Frame::Welcome } else { Frame::Hello };
        self.queue(peer, relay, traffic, frame.encode())
    }

    /// Hands a frame over, or keeps it until the relay takes it.
    fn queue(&mut self, peer: Peer, relay: &dyn Relay, traffic: &Traffic, bytes: BytesMut) -> Said {
        let bytes = match self.backlog.is_empty() {
            true => match self.hand_over(peer, relay, traffic, bytes) {
                Err((Unsaid::Full, bytes)) => bytes,
                // Who is lost is told of, and needs no telling.
                Ok(()) | Err(_) => return Said::Done,
            },
            false => bytes,
        };
        if self.backlog.len() == BACKLOG_MAX {
            return Said::Broken(self.break_off());
        }
        self.backlog.push_back(bytes);
        // Whoever was first sees to the rest.
        if self.backlog.len() == 1 { Said::Waits } else { Said::Done }
    }

    fn hand_over(
        &mut self,
        peer: Peer,
        relay: &dyn Relay,
        traffic: &Traffic,
        mut bytes: BytesMut,
    ) -> Result<(), (Unsaid, BytesMut)> {
        let head = Head { session: self.session, heard: self.heard.unwrap_or(0), number: self.next_number };
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
                let unsaid = match error {
                    _ if error.is_full() => Unsaid::Full,
                    _ if error.is_too_large() => Unsaid::TooLarge,
                    _ => Unsaid::NoConnection,
                };
                Err((unsaid, bytes.into()))
            }
        }
    }

    /// Takes out what hangs on it. The session is taken under the lock, or a later hello might bear
    /// the lower one, and be left as stale.
    fn break_off(&mut self) -> Box<Bonds> {
        self.stage = Stage::Severed;
        (self.session, self.next_number) = (self.sessions.next(), 0);
        (self.heard, self.expected) = (None, 0);
        self.backlog.clear();
        Box::new(std::mem::take(&mut self.bonds))
    }
}

impl std::fmt::Debug for Talk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Talk").field("stage", &self.stage).finish_non_exhaustive()
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

    /// Takes what is sent, or is full.
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

    /// A conversation in which the peer, in its session 7, has said hello and welcome.
    fn open(traffic: &Traffic) -> Line {
        let line = Line::new(PEER, &Sessions::default());
        let hello = line.hear(traffic, Head { session: 7, heard: 0, number: 0 }, true, false);
        assert!(matches!(hello, Heard::Greeted { is_opened: false, answers: true }));
        let welcome = line.hear(traffic, Head { session: 7, heard: 1, number: 1 }, false, true);
        assert!(matches!(welcome, Heard::Greeted { is_opened: true, answers: true }));
        line
    }

    /// Says what must not be refused, to a relay that is full, until that breaks the conversation
    /// off.
    fn overrun(line: &Line, sink: &Sink, traffic: &Traffic) -> Box<Bonds> {
        // ORDERING: Relaxed; one thread.
        sink.is_full.store(true, Ordering::Relaxed);
        loop {
            if let Said::Broken(bonds) = line.must_say(sink, traffic, &Frame::Probe, |_| true).unwrap() {
                // ORDERING: Relaxed; one thread.
                sink.is_full.store(false, Ordering::Relaxed);
                return bonds;
            }
        }
    }

    #[test]
    fn what_is_broken_off_stays_closed_until_all_are_told_and_opens_in_a_fresh_session() {
        let (sink, traffic) = (Sink::default(), Traffic::default());
        let line = open(&traffic);
        line.bonds(|bonds| bonds.watched.insert(3, (Pid::new(Node::LOCAL, 1, 1), MonitorId(4))));
        assert_eq!(overrun(&line, &sink, &traffic).watched.len(), 1);
        // What the peer said before it knew, and a hello of its own.
        for (session, number, is_hello) in [(7, 2, false), (8, 0, true), (8, 1, false)] {
            let heard = line.hear(&traffic, Head { session, heard: 1, number }, is_hello, false);
            assert!(matches!(heard, Heard::Nothing) && !line.is_open(), "{session} {number}");
        }
        assert!(line.must_say(&sink, &traffic, &Frame::Probe, |_| true).is_none());
        assert!(matches!(line.greet(&sink, &traffic, false), Said::Done));
        let sent = traffic.counts().sent;
        assert!(matches!(line.begin(&sink, &traffic, false), Said::Done));
        assert_eq!(traffic.counts().sent, sent + 1, "a hello");
        let welcome = line.hear(&traffic, Head { session: 8, heard: 2, number: 2 }, false, true);
        assert!(matches!(welcome, Heard::Greeted { is_opened: true, answers: true }));
    }

    #[test]
    fn a_peer_that_is_lost_is_heard_no_more() {
        let (sink, traffic) = (Sink::default(), Traffic::default());
        let line = open(&traffic);
        drop(line.lose());
        let hello = line.hear(&traffic, Head { session: 8, heard: 0, number: 0 }, true, false);
        assert!(matches!(hello, Heard::Nothing));
        assert!(matches!(line.begin(&sink, &traffic, true), Said::Done));
        assert_eq!((line.is_open(), traffic.counts().sent), (false, 0));
    }
}
