//! Messages on the control socket.
//!
//! Shape: a frame is a 32-bit little-endian length and that many bytes of MessagePack, structs as
//! maps with named fields (rmp-serde), so that each side ignores fields it does not know and
//! defaults those it misses. A [`Request`] goes up, a [`Reply`] comes down. The server speaks first
//! with [`Reply::Hello`].
//!
//! Invariants: *frames are bounded*, [`MAX_REQUEST_BYTES`] up and [`MAX_REPLY_BYTES`] down;
//! *nothing is allocated by a declared length* beyond those bounds, and lists are bounded as they
//! are read ([`snapshot`](crate::snapshot)); *depth is bounded*, by `MAX_DEPTH`; *read-only*, no
//! request changes scheduling: what a client may change is whether the flight recorder notes down
//! what the workers do.
//!
//! Versions: [`VERSION`] is {major, minor} in one number each. A different major is refused by the
//! console with both numbers in the message; a different minor is read as far as both sides know
//! the fields. Minor 1 added [`Request::Record`], [`Request::Recorder`] and [`Request::Why`], minor
//! 2 [`Request::Tasks`], minor 3 [`Request::Processes`]; a client checks the server's minor before
//! it sends one of them. Minor 4 added [`Reply::Throttled`], which an older client passes over.
//!
//! Rejected: postcard and bincode, smaller but not self-describing, so that one added field breaks
//! every older console.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::processes::{self, ProcessList};
use crate::recording::flush::{Flush, Head};
use crate::snapshot::Process;
use crate::tasks::{Query, TaskList};
use crate::why;

/// What tells a control socket of Volt's from any other.
pub const MAGIC: &str = "volt-control";
/// Protocol version: consoles of another major version are refused.
pub const VERSION: Version = Version { major: 1, minor: 4 };
/// Largest request that a server reads, bytes.
pub const MAX_REQUEST_BYTES: usize = 64 * 1024;
/// Largest reply that a server sends and a client reads, bytes.
pub const MAX_REPLY_BYTES: usize = 1024 * 1024;
/// Lists and maps in one another, in a message: twice as many as the deepest has, a call of a stack
/// of an incident of a snapshot. What is read level by level needs stack for each; the default of
/// rmp-serde, 1024, does not fit that of the observer's thread.
const MAX_DEPTH: usize = 24;
/// Shortest interval between two snapshots of a subscription, ms; shorter wishes are raised to it.
pub const MIN_INTERVAL_MS: u64 = 20;

/// See [`VERSION`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Version {
    /// Raised when an old reader would misread.
    pub major: u32,
    /// Raised when something is added.
    pub minor: u32,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Who answers on a control socket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hello {
    /// [`MAGIC`].
    pub magic: String,
    /// The server's [`VERSION`].
    pub version: Version,
    /// The process id.
    pub pid: u32,
    /// The program's name.
    pub program: String,
    /// Names of its runtimes.
    pub runtimes: Vec<String>,
    /// When the process started, in clock ticks since boot (`/proc/PID/stat`, field 22): tells a
    /// pid's second life from its first.
    pub start_time: u64,
    /// The version of `volt-runtime`.
    pub volt: String,
}

/// How a flight recorder is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Recorder {
    /// The runtime's name.
    pub runtime: String,
    /// Whether anything is noted down at the moment, because it is switched on or because somebody
    /// records.
    pub is_on: bool,
    /// Records that it keeps of each worker.
    pub capacity: u64,
}

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Request {
    /// One [`Reply::Snapshot`].
    Snapshot,
    /// A [`Reply::Snapshot`] now and then every `interval_ms`, until the connection ends.
    Subscribe {
        /// Milliseconds between two snapshots; at least [`MIN_INTERVAL_MS`], and more while a
        /// snapshot is so dear that watching would take a hundredth of a processor.
        interval_ms: u64,
    },
    /// What happens on the workers of a runtime from now on: a [`Reply::Recording`], and then a
    /// [`Reply::Flush`] whenever there is something new, until the connection ends. The flight
    /// recorder is on for so long. Minor 1.
    Record {
        /// The runtime's name; `None` = the only one.
        runtime: Option<String>,
        /// Milliseconds before now that are wanted too, as far as the recorder was on and still has
        /// them.
        look_back_ms: u64,
    },
    /// Whether the flight recorder of a runtime is switched on: a [`Reply::Recorder`]. Minor 1.
    Recorder {
        /// The runtime's name; `None` = the only one.
        runtime: Option<String>,
        /// Switches it on or off first.
        is_on: Option<bool>,
    },
    /// Why a task was polled last: a [`Reply::Why`]. Minor 1.
    Why {
        /// The runtime's name; `None` = the only one.
        runtime: Option<String>,
        /// The task's id, or its name.
        task: String,
    },
    /// The tasks of a runtime: a [`Reply::Tasks`]. Minor 2.
    Tasks {
        /// The runtime's name; `None` = the only one.
        runtime: Option<String>,
        /// Which.
        query: Query,
    },
    /// The processes of a runtime, state machines with mailboxes: a [`Reply::Processes`]. Minor 3.
    Processes {
        /// The runtime's name; `None` = the only one.
        runtime: Option<String>,
        /// Which.
        query: processes::Query,
    },
    /// A request of a newer client.
    #[serde(other)]
    Unknown,
}

/// What a server answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reply {
    /// The first frame of every connection.
    Hello(Hello),
    /// All runtimes at one moment.
    Snapshot {
        /// The numbers.
        process: Box<Process>,
        /// Snapshots of this subscription that were skipped so far because the client read too
        /// slowly.
        lost: u64,
    },
    /// A recording begins.
    Recording {
        /// What it is of.
        head: Box<Head>,
    },
    /// What came since the last one.
    Flush {
        /// A flush, or a piece of one.
        flush: Box<Flush>,
    },
    /// Of a flight recorder.
    Recorder(Recorder),
    /// Of a task.
    Why(why::Why),
    /// Tasks, one by one.
    Tasks(Box<TaskList>),
    /// Processes, one by one.
    Processes(Box<ProcessList>),
    /// The next request is not read for a while, since the answers so far took more of a processor
    /// than a client may have. It is answered after that; the connection stays. Sent unasked,
    /// once each time. Minor 4.
    Throttled {
        /// How long, ms.
        wait_ms: u64,
    },
    /// The request could not be served; the connection stays.
    Error {
        /// What is wrong and what to do.
        message: String,
    },
    /// A reply of a newer server.
    #[serde(other)]
    Unknown,
}

/// A message as a whole frame, length included.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] when the message is larger than `max_bytes`.
pub fn encode<T: Serialize>(message: &T, max_bytes: usize) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    rmp_serde::encode::write_named(&mut frame, message)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let length = frame.len() - 4;
    if length > max_bytes {
        return Err(too_large(length, max_bytes));
    }
    frame[..4].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(frame)
}

/// A frame's body as a message.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] when the bytes are not such a message.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    unpack(body).map_err(|error| {
        io::Error::new(io::ErrorKind::InvalidData, format!("not a message of Volt's control protocol: {error}"))
    })
}

/// MessagePack from a sender that is not trusted: of bounded depth. For the body of a frame of the
/// control socket, see [`decode`].
///
/// # Errors
/// The bytes are no such `T`, or are nested too deeply.
pub fn unpack<T: DeserializeOwned>(body: &[u8]) -> Result<T, rmp_serde::decode::Error> {
    let mut from = rmp_serde::Deserializer::from_read_ref(body);
    from.set_max_depth(MAX_DEPTH);
    T::deserialize(&mut from)
}

/// The length that a frame's first four bytes declare.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] when it is larger than `max_bytes`.
pub fn body_len(prefix: [u8; 4], max_bytes: usize) -> io::Result<usize> {
    let length = u32::from_le_bytes(prefix) as usize;
    if length > max_bytes { Err(too_large(length, max_bytes)) } else { Ok(length) }
}

/// Writes one frame.
///
/// # Errors
/// Those of the writer, and [`encode`]'s.
pub fn write_frame<T: Serialize>(mut to: impl Write, message: &T, max_bytes: usize) -> io::Result<()> {
    to.write_all(&encode(message, max_bytes)?)
}

/// Reads one frame; `None` when the other side has closed the connection between two frames.
///
/// # Errors
/// Those of the reader; [`io::ErrorKind::UnexpectedEof`] inside a frame; [`body_len`]'s and
/// [`decode`]'s.
pub fn read_frame<T: DeserializeOwned>(mut from: impl Read, max_bytes: usize) -> io::Result<Option<T>> {
    let mut prefix = [0; 4];
    match from.read(&mut prefix[..1])? {
        0 => return Ok(None),
        _ => from.read_exact(&mut prefix[1..])?,
    }
    let length = body_len(prefix, max_bytes)?;
    let mut body = Vec::new();
    from.take(length as u64).read_to_end(&mut body)?;
    if body.len() < length {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection ended inside a frame"));
    }
    decode(&body).map(Some)
}

fn too_large(length: usize, max_bytes: usize) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {length} bytes, the limit is {max_bytes}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_round_trip() {
        let hello = Reply::Hello(Hello { magic: MAGIC.into(), version: VERSION, pid: 7, ..Hello::default() });
        let mut bytes = Vec::new();
        write_frame(&mut bytes, &hello, MAX_REPLY_BYTES).unwrap();
        write_frame(&mut bytes, &Request::Subscribe { interval_ms: 250 }, MAX_REQUEST_BYTES).unwrap();
        let mut from = &bytes[..];
        assert_eq!(read_frame::<Reply>(&mut from, MAX_REPLY_BYTES).unwrap(), Some(hello));
        let request = read_frame::<Request>(&mut from, MAX_REQUEST_BYTES).unwrap();
        assert_eq!(request, Some(Request::Subscribe { interval_ms: 250 }));
        assert_eq!(read_frame::<Request>(&mut from, MAX_REQUEST_BYTES).unwrap(), None);
    }

    #[test]
    fn a_message_of_a_newer_version_is_unknown_and_not_an_error() {
        #[derive(Serialize)]
        struct Newer {
            r#type: &'static str,
            depth: u32,
        }
        let frame = encode(&Newer { r#type: "stacks", depth: 3 }, MAX_REQUEST_BYTES).unwrap();
        assert_eq!(decode::<Request>(&frame[4..]).unwrap(), Request::Unknown);
    }

    #[test]
    fn fields_added_or_missing_do_not_break_a_reader() {
        #[derive(Serialize)]
        struct Other {
            r#type: &'static str,
            magic: &'static str,
            colour: &'static str,
        }
        let frame = encode(&Other { r#type: "hello", magic: MAGIC, colour: "blue" }, MAX_REPLY_BYTES).unwrap();
        let Reply::Hello(hello) = decode(&frame[4..]).unwrap() else { panic!("not a hello") };
        assert_eq!((hello.magic.as_str(), hello.pid), (MAGIC, 0));
    }

    #[test]
    fn a_declared_length_beyond_the_limit_is_refused_before_it_is_read() {
        let error = read_frame::<Reply>(&[0xff; 64][..], MAX_REPLY_BYTES).unwrap_err();
        assert_eq!(error.to_string(), "a frame of 4294967295 bytes, the limit is 1048576");
    }

    #[test]
    fn garbage_and_cut_frames_are_errors() {
        let garbage = [3, 0, 0, 0, 0xc1, 0xc1, 0xc1];
        assert_eq!(read_frame::<Reply>(&garbage[..], 64).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let cut = [9, 0, 0, 0, 1, 2];
        assert_eq!(read_frame::<Reply>(&cut[..], 64).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
