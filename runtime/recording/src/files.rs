//! The files of a recording on a disk. They are numbered if there may be several.
//!
//! [`Writer`](crate::writer::Writer) creates and removes its files through this module.
//!
//! Invariant *FOREIGN FILES STAY*: an existing file is never touched.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::error::RecordingError;

/// Creates the files. Tests implement it without a disk.
pub(super) trait Store: Send {
    /// Returns the path of part `part`.
    fn path(&self, part: u32) -> PathBuf;
    /// Creates a new file. Fails if the file exists.
    fn create(&mut self, part: u32) -> io::Result<Box<dyn Sink>>;
    fn remove(&mut self, part: u32) -> io::Result<()>;
}

pub(super) trait Sink: Write + Send {
    /// Removes everything after the first `bytes`.
    fn cut(&mut self, bytes: u64) -> io::Result<()>;
}

/// Files on a disk.
pub(super) struct Files {
    pub(super) path: PathBuf,
    pub(super) is_numbered: bool,
}

impl Files {
    /// Checks that no numbered file of an earlier recording conflicts with one of this recording,
    /// now or later. A single file is checked when it is created.
    pub(super) fn is_free(&self) -> Result<(), RecordingError> {
        if !self.is_numbered {
            return Ok(());
        }
        match parts_of(&self.path).first() {
            None => Ok(()),
            Some(found) => Err(RecordingError::create(found, io::ErrorKind::AlreadyExists.into())),
        }
    }
}

impl Store for Files {
    fn path(&self, part: u32) -> PathBuf {
        if self.is_numbered { numbered(&self.path, part) } else { self.path.clone() }
    }

    fn create(&mut self, part: u32) -> io::Result<Box<dyn Sink>> {
        // Readable only for its user, because it contains names of tasks and lines of code.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.path(part))?;
        Ok(Box::new(file))
    }

    fn remove(&mut self, part: u32) -> io::Result<()> {
        std::fs::remove_file(self.path(part))
    }
}

impl Sink for File {
    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }
}

/// Turns `stall.voltrec` and 7 into `stall.0007.voltrec`. From 10,000 on, a number has more digits.
fn numbered(path: &Path, part: u32) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".{part:04}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// Returns the files of a recording with this `path`, in order: `path` itself, or its numbered
/// parts. Returns an empty list if there is none.
///
/// ```
/// use std::path::Path;
/// use volt_recording::files::parts_of;
/// assert!(parts_of(Path::new("/nowhere/stall.voltrec")).is_empty());
/// ```
pub fn parts_of(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_path_buf()];
    }
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    // A number has four digits or more.
    let number_of = |name: &OsStr| {
        let stem = path.file_stem().unwrap_or_default().as_encoded_bytes();
        let rest = name.as_encoded_bytes().strip_prefix(stem)?.strip_prefix(b".")?;
        let digits = rest.split(|byte| !byte.is_ascii_digit()).next()?;
        let part: u32 = std::str::from_utf8(digits).ok()?.parse().ok()?;
        (numbered(path, part).file_name() == Some(name)).then_some(part)
    };
    let mut parts: Vec<_> = entries.flatten().filter_map(|entry| number_of(&entry.file_name())).collect();
    parts.sort_unstable();
    parts.into_iter().map(|part| numbered(path, part)).collect()
}
