//! Detects whether the current process is a forked child. A child has a copy of every runtime, but
//! none of its threads.
//!
//! Values that depend on threads, such as runtimes, use this module. In a child, waiting for such a
//! thread, or for a lock that it held, would never end.
//!
//! # Shape
//!
//! One word counts the forks between the first process and the current one. The C library calls a
//! handler in the child, before `fork` returns there, which adds 1 to the count. A value that is
//! bound to threads stores the count at its creation, as its [`Home`]. If the count differs later,
//! those threads stayed in the parent. The check is one relaxed load, so every spawn can afford it.
//!
//! Writer: the handler. Readers: all code that would otherwise wait for a thread, or for a lock
//! that such a thread may have held.
//!
//! # Limits
//!
//! A child made by a bare `clone`, without the C library, goes unnoticed. Children that only `exec`
//! need no detection.
//!
//! # Rejected alternatives
//!
//! * Comparing process ids at each spawn: `getpid` is a system call and took 116 ns, more than a
//!   whole spawn may cost; this load took 0.3 ns.
//! * A page that the kernel wipes in the child (`MADV_WIPEONFORK`): as cheap to read, but only
//!   supported by Linux.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Number of forks between the first process of this program and the current one.
static FORKS: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" {
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> i32;
}

extern "C" fn count_fork() {
    // ORDERING: Relaxed; the child has one thread at this point, and starting another publishes the
    // count.
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Starts to count forks, if this is not done yet.
fn watch() {
    static IS_WATCHED: AtomicBool = AtomicBool::new(false);
    // ORDERING: Relaxed; only the value matters. Threads that run this concurrently may install the
    // handler twice, and then forks count double. That is harmless: callers only compare the count
    // for equality. A `Once` would block forever in a child that was forked during the
    // initialization.
    if cfg!(miri) || IS_WATCHED.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: calls the C library's function with one handler, which only performs an atomic
    // addition. That is allowed in a child that has lost its other threads, with locks that they
    // held.
    let failed = unsafe { pthread_atfork(None, None, Some(count_fork)) };
    if failed == 0 {
        // ORDERING: Relaxed; see above.
        IS_WATCHED.store(true, Ordering::Relaxed);
    } else {
        let error = io::Error::from_raw_os_error(failed);
        tracing::warn!(target: "volt", %error, "forks of this program cannot be detected: a child must not use its parent's runtimes");
    }
}

/// Returns how often this process was forked, along its line of descent. If the number has changed,
/// this is a child process, and the threads that existed before stayed in the parent. Forks are
/// counted from the creation of the first [`Home`].
#[inline]
pub fn count() -> u32 {
    // ORDERING: Relaxed; see `count_fork`.
    FORKS.load(Ordering::Relaxed)
}

/// Returns the id of this process, which has `forks` forks in its line of descent. Calls the kernel
/// only once for each process: a runtime has several [`Home`]s.
fn pid_after(forks: u32) -> u32 {
    /// `| forks 32 | pid 32 |`; 0 = not known yet.
    static KNOWN: AtomicU64 = AtomicU64::new(0);
    // ORDERING: Relaxed, both: the word is complete in itself.
    let known = KNOWN.load(Ordering::Relaxed);
    if known != 0 && known >> u32::BITS == u64::from(forks) {
        return known as u32;
    }
    let pid = std::process::id();
    KNOWN.store(u64::from(forks) << u32::BITS | u64::from(pid), Ordering::Relaxed);
    pid
}

/// A value that is computed when it is first needed, and then kept for as long as the program runs.
///
/// Unlike a `OnceLock`, it has no lock: threads that need it while it is computed compute it, too,
/// and the first to finish stores it for all. A child that is forked meanwhile also computes it. In
/// a `OnceLock`, it would wait for a thread that stayed in the parent.
pub struct Computed<T>(AtomicPtr<T>);

impl<T: Send + Sync> Computed<T> {
    /// Creates it without a value. For statics: the value is never freed.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the value. Calls `compute` if there is none yet.
    pub fn get_or_compute(&self, compute: impl FnOnce() -> T) -> &T {
        // ORDERING: Acquire; pairs with the Release in `publish`.
        let found = self.0.load(Ordering::Acquire);
        // SAFETY: null, or stored by `publish`, so it is never freed. `T` is `Send` and `Sync`, so
        // that any thread may refer to a value that another one has made.
        if let Some(value) = unsafe { found.as_ref() } {
            return value;
        }
        // SAFETY: null, or stored by `publish`.
        unsafe { publish(&self.0, found, compute()) }
    }
}

impl<T: Send + Sync> Default for Computed<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Stores `value` in the place of `found`, unless another thread has stored one meanwhile. Returns
/// the stored value, which is never freed.
///
/// # Safety
/// All that is ever stored in `place` is null or comes from here.
unsafe fn publish<T: Send + Sync>(place: &AtomicPtr<T>, found: *mut T, value: T) -> &T {
    let own = Box::into_raw(Box::new(value));
    // ORDERING: Release publishes the value; Acquire on failure, since the found value is used.
    match place.compare_exchange(found, own, Ordering::Release, Ordering::Acquire) {
        // SAFETY: from `Box::into_raw` above, and never freed once it is stored.
        Ok(_) => unsafe { &*own },
        Err(other) => {
            // SAFETY: from `Box::into_raw` above, and no other thread has seen it.
            drop(unsafe { Box::from_raw(own) });
            // SAFETY: not null, since null is only found before the first value; so it was stored
            // above by another thread.
            unsafe { &*other }
        }
    }
}

/// A value of which each process has its own: a forked child does not use that of its parent, whose
/// locks may have been held by threads that stayed there.
///
/// It has no lock itself, like [`Computed`]. The parent's value is never freed in the child.
pub struct PerProcess<T>(AtomicPtr<Made<T>>);

struct Made<T> {
    forks: u32,
    value: T,
    /// The value of the parent; reachable, so that leak detectors do not report it.
    _former: AtomicPtr<Self>,
}

impl<T: Send + Sync> PerProcess<T> {
    /// Creates it without a value. For statics: values are never freed.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the value of this process. Calls `make` if there is none yet. Threads that need it
    /// while it is made may call it as well, and only one result is kept.
    #[inline]
    pub fn get_or_make(&self, make: impl FnOnce() -> T) -> &T {
        self.get_after(count(), make)
    }

    #[inline]
    fn get_after(&self, forks: u32, make: impl FnOnce() -> T) -> &T {
        // ORDERING: Acquire; pairs with the Release in `publish`.
        let found = self.0.load(Ordering::Acquire);
        // SAFETY: null, or stored by `publish`, so it is never freed. `T` is `Send` and `Sync`.
        match unsafe { found.as_ref() } {
            Some(made) if made.forks == forks => &made.value,
            _ => self.make(found, forks, make),
        }
    }

    #[cold]
    fn make(&self, found: *mut Made<T>, forks: u32, make: impl FnOnce() -> T) -> &T {
        watch();
        // SAFETY: only this function stores values.
        &unsafe { publish(&self.0, found, Made { forks, value: make(), _former: AtomicPtr::new(found) }) }.value
    }
}

impl<T: Send + Sync> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Identifies the process in which a value was made.
#[derive(Clone, Copy, Debug)]
pub struct Home {
    forks: u32,
    pid: u32,
}

impl Home {
    /// Returns the current process.
    pub fn here() -> Self {
        watch();
        let forks = count();
        Self { forks, pid: pid_after(forks) }
    }

    /// Returns whether the current process is still the same one, and not a process forked from it.
    #[inline]
    pub fn is_here(self) -> bool {
        count() == self.forks
    }

    /// Checks that a runtime made in this process is not used in a forked child.
    ///
    /// # Panics
    /// Panics in such a child.
    #[inline]
    #[track_caller]
    pub fn expect_here(self) {
        if !self.is_here() {
            self.refuse();
        }
    }

    #[cold]
    #[track_caller]
    fn refuse(self) -> ! {
        panic!("this runtime's threads stayed behind in the parent process {}: build a new one after fork", self.pid);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn no_thread_waits_for_another_that_computes_the_value() {
        static VALUE: Computed<String> = Computed::new();
        let (begun, has_begun) = mpsc::channel();
        let (end, may_end) = mpsc::channel();
        let slow = std::thread::spawn(move || {
            VALUE.get_or_compute(|| {
                begun.send(()).unwrap();
                may_end.recv().unwrap();
                "slow".to_owned()
            })
        });
        has_begun.recv().unwrap();
        assert_eq!(VALUE.get_or_compute(|| "fast".to_owned()), "fast");
        end.send(()).unwrap();
        assert_eq!(slow.join().unwrap(), "fast", "all see the value that was first");
        assert_eq!(VALUE.get_or_compute(|| unreachable!()), "fast");
    }

    #[test]
    fn each_process_has_its_own_value() {
        static VALUE: PerProcess<String> = PerProcess::new();
        assert_eq!(VALUE.get_after(0, || "parent".to_owned()), "parent");
        assert_eq!(VALUE.get_after(0, || unreachable!()), "parent");
        assert_eq!(VALUE.get_after(1, || "child".to_owned()), "child");
        assert_eq!(VALUE.get_after(1, || unreachable!()), "child");
    }
}
