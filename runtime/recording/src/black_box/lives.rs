//! Finds the black boxes in a directory, by run of a program.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use volt_telemetry::recording::black_box::FileName;

use crate::error::RecordingError;

/// One run of a program, from its start to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    /// The program's name, as in the names of the files.
    pub program: String,
    /// The process id of the program.
    pub pid: u32,
    /// When its first black box was created: ms since 1970.
    pub stamp_ms: u64,
    /// Its black boxes, one for each runtime, by name.
    pub files: Vec<PathBuf>,
}

/// Returns the runs whose black boxes are in a directory, the newest first. There is at least one.
///
/// # Errors
/// Returns an error for which [`RecordingError::is_missing`] is true if the directory does not
/// exist or contains no black box. Also returns the errors of the operating system.
pub fn lives_in(dir: &Path) -> Result<Vec<Life>, RecordingError> {
    let entries = fs::read_dir(dir).map_err(|error| RecordingError::open_black_box(dir, error))?;
    let mut names: Vec<_> = entries.filter_map(|entry| FileName::parse(entry.ok()?.file_name().to_str()?)).collect();
    names.sort_by_key(|name| (std::cmp::Reverse(name.stamp_ms), name.to_string()));
    let mut lives: Vec<(FileName, Life)> = Vec::new();
    for name in names {
        let path = dir.join(name.to_string());
        match lives.iter_mut().find(|(first, _)| first.is_same_life(&name)) {
            Some((_, life)) => life.files.push(path),
            None => {
                let FileName { program, stamp_ms, pid, .. } = name.clone();
                lives.push((name, Life { program, pid, stamp_ms, files: vec![path] }));
            }
        }
    }
    if lives.is_empty() {
        return Err(RecordingError::no_black_box(dir));
    }
    Ok(lives.into_iter().map(|(_, life)| life).collect())
}

/// Returns whether the program that writes to the black box still runs: it keeps the file locked
/// until it ends. Returns `None` if that cannot be determined.
pub fn is_locked(path: &Path) -> Option<bool> {
    match File::open(path).ok()?.try_lock_shared() {
        Ok(()) => Some(false),
        Err(TryLockError::WouldBlock) => Some(true),
        Err(TryLockError::Error(_)) => None,
    }
}
