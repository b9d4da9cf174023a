//! Tells a forked child from its parent: the child has a copy of every runtime, and the threads of
//! none.
//!
//! Shape: how often this process was forked, counted along its line of descent, in one word. The C
//! library calls a handler in the child, before `fork` returns there, which adds one. What is bound
//! to threads remembers the count that it was made under, as its [`Home`]; another count now means
//! that those threads stayed behind. One relaxed load, so that a spawn can afford it.
//!
//! Who writes: the handler. Who reads: whatever would otherwise wait for a thread, or for a lock
//! that such a thread may have held.
//!
//! Bound: a child made past the C library, by a bare `clone`, is not noticed. Children that only
//! `exec` need none of this.
//!
//! Rejected: comparing process ids at each spawn, a system call (`getpid` took 116 ns where this
//! load took 0.3: more than a whole spawn is to cost); a page that the kernel wipes in the child
//! (`MADV_WIPEONFORK`), as cheap to read but known to Linux only.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Forks between the first process of this program and the present one.
static FORKS: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" {
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> i32;
}

extern "C" fn count_fork() {
    // ORDERING: Relaxed; the child has one thread here, and starting another publishes it.
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Has forks counted from now on.
fn watch() {
    static IS_WATCHED: AtomicBool = AtomicBool::new(false);
    // ORDERING: Relaxed; only the value counts. Threads that come here together install the handler
    // twice, and forks count double: all that is asked is whether the count has changed. A `Once`
    // would be waited for in vain by a child forked in its midst.
    if cfg!(miri) || IS_WATCHED.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: the C library's function, with one handler, which does nothing but an atomic
    // addition: fit for a child whose other threads, and the locks that they held, were left
    // behind.
    let failed = unsafe { pthread_atfork(None, None, Some(count_fork)) };
    if failed == 0 {
        // ORDERING: Relaxed; see above.
        IS_WATCHED.store(true, Ordering::Relaxed);
    } else {
        let error = io::Error::from_raw_os_error(failed);
        tracing::warn!(target: "volt", %error, "forks of this process will go unnoticed: a child must not use its parent's runtimes");
    }
}

/// How often this process was forked, along its line of descent: another number than before = this
/// is a child, and the threads of before stayed behind. Counted from the first [`Home`] on.
#[inline]
pub fn count() -> u32 {
    // ORDERING: Relaxed; see `count_fork`.
    FORKS.load(Ordering::Relaxed)
}

/// The process that something was made in.
#[derive(Clone, Copy, Debug)]
pub struct Home {
    forks: u32,
    pid: u32,
}

impl Home {
    /// This process.
    pub fn here() -> Self {
        watch();
        Self { forks: count(), pid: std::process::id() }
    }

    /// Whether this is still that process, and not one forked from it.
    #[inline]
    pub fn is_here(self) -> bool {
        count() == self.forks
    }

    /// Refuses to go on in a forked child with a runtime that was made here.
    ///
    /// # Panics
    /// In such a child.
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
