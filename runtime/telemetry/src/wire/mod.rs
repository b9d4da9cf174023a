//! The messages of the control socket.
//!
//! A program serves one control socket; consoles and exporters connect to it. The server first
//! sends [`Reply::Hello`]. After that, the client sends [`Request`]s and the server sends
//! [`Reply`]s.
//!
//! A frame is a 32-bit little-endian length, followed by that many bytes of MessagePack. Structs
//! are maps with named fields: `pack` writes them, and `unpack` reads them. Each side therefore
//! ignores unknown fields, and uses defaults for missing ones.
//!
//! Invariants:
//! * FRAMES ARE BOUNDED: [`MAX_REQUEST_BYTES`] for requests and [`MAX_REPLY_BYTES`] for replies.
//! * NO ALLOCATION BY DECLARED LENGTH beyond these limits. Lists are bounded while they are read
//!   ([`snapshot`](crate::snapshot)). The fields before the kind of a message are an exception: for
//!   a list in them, serde reserves at most 1 MiB at each depth, and uses only what the elements
//!   need.
//! * DEPTH IS BOUNDED by `MAX_DEPTH`.
//! * READ-ONLY: no request changes scheduling. A client can only switch the flight recorder on and
//!   off, and request a dump, which polls each waiting task once more.
//!
//! Versions: [`VERSION`] consists of a major and a minor number. A console rejects a server of
//! another major version, with both versions in the message. With another minor version, each side
//! ignores what it does not support. A client checks the server's minor version before it sends a
//! newer request:
//!
//! | minor | added |
//! |---|---|
//! | 1 | [`Request::Record`], [`Request::Recorder`], [`Request::Why`] |
//! | 2 | [`Request::Tasks`] |
//! | 3 | [`Request::Processes`] |
//! | 4 | [`Reply::Throttled`], which older clients ignore |
//! | 5 | [`Request::Dump`] |
//!
//! Rejected: postcard and bincode. They are smaller but not self-describing, so one added field
//! would break every older console.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use self::pack::Packer;
use self::unpack::Unpacker;
use crate::dump::{self, Dump};
use crate::processes::{self, ProcessList};
use crate::recording::flush::{Flush, Head};
use crate::snapshot::Program;
use crate::tasks::{Query, TaskList};
use crate::why;

#[cfg(all(test, feature = "client"))]
mod hostile;
mod pack;
mod unpack;

pub use self::unpack::UnpackError;

/// Identifies a control socket of Volt.
pub const MAGIC: &str = "volt-control";
/// The protocol version. A server of another major version is rejected.
pub const VERSION: Version = Version { major: 1, minor: 5 };
/// Maximum size of a request in bytes.
pub const MAX_REQUEST_BYTES: usize = 64 * 1024;
/// Maximum size of a reply in bytes.
pub const MAX_REPLY_BYTES: usize = 1024 * 1024;
/// Maximum nesting of lists and maps in a message. More than twice the depth of the deepest values,
/// such as a stack frame of an incident in a snapshot.
///
/// Each level needs stack space while it is read.
const MAX_DEPTH: usize = 24;
/// Minimum interval between two snapshots of a subscription, ms; shorter intervals are raised to
/// it.
pub const MIN_INTERVAL_MS: u64 = 20;

/// A protocol version; see [`VERSION`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Version {
    /// Increased when an old reader would misinterpret messages.
    pub major: u32,
    /// Increased when something is added.
    pub minor: u32,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The server's introduction of itself.
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
    /// The names of its runtimes.
    pub runtimes: Vec<String>,
    /// When the program started: [`own_start_time`](crate::socket::own_start_time). Distinguishes
    /// it from an earlier program with the same pid.
    pub start_time: u64,
    /// The version of `volt-runtime`.
    pub volt: String,
}

/// The state of a flight recorder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Recorder {
    /// The runtime's name.
    pub runtime: String,
    /// Whether it records at the moment, because it is switched on or because a client records.
    pub is_on: bool,
    /// Number of records that it keeps per worker.
    pub capacity: u64,
}

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Request {
    /// Requests one [`Reply::Snapshot`].
    Snapshot,
    /// Requests a [`Reply::Snapshot`] now, and then one every `interval_ms`, until the connection
    /// ends.
    Subscribe {
        /// Milliseconds between two snapshots; at least [`MIN_INTERVAL_MS`], and longer if
        /// snapshots are so expensive that the subscriptions would use more than 0.5 % of a
        /// processor.
        interval_ms: u64,
    },
    /// Records what the workers of a runtime do from now on. The server sends a
    /// [`Reply::Recording`], and then a [`Reply::Flush`] whenever there is something new, until the
    /// connection ends. The flight recorder is on during that time. Minor 1.
    Record {
        /// The runtime's name; may be `None` if there is only one.
        runtime: Option<String>,
        /// How many milliseconds before now to include, as far as the recorder was on and still has
        /// the records.
        #[serde(rename = "look_back_ms")]
        before_ms: u64,
    },
    /// Requests the state of a runtime's flight recorder: a [`Reply::Recorder`]. Minor 1.
    Recorder {
        /// The runtime's name; may be `None` if there is only one.
        runtime: Option<String>,
        /// If `Some`, switches the recorder on or off first.
        is_on: Option<bool>,
    },
    /// Requests why a task was polled last: a [`Reply::Why`]. Minor 1.
    Why {
        /// The runtime's name; may be `None` if there is only one.
        runtime: Option<String>,
        /// The task's id or name.
        task: String,
    },
    /// Requests a list of a runtime's tasks: a [`Reply::Tasks`]. Minor 2.
    Tasks {
        /// The runtime's name; may be `None` if there is only one.
        runtime: Option<String>,
        /// Selects the tasks.
        query: Query,
    },
    /// Requests a list of a runtime's processes (state machines with mailboxes): a
    /// [`Reply::Processes`]. Minor 3.
    Processes {
        /// The runtime's name; may be `None` if there is only one.
        runtime: Option<String>,
        /// Selects the processes.
        query: processes::Query,
    },
    /// Requests what a runtime's tasks wait for: a [`Reply::Dump`]. Each waiting task is polled
    /// once for it, unless the query disables polls. Minor 5.
    Dump {
        /// The runtime's name; may be `None` if there is only one.
        runtime: Option<String>,
        /// Selects the tasks.
        query: dump::Query,
    },
    /// A request of a newer client.
    #[serde(other)]
    Unknown,
}

/// A reply of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reply {
    /// The first frame of every connection.
    Hello(Hello),
    /// A snapshot of all runtimes.
    Snapshot {
        /// The snapshot. Its key on the socket is `process`, because older consoles require it.
        #[serde(rename = "process")]
        program: Box<Program>,
        /// Number of snapshots of this subscription that were skipped so far because the client
        /// read too slowly.
        lost: u64,
    },
    /// The beginning of a recording.
    Recording {
        /// Describes the recording.
        head: Box<Head>,
    },
    /// The events since the previous flush.
    Flush {
        /// A flush, or a piece of one.
        flush: Box<Flush>,
    },
    /// The state of a flight recorder.
    Recorder(Recorder),
    /// Why a task was polled last.
    Why(why::Why),
    /// A list of tasks.
    Tasks(Box<TaskList>),
    /// A list of processes.
    Processes(Box<ProcessList>),
    /// What the tasks of a runtime wait for.
    Dump(Box<Dump>),
    /// The server delays the next request, because the replies so far used more processor time than
    /// one client may use. It handles the request after the delay; the connection stays open. Sent
    /// without a request, once per delay. Minor 4.
    Throttled {
        /// The length of the delay, ms.
        wait_ms: u64,
    },
    /// The request failed; the connection stays open.
    Error {
        /// The problem and its remedy.
        message: String,
    },
    /// A reply of a newer server.
    #[serde(other)]
    Unknown,
}

impl Request {
    /// Decodes the body of a frame. The same as [`decode`], compiled once.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::InvalidData`] if the bytes are not a valid request.
    pub fn from_body(body: &[u8]) -> io::Result<Self> {
        decode(body)
    }
}

impl Reply {
    /// Encodes the reply as a frame. The same as [`encode`], compiled once.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::InvalidData`] if the reply is larger than `max_bytes`.
    pub fn to_frame(&self, max_bytes: usize) -> io::Result<Vec<u8>> {
        encode(self, max_bytes)
    }
}

/// Encodes a message as a frame, including the length.
///
/// # Errors
/// Returns [`io::ErrorKind::InvalidData`] if the message is larger than `max_bytes`, or its
/// `Serialize` fails.
pub fn encode<T: Serialize>(message: &T, max_bytes: usize) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    message.serialize(Packer(&mut frame)).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let length = frame.len() - 4;
    if length > max_bytes {
        return Err(too_large(length, max_bytes));
    }
    frame[..4].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(frame)
}

/// Decodes the body of a frame.
///
/// # Errors
/// Returns [`io::ErrorKind::InvalidData`] if the bytes are not a valid message.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    unpack(body).map_err(|error| {
        io::Error::new(io::ErrorKind::InvalidData, format!("not a message of Volt's control protocol: {error}"))
    })
}

/// Decodes MessagePack of bounded depth from an untrusted sender. For the body of a control
/// socket's frame, use [`decode`].
///
/// # Errors
/// Returns an error if the bytes are not a valid `T`, or are nested too deeply.
pub fn unpack<T: DeserializeOwned>(body: &[u8]) -> Result<T, UnpackError> {
    T::deserialize(&mut Unpacker::new(body, MAX_DEPTH))
}

/// Returns the body length that the first four bytes of a frame declare.
///
/// # Errors
/// Returns [`io::ErrorKind::InvalidData`] if the length exceeds `max_bytes`.
pub fn body_len(prefix: [u8; 4], max_bytes: usize) -> io::Result<usize> {
    let length = u32::from_le_bytes(prefix) as usize;
    if length > max_bytes { Err(too_large(length, max_bytes)) } else { Ok(length) }
}

/// Writes one frame.
///
/// # Errors
/// Returns the errors of the writer and of [`encode`].
pub fn write_frame<T: Serialize>(mut to: impl Write, message: &T, max_bytes: usize) -> io::Result<()> {
    to.write_all(&encode(message, max_bytes)?)
}

/// Reads one frame. Returns `None` if the peer closed the connection before a frame.
///
/// # Errors
/// Returns the errors of the reader, of [`body_len`] and of [`decode`], and
/// [`io::ErrorKind::UnexpectedEof`] if the connection ends inside a frame.
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
    fn a_request_of_an_older_console_records_the_time_before_it() {
        #[derive(Serialize)]
        struct Older {
            r#type: &'static str,
            runtime: Option<String>,
            look_back_ms: u64,
        }
        let older = Older { r#type: "record", runtime: None, look_back_ms: 50 };
        let frame = encode(&older, MAX_REQUEST_BYTES).unwrap();
        let request = decode::<Request>(&frame[4..]).unwrap();
        assert_eq!(request, Request::Record { runtime: None, before_ms: 50 });
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
    fn snapshots_of_older_and_newer_versions_are_compatible() {
        // The message of a version in which `Program` was named otherwise.
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Older {
            r#type: String,
            process: OlderProgram,
            lost: u64,
        }
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct OlderProgram {
            pid: u32,
            program: String,
        }
        let process = OlderProgram { pid: 7, program: "shop".into() };
        let older = Older { r#type: "snapshot".into(), process, lost: 3 };
        let frame = encode(&older, MAX_REPLY_BYTES).unwrap();
        let newer: Reply = decode(&frame[4..]).unwrap();
        let Reply::Snapshot { program, lost } = &newer else { panic!("not a snapshot") };
        assert_eq!((program.pid, program.name.as_str(), *lost), (7, "shop", 3));
        let frame = encode(&newer, MAX_REPLY_BYTES).unwrap();
        assert_eq!(decode::<Older>(&frame[4..]).unwrap(), older);
    }

    #[test]
    fn the_spares_of_an_older_version_are_in_use() {
        #[derive(Serialize)]
        struct Older {
            spares_on_duty: u64,
        }
        let frame = encode(&Older { spares_on_duty: 2 }, MAX_REPLY_BYTES).unwrap();
        let newer: crate::snapshot::Sentinel = decode(&frame[4..]).unwrap();
        assert_eq!(newer.spares_in_use, 2);
    }

    #[test]
    fn a_frame_with_an_excessive_length_is_refused_unread() {
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
