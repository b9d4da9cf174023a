//! Asynchronous file and directory operations.
//!
//! Volt cannot wait for a file without blocking a thread. So the functions of this module call the
//! function of the same name in `std::fs` on a thread of the *blocking pool*, the pool that
//! [`spawn_blocking`](crate::task::spawn_blocking) uses.
//!
//! An operation that has started cannot be cancelled. If its future is dropped, the operation
//! continues and its result is discarded. Each operation costs a hand-over to another thread. If a
//! task performs many small operations, it is cheaper to run them together in one `spawn_blocking`.
//!
//! All functions of this module must be awaited in the context of a runtime.
//!
//! ```
//! # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
//! # runtime.block_on(async {
//! # let dir = std::env::temp_dir().join(format!("volt-doc-fs-{}", std::process::id()));
//! volt::fs::create_dir_all(&dir).await?;
//! volt::fs::write(dir.join("greeting"), "hello").await?;
//! let mut entries = volt::fs::read_dir(&dir).await?;
//! while let Some(entry) = entries.next_entry().await? {
//!     assert_eq!(volt::fs::read_to_string(entry.path()).await?, "hello");
//! }
//! volt::fs::remove_dir_all(&dir).await?;
//! # Ok::<(), std::io::Error>(())
//! # }).unwrap();
//! ```

mod dir;
mod file;
mod open_options;

use std::error::Error;
use std::fmt;
use std::fs::{self, Metadata, Permissions};
use std::io;
use std::path::{Path, PathBuf};

use volt_core::context;
use volt_core::task::JoinError;

#[doc(no_inline)]
pub use std::fs::FileTimes;

pub use dir::{DirBuilder, DirEntry, ReadDir, read_dir};
pub use file::File;
pub use open_options::OpenOptions;

/// Runs `operation` on a thread for blocking work.
///
/// # Errors
/// Returns the error of `operation`. Returns an error of kind `Other` if it panicked, if the
/// runtime was shut down before it started, or if no thread could be started for it.
async fn run<R: Send + 'static>(operation: impl FnOnce() -> io::Result<R> + Send + 'static) -> io::Result<R> {
    let job = context::handle().spawn_blocking(operation);
    job.await.map_err(|error| io::Error::other(NotRun(error)))?
}

/// The error of an operation that did not return. Its `source` is the cause.
#[derive(Debug)]
struct NotRun(JoinError);

impl fmt::Display for NotRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Tokio's message, for which programs search.
        f.write_str("background task failed")
    }
}

impl Error for NotRun {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

/// Defines a function that calls the function of `std::fs` with the same name, and converts its
/// paths.
macro_rules! functions {
    ($($(#[doc = $doc:literal])* fn $name:ident($($path:ident),+ $(; $extra:ident: $extra_type:ty)?) -> $result:ty;)+) => {
        $(
            $(#[doc = $doc])*
            ///
            /// # Errors
            /// Returns an error if the underlying system call fails.
            ///
            /// # Panics
            /// Panics if the future is polled outside the context of a runtime.
            ///
            /// # Cancel safety
            /// Dropping the future does not undo an operation that has started.
            pub async fn $name($($path: impl AsRef<Path>,)+ $($extra: $extra_type)?) -> io::Result<$result> {
                $(let $path = $path.as_ref().to_owned();)+
                run(move || fs::$name($($path,)+ $($extra)?)).await
            }
        )+
    };
}

functions! {
    /// Reads all bytes of a file.
    fn read(path) -> Vec<u8>;
    /// Reads all text of a file into a string. Fails with `InvalidData` if the file is not valid
    /// UTF-8.
    fn read_to_string(path) -> String;
    /// Returns the metadata of a file or directory. Follows symbolic links.
    fn metadata(path) -> Metadata;
    /// Returns the metadata of a file, directory or symbolic link. Does not follow symbolic links.
    fn symlink_metadata(path) -> Metadata;
    /// Creates an empty directory. Its parent directory must exist.
    fn create_dir(path) -> ();
    /// Creates a directory, and all of its parent directories that do not exist.
    fn create_dir_all(path) -> ();
    /// Removes an empty directory.
    fn remove_dir(path) -> ();
    /// Removes a directory and all of its contents. Symbolic links in it are removed, not followed.
    fn remove_dir_all(path) -> ();
    /// Removes a file.
    fn remove_file(path) -> ();
    /// Renames a file or directory within one file system. Replaces a file that already has the new
    /// name.
    fn rename(from, to) -> ();
    /// Copies the contents and permissions of a file, and returns the number of bytes copied.
    fn copy(from, to) -> u64;
    /// Returns the absolute form of a path, with all symbolic links resolved.
    fn canonicalize(path) -> PathBuf;
    /// Returns the path that a symbolic link points to.
    fn read_link(path) -> PathBuf;
    /// Creates a hard link: a second name, `link`, for the file `original`.
    fn hard_link(original, link) -> ();
    /// Sets the permissions of a file or directory.
    fn set_permissions(path; permissions: Permissions) -> ();
}

/// Writes `contents` to a file. Creates the file if it does not exist, and replaces its contents if
/// it does.
///
/// # Errors
/// Returns an error if the underlying system call fails.
///
/// # Panics
/// Panics if the future is polled outside the context of a runtime.
///
/// # Cancel safety
/// Dropping the future does not undo an operation that has started.
pub async fn write(path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> io::Result<()> {
    let (path, contents) = (path.as_ref().to_owned(), contents.as_ref().to_owned());
    run(move || fs::write(path, contents)).await
}

/// Creates a symbolic link at `link` that points to `original`.
///
/// # Errors
/// Returns an error if the underlying system call fails.
///
/// # Panics
/// Panics if the future is polled outside the context of a runtime.
///
/// # Cancel safety
/// Dropping the future does not undo an operation that has started.
pub async fn symlink(original: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
    let (original, link) = (original.as_ref().to_owned(), link.as_ref().to_owned());
    run(move || std::os::unix::fs::symlink(original, link)).await
}

/// Returns whether `path` points to an existing file or directory. Returns false for a broken
/// symbolic link.
///
/// # Errors
/// Returns an error if the existence cannot be determined, for example because a permission is
/// missing.
///
/// # Panics
/// Panics if the future is polled outside the context of a runtime.
///
/// # Cancel safety
/// This function is cancel safe.
pub async fn try_exists(path: impl AsRef<Path>) -> io::Result<bool> {
    let path = path.as_ref().to_owned();
    run(move || path.try_exists()).await
}
