//! Directories: reading their entries, and creating them.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, FileType, Metadata};
use std::future::poll_fn;
use std::io;
use std::os::unix::fs::{DirBuilderExt, DirEntryExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::fs::run;
use volt_core::context;
use volt_core::task::JoinHandle;

/// Number of entries that one job reads. A hand-over to another thread costs as much as reading a
/// few entries.
const ENTRIES_AT_ONCE: usize = 32;

/// Starts reading a directory, and returns its entries in no particular order.
///
/// # Errors
/// Returns an error if the underlying system call fails.
///
/// # Panics
/// Panics if the future is polled outside the context of a runtime.
///
/// # Cancel safety
/// This function is cancel safe.
pub async fn read_dir(path: impl AsRef<Path>) -> io::Result<ReadDir> {
    let path = path.as_ref().to_owned();
    let (entries, rest) = run(move || Ok(read_some(fs::read_dir(path)?))).await?;
    Ok(ReadDir { entries, more: rest.map_or(More::Nothing, More::Rest) })
}

/// Reads the entries of a directory. Created by [`read_dir`].
#[derive(Debug)]
#[must_use = "call next_entry() to get the entries"]
pub struct ReadDir {
    /// Entries that were read and have not been returned yet.
    entries: Entries,
    more: More,
}

type Entries = VecDeque<io::Result<DirEntry>>;

/// The entries that have not been read yet.
#[derive(Debug)]
enum More {
    Nothing,
    Rest(fs::ReadDir),
    /// A job is reading them.
    Job(JoinHandle<(Entries, Option<fs::ReadDir>)>),
}

/// Reads the next entries with their types, and returns them with the rest of the directory. Runs
/// on a thread for blocking work.
fn read_some(mut rest: fs::ReadDir) -> (Entries, Option<fs::ReadDir>) {
    let mut entries = VecDeque::with_capacity(ENTRIES_AT_ONCE);
    while entries.len() < ENTRIES_AT_ONCE {
        match rest.next() {
            Some(Ok(entry)) => entries.push_back(Ok(DirEntry::of(entry))),
            // The system may return the same error again for every call, so reading ends here.
            Some(Err(error)) => {
                entries.push_back(Err(error));
                return (entries, None);
            }
            None => return (entries, None),
        }
    }
    (entries, Some(rest))
}

impl ReadDir {
    /// Returns the next entry of the directory, or `None` after the last one.
    ///
    /// # Errors
    /// Returns an error if reading the directory fails. No entry follows after an error.
    ///
    /// # Panics
    /// Panics if the future is polled outside the context of a runtime.
    ///
    /// # Cancel safety
    /// This method is cancel safe. No entry is lost.
    pub async fn next_entry(&mut self) -> io::Result<Option<DirEntry>> {
        poll_fn(|cx| self.poll_next_entry(cx)).await
    }

    /// Polls for the next entry as [`next_entry`](Self::next_entry) does.
    ///
    /// # Errors
    /// Returns the same errors as [`next_entry`](Self::next_entry).
    ///
    /// # Panics
    /// Panics if called outside the context of a runtime.
    pub fn poll_next_entry(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<DirEntry>>> {
        loop {
            if let Some(entry) = self.entries.pop_front() {
                return Poll::Ready(entry.map(Some));
            }
            self.more = match std::mem::replace(&mut self.more, More::Nothing) {
                More::Nothing => return Poll::Ready(Ok(None)),
                More::Rest(rest) => More::Job(context::handle().spawn_blocking(move || read_some(rest))),
                More::Job(mut job) => match Pin::new(&mut job).poll(cx) {
                    Poll::Pending => {
                        self.more = More::Job(job);
                        return Poll::Pending;
                    }
                    Poll::Ready(read) => {
                        let (entries, rest) = read?;
                        self.entries = entries;
                        rest.map_or(More::Nothing, More::Rest)
                    }
                },
            };
        }
    }
}

/// An entry of a directory, returned by [`ReadDir::next_entry`].
#[derive(Clone, Debug)]
pub struct DirEntry {
    entry: Arc<fs::DirEntry>,
    /// The type; `None` if it could not be determined when the entry was read.
    file_type: Option<FileType>,
}

impl DirEntry {
    fn of(entry: fs::DirEntry) -> Self {
        Self { file_type: entry.file_type().ok(), entry: Arc::new(entry) }
    }

    /// Returns the path of the entry: the path of the directory joined with the entry's name.
    pub fn path(&self) -> PathBuf {
        self.entry.path()
    }

    /// Returns the name of the entry, without the path of the directory.
    pub fn file_name(&self) -> OsString {
        self.entry.file_name()
    }

    /// Returns the inode number of the entry.
    pub fn ino(&self) -> u64 {
        self.entry.ino()
    }

    /// Returns the metadata of the entry. Does not follow symbolic links.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    ///
    /// # Panics
    /// Panics if the future is polled outside the context of a runtime.
    ///
    /// # Cancel safety
    /// This method is cancel safe.
    pub async fn metadata(&self) -> io::Result<Metadata> {
        let entry = self.entry.clone();
        run(move || entry.metadata()).await
    }

    /// Returns the type of the entry: a file, a directory, a symbolic link or another type. Does
    /// not follow symbolic links.
    ///
    /// Usually the type was read together with the entry, and the future completes immediately.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    ///
    /// # Panics
    /// Panics if the type has to be read and the future is polled outside the context of a runtime.
    ///
    /// # Cancel safety
    /// This method is cancel safe.
    pub async fn file_type(&self) -> io::Result<FileType> {
        if let Some(file_type) = self.file_type {
            return Ok(file_type);
        }
        let entry = self.entry.clone();
        run(move || entry.file_type()).await
    }
}

/// A builder for creating directories.
///
/// ```
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// # let path = std::env::temp_dir().join(format!("volt-doc-dir-{}", std::process::id()));
/// volt::fs::DirBuilder::new().recursive(true).mode(0o700).create(path.join("private")).await?;
/// # volt::fs::remove_dir_all(&path).await?;
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct DirBuilder {
    is_recursive: bool,
    /// The permissions; `None` for all permissions that the program's file mode creation mask
    /// (umask) allows.
    mode: Option<u32>,
}

impl DirBuilder {
    /// Creates a builder for a single directory, whose parent must exist.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether missing parent directories are created too. Default false. If true, it is not
    /// an error if the directory already exists.
    pub fn recursive(&mut self, recursive: bool) -> &mut Self {
        self.is_recursive = recursive;
        self
    }

    /// Sets the permissions of new directories. Default `0o777`. The program's file mode creation
    /// mask (umask) is applied to them.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = Some(mode);
        self
    }

    /// Creates the directory at `path`.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    ///
    /// # Panics
    /// Panics if the future is polled outside the context of a runtime.
    ///
    /// # Cancel safety
    /// Dropping the future does not undo an operation that has started.
    pub async fn create(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(self.is_recursive);
        if let Some(mode) = self.mode {
            builder.mode(mode);
        }
        let path = path.as_ref().to_owned();
        run(move || builder.create(path)).await
    }
}
