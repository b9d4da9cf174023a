//! A file that is mapped into memory, so that only the parts that are read use memory.
//!
//! Invariant *mapped until dropped*: `at` is the beginning of a readable mapping of `len` bytes,
//! which nothing else unmaps.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// A mapping of a whole file, for reading.
pub(super) struct Map {
    at: NonNull<c_void>,
    len: usize,
}

// SAFETY: the mapping is only read, and belongs to no thread.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Maps `file`.
    ///
    /// # Safety
    /// Nothing may modify or truncate the file while it is mapped.
    pub(super) unsafe fn of(file: &File) -> io::Result<Self> {
        let len = usize::try_from(file.metadata()?.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        if len == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is empty"));
        }
        // SAFETY: the kernel chooses a free range of addresses, so nothing that exists is replaced.
        let at = unsafe { mmap(ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, 0) }?;
        Ok(Self { at: NonNull::new(at).ok_or(io::ErrorKind::OutOfMemory)?, len })
    }

    /// Removes the pages that were read from the program's resident memory, where they would count
    /// until memory is scarce. The system keeps them in its page cache, so reading them again is
    /// cheap.
    pub(super) fn release_pages(&self) {
        // SAFETY: a shared mapping that is only read has no changes to lose. References into it
        // stay valid: the system maps a page again when it is read, with the same contents, because
        // the file is not modified (see `of`).
        let advised = unsafe { madvise(self.at.as_ptr(), self.len, Advice::LinuxDontNeed) };
        // A kernel that refuses the call keeps the pages, as without it.
        let _ignored = advised;
    }
}

impl Deref for Map {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: *mapped until dropped*, and nothing modifies the file (see `of`).
        unsafe { std::slice::from_raw_parts(self.at.as_ptr().cast(), self.len) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: *mapped until dropped*; references into the mapping borrow `self`.
        let unmapped = unsafe { munmap(self.at.as_ptr(), self.len) };
        debug_assert!(unmapped.is_ok(), "the range is that of a mapping");
    }
}
