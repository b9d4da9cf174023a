//! What one system says to another, as bytes.
//!
//! Shape, integers little-endian:
//!
//! ```text
//! version u8 │ kind u8 │ session u64 │ heard u64 │ number u64 │ body, up to the end of the frame
//! place   = index u32, generation u32        a process of the sender's or of the receiver's node; which, its kind says
//! payload = 0, or 1 and bytes to the end
//! text    = bytes to the end, UTF-8
//! ```
//! `session`, `heard` and `number` are the conversation's: see `line`. No frame names a node: who
//! sends it says the relay.
//!
//! Bounds: what is read is a slice of the frame, which the relay bounds; nothing is allocated but a
//! reason's text (`REASON_BYTES_MAX`) and a name, which is in the frame. No input panics (property
//! tests below).
//!
//! A frame of another version is left whole; a kind that is not known is left, but its number
//! counts, so that later versions may add kinds.
//!
//! Rejected: rmp-serde, which telemetry speaks: payloads would be copied once more, and there are
//! only six shapes.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::messages::failure::{ExitReason, Failure};
use crate::messages::payload::Payload;

/// Bytes of a frame: what the message may have, and room for its head. A server that carries frames
/// has to take at least these.
pub const FRAME_BYTES_MAX: usize = 1 << 20;
/// Of this layout. Both sides must speak the same.
const VERSION: u8 = 1;
/// Bytes before the body.
const HEAD_BYTES: usize = 26;
/// Bytes of the longest body but for its payload: a call with its places and its number.
const BODY_HEAD_BYTES_MAX: usize = 32;
/// Bytes of what a message, a call or an answer may carry to another node.
pub(crate) const PAYLOAD_BYTES_MAX: usize = FRAME_BYTES_MAX - HEAD_BYTES - BODY_HEAD_BYTES_MAX;
/// The last number that a frame may bear: no conversation is as long, and after each there is a
/// next.
const NUMBER_MAX: u64 = u64::MAX - 1;
/// Bytes of a failure's text in an exit reason; more is cut off.
const REASON_BYTES_MAX: usize = 1024;

/// A process on one of the two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub index: u32,
    pub generation: u32,
}

/// The conversation's part of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub session: u64,
    pub heard: u64,
    pub number: u64,
}

/// What is said. `to` is the receiver's, `from` the sender's process.
#[derive(Debug)]
pub(crate) enum Frame {
    Hello,
    Welcome,
    Probe,
    Echo,
    Message { to: Place, from: Option<Place>, payload: Payload },
    Call { id: u64, to: Place, from: Option<Place>, payload: Payload },
    Answer { id: u64, outcome: Outcome },
    Monitor { id: u64, to: Place },
    Demonitor { id: u64 },
    Down { id: u64, reason: ExitReason },
    Link { to: Place, from: Place },
    Unlink { to: Place, from: Place },
    Exit { to: Place, from: Place, reason: ExitReason },
    WhereIs { id: u64, name: String },
    Cancel { to: Place },
    Kill { to: Place },
}

/// What became of a call, or of the question for a name.
#[derive(Debug)]
pub(crate) enum Outcome {
    Answer(Payload),
    Found(Option<Place>),
    NoProcess,
    Ended,
    Full,
    NoReply,
    /// The answer was neither bytes nor nothing.
    NotBytes,
    /// The answer had too many bytes.
    TooLarge,
}

/// What came is no frame of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// Too short, or too long, to have a head, or with a number that no frame bears.
    Malformed,
    /// Another version.
    Version,
}

/// The body cannot be read; the head can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Malformed,
    UnknownKind,
}

/// A payload cannot go to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Misfit {
    NotBytes,
    TooLarge,
}

/// Whether `payload` can go to another node.
pub(crate) fn fits(payload: &Payload) -> Result<(), Misfit> {
    match payload.as_bytes() {
        Some(bytes) if bytes.len() > PAYLOAD_BYTES_MAX => Err(Misfit::TooLarge),
        Some(_) => Ok(()),
        None if payload.is::<()>() => Ok(()),
        None => Err(Misfit::NotBytes),
    }
}

impl Frame {
    /// Its bytes, with room for the head, which is known only when it is its turn. Payloads were
    /// found to [fit](fits).
    pub(crate) fn encode(&self) -> BytesMut {
        let mut bytes = BytesMut::with_capacity(HEAD_BYTES + BODY_HEAD_BYTES_MAX + self.payload_bytes());
        bytes.put_bytes(0, HEAD_BYTES);
        bytes[0] = VERSION;
        let out = &mut bytes;
        let kind = match self {
            Frame::Hello => 1,
            Frame::Welcome => 2,
            Frame::Probe => 3,
            Frame::Echo => 4,
            Frame::Message { to, from, payload } => {
                put_place(out, *to);
                put_maybe(out, *from);
                put_payload(out, payload);
                5
            }
            Frame::Call { id, to, from, payload } => {
                out.put_u64_le(*id);
                put_place(out, *to);
                put_maybe(out, *from);
                put_payload(out, payload);
                6
            }
            Frame::Answer { id, outcome } => {
                out.put_u64_le(*id);
                put_outcome(out, outcome);
                7
            }
            Frame::Monitor { id, to } => {
                out.put_u64_le(*id);
                put_place(out, *to);
                8
            }
            Frame::Demonitor { id } => {
                out.put_u64_le(*id);
                9
            }
            Frame::Down { id, reason } => {
                out.put_u64_le(*id);
                put_reason(out, reason);
                10
            }
            Frame::Link { to, from } => put_places(out, *to, *from, 11),
            Frame::Unlink { to, from } => put_places(out, *to, *from, 12),
            Frame::Exit { to, from, reason } => {
                put_places(out, *to, *from, 13);
                put_reason(out, reason);
                13
            }
            Frame::WhereIs { id, name } => {
                out.put_u64_le(*id);
                out.put_slice(name.as_bytes());
                14
            }
            Frame::Cancel { to } => {
                put_place(out, *to);
                15
            }
            Frame::Kill { to } => {
                put_place(out, *to);
                16
            }
        };
        bytes[1] = kind;
        bytes
    }

    /// Reads a frame: its head, and what it says if that can be told.
    pub(crate) fn decode(mut bytes: Bytes) -> Result<(Head, Result<Frame, Fault>), Unread> {
        if bytes.len() < HEAD_BYTES || bytes.len() > FRAME_BYTES_MAX {
            return Err(Unread::Malformed);
        }
        if bytes.get_u8() != VERSION {
            return Err(Unread::Version);
        }
        let kind = bytes.get_u8();
        let head = Head { session: bytes.get_u64_le(), heard: bytes.get_u64_le(), number: bytes.get_u64_le() };
        if head.number > NUMBER_MAX {
            return Err(Unread::Malformed);
        }
        Ok((head, read(kind, &mut bytes)))
    }

    fn payload_bytes(&self) -> usize {
        match self {
            Frame::Message { payload, .. }
            | Frame::Call { payload, .. }
            | Frame::Answer { outcome: Outcome::Answer(payload), .. } => payload.as_bytes().map_or(0, Bytes::len),
            Frame::WhereIs { name, .. } => name.len(),
            _ => 0,
        }
    }
}

/// Writes the head of an encoded frame.
pub(crate) fn put_head(bytes: &mut BytesMut, head: Head) {
    let mut place = &mut bytes[2..HEAD_BYTES];
    place.put_u64_le(head.session);
    place.put_u64_le(head.heard);
    place.put_u64_le(head.number);
}

fn put_place(out: &mut BytesMut, place: Place) {
    out.put_u32_le(place.index);
    out.put_u32_le(place.generation);
}

fn put_places(out: &mut BytesMut, to: Place, from: Place, kind: u8) -> u8 {
    put_place(out, to);
    put_place(out, from);
    kind
}

fn put_maybe(out: &mut BytesMut, place: Option<Place>) {
    out.put_u8(u8::from(place.is_some()));
    place.into_iter().for_each(|place| put_place(out, place));
}

fn put_payload(out: &mut BytesMut, payload: &Payload) {
    match payload.as_bytes() {
        Some(bytes) => {
            out.put_u8(1);
            out.put_slice(bytes);
        }
        None => out.put_u8(0),
    }
}

fn put_outcome(out: &mut BytesMut, outcome: &Outcome) {
    match outcome {
        Outcome::Answer(payload) => {
            out.put_u8(0);
            put_payload(out, payload);
        }
        Outcome::Found(place) => {
            out.put_u8(1);
            put_maybe(out, *place);
        }
        Outcome::NoProcess => out.put_u8(2),
        Outcome::Ended => out.put_u8(3),
        Outcome::Full => out.put_u8(4),
        Outcome::NoReply => out.put_u8(5),
        Outcome::NotBytes => out.put_u8(6),
        Outcome::TooLarge => out.put_u8(7),
    }
}

fn put_reason(out: &mut BytesMut, reason: &ExitReason) {
    let (tag, failure) = match reason {
        ExitReason::Normal => (0, None),
        ExitReason::Shutdown => (1, None),
        ExitReason::Killed => (2, None),
        ExitReason::Failed(failure) => (3, Some(failure)),
        ExitReason::Panicked(failure) => (4, Some(failure)),
        ExitReason::NoProcess => (5, None),
        ExitReason::NoConnection => (6, None),
    };
    out.put_u8(tag);
    if let Some(failure) = failure {
        let text = failure.to_string();
        out.put_slice(&text.as_bytes()[..text.floor_char_boundary(REASON_BYTES_MAX)]);
    }
}

fn read(kind: u8, body: &mut Bytes) -> Result<Frame, Fault> {
    let frame = match kind {
        1 => Frame::Hello,
        2 => Frame::Welcome,
        3 => Frame::Probe,
        4 => Frame::Echo,
        5 => Frame::Message { to: place(body)?, from: maybe(body)?, payload: payload(body)? },
        6 => Frame::Call { id: id(body)?, to: place(body)?, from: maybe(body)?, payload: payload(body)? },
        7 => Frame::Answer { id: id(body)?, outcome: outcome(body)? },
        8 => Frame::Monitor { id: id(body)?, to: place(body)? },
        9 => Frame::Demonitor { id: id(body)? },
        10 => Frame::Down { id: id(body)?, reason: reason(body)? },
        11 => Frame::Link { to: place(body)?, from: place(body)? },
        12 => Frame::Unlink { to: place(body)?, from: place(body)? },
        13 => Frame::Exit { to: place(body)?, from: place(body)?, reason: reason(body)? },
        14 => Frame::WhereIs { id: id(body)?, name: text(body)? },
        15 => Frame::Cancel { to: place(body)? },
        16 => Frame::Kill { to: place(body)? },
        _ => return Err(Fault::UnknownKind),
    };
    if body.is_empty() { Ok(frame) } else { Err(Fault::Malformed) }
}

fn byte(body: &mut Bytes) -> Result<u8, Fault> {
    body.try_get_u8().map_err(|_short| Fault::Malformed)
}

fn id(body: &mut Bytes) -> Result<u64, Fault> {
    body.try_get_u64_le().map_err(|_short| Fault::Malformed)
}

fn place(body: &mut Bytes) -> Result<Place, Fault> {
    let mut number = || body.try_get_u32_le().map_err(|_short| Fault::Malformed);
    Ok(Place { index: number()?, generation: number()? })
}

fn maybe(body: &mut Bytes) -> Result<Option<Place>, Fault> {
    match byte(body)? {
        0 => Ok(None),
        1 => place(body).map(Some),
        _ => Err(Fault::Malformed),
    }
}

fn payload(body: &mut Bytes) -> Result<Payload, Fault> {
    match byte(body)? {
        0 => Ok(Payload::empty()),
        1 => Ok(Payload::bytes(body.split_off(0))),
        _ => Err(Fault::Malformed),
    }
}

fn text(body: &mut Bytes) -> Result<String, Fault> {
    let bytes = body.split_off(0);
    str::from_utf8(&bytes).map(str::to_owned).map_err(|_other| Fault::Malformed)
}

fn outcome(body: &mut Bytes) -> Result<Outcome, Fault> {
    Ok(match byte(body)? {
        0 => Outcome::Answer(payload(body)?),
        1 => Outcome::Found(maybe(body)?),
        2 => Outcome::NoProcess,
        3 => Outcome::Ended,
        4 => Outcome::Full,
        5 => Outcome::NoReply,
        6 => Outcome::NotBytes,
        7 => Outcome::TooLarge,
        _ => return Err(Fault::Malformed),
    })
}

fn reason(body: &mut Bytes) -> Result<ExitReason, Fault> {
    let tag = byte(body)?;
    if body.len() > REASON_BYTES_MAX {
        return Err(Fault::Malformed);
    }
    Ok(match tag {
        0 => ExitReason::Normal,
        1 => ExitReason::Shutdown,
        2 => ExitReason::Killed,
        3 => ExitReason::Failed(Failure::new(text(body)?)),
        4 => ExitReason::Panicked(Failure::new(text(body)?)),
        5 => ExitReason::NoProcess,
        6 => ExitReason::NoConnection,
        _ => return Err(Fault::Malformed),
    })
}

#[cfg(test)]
mod tests;
