//! Creates the file of a black box, and deletes those of earlier runs of the program.
//!
//! The file is locked (`flock`) as long as the program runs. Programs in other containers that
//! share the directory see the lock, too, although process ids differ there.
//!
//! A *run* is a program from its start to its end. It is identified by the stamp, the process id
//! and the start time in the names of its files. The stamp, the time in ms at which the run created
//! its first black box, is necessary: in containers, most programs have process id 1, and start
//! times only have the resolution of a clock tick, so replicas that start together may have the
//! same.
//!
//! Protocol, in the directory:
//! 1. list the black boxes of this program's name, and group them by run;
//! 2. of the runs that have ended, keep the [`RUNS_MAX`] that ended last, and delete the files of
//!    the others. A run has ended if none of its files is locked;
//! 3. delete the file of an earlier runtime of the same name in this run; if there is none and
//!    this run has [`BOXES`] files already, delete one that is not locked: that of the runtime
//!    that was shut down first;
//! 4. create the file under a name that does not exist, with mode 0600, and lock it. Another
//!    program may hold the lock for a moment, because it tests whether this run has ended;
//! 5. have the kernel allocate its pages.
//!
//! An ordinary case: eight replicas of a program share the directory, and the oldest one is killed.
//! The program that replaces it finds seven runs that are locked, and some that have ended. That
//! of the killed replica started first, but ended last, so its files are kept.
//!
//! Only regular files of this user count and are deleted, and no symbolic link is followed, so that
//! the directory may be one that others can write to, such as `/dev/shm`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Dir, FallocateFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::Resource;
use volt_stacks::fork::PerProcess;
use volt_telemetry::recording::black_box::{FileName, HEAD_BYTES, IDENTITY_AT, Identity, Layout, word};
use volt_telemetry::{socket, wire};

/// How many runs that have ended are kept for the name of a program.
pub(crate) const RUNS_MAX: usize = 3;
/// The maximum number of black boxes of one run.
pub(crate) const BOXES: usize = 8;
/// How often the lock of a new file is tried, after a pause of [`LOCK_PAUSE`] each. A thread that
/// tests it holds it for microseconds, unless it loses its processor meanwhile.
const LOCK_TRIES: usize = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(1);
/// Bytes that are written at a time where the kernel cannot allocate pages itself.
static ZEROS: [u8; 65_536] = [0; 65_536];

/// Creates the file of a runtime's black box. Its pages up to the first ring are allocated; the
/// rings are holes. Returns its name, too.
///
/// # Errors
/// Returns an error if the directory or the file cannot be used. The text includes the remedy.
pub(super) fn create(dir: &Path, program: &str, runtime: &str, layout: Layout) -> Result<(File, FileName), String> {
    let shown = dir.display();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(dir, flags, Mode::empty()).map_err(|error| match error {
        Errno::NOENT => format!("the directory {shown} does not exist: create it"),
        Errno::NOTDIR => format!("{shown} is not a directory: give the directory for the files"),
        Errno::ACCESS => format!("the directory {shown} cannot be read: choose one of this user"),
        error => format!("the directory {shown} cannot be opened: {error}"),
    })?;
    check_limit(layout.file_bytes())?;
    let name = FileName::new(program, stamp_ms(), std::process::id(), socket::own_start_time(), runtime);
    make_room(&opened, &name);
    let file = create_file(&opened, &name).map_err(|error| match error {
        Errno::ACCESS | Errno::PERM | Errno::ROFS => {
            format!("no file can be created in {shown} ({error}): choose a directory that this user can write to")
        }
        Errno::NOSPC | Errno::DQUOT => full(&shown, layout.ring_at(0)),
        error => format!("no file can be created in {shown}: {error}"),
    })?;
    if !lock(&file, LOCK_TRIES) {
        tracing::warn!(
            target: "volt::observe", path = %dir.join(name.to_string()).display(),
            "the black box is not locked, because another program locks it: until this program ends, others assume that \
             it has ended already, and may delete the file"
        );
    }
    let prepared = rustix::fs::ftruncate(&file, layout.file_bytes() as u64)
        .map_err(io::Error::from)
        .and_then(|()| allocate(&file, 0, layout.ring_at(0)));
    if let Err(error) = prepared {
        let _best_effort = rustix::fs::unlinkat(&opened, name.to_string(), AtFlags::empty());
        return Err(match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => full(&shown, layout.ring_at(0)),
            _ => format!("no pages can be allocated in {shown}: {error}"),
        });
    }
    Ok((file.into(), name))
}

/// Returns when this run created its first black box, ms since 1970.
fn stamp_ms() -> u64 {
    static STAMP_MS: PerProcess<u64> = PerProcess::new();
    *STAMP_MS.get_or_make(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
    })
}

fn full(shown: &impl std::fmt::Display, bytes: usize) -> String {
    format!("no room for {} KiB in {shown}: free some space, or choose another directory", bytes / 1024)
}

/// A file beyond the limit of its size would end the program by SIGXFSZ.
fn check_limit(bytes: usize) -> Result<(), String> {
    match rustix::process::getrlimit(Resource::Fsize).current {
        Some(limit) if limit < bytes as u64 => Err(format!(
            "the file needs {bytes} bytes, but the limit on the size of files is {limit}: raise `ulimit -f`"
        )),
        _ => Ok(()),
    }
}

fn create_file(dir: &OwnedFd, name: &FileName) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let file = rustix::fs::openat(dir, name.to_string(), flags, mode)?;
    // The umask may have removed more than it should.
    rustix::fs::fchmod(&file, mode)?;
    Ok(file)
}

/// Locks a file, if its file system has locks. Returns whether that succeeded: it fails if others
/// have the lock at each of the tries.
pub(super) fn lock(file: &OwnedFd, tries: usize) -> bool {
    for _ in 0..tries {
        // Other errors are those of file systems without locks. Readers then compare the process
        // id.
        if rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) != Err(Errno::WOULDBLOCK) {
            return true;
        }
        std::thread::sleep(LOCK_PAUSE);
    }
    false
}

/// Has the kernel allocate pages, so that no store to them can fail.
pub(super) fn allocate(file: impl AsFd, at_byte: usize, bytes: usize) -> io::Result<()> {
    let request = || rustix::fs::fallocate(&file, FallocateFlags::empty(), at_byte as u64, bytes as u64);
    // On a file system in memory, the kernel gives up when a signal arrives.
    match retry_on_intr(request) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            let (mut at, end) = (at_byte, at_byte + bytes);
            while at < end {
                let piece = &ZEROS[..ZEROS.len().min(end - at)];
                match retry_on_intr(|| rustix::io::pwrite(&file, piece, at as u64))? {
                    0 => return Err(io::ErrorKind::StorageFull.into()),
                    written => at += written,
                }
            }
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Protocol (1) to (3). Leaves files that cannot be deleted.
fn make_room(dir: &OwnedFd, name: &FileName) {
    // Each run by its stamp, process id and start, with its files.
    let mut runs = BTreeMap::<(u64, u32, u64), Vec<FileName>>::new();
    for found in names(dir).filter(|found| found.program == name.program && is_own(dir, found)) {
        runs.entry((found.stamp_ms, found.pid, found.start_time)).or_default().push(found);
    }
    let own = runs.remove(&(name.stamp_ms, name.pid, name.start_time)).unwrap_or_default();
    let mut ended: Vec<_> =
        runs.into_values().filter_map(|files| Some((ended_at_unix_ns(dir, &files)?, files))).collect();
    ended.sort_by_key(|(at_ns, _)| *at_ns);
    let surplus = ended.len().saturating_sub(RUNS_MAX);
    ended[..surplus].iter().flat_map(|(_, files)| files).for_each(|found| delete(dir, found));
    // A runtime that lives has another name, so the file of this name is that of a former runtime.
    // It is locked as long as a handle of that runtime exists.
    if let Some(found) = own.iter().find(|found| found.runtime == name.runtime) {
        delete(dir, found);
    } else if own.len() >= BOXES {
        let ended = own.iter().filter_map(|found| Some((ended_at_ns(&unused(dir, found)?), found)));
        if let Some((_, first)) = ended.min_by_key(|(at_ns, _)| *at_ns) {
            delete(dir, first);
        }
    }
}

/// The black boxes in the directory.
fn names(dir: &OwnedFd) -> impl Iterator<Item = FileName> {
    let entries = Dir::read_from(dir).into_iter().flatten();
    entries.filter_map(|entry| FileName::parse(entry.ok()?.file_name().to_str().ok()?))
}

/// Opens and locks a file that no program uses. Returns `None` for one that is used, or cannot be
/// opened.
fn unused(dir: &OwnedFd, name: &FileName) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, name.to_string(), flags, Mode::empty()).ok()?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_ok().then_some(file)
}

/// Returns when the run with these files ended, ns since 1970. `None` if it has not ended.
fn ended_at_unix_ns(dir: &OwnedFd, files: &[FileName]) -> Option<u64> {
    let last_signs: Option<Vec<_>> =
        files.iter().map(|name| Some(last_sign_unix_ns(&unused(dir, name)?, name))).collect();
    last_signs?.into_iter().max()
}

/// Returns when the runtime of this black box was shut down, or else when the sentinel last checked
/// it: ns since 1970. If the file does not contain that, returns when the run began. The time of
/// the file does not show this: stores to a mapping change it only when the kernel writes them
/// back, and in memory it never does.
fn last_sign_unix_ns(file: &OwnedFd, name: &FileName) -> u64 {
    let mut head = vec![0_u8; HEAD_BYTES];
    let read = rustix::io::pread(file, &mut head[..], 0).unwrap_or_default();
    head.truncate(read);
    let in_head = || {
        let length = usize::try_from(word_at(&head, word::IDENTITY_BYTES)).ok()?;
        let identity: Identity = wire::decode(head.get(IDENTITY_AT..IDENTITY_AT.checked_add(length)?)?).ok()?;
        let last_ns = word_at(&head, word::BEAT_NS).max(word_at(&head, word::END_NS));
        identity.anchor.unix_ns?.checked_add(last_ns.saturating_sub(identity.anchor.at_ns))
    };
    in_head().unwrap_or(name.stamp_ms.saturating_mul(1_000_000))
}

/// Returns when the runtime of this black box was shut down, ns on the program's clock; 0 if that
/// is not recorded.
fn ended_at_ns(file: &OwnedFd) -> u64 {
    let mut head = [0_u8; (word::END_NS + 1) * size_of::<u64>()];
    match rustix::io::pread(file, &mut head, 0) {
        Ok(read) => word_at(&head[..read], word::END_NS),
        Err(_) => 0,
    }
}

/// Returns the word with this index; 0 if the bytes end before it.
fn word_at(bytes: &[u8], index: usize) -> u64 {
    bytes.as_chunks::<8>().0.get(index).map_or(0, |word| u64::from_ne_bytes(*word))
}

/// Returns whether a name is that of a regular file of this user.
fn is_own(dir: &OwnedFd, name: &FileName) -> bool {
    rustix::fs::statat(dir, name.to_string(), AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| {
        stat.st_uid == rustix::process::geteuid().as_raw()
            && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
    })
}

/// Deletes a regular file of this user.
fn delete(dir: &OwnedFd, name: &FileName) {
    if is_own(dir, name) {
        // If it cannot be deleted, there is one more than there should be.
        let _best_effort = rustix::fs::unlinkat(dir, name.to_string(), AtFlags::empty());
    }
}

/// Returns whether a file is in memory, so that the kernel never delays a store to write it back.
pub(super) fn is_in_memory(file: BorrowedFd<'_>) -> bool {
    /// `TMPFS_MAGIC` and `RAMFS_MAGIC` of `linux/magic.h`.
    const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
    // The type of the field differs between systems.
    #[allow(clippy::unnecessary_cast, clippy::cast_sign_loss)]
    rustix::fs::fstatfs(file).is_ok_and(|stat| IN_MEMORY.contains(&(stat.f_type as u64)))
}
