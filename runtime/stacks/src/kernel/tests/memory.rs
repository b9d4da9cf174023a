//! Tests of threads that touch memory that is not present: pages of a file that were dropped, and
//! pages that `userfaultfd` withholds.

use std::ffi::c_void;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr;

use rustix::fs::{Advice, fadvise};
use rustix::ioctl::{Updater, opcode};
use rustix::mm::{Advice as MapAdvice, MapFlags, ProtFlags, UserfaultfdFlags};
use volt_telemetry::incident::Cause;

use super::{Going, WINDOW, watch};

/// The size of the kernel's pages. Larger pages are touched more than once, which is harmless.
const PAGE_BYTES: usize = 4096;
const PAGES: usize = 2048;
/// Pages between two touches: far apart, and in the end every page is touched.
const STRIDE: usize = 769;
/// How often the expected cause must be found.
const SIGHTINGS: u32 = 5;

/// Memory that is mapped as long as this value lives.
struct Map(*mut c_void);

// SAFETY: *Shared read-only*: the memory is only read, by any thread.
unsafe impl Send for Map {}

impl Map {
    fn of_file(file: &File) -> Self {
        // SAFETY: a new mapping, at an address that the kernel chooses, of a file that only this
        // test opens.
        let start = unsafe {
            rustix::mm::mmap(ptr::null_mut(), PAGES * PAGE_BYTES, ProtFlags::READ, MapFlags::SHARED, file, 0)
        };
        let map = Self(start.unwrap());
        // Disables read-ahead: no page is read before it is touched.
        map.advise(MapAdvice::Random);
        map
    }

    fn of_nothing() -> Self {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), PAGES * PAGE_BYTES, prot, MapFlags::PRIVATE) };
        Self(start.unwrap())
    }

    fn advise(&self, advice: MapAdvice) {
        // SAFETY: the range is this whole mapping, to which no reference is ever made.
        unsafe { rustix::mm::madvise(self.0, PAGES * PAGE_BYTES, advice) }.unwrap();
    }

    fn touch(&self, page: usize) {
        assert!(page < PAGES);
        let at = self.0.cast::<u8>().wrapping_add(page * PAGE_BYTES);
        // SAFETY: the address is within this mapping, by the assertion.
        let _byte = unsafe { at.read_volatile() };
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: this mapping, to which no reference exists: none is ever made.
        unsafe { rustix::mm::munmap(self.0, PAGES * PAGE_BYTES) }.unwrap();
    }
}

/// Creates a file on a disk, if the folder for temporary files is on one. It is removed with its
/// last handle.
fn file() -> File {
    let path = std::env::temp_dir().join(format!("volt-cold-{}-{:?}", std::process::id(), std::thread::current().id()));
    let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file.write_all(&vec![1; PAGES * PAGE_BYTES]).unwrap();
    // Only pages that have been written to the disk can be dropped.
    file.sync_all().unwrap();
    fadvise(&file, 0, None, Advice::Random).unwrap();
    file
}

/// Makes the kernel drop the cached pages of the file.
fn drop_pages(file: &File) {
    fadvise(file, 0, None, Advice::DontNeed).unwrap();
}

/// Returns whether [`file`] is on a disk, and prints a message if not: then none of its pages is
/// ever missing.
fn is_on_disk() -> bool {
    /// `TMPFS_MAGIC`.
    const TMPFS: rustix::fs::FsWord = 0x0102_1994;
    let folder = std::env::temp_dir();
    let is_on_disk = rustix::fs::statfs(&folder).unwrap().f_type != TMPFS;
    if !is_on_disk {
        eprintln!("SKIPPED: {} keeps its files in memory: set TMPDIR to a folder on a disk", folder.display());
    }
    is_on_disk
}

#[test]
fn file_reads_through_a_mapping_are_classified_as_page_ins() {
    let file = file();
    let going = Going::new();
    let is_going = going.clone();
    let watched = watch(move || {
        let map = Map::of_file(&file);
        let mut touches = 0_usize;
        while is_going.is_on() {
            if touches.is_multiple_of(PAGES) {
                // Unmaps the pages first; otherwise the page cache would keep them.
                map.advise(MapAdvice::LinuxDontNeed);
                drop_pages(&file);
            }
            map.touch(touches * STRIDE % PAGES);
            touches += 1;
        }
    });
    if is_on_disk() {
        let others = watched.see(Cause::PageIn, SIGHTINGS, WINDOW);
        // The call that drops the pages may also wait for the disk, but rarely.
        assert!(others.get(&Cause::Io).is_none_or(|io| *io < SIGHTINGS), "{others:?}");
    }
    going.end();
    watched.join();
}

#[test]
fn file_reads_by_system_call_are_classified_as_io() {
    let file = file();
    let going = Going::new();
    let is_going = going.clone();
    let watched = watch(move || {
        let mut reads = 0_usize;
        while is_going.is_on() {
            if reads.is_multiple_of(PAGES) {
                drop_pages(&file);
            }
            let at = reads * STRIDE % PAGES * PAGE_BYTES;
            file.read_exact_at(&mut [0], at as u64).unwrap();
            reads += 1;
        }
    });
    if is_on_disk() {
        let others = watched.see(Cause::Io, SIGHTINGS, WINDOW);
        assert!(!others.contains_key(&Cause::PageIn), "{others:?}");
    }
    going.end();
    watched.join();
}

/// `struct uffdio_api`.
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_register`.
#[repr(C)]
struct Register {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

/// Makes the first touch of each page of this memory wait until the descriptor is closed. Returns
/// an error where that is not allowed.
fn withhold(map: &Map) -> rustix::io::Result<OwnedFd> {
    /// Only for faults in user mode, which requires no privilege.
    const USER_MODE_ONLY: u32 = 1;
    const GROUP: u8 = 0xAA;
    const API: u64 = 0xAA;
    const MODE_MISSING: u64 = 1;
    let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::from_bits_retain(USER_MODE_ONLY);
    // SAFETY: *Supplied when closed*: no thread reads the descriptor. Closing it lets every waiting
    // touch continue with a page of zeros.
    let descriptor = unsafe { rustix::mm::userfaultfd(flags) }?;
    let mut api = Api { api: API, features: 0, ioctls: 0 };
    // SAFETY: the number belongs to this structure, by `linux/userfaultfd.h`.
    let greet = unsafe { Updater::<{ opcode::read_write::<Api>(GROUP, 0x3F) }, Api>::new(&mut api) };
    // SAFETY: the descriptor supports this request.
    unsafe { rustix::ioctl::ioctl(descriptor.as_fd(), greet) }?;
    let len = (PAGES * PAGE_BYTES) as u64;
    let mut register = Register { start: map.0.expose_provenance() as u64, len, mode: MODE_MISSING, ioctls: 0 };
    // SAFETY: the number belongs to this structure, by `linux/userfaultfd.h`.
    let take = unsafe { Updater::<{ opcode::read_write::<Register>(GROUP, 0x00) }, Register>::new(&mut register) };
    // SAFETY: the descriptor supports this request; the memory is this mapping's.
    unsafe { rustix::ioctl::ioctl(descriptor.as_fd(), take) }?;
    Ok(descriptor)
}

#[test]
fn a_userfaultfd_wait_is_classified_as_a_page_in() {
    let map = Map::of_nothing();
    let withheld = match withhold(&map) {
        Ok(withheld) => withheld,
        Err(error) => {
            eprintln!("SKIPPED: this process may not withhold pages (userfaultfd): {error}");
            return;
        }
    };
    let watched = watch(move || map.touch(7));
    watched.see(Cause::PageIn, 1, WINDOW);
    let others = watched.see(Cause::PageIn, 20, WINDOW);
    assert!(others.is_empty(), "{others:?}");
    drop(withheld);
    watched.join();
}
