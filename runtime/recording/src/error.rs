//! The errors of recordings. Each message contains a remedy if there is one.

use std::fmt;
use std::io;
use std::path::Path;

/// An error of a recording, with a message for users.
#[derive(Debug)]
pub struct RecordingError {
    kind: Kind,
    message: String,
    source: Option<io::Error>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Missing,
    NotARecording,
    WrongVersion,
    Truncated,
    Damaged,
    Full,
    DiskFull,
    Exists,
    Unwritable,
    Setting,
    Io,
}

impl RecordingError {
    fn new(kind: Kind, message: String) -> Self {
        Self { kind, message, source: None }
    }

    pub(super) fn not_a_recording(name: &str) -> Self {
        Self::new(Kind::NotARecording, format!("{name} is not a Volt recording"))
    }

    pub(super) fn wrong_version(name: &str, theirs: impl fmt::Display, ours: impl fmt::Display) -> Self {
        let message = format!(
            "{name} has recording format {theirs}, but this program reads {ours}: \
             use the volt-console of the Volt version that wrote it"
        );
        Self::new(Kind::WrongVersion, message)
    }

    pub(super) fn truncated(name: &str, at_byte: u64) -> Self {
        let message = format!(
            "{name} is truncated at byte {at_byte}, inside a frame: the recording program was killed or \
             still writes, or its disk was full; the data before that byte is complete"
        );
        Self::new(Kind::Truncated, message)
    }

    pub(super) fn damaged(name: &str, at_byte: u64, why: impl fmt::Display) -> Self {
        let message = format!("{name} is damaged at byte {at_byte}: {why}; the data before that byte is complete");
        Self::new(Kind::Damaged, message)
    }

    pub(super) fn full(name: &str, bytes: u64) -> Self {
        let message =
            format!("{name} is full with {bytes} bytes: increase max_file_bytes, or allow more than one file");
        Self::new(Kind::Full, message)
    }

    pub(super) fn setting(name: &str, value: impl fmt::Display, remedy: impl fmt::Display) -> Self {
        Self::new(Kind::Setting, format!("{name} is {value}: {remedy}"))
    }

    /// Copies the error without its source, for callers that continue to use a failed reader or
    /// writer.
    pub(super) fn again(&self) -> Self {
        Self { kind: self.kind, message: self.message.clone(), source: None }
    }

    /// The error of opening `path` for reading.
    pub(super) fn open(path: &Path, error: io::Error) -> Self {
        let (shown, kind) = (path.display(), error.kind());
        let (kind, message) = match kind {
            io::ErrorKind::NotFound => (Kind::Missing, format!("there is no recording {shown}")),
            io::ErrorKind::IsADirectory => (Kind::NotARecording, format!("{shown} is a directory, not a recording")),
            _ => (Kind::Io, format!("{shown}: {error}")),
        };
        Self { kind, message, source: Some(error) }
    }

    /// The error of opening a black box, or the directory of black boxes.
    pub(super) fn open_black_box(path: &Path, error: io::Error) -> Self {
        let shown = path.display();
        let (kind, message) = match error.kind() {
            io::ErrorKind::NotFound => (Kind::Missing, format!("there is no black box {shown}")),
            _ => (Kind::Io, format!("{shown}: {error}")),
        };
        Self { kind, message, source: Some(error) }
    }

    pub(super) fn no_black_box(dir: &Path) -> Self {
        let shown = dir.display();
        let message = format!("there is no black box in {shown}: start the program with VOLT_BLACK_BOX={shown}");
        Self::new(Kind::Missing, message)
    }

    pub(super) fn not_a_black_box(name: &str) -> Self {
        Self::new(Kind::NotARecording, format!("{name} is not the black box of a Volt program"))
    }

    pub(super) fn wrong_black_box_version(name: &str, theirs: u64, ours: u64) -> Self {
        let message = format!(
            "{name} has black box format {theirs}, but this program reads {ours}: use the volt-console of the Volt version that wrote it"
        );
        Self::new(Kind::WrongVersion, message)
    }

    pub(super) fn damaged_black_box(name: &str, why: &str) -> Self {
        Self::new(Kind::Damaged, format!("{name} is damaged: {why}"))
    }

    pub(super) fn read(name: &str, error: io::Error) -> Self {
        let kind = if error.kind() == io::ErrorKind::IsADirectory { Kind::NotARecording } else { Kind::Io };
        Self { kind, message: format!("{name}: {error}"), source: Some(error) }
    }

    /// The error of creating `path`.
    pub(super) fn create(path: &Path, error: io::Error) -> Self {
        let shown = path.display();
        let (kind, message) = match error.kind() {
            io::ErrorKind::AlreadyExists => {
                (Kind::Exists, format!("{shown} already exists: choose another name, or delete it"))
            }
            io::ErrorKind::NotFound => (
                Kind::Unwritable,
                format!("{shown} cannot be created: its directory does not exist: create it, or choose another"),
            ),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => (
                Kind::Unwritable,
                format!("{shown} cannot be created: {error}: choose a directory that this user can write to"),
            ),
            _ if is_disk_full(&error) => {
                (Kind::DiskFull, format!("{shown} cannot be created: {error}: free some space"))
            }
            _ => (Kind::Unwritable, format!("{shown} cannot be created: {error}")),
        };
        Self { kind, message, source: Some(error) }
    }

    /// The error of writing to a recording that has `bytes` so far.
    pub(super) fn write(name: &str, bytes: u64, error: io::Error) -> Self {
        let (kind, remedy) = if is_disk_full(&error) { (Kind::DiskFull, ": free some space") } else { (Kind::Io, "") };
        let message = format!("{name}: {error}{remedy}; the {bytes} bytes recorded so far stay readable");
        Self { kind, message, source: Some(error) }
    }

    /// The error of writing an export of a recording.
    pub(super) fn export(error: io::Error) -> Self {
        let kind = if is_disk_full(&error) { Kind::DiskFull } else { Kind::Io };
        Self { kind, message: format!("the export cannot be written: {error}"), source: Some(error) }
    }

    /// Returns true if the file does not exist, or if there is no black box in the directory.
    pub fn is_missing(&self) -> bool {
        self.kind == Kind::Missing
    }

    /// Returns true if the file is not a recording, or not a black box.
    pub fn is_not_a_recording(&self) -> bool {
        self.kind == Kind::NotARecording
    }

    /// Returns true if this crate cannot read the version of the file's format. Of a recording,
    /// that is another major version.
    pub fn is_wrong_version(&self) -> bool {
        self.kind == Kind::WrongVersion
    }

    /// Returns true if the file is truncated. The data read before that is complete.
    pub fn is_truncated(&self) -> bool {
        self.kind == Kind::Truncated
    }

    /// Returns true if the contents of the file are invalid, for example because bytes were
    /// modified. The data read before that is complete.
    pub fn is_damaged(&self) -> bool {
        self.kind == Kind::Damaged
    }

    /// Returns true if the file has reached its maximum size, and there may be no second one.
    pub fn is_full(&self) -> bool {
        self.kind == Kind::Full
    }

    /// Returns true if the disk or the user's quota is full, or if the file has reached the limit
    /// on file sizes.
    pub fn is_disk_full(&self) -> bool {
        self.kind == Kind::DiskFull
    }

    /// Returns true if a file of that name exists already.
    pub fn is_existing(&self) -> bool {
        self.kind == Kind::Exists
    }

    /// Returns true if the file cannot be created.
    pub fn is_unwritable(&self) -> bool {
        self.kind == Kind::Unwritable
    }

    /// Returns true if a setting is out of its bounds.
    pub fn is_invalid_setting(&self) -> bool {
        self.kind == Kind::Setting
    }

    /// Returns true if the reader of the output has closed it, as in `export | head`.
    pub fn is_broken_pipe(&self) -> bool {
        self.source.as_ref().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    }
}

fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}

impl fmt::Display for RecordingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for RecordingError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|error| error as _)
    }
}
