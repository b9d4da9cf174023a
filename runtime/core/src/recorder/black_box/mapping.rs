//! The mapped file of a black box, and what happens to it when the program forks or exits.
//!
//! Threads of the runtime write to the mapping with atomic stores. The program has a table of its
//! mappings, for two handlers that the C library calls:
//! * in a forked child, before `fork` returns there: each mapping is replaced by a private one of
//!   the same file, at the same address, and leaves the table. So the child does not write to the
//!   file of its parent, and does not keep it locked. It still sees what the parent stores to pages
//!   that it has not written itself;
//! * when the program exits: each black box whose runtime was not shut down is marked as exited.
//!
//! Invariants:
//! * *Of the handlers*: a handler may run while another thread, which does not exist in the child,
//!   has taken a lock. So the table consists of atomics, and the one lock belongs to the process.
//! * *Nothing is freed in a child*: the values in a private mapping are not dropped there, since
//!   they may contain addresses that the parent stored after the fork.
//! * *Mapped while listed*: an address is in the table only while its mapping exists. Before a
//!   thread unmaps it, it removes it from the table, under the lock that the exit handler tries.
//!
//! Limit: a child made by a bare `clone`, without the C library, shares its parent's mapping.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

use rustix::fs::{Mode, OFlags};
use rustix::io::DupFlags;
use rustix::mm::{MapFlags, ProtFlags};
use volt_stacks::fork::{Home, PerProcess};
use volt_telemetry::recording::black_box::{end, word};

use crate::clock;

/// The maximum number of mappings of a program.
const MAPPINGS: usize = 64;

/// The mappings of the program.
static TABLE: [Entry; MAPPINGS] = [const { Entry::new() }; MAPPINGS];

/// How often the exit handler tries to take the lock, which is held for one store.
const TRIES: usize = 1_000;

/// Taken while a mapping is removed. A forked child has a separate lock, since a thread that stayed
/// in the parent may hold that of the parent.
fn removal() -> &'static Mutex<()> {
    static REMOVAL: PerProcess<Mutex<()>> = PerProcess::new();
    REMOVAL.get_or_make(Mutex::default)
}

struct Entry {
    is_taken: AtomicBool,
    /// 0 = none. Written after the others.
    at: AtomicUsize,
    bytes: AtomicUsize,
    /// The descriptor with the lock, and the one without.
    locked: AtomicI32,
    unlocked: AtomicI32,
}

impl Entry {
    const fn new() -> Self {
        Self {
            is_taken: AtomicBool::new(false),
            at: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            locked: AtomicI32::new(-1),
            unlocked: AtomicI32::new(-1),
        }
    }
}

/// A file that is mapped into the memory of the program.
#[derive(Debug)]
pub(super) struct Mapping {
    at: NonNull<AtomicU64>,
    bytes: usize,
    /// Locked (`flock`), as a sign that the program runs. The mapping keeps the lock, too.
    locked: OwnedFd,
    /// The same file, opened once more, for the mapping of a forked child. A mapping of `locked`
    /// would keep the lock for as long as the child lives.
    _unlocked: OwnedFd,
    entry: usize,
    home: Home,
}

// SAFETY: the memory is only accessed by atomics, or by the owner of a part of it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` bytes of a file, which must be a multiple of the page size.
    ///
    /// # Errors
    /// Returns the errors of the kernel, and an error if the program has too many mappings.
    pub(super) fn new(file: File, bytes: usize) -> io::Result<Self> {
        install_handlers();
        let home = Home::here();
        let again = format!("/proc/self/fd/{}", file.as_raw_fd());
        let unlocked = rustix::fs::open(again, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        // ORDERING: Acquire; pairs with the Release in `drop`, after which the entry is unused.
        let entry = TABLE.iter().position(|entry| !entry.is_taken.swap(true, Ordering::Acquire));
        let entry = entry.ok_or_else(|| io::Error::other(format!("the program has {MAPPINGS} black boxes already")))?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let mapped = unsafe { rustix::mm::mmap(ptr::null_mut(), bytes, protection, flags, &file, 0) };
        let at = match mapped.map(|at| NonNull::new(at.cast::<AtomicU64>())) {
            Ok(Some(at)) => at,
            failed => {
                // ORDERING: Release; as in `drop`.
                TABLE[entry].is_taken.store(false, Ordering::Release);
                return Err(failed.map_or_else(io::Error::from, |_| io::ErrorKind::InvalidData.into()));
            }
        };
        // ORDERING: Relaxed, all; published by the store of the address.
        TABLE[entry].bytes.store(bytes, Ordering::Relaxed);
        TABLE[entry].locked.store(file.as_raw_fd(), Ordering::Relaxed);
        TABLE[entry].unlocked.store(unlocked.as_raw_fd(), Ordering::Relaxed);
        // ORDERING: Release; pairs with the Acquire in the handlers.
        TABLE[entry].at.store(at.as_ptr().expose_provenance(), Ordering::Release);
        Ok(Self { at, bytes, locked: file.into(), _unlocked: unlocked, entry, home })
    }

    /// Returns whether this is the process that mapped the file, and not a forked child.
    pub(super) fn is_here(&self) -> bool {
        self.home.is_here()
    }

    /// Returns the file.
    pub(super) fn file(&self) -> &OwnedFd {
        &self.locked
    }

    /// Returns `count` words from this byte on.
    ///
    /// # Panics
    /// Panics if they are not inside the mapping.
    pub(super) fn words(&self, at_byte: usize, count: usize) -> &[AtomicU64] {
        assert!(at_byte.is_multiple_of(8) && at_byte <= self.bytes && count <= (self.bytes - at_byte) / 8);
        let first = self.place(at_byte).cast::<AtomicU64>();
        // SAFETY: inside the mapping, which is aligned to a page and lives as long as `self`.
        // Atomics allow any content, and are the only access to these words, except for a part
        // that `space` gives to an owner.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), count) }
    }

    /// Returns the place of a byte of the mapping.
    ///
    /// # Panics
    /// Panics if it is not inside the mapping.
    pub(super) fn place(&self, at_byte: usize) -> NonNull<u8> {
        assert!(at_byte <= self.bytes);
        // SAFETY: inside the mapping, or its end.
        unsafe { self.at.cast::<u8>().add(at_byte) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if !self.home.is_here() {
            // The child has a private copy, which stays mapped (*Nothing is freed in a child*), and
            // its entry has left the table.
            return;
        }
        let entry = &TABLE[self.entry];
        {
            let _removal = removal().lock().unwrap_or_else(PoisonError::into_inner);
            // ORDERING: Relaxed; the exit handler loads it under the lock, and a forked child has
            // one thread.
            entry.at.store(0, Ordering::Relaxed);
        }
        // SAFETY: mapped in `new`, no reference to it is left, and it is not in the table any more.
        let _cannot_fail = unsafe { rustix::mm::munmap(self.at.as_ptr().cast(), self.bytes) };
        // ORDERING: Release; pairs with the Acquire in `new`.
        entry.is_taken.store(false, Ordering::Release);
    }
}

unsafe extern "C" {
    fn atexit(function: extern "C" fn()) -> i32;
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> i32;
}

fn install_handlers() {
    static ARE_INSTALLED: AtomicBool = AtomicBool::new(false);
    // ORDERING: Relaxed; only the value matters. A forked child inherits the handlers.
    if ARE_INSTALLED.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: a function of POSIX, with a handler that loads atomics and maps memory. Both are
    // allowed in a child that has lost its other threads. If it is refused for lack of memory, so
    // is most likely the mapping.
    let _refused = unsafe { pthread_atfork(None, None, Some(make_private)) };
    // SAFETY: a function of the C standard, with one that stays valid and does not unwind. If it is
    // refused, a program that exits looks like one that was killed.
    let _refused = unsafe { atexit(mark_exit) };
}

/// Replaces each mapping by a private copy of it, in a forked child.
extern "C" fn make_private() {
    for entry in &TABLE {
        // ORDERING: Acquire; pairs with the Release in `new`.
        let at = entry.at.load(Ordering::Acquire);
        if at == 0 {
            continue;
        }
        // ORDERING: Relaxed, all; published by the address.
        let bytes = entry.bytes.load(Ordering::Relaxed);
        let [locked, unlocked] = [&entry.locked, &entry.unlocked].map(|file| file.load(Ordering::Relaxed));
        let at = ptr::with_exposed_provenance_mut(at);
        // SAFETY: the files are open while their entry has an address.
        let unlocked = unsafe { BorrowedFd::borrow_raw(unlocked) };
        // SAFETY: as above. It belongs to the mapping, so it is not closed here.
        let mut locked = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(locked) });
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::FIXED);
        // SAFETY: replaces a mapping of this file by one with the same contents. No other thread
        // exists.
        let copied = unsafe { rustix::mm::mmap(at, bytes, protection, flags, unlocked, 0) };
        // ORDERING: Relaxed; the child has one thread. A child of this child inherits the copy, and
        // must not get the file's present contents instead.
        entry.at.store(0, Ordering::Relaxed);
        if copied.is_err() {
            // Let the child crash when it uses its parent's runtime, rather than write to its
            // parent's file.
            // SAFETY: mapped, see above.
            let _result = unsafe { rustix::mm::mprotect(at, bytes, rustix::mm::MprotectFlags::READ) };
        }
        // The parent's lock on the file must not last for as long as the child lives. The number
        // stays in use, since the mapping closes it.
        if let Ok(null) = rustix::fs::open(c"/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
            let _result = rustix::io::dup3(&null, &mut locked, DupFlags::CLOEXEC);
        }
    }
}

/// Marks each black box whose runtime still runs, when the program exits.
extern "C" fn mark_exit() {
    let taken = (0..TRIES).find_map(|_| match removal().try_lock() {
        Ok(taken) => Some(taken),
        Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
        Err(TryLockError::WouldBlock) => {
            std::thread::yield_now();
            None
        }
    });
    // Otherwise the thread that holds it does not run, and the program could not exit.
    let Some(_removal) = taken else { return };
    for entry in &TABLE {
        // ORDERING: Acquire; pairs with the Release in `new`.
        let at = entry.at.load(Ordering::Acquire);
        let Some(head) = NonNull::new(ptr::with_exposed_provenance_mut::<AtomicU64>(at)) else { continue };
        // SAFETY: Mapped while listed, and the lock is taken. A black box is longer than its head.
        let head = unsafe { std::slice::from_raw_parts(head.as_ptr(), word::END_NS + 1) };
        mark_end(head, end::EXITED);
    }
}

/// Marks how the runtime of a black box with this head ended, unless that is marked already.
pub(super) fn mark_end(head: &[AtomicU64], how: u64) {
    // ORDERING: Relaxed; the reader runs after the program has exited, or takes either
    // value.
    if head[word::END].compare_exchange(end::NONE, how, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        // ORDERING: Relaxed; as above.
        head[word::END_NS].store(clock::now_ns(), Ordering::Relaxed);
    }
}
