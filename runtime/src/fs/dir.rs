//! Folders: what is in them, and how they are made.

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
use volt_core::task::join::JoinHandle;

/// Entries that one job reads: a hand-over to another thread costs as much as a few of them.
const ENTRIES_AT_ONCE: usize = 32;

/// What is in a folder, in no particular order.
///
/// # Errors
/// What the system says.
///
/// # Panics
/// Outside a runtime.
///
/// # Cancel safety
/// Nothing is lost.
pub async fn read_dir(path: impl AsRef<Path>) -> io::Result<ReadDir> {
    let path = path.as_ref().to_owned();
    let (entries, rest) = run(move || Ok(read_some(fs::read_dir(path)?))).await?;
    Ok(ReadDir { entries, more: rest.map_or(More::Nothing, More::Rest) })
}

/// What [`read_dir`] gives.
#[derive(Debug)]
#[must_use = "entries are read when they are asked for"]
pub struct ReadDir {
    /// Read and not asked for yet.
    entries: Entries,
    more: More,
}

type Entries = VecDeque<io::Result<DirEntry>>;

/// What comes after the entries that were read.
#[derive(Debug)]
enum More {
    Nothing,
    Rest(fs::ReadDir),
    /// It is being read.
    Job(JoinHandle<(Entries, Option<fs::ReadDir>)>),
}

/// On a thread for blocking work: the next entries, with their types where the system gives them
/// along, and what there is after them.
fn read_some(mut rest: fs::ReadDir) -> (Entries, Option<fs::ReadDir>) {
    let mut entries = VecDeque::with_capacity(ENTRIES_AT_ONCE);
    while entries.len() < ENTRIES_AT_ONCE {
        match rest.next() {
            Some(Ok(entry)) => entries.push_back(Ok(DirEntry::of(entry))),
            // The system may give the error again and again.
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
    /// The next entry; `None` after the last.
    ///
    /// # Errors
    /// What the system says; nothing comes after that.
    ///
    /// # Panics
    /// Outside a runtime.
    ///
    /// # Cancel safety
    /// No entry is lost.
    pub async fn next_entry(&mut self) -> io::Result<Option<DirEntry>> {
        poll_fn(|cx| self.poll_next_entry(cx)).await
    }

    /// Polls as [`next_entry`](Self::next_entry).
    ///
    /// # Errors
    /// As [`next_entry`](Self::next_entry).
    ///
    /// # Panics
    /// Outside a runtime.
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

/// An entry of a folder.
#[derive(Clone, Debug)]
pub struct DirEntry {
    entry: Arc<fs::DirEntry>,
    /// Known already, on most file systems.
    file_type: Option<FileType>,
}

impl DirEntry {
    fn of(entry: fs::DirEntry) -> Self {
        Self { file_type: entry.file_type().ok(), entry: Arc::new(entry) }
    }

    /// Its path: that of the folder, and its name.
    pub fn path(&self) -> PathBuf {
        self.entry.path()
    }

    /// Its name in the folder.
    pub fn file_name(&self) -> OsString {
        self.entry.file_name()
    }

    /// Its number in the file system.
    pub fn ino(&self) -> u64 {
        self.entry.ino()
    }

    /// What is known of it; of a symbolic link, of the link itself.
    ///
    /// # Errors
    /// What the system says.
    ///
    /// # Panics
    /// Outside a runtime.
    pub async fn metadata(&self) -> io::Result<Metadata> {
        let entry = self.entry.clone();
        run(move || entry.metadata()).await
    }

    /// Whether it is a file, a folder, a symbolic link or something else.
    ///
    /// # Errors
    /// What the system says.
    ///
    /// # Panics
    /// Outside a runtime.
    pub async fn file_type(&self) -> io::Result<FileType> {
        if let Some(file_type) = self.file_type {
            return Ok(file_type);
        }
        let entry = self.entry.clone();
        run(move || entry.file_type()).await
    }
}

/// How a folder is made.
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
    /// Permissions; `None` = what the process's mask leaves of all.
    mode: Option<u32>,
}

impl DirBuilder {
    /// For a folder in one that is there.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the folders that it is to lie in are made too; then it is no error if it is there.
    pub fn recursive(&mut self, recursive: bool) -> &mut Self {
        self.is_recursive = recursive;
        self
    }

    /// Its permissions, before the process's mask.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = Some(mode);
        self
    }

    /// Makes it.
    ///
    /// # Errors
    /// What the system says.
    ///
    /// # Panics
    /// Outside a runtime.
    ///
    /// # Cancel safety
    /// Dropping the future does not undo what has begun.
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
