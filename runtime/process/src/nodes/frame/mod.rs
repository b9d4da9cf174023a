//! The wire format of the frames between two systems.
//!
//! # Shape
//!
//! Integers are little-endian.
//!
//! ```text
//! version u8 │ kind u8 │ session u64 │ received_session u64 │ number u64 │ body, up to the end of the frame
//! place   = index u32, generation u32        a process of the sender's or of the receiver's node, depending on the kind
//! payload = 0, or 1 and bytes to the end
//! text    = bytes to the end, UTF-8
//! ```
//! `session`, `received_session` and `number` belong to the conversation: see `line`. No frame
//! names a node: the relay reports the sender.
//!
//! # Bounds
//!
//! Decoding reads slices of the frame, whose size the relay bounds. It allocates only the text of
//! an exit reason (`REASON_BYTES_MAX`) and a name, which is part of the frame. No input makes it
//! panic (see the property tests).
//!
//! # Versions
//!
//! A frame of another version is ignored completely. A frame of an unknown kind is ignored, too,
//! but its number counts, so that later versions can add kinds.
//!
//! # Rejected
//!
//! rmp-serde, which telemetry uses: it would copy payloads once more, and there are only six
//! shapes.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::messages::failure::{ExitReason, Failure};
use crate::messages::payload::Payload;

/// The maximum size of a frame in bytes: a message and its header. A server that carries frames
/// must accept messages of this size.
pub const FRAME_BYTES_MAX: usize = 1 << 20;
/// The version of this format. Both nodes must use the same.
const VERSION: u8 = 1;
/// The number of bytes before the body.
const HEAD_BYTES: usize = 26;
/// The size of the largest body without its payload: that of a call, with its places and its
/// number.
const BODY_HEAD_BYTES_MAX: usize = 32;
/// The maximum payload of a message, a call or an answer to another node, in bytes.
pub(crate) const PAYLOAD_BYTES_MAX: usize = FRAME_BYTES_MAX - HEAD_BYTES - BODY_HEAD_BYTES_MAX;
/// The highest frame number. No conversation is that long; the limit ensures that `number + 1`
/// cannot overflow.
const NUMBER_MAX: u64 = u64::MAX - 1;
/// The maximum size of the text in an exit reason, in bytes. The rest is cut off.
const REASON_BYTES_MAX: usize = 1024;

/// A process on one of the two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub index: u32,
    pub generation: u32,
}

/// The part of a frame that belongs to the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub session: u64,
    pub received_session: u64,
    pub number: u64,
}

/// The content of a frame. `to` is a process of the receiver, `from` one of the sender.
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

/// The result of a call or of a name lookup.
#[derive(Debug)]
pub(crate) enum Outcome {
    Answer(Payload),
    Found(Option<Place>),
    NoProcess,
    Ended,
    Full,
    NoReply,
    /// The answer was neither bytes nor empty.
    NotBytes,
    /// The answer had too many bytes.
    TooLarge,
}

/// Why a header could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// Too short or too long, or the number is above the maximum.
    Malformed,
    /// Another version.
    Version,
}

/// Why a body could not be decoded. The header was valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Malformed,
    UnknownKind,
}

/// Why a payload cannot be sent to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Misfit {
    NotBytes,
    TooLarge,
}

/// Checks whether `payload` can be sent to another node.
pub(crate) fn fits(payload: &Payload) -> Result<(), Misfit> {
    match payload.as_bytes() {
        Some(bytes) if bytes.len() > PAYLOAD_BYTES_MAX => Err(Misfit::TooLarge),
        Some(_) => Ok(()),
        None if payload.is::<()>() => Ok(()),
        None => Err(Misfit::NotBytes),
    }
}

impl Frame {
    /// Encodes the frame, with room for the header, which is known only later. The payload must
    /// [fit](fits).
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

    /// Decodes the header of a frame, and its content if that is valid.
    pub(crate) fn decode(mut bytes: Bytes) -> Result<(Head, Result<Frame, Fault>), Unread> {
        if bytes.len() < HEAD_BYTES || bytes.len() > FRAME_BYTES_MAX {
            return Err(Unread::Malformed);
        }
        if bytes.get_u8() != VERSION {
            return Err(Unread::Version);
        }
        let kind = bytes.get_u8();
        let head =
            Head { session: bytes.get_u64_le(), received_session: bytes.get_u64_le(), number: bytes.get_u64_le() };
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

/// Writes the header of an encoded frame.
pub(crate) fn put_head(bytes: &mut BytesMut, head: Head) {
    let mut place = &mut bytes[2..HEAD_BYTES];
    place.put_u64_le(head.session);
    place.put_u64_le(head.received_session);
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
