//! Options for opening a file.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::fs::{File, run};

/// Options that determine how a file is opened. They correspond to those of
/// [`std::fs::OpenOptions`].
///
/// ```
/// use volt::fs::OpenOptions;
/// use volt::io::AsyncWriteExt;
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// # let path = std::env::temp_dir().join(format!("volt-doc-options-{}", std::process::id()));
/// let mut log = OpenOptions::new().create(true).append(true).open(&path).await?;
/// log.write_all(b"a line\n").await?;
/// log.flush().await?;
/// # volt::fs::remove_file(&path).await?;
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions(fs::OpenOptions);

impl File {
    /// Returns a new [`OpenOptions`] object, to open a file in another mode.
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// Creates a new set of options, all set to false. At least one of `read`, `write` and `append`
    /// must be enabled to open a file.
    pub fn new() -> OpenOptions {
        OpenOptions(fs::OpenOptions::new())
    }

    /// Sets the option for read access.
    pub fn read(&mut self, read: bool) -> &mut OpenOptions {
        self.0.read(read);
        self
    }

    /// Sets the option for write access. Writes start at the beginning of the file, and overwrite
    /// existing contents.
    pub fn write(&mut self, write: bool) -> &mut OpenOptions {
        self.0.write(write);
        self
    }

    /// Sets the option for append mode: all writes go to the end of the file.
    pub fn append(&mut self, append: bool) -> &mut OpenOptions {
        self.0.append(append);
        self
    }

    /// Sets the option for truncating an existing file to length 0. Requires `write`.
    pub fn truncate(&mut self, truncate: bool) -> &mut OpenOptions {
        self.0.truncate(truncate);
        self
    }

    /// Sets the option for creating the file if it does not exist. Requires `write` or `append`.
    pub fn create(&mut self, create: bool) -> &mut OpenOptions {
        self.0.create(create);
        self
    }

    /// Sets the option for creating a new file. Opening fails if the file already exists.
    pub fn create_new(&mut self, create_new: bool) -> &mut OpenOptions {
        self.0.create_new(create_new);
        self
    }

    /// Sets the permissions of a file that is created. Default `0o666`. The program's file mode
    /// creation mask (umask) is applied to them.
    pub fn mode(&mut self, mode: u32) -> &mut OpenOptions {
        self.0.mode(mode);
        self
    }

    /// Sets additional flags for `open(2)`, which are combined with the flags of the other options.
    pub fn custom_flags(&mut self, flags: i32) -> &mut OpenOptions {
        self.0.custom_flags(flags);
        self
    }

    /// Opens the file at `path` with these options.
    ///
    /// # Errors
    /// Returns `InvalidInput` if the options contradict each other. Also returns an error if the
    /// underlying system call fails.
    ///
    /// # Panics
    /// Panics if the future is polled outside the context of a runtime.
    ///
    /// # Cancel safety
    /// If the future is dropped, the file may still be created.
    pub async fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        let (options, path) = (self.0.clone(), path.as_ref().to_owned());
        Ok(File::from_std(run(move || options.open(path)).await?))
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl From<fs::OpenOptions> for OpenOptions {
    fn from(options: fs::OpenOptions) -> Self {
        Self(options)
    }
}
