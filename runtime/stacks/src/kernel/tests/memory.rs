//! Threads that touch memory which is not there: a file's pages that were dropped, and pages that
//! somebody supplies by hand.

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

/// The kernel's page; larger ones are touched more than once, which does no harm.
const PAGE_BYTES: usize = 4096;
const PAGES: usize = 2048;
/// Pages from one touch to the next: far apart, and all of them in the end.
const STRIDE: usize = 769;
/// How often the expected cause has to be seen.
const SIGHTINGS: u32 = 5;

/// Memory that lasts as long as this value.
struct Map(*mut c_void);

// SAFETY: *Shared read-only*: the memory is read, never written, whichever thread does it.
unsafe impl Send for Map {}

impl Map {
    fn of_file(file: &File) -> Self {
        // SAFETY: a new mapping, where the kernel likes, of a file that this test alone knows.
        let start = unsafe {
            rustix::mm::mmap(ptr::null_mut(), PAGES * PAGE_BYTES, ProtFlags::READ, MapFlags::SHARED, file, 0)
        };
        let map = Self(start.unwrap());
        // No page before it is touched.
        map.advise(MapAdvice::Random);
        map
    }

    fn of_nothing() -> Self {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, where the kernel likes.
        let start = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), PAGES * PAGE_BYTES, prot, MapFlags::PRIVATE) };
        Self(start.unwrap())
    }

    fn advise(&self, advice: MapAdvice) {
        // SAFETY: the whole of this mapping, of which no reference is ever made.
        unsafe { rustix::mm::madvise(self.0, PAGES * PAGE_BYTES, advice) }.unwrap();
    }

    fn touch(&self, page: usize) {
        assert!(page < PAGES);
        let at = self.0.cast::<u8>().wrapping_add(page * PAGE_BYTES);
        // SAFETY: within this mapping, by the assertion.
        let _byte = unsafe { at.read_volatile() };
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: this mapping, of which no reference is left: none is ever made.
        unsafe { rustix::mm::munmap(self.0, PAGES * PAGE_BYTES) }.unwrap();
    }
}

/// A file on a disk, if the folder for such is on one, gone with its last handle.
fn file() -> File {
    let path = std::env::temp_dir().join(format!("volt-cold-{}-{:?}", std::process::id(), std::thread::current().id()));
    let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file.write_all(&vec![1; PAGES * PAGE_BYTES]).unwrap();
    // Only what is on the disk can be dropped.
    file.sync_all().unwrap();
    fadvise(&file, 0, None, Advice::Random).unwrap();
    file
}

/// Lets the kernel forget the file's pages.
fn drop_pages(file: &File) {
    fadvise(file, 0, None, Advice::DontNeed).unwrap();
}

/// Whether [`file`] is on a disk, and says so if it is not: then no page of it is ever missed.
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
fn a_thread_that_reads_a_file_through_memory_that_is_not_there_waits_for_pages() {
    let file = file();
    let going = Going::new();
    let is_going = going.clone();
    let watched = watch(move || {
        let map = Map::of_file(&file);
        let mut touches = 0_usize;
        while is_going.is_on() {
            if touches.is_multiple_of(PAGES) {
                // Out of this process's memory first, or the file would keep them.
                map.advise(MapAdvice::LinuxDontNeed);
                drop_pages(&file);
            }
            map.touch(touches * STRIDE % PAGES);
            touches += 1;
        }
    });
    if is_on_disk() {
        let others = watched.see(Cause::PageIn, SIGHTINGS, WINDOW);
        // The call that drops the pages may wait for the disk, too, but seldom.
        assert!(others.get(&Cause::Io).is_none_or(|io| *io < SIGHTINGS), "{others:?}");
    }
    going.end();
    watched.join();
}

#[test]
fn a_thread_that_reads_a_file_by_calls_waits_for_io_though_the_same_pages_are_missing() {
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

/// Makes the first touch of each page of this memory wait until the descriptor is closed. An error
/// where that is not allowed.
fn withhold(map: &Map) -> rustix::io::Result<OwnedFd> {
    /// Only for faults in user mode, which needs no privilege.
    const USER_MODE_ONLY: u32 = 1;
    const GROUP: u8 = 0xAA;
    const API: u64 = 0xAA;
    const MODE_MISSING: u64 = 1;
    let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::from_bits_retain(USER_MODE_ONLY);
    // SAFETY: *Supplied when closed*: nobody reads the descriptor; closing it lets every waiting
    // touch go on with a page of zeros.
    let descriptor = unsafe { rustix::mm::userfaultfd(flags) }?;
    let mut api = Api { api: API, features: 0, ioctls: 0 };
    // SAFETY: the number belongs to this structure, by `linux/userfaultfd.h`.
    let greet = unsafe { Updater::<{ opcode::read_write::<Api>(GROUP, 0x3F) }, Api>::new(&mut api) };
    // SAFETY: a descriptor of the kind that knows this request.
    unsafe { rustix::ioctl::ioctl(descriptor.as_fd(), greet) }?;
    let len = (PAGES * PAGE_BYTES) as u64;
    let mut register = Register { start: map.0.expose_provenance() as u64, len, mode: MODE_MISSING, ioctls: 0 };
    // SAFETY: the number belongs to this structure, by `linux/userfaultfd.h`.
    let take = unsafe { Updater::<{ opcode::read_write::<Register>(GROUP, 0x00) }, Register>::new(&mut register) };
    // SAFETY: a descriptor of the kind that knows this request; the memory is this mapping's.
    unsafe { rustix::ioctl::ioctl(descriptor.as_fd(), take) }?;
    Ok(descriptor)
}

#[test]
fn a_page_that_somebody_withholds_is_waited_for_as_one_from_the_disk() {
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
