//! The layout of a black box: the file in which a runtime keeps its state while it runs, so that
//! the state outlives a program that is killed.
//!
//! The runtime maps the file into its memory. Workers write their cells and their rings there, as
//! they would write them to other memory. If the program is killed, the kernel keeps every store
//! that a thread had made. The file also contains what is written from time to time: the texts for
//! the numbers in cells and rings, and the last snapshot. `volt-recording` reads it afterwards.
//!
//! All numbers are 64-bit words in the byte order of the machine, which is little-endian on every
//! supported one. The sections follow each other, each at a multiple of [`PAGE_BYTES`]:
//!
//! | section | bytes | contents |
//! |---|---|---|
//! | head | [`HEAD_BYTES`] | the words of [`word`], and from [`IDENTITY_AT`] on the [`Identity`] |
//! | texts | 2 × [`TEXTS_BYTES`] | two logs of texts; the one with the higher generation is newer |
//! | samples | 2 × [`SAMPLE_BYTES`] | the last two [`Sample`]s |
//! | cells | [`CELL_BYTES`] for each slot | the cells of the workers, then of the spares |
//! | rings | [`ring_bytes`] for each track | the events; all zero until a thread records one |
//!
//! A reader must survive any content: a program that is killed may leave any part half-written, and
//! a file may be damaged. So every part has its length, its number or its checksum.
//!
//! Who writes: the owner of each cell and ring; texts are written under a lock of the runtime, and
//! samples by the thread that takes snapshots. The head is written when the file is created. Then
//! the sentinel writes the time of its checks, and the thread that ends the runtime how it ended.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::flush::{Anchor, Track};
use super::record::WORDS;
use crate::snapshot::Snapshot;

/// The first word of the file.
pub const MAGIC: u64 = u64::from_le_bytes(*b"VOLTBOX\0");
/// The version of the layout. A reader refuses another one.
pub const VERSION: u64 = 1;
/// The extension of the files.
pub const EXTENSION: &str = "voltbox";

/// Sections begin at multiples of this, which is the page size of the mapping or a multiple of it.
pub const PAGE_BYTES: usize = 65_536;
/// Bytes of the head.
pub const HEAD_BYTES: usize = PAGE_BYTES;
/// Where the identity begins.
pub const IDENTITY_AT: usize = 4096;
/// Bytes of one of the two logs of texts.
pub const TEXTS_BYTES: usize = 256 * 1024;
/// Bytes of one of the two samples, with its head.
pub const SAMPLE_BYTES: usize = 512 * 1024;
/// Bytes of the cells of one worker.
pub const CELL_BYTES: usize = 2048;
/// Words before the records of a ring. The first is the number of records ever pushed, the second
/// is [`RING_MAGIC`].
pub const RING_HEAD_WORDS: usize = 16;
/// The second word of a ring that is in use.
pub const RING_MAGIC: u64 = u64::from_le_bytes(*b"VOLTRING");
/// Words before the contents of a log of texts: its generation, and the bytes of its contents.
pub const TEXTS_HEAD_WORDS: usize = 2;
/// Bytes before each text: the kind and the length, and the number.
pub const TEXT_HEAD_BYTES: usize = 16;
/// Words before the contents of a sample: its number, which is odd while it is written; the bytes
/// of its contents; and their [`checksum`].
pub const SAMPLE_HEAD_WORDS: usize = 3;

const _: () = assert!(TEXTS_BYTES.is_multiple_of(PAGE_BYTES) && SAMPLE_BYTES.is_multiple_of(PAGE_BYTES));

/// The words of the head, by their index.
pub mod word {
    /// [`MAGIC`](super::MAGIC), written last.
    pub const MAGIC: usize = 0;
    /// [`VERSION`](super::VERSION).
    pub const VERSION: usize = 1;
    /// The number of workers.
    pub const WORKERS: usize = 2;
    /// The number of spares.
    pub const SPARES: usize = 3;
    /// The number of records in a ring.
    pub const RING_RECORDS: usize = 4;
    /// The bytes of the identity.
    pub const IDENTITY_BYTES: usize = 5;
    /// The checksum of the identity.
    pub const IDENTITY_CHECKSUM: usize = 6;
    /// When the sentinel last checked the runtime: ns on the program's clock.
    pub const BEAT_NS: usize = 7;
    /// How the runtime ended: one of [`end`](super::end).
    pub const END: usize = 8;
    /// When it ended: ns on the program's clock.
    pub const END_NS: usize = 9;
}

/// The values of [`word::END`].
pub mod end {
    /// The runtime runs, or the program was killed.
    pub const NONE: u64 = 0;
    /// The runtime was shut down.
    pub const SHUT_DOWN: u64 = 1;
    /// The program called `exit`, or returned from `main`, without shutting the runtime down.
    pub const EXITED: u64 = 2;
}

/// The words of a worker's cells that a reader uses, by their index. The other cells are private.
pub mod cell {
    /// Odd while a poll is in flight.
    pub const POLL_SEQ: usize = 0;
    /// The id of the task of the poll.
    pub const TASK: usize = 2;
    /// The address of the line that spawned the task: a text of kind [`kind::ADDRESS`].
    ///
    /// [`kind::ADDRESS`]: super::kind::ADDRESS
    pub const LOCATION: usize = 4;
    /// When the poll began: ns on the program's clock.
    pub const POLL_BEGAN_NS: usize = 5;
    /// Odd while the phase changes.
    pub const PHASE_SEQ: usize = 8;
    /// The phase: an index of [`Phase::TIMED`](crate::Phase::TIMED); beyond it, stopped.
    pub const PHASE: usize = 9;
    /// When the phase began.
    pub const PHASE_SINCE_NS: usize = 10;
    /// The id of the worker's thread; 0 = none.
    pub const THREAD: usize = 16;
}

/// The kinds of texts, in the lowest byte of the first word of a text. The following two bytes are
/// its length.
pub mod kind {
    /// The line of the spawn location with this number.
    pub const LOCATION: u64 = 0;
    /// The name of the task with this id.
    pub const TASK: u64 = 1;
    /// The incident with this number.
    pub const INCIDENT: u64 = 2;
    /// The name of the process with this number.
    pub const PROCESS: u64 = 3;
    /// The line of the spawn location at this address.
    pub const ADDRESS: u64 = 4;
}

/// The program and the runtime that a black box belongs to. Written once, when it is created.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Identity {
    /// The process id of the program.
    pub pid: u32,
    /// When the program started: [`start_time_of`](crate::socket::start_time_of).
    pub start_time: u64,
    /// The id of the boot of the machine, if it is known.
    pub boot_id: Option<String>,
    /// The program's name.
    pub program: String,
    /// The path of its executable, if it is known.
    pub executable: Option<String>,
    /// The build id of its executable in hexadecimal, if it has one.
    pub build_id: Option<String>,
    /// The runtime's name.
    pub runtime: String,
    /// The version of `volt-runtime`.
    pub volt: String,
    /// The readings of the clocks when the black box was created.
    pub anchor: Anchor,
    /// The directory of the program's memory control group, if it has one.
    pub memory_group: Option<String>,
    /// How many processes of that group the OOM killer had killed by then.
    pub memory_kills: Option<u64>,
}

/// A snapshot with its findings, and the memory of the program. Written a few times a second while
/// a worker is awake.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// The state of the runtime.
    pub snapshot: Box<Snapshot>,
    /// The memory at that time.
    pub memory: Memory,
}

/// The memory of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// Memory of the program that was resident, bytes.
    pub resident_bytes: Option<u64>,
    /// Memory that the program's control group used, bytes.
    pub group_bytes: Option<u64>,
    /// The limit of that group, bytes. `None` if it has none.
    pub group_max_bytes: Option<u64>,
    /// How many processes of that group the OOM killer had killed.
    pub group_kills: Option<u64>,
}

/// Returns how many processes of the control group with this directory the OOM killer has killed,
/// in version 2 or 1. `None` if there is no such group, or it does not count memory.
pub fn memory_kills(group: &Path) -> Option<u64> {
    let files = ["memory.events", "memory.oom_control"];
    let counts = files.iter().find_map(|file| std::fs::read_to_string(group.join(file)).ok())?;
    counts.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

/// The positions of the sections of a black box, in bytes from the beginning of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The number of workers.
    pub workers: usize,
    /// The number of spares.
    pub spares: usize,
    /// The number of records in a ring.
    pub ring_records: usize,
}

impl Layout {
    /// Returns the position of the log of texts with this index, 0 or 1.
    pub fn texts_at(self, index: usize) -> usize {
        HEAD_BYTES + index * TEXTS_BYTES
    }

    /// Returns the position of the sample with this index, 0 or 1.
    pub fn sample_at(self, index: usize) -> usize {
        self.texts_at(2) + index * SAMPLE_BYTES
    }

    /// Returns the position of the cells of this worker or spare worker.
    pub fn cells_at(self, slot: usize) -> usize {
        self.sample_at(2) + slot * CELL_BYTES
    }

    /// Returns the position of the ring of a track, whose index in [`Track::all`] is `lane`.
    pub fn ring_at(self, lane: usize) -> usize {
        self.cells_at(self.slots()).next_multiple_of(PAGE_BYTES) + lane * ring_bytes(self.ring_records)
    }

    /// Returns the number of workers and spare workers.
    pub fn slots(self) -> usize {
        self.workers + self.spares
    }

    /// Returns the number of tracks, and so of rings: those of [`Track::all`].
    pub fn lanes(self) -> usize {
        self.slots() + 2
    }

    /// Returns the size of the file in bytes. The rings may be holes.
    pub fn file_bytes(self) -> usize {
        self.ring_at(self.lanes())
    }
}

/// Returns the size of a ring of this many records, in bytes.
pub fn ring_bytes(records: usize) -> usize {
    ((RING_HEAD_WORDS + records * WORDS) * 8).next_multiple_of(PAGE_BYTES)
}

impl Track {
    /// Returns the tracks of a runtime with this many workers and spare workers, in the order of
    /// their rings.
    pub fn all(workers: usize, spares: usize) -> impl Iterator<Item = Track> {
        let index = |index: usize| u16::try_from(index).unwrap_or(u16::MAX);
        let tracks = (0..workers).map(move |at| Track::Worker { index: index(at) });
        let tracks = tracks.chain((0..spares).map(move |at| Track::Spare { index: index(at) }));
        tracks.chain([Track::Outside, Track::Sentinel])
    }
}

/// The name of a black box. It names the program and one run of it, from its start to its end:
/// `PROGRAM.STAMP.PID-START.RUNTIME.voltbox`, in which no part contains a point.
///
/// ```
/// use volt_telemetry::recording::black_box::FileName;
/// let name = FileName::new("shop v2.1", 1_764_000_000_000, 4711, 99, "api");
/// assert_eq!(name.to_string(), "shop_v2_1-5dfa9f46.1764000000000.4711-99.api.voltbox");
/// assert_eq!(FileName::parse(&name.to_string()), Some(name));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileName {
    /// The program's name. Characters other than ASCII letters, digits, `-` and `_` are replaced,
    /// and a checksum of the name is added.
    pub program: String,
    /// When the first black box of this run was created: ms since 1970.
    pub stamp_ms: u64,
    /// The process id of the program.
    pub pid: u32,
    /// When the program started: [`start_time_of`](crate::socket::start_time_of).
    pub start_time: u64,
    /// The runtime's name, like the program's.
    pub runtime: String,
}

impl FileName {
    /// Creates a name.
    pub fn new(program: &str, stamp_ms: u64, pid: u32, start_time: u64, runtime: &str) -> Self {
        Self { program: part(program), stamp_ms, pid, start_time, runtime: part(runtime) }
    }

    /// Parses the name of a file. Returns `None` if it is not that of a black box.
    pub fn parse(name: &str) -> Option<Self> {
        let parts: Vec<_> = name.split('.').collect();
        let [program, stamp, run, runtime, EXTENSION] = parts[..] else { return None };
        let (pid, start_time) = run.split_once('-')?;
        let found = Self::new(program, stamp.parse().ok()?, pid.parse().ok()?, start_time.parse().ok()?, runtime);
        // Numbers in another notation, such as with leading zeros, belong to no black box.
        (found.to_string() == name).then_some(found)
    }

    /// Returns whether both belong to the same run of a program: whether they only differ in the
    /// runtime. The stamp matters, because programs in containers often have the same process id,
    /// and two of them may start within the same clock tick.
    pub fn is_same_life(&self, other: &Self) -> bool {
        let life = |name: &Self| (name.stamp_ms, name.pid, name.start_time);
        self.program == other.program && life(self) == life(other)
    }
}

impl std::fmt::Display for FileName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { program, stamp_ms, pid, start_time, runtime } = self;
        write!(f, "{program}.{stamp_ms}.{pid}-{start_time}.{runtime}.{EXTENSION}")
    }
}

/// The longest part of a file's name, in bytes.
const MAX_PART_BYTES: usize = 64;

/// Returns a part of a file's name. A name that has other letters, or is too long, gets a checksum
/// of 32 bits at its end, so that two such names rarely have the same part.
fn part(name: &str) -> String {
    let is_kept = |letter: &char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    if (1..=MAX_PART_BYTES).contains(&name.len()) && name.chars().all(|letter| is_kept(&letter)) {
        return name.to_owned();
    }
    let sum = format!("-{:08x}", checksum(name.as_bytes()) as u32);
    let letters = if name.is_empty() { "_" } else { name }.chars().take(MAX_PART_BYTES - sum.len());
    letters.map(|letter| if is_kept(&letter) { letter } else { '_' }).chain(sum.chars()).collect()
}

/// Returns the checksum of some bytes: FNV-1a with 64 bits. It finds what a killed program leaves
/// half-written, and damage by chance.
pub fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_other_letters_have_different_files() {
        let names = ["a.b", "a_b", "a b", "ä_b", "", "api v1", "api_v1", &"x".repeat(64), &"x".repeat(65)];
        let mut parts = names.map(part);
        assert!(parts.iter().all(|known| part(known) == *known && known.len() <= MAX_PART_BYTES), "{parts:?}");
        assert_eq!((parts[1].as_str(), parts[7].len()), ("a_b", 64));
        parts.sort_unstable();
        assert!(parts.windows(2).all(|pair| pair[0] != pair[1]), "{parts:?}");
    }

    #[test]
    fn the_sections_of_a_black_box_begin_in_their_order() {
        let layout = Layout { workers: 3, spares: 4, ring_records: 1024 };
        let begins = [layout.texts_at(0), layout.texts_at(1), layout.sample_at(0), layout.sample_at(1)];
        assert!(begins.is_sorted() && begins[0] == HEAD_BYTES, "{begins:?}");
        assert_eq!(layout.cells_at(1) - layout.cells_at(0), CELL_BYTES);
        assert!(layout.ring_at(0) >= layout.cells_at(7) && layout.ring_at(0).is_multiple_of(PAGE_BYTES));
        assert_eq!(layout.file_bytes(), layout.ring_at(0) + layout.lanes() * ring_bytes(1024));
        assert_eq!(Track::all(3, 4).count(), layout.lanes());
    }

    #[test]
    fn other_files_are_no_black_boxes() {
        let name = FileName::new("", 1, 2, 3, "../evil");
        assert_eq!(name.to_string(), "_-84222325.1.2-3.___evil-efd094d0.voltbox");
        for other in
            ["", "a", "a.1.2-3.b", "a.01.2-3.b.voltbox", "a.1.2.b.voltbox", "a.1.2-x.b.voltbox", "/.1.2-3.b.voltbox"]
        {
            assert_eq!(FileName::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_checksum_is_that_of_fnv_1a() {
        // The published test vectors.
        let sums = [checksum(b""), checksum(b"a"), checksum(b"foobar")];
        assert_eq!(sums, [0xcbf2_9ce4_8422_2325, 0xaf63_dc4c_8601_ec8c, 0x8594_4171_f739_67e8]);
    }
}
