//! Files, on threads for blocking work: no kernel that Volt runs on can wait for a file, so every
//! function here is the standard library's of that name, called where blocking disturbs nobody
//! ([`spawn_blocking`](crate::task::spawn_blocking)).
//!
//! What has begun goes on: dropping a future stops its operation no more than a thread can be
//! stopped, and the result is thrown away. Many small operations are cheaper together, in one
//! `spawn_blocking`.
//!
//! All functions here must be awaited inside a runtime.
//!
//! ```
//! # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
//! # runtime.block_on(async {
//! # let folder = std::env::temp_dir().join(format!("volt-doc-fs-{}", std::process::id()));
//! volt::fs::create_dir_all(&folder).await?;
//! volt::fs::write(folder.join("greeting"), "hello").await?;
//! let mut entries = volt::fs::read_dir(&folder).await?;
//! while let Some(entry) = entries.next_entry().await? {
//!     assert_eq!(volt::fs::read_to_string(entry.path()).await?, "hello");
//! }
//! volt::fs::remove_dir_all(&folder).await?;
//! # Ok::<(), std::io::Error>(())
//! # }).unwrap();
//! ```

mod dir;
mod file;
mod open_options;

use std::fs::{self, Metadata, Permissions};
use std::io;
use std::path::{Path, PathBuf};

use volt_core::context;

pub use dir::{DirBuilder, DirEntry, ReadDir, read_dir};
pub use file::File;
pub use open_options::OpenOptions;

/// Runs `operation` on a thread for blocking work.
///
/// # Errors
/// What it says; of kind `Other` if it panicked, the runtime was shut down before it began, or no
/// thread could be started for it.
async fn run<R: Send + 'static>(operation: impl FnOnce() -> io::Result<R> + Send + 'static) -> io::Result<R> {
    let job = context::handle().spawn_blocking(operation);
    job.await?
}

/// A function of `std::fs` that takes paths, under its name.
macro_rules! functions {
    ($($(#[doc = $doc:literal])* fn $name:ident($($path:ident),+ $(; $extra:ident: $extra_type:ty)?) -> $result:ty;)+) => {
        $(
            $(#[doc = $doc])*
            ///
            /// # Errors
            /// What the system says.
            ///
            /// # Panics
            /// Outside a runtime.
            ///
            /// # Cancel safety
            /// Dropping the future does not undo what has begun.
            pub async fn $name($($path: impl AsRef<Path>,)+ $($extra: $extra_type)?) -> io::Result<$result> {
                $(let $path = $path.as_ref().to_owned();)+
                run(move || fs::$name($($path,)+ $($extra)?)).await
            }
        )+
    };
}

functions! {
    /// The whole of a file.
    fn read(path) -> Vec<u8>;
    /// The whole of a file, as text; `InvalidData` if it is no UTF-8.
    fn read_to_string(path) -> String;
    /// What is known of a file or folder; of a symbolic link, of what it leads to.
    fn metadata(path) -> Metadata;
    /// What is known of a file, folder or symbolic link itself.
    fn symlink_metadata(path) -> Metadata;
    /// Makes a folder, in one that is there.
    fn create_dir(path) -> ();
    /// Makes a folder, and those that it is to lie in.
    fn create_dir_all(path) -> ();
    /// Removes an empty folder.
    fn remove_dir(path) -> ();
    /// Removes a folder with all that is in it. Links in it are removed, not followed.
    fn remove_dir_all(path) -> ();
    /// Removes a file.
    fn remove_file(path) -> ();
    /// Gives a file or folder another name, within one file system; a file that has that name is
    /// replaced.
    fn rename(from, to) -> ();
    /// Copies a file with its permissions; how many bytes.
    fn copy(from, to) -> u64;
    /// The absolute path, without symbolic links in it.
    fn canonicalize(path) -> PathBuf;
    /// Where a symbolic link leads.
    fn read_link(path) -> PathBuf;
    /// Gives a file a second name.
    fn hard_link(original, link) -> ();
    /// Sets the permissions of a file or folder.
    fn set_permissions(path; permissions: Permissions) -> ();
}

/// Makes a file of `contents`, in the place of one that is there.
///
/// # Errors
/// What the system says.
///
/// # Panics
/// Outside a runtime.
///
/// # Cancel safety
/// Dropping the future does not undo what has begun.
pub async fn write(path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> io::Result<()> {
    let (path, contents) = (path.as_ref().to_owned(), contents.as_ref().to_owned());
    run(move || fs::write(path, contents)).await
}

/// Makes a symbolic link at `link` that leads to `original`.
///
/// # Errors
/// What the system says.
///
/// # Panics
/// Outside a runtime.
///
/// # Cancel safety
/// Dropping the future does not undo what has begun.
pub async fn symlink(original: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
    let (original, link) = (original.as_ref().to_owned(), link.as_ref().to_owned());
    run(move || std::os::unix::fs::symlink(original, link)).await
}

/// Whether there is something at `path`; of a broken symbolic link, no.
///
/// # Errors
/// What the system says, where it cannot be told.
///
/// # Panics
/// Outside a runtime.
///
/// # Cancel safety
/// Nothing is lost.
pub async fn try_exists(path: impl AsRef<Path>) -> io::Result<bool> {
    let path = path.as_ref().to_owned();
    run(move || path.try_exists()).await
}
