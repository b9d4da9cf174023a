//! The conversation with one life of another node: numbers that tell what was lost, and what hangs on it.
//!
//! A relay may lose frames, and two nodes may not agree whether they have lost each other: one was stopped for a while, say. What hangs on a
//! conversation (calls, watches, links) must end at both sides then, or somebody would wait for ever. So each side numbers what it does:
//!
//! * `session`: ours; a fresh, higher number whenever we begin anew. Every frame bears it, and in `heard` the last that we heard of theirs.
//! * `number`: of the frame in its session, from 0 on.
//!
//! Protocol:
//! 1. *Hello*: when the peer is up, and as often as the relay says so until 3, each says hello.
//! 2. *Welcome*: who hears a hello answers with a welcome; so does who is opened by a welcome.
//! 3. *Open*: the conversation is open for us once a frame bears our session as heard. Before that nothing but 1 and 2 is said.
//! 4. *Stale*: a frame that bears another session than the one heard, or has not heard ours, is of an earlier conversation; it is left.
//! 5. *Duplicate*: a frame with a number that was had is left: at most once, in order, whatever the relay does.
//! 6. *Gap*: a number that was skipped means frames lost. The conversation is broken off: all that hangs on it ends as `NoConnection`, and
//!    we begin anew with a hello of a fresh session.
//! 7. *Forgotten*: a hello with a higher session means that they have begun anew. It is broken off here, too, and answered from a fresh session.
//!
//! 6 and 7 come to an end: a hello of a fresh session is answered by a welcome, which opens, and never by a hello.
//!
//! Invariants:
//! * *One order*: numbers are given under `talk`, and frames handed to the relay under it.
//! * *Severed before anew*: between break-off and the next hello nobody adds to the bonds, so what ends is all of the old and none of the new.
//! * *Never refused*: what ends something at the other side (down, exit, …) waits in `backlog` if the relay's queue is full. While
//!   it is not empty, everything else is refused, so that nothing overtakes; when it has `BACKLOG_MAX`, the conversation is broken off.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;

use super::frame::{Frame, Head, Outcome, Place, put_head};
use super::relay::{Peer, Relay};
use super::traffic::Traffic;
use crate::process::event::MonitorId;
use crate::process::pid::Pid;
use crate::process::relations::Watcher;
use crate::sync::oneshot;

/// Watches and links that a peer may have on processes here. More than a relay serves, and few enough for memory.
pub(crate) const BONDS_MAX: usize = 1 << 20;
/// Frames that wait for a relay whose queue is full, and that must not be refused. Beyond, the peer is not keeping up, and is cut.
const BACKLOG_MAX: usize = 1 << 16;

/// See the header of this file.
#[derive(Debug)]
pub(crate) struct Line {
    pub peer: Peer,
    talk: Mutex<Talk>,
}

struct Talk {
    session: u64,
    next_number: u64,
    heard: Option<u64>,
    expected: u64,
    is_open: bool,
    /// The peer is gone for good.
    is_lost: bool,
    backlog: VecDeque<BytesMut>,
    bonds: Bonds,
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
    /// Too many wait: the conversation is to be [broken off](Line::break_off).
    Overrun,
}

/// What is to be done about a frame that came.
pub(crate) enum Heard {
    /// What it says.
    Act { is_opened: bool },
    /// Nothing.
    Nothing,
    /// It opened the conversation, or was part of the greeting.
    Greeted { is_opened: bool, answers: bool },
    /// The conversation is broken off: [`Line::begin`] after these were told.
    Broken(Box<Bonds>, Begin),
}

/// How to begin anew.
pub(crate) enum Begin {
    /// With a hello.
    Hello,
    /// With a welcome to a hello that had this session and number.
    Welcome { heard: u64, number: u64 },
}

impl Line {
    pub(crate) fn new(peer: Peer, session: u64) -> Self {
        let talk = Talk {
            session,
            next_number: 0,
            heard: None,
            expected: 0,
            is_open: false,
            is_lost: false,
            backlog: VecDeque::new(),
            bonds: Bonds::default(),
        };
        Self { peer, talk: Mutex::new(talk) }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.talk().is_open
    }

    /// What hangs on it, to be changed. `None` if it is not open: then nothing does.
    pub(crate) fn bonds<T>(&self, change: impl FnOnce(&mut Bonds) -> T) -> Option<T> {
        let mut talk = self.talk();
        talk.is_open.then(|| change(&mut talk.bonds))
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
        if !talk.is_open {
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

    /// Says what must not be refused, if `note` finds that there is reason to.
    pub(crate) fn must_say(
        &self,
        relay: &dyn Relay,
        traffic: &Traffic,
        frame: &Frame,
        note: impl FnOnce(&mut Bonds) -> bool,
    ) -> Said {
        let bytes = frame.encode();
        let mut talk = self.talk();
        if talk.is_open && note(&mut talk.bonds) { talk.queue(self.peer, relay, traffic, bytes) } else { Said::Done }
    }

    /// Step 1 or 2.
    pub(crate) fn greet(&self, relay: &dyn Relay, traffic: &Traffic, is_answer: bool) -> Said {
        let mut talk = self.talk();
        // What waits in the backlog will bear the same sessions as a greeting would.
        if talk.is_lost || (talk.is_open && !is_answer) || !talk.backlog.is_empty() {
            return Said::Done;
        }
        let frame = if is_answer { Frame::Welcome } else { Frame::Hello };
        talk.queue(self.peer, relay, traffic, frame.encode())
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
        let knows_ours = head.heard == talk.session;
        match talk.heard {
            Some(heard) if head.session < heard => {
                traffic.stale.add(1);
                return Heard::Nothing;
            }
            Some(heard) if head.session > heard && is_hello => {
                return Heard::Broken(talk.break_off(), Begin::Welcome { heard: head.session, number: head.number });
            }
            Some(heard) if head.session > heard => {
                // Their hello was lost.
                traffic.lost.add(head.number);
                return Heard::Broken(talk.break_off(), Begin::Hello);
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
            return Heard::Broken(talk.break_off(), Begin::Hello);
        }
        talk.expected += 1;
        if !knows_ours && !is_hello {
            traffic.stale.add(1);
            return Heard::Nothing;
        }
        let is_opened = knows_ours && !talk.is_open && !talk.is_lost;
        talk.is_open |= is_opened;
        match is_hello || is_welcome {
            true => Heard::Greeted { is_opened, answers: is_hello || is_opened },
            false => Heard::Act { is_opened },
        }
    }

    /// Breaks the conversation off from this side; [`begin`](Self::begin) with a hello after these were told.
    pub(crate) fn break_off(&self) -> Box<Bonds> {
        self.talk().break_off()
    }

    /// Begins anew.
    pub(crate) fn begin(
        &self,
        relay: &dyn Relay,
        traffic: &Traffic,
        next_session: impl FnOnce() -> u64,
        begin: Begin,
    ) -> Said {
        let mut talk = self.talk();
        // Taken under the lock: of two who begin at once, the later has the higher, or the peer would leave all that it says as stale.
        talk.session = next_session();
        talk.next_number = 0;
        (talk.heard, talk.expected) = match begin {
            Begin::Hello => (None, 0),
            Begin::Welcome { heard, number } => (Some(heard), number + 1),
        };
        drop(talk);
        self.greet(relay, traffic, matches!(begin, Begin::Welcome { .. }))
    }

    /// The peer is gone.
    pub(crate) fn lose(&self) -> Box<Bonds> {
        let mut talk = self.talk();
        talk.is_lost = true;
        talk.break_off()
    }

    fn talk(&self) -> MutexGuard<'_, Talk> {
        // A relay that panics under it leaves a frame unsaid, which is a gap.
        self.talk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Talk {
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
            return Said::Overrun;
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

    fn break_off(&mut self) -> Box<Bonds> {
        self.is_open = false;
        self.backlog.clear();
        Box::new(std::mem::take(&mut self.bonds))
    }
}

impl std::fmt::Debug for Talk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Talk").field("is_open", &self.is_open).finish_non_exhaustive()
    }
}
