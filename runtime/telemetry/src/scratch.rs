//! A temporary folder for each test, removed with the test.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that is removed when this is dropped.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // ORDERING: Relaxed suffices. Only the uniqueness of the number matters; it publishes no
        // other data.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Not in `TMPDIR`, whose path may be too long for a socket's path.
        let path = PathBuf::from(format!("/tmp/volt-test-{}-{number}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&path).expect("a new folder in /tmp");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
