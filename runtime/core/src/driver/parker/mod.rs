//! The park word: an atomic word on which a thread with nothing to do sleeps.
//!
//! Each worker and each thread in `block_on` has one; that thread is its *owner*. The owner sleeps,
//! and any thread may *unpark* it. An unpark leaves a *token*, so that an unpark just before the
//! owner sleeps is not lost: the owner finds the token and does not sleep. The word is a futex; an
//! owner that sleeps in the I/O driver is woken by the driver's waker instead.
//!
//! An ordinary case. A worker finds no task and sleeps: the word is PARKED. Another thread submits
//! a task and unparks the worker: the word becomes NOTIFIED and the futex is woken. The worker
//! takes the token, which makes the word UNPARKED, and runs the task.
//!
//! The race. The other thread may unpark the worker after the worker has found no task and before
//! it sleeps. The word is NOTIFIED by then, so the compare-and-swap to PARKED fails and the worker
//! stays awake.
//!
//! # Shape
//!
//! | word | the owner | an unpark |
//! |---|---|---|
//! | UNPARKED 0 | runs | leaves the token |
//! | PARKED 1 | sleeps on the futex, or is about to | leaves the token and wakes the futex |
//! | NOTIFIED 2 | has a token that it has not seen yet | writes again |
//! | PARKED_DRIVER 3 | sleeps in the I/O driver, or is about to | leaves the token; the caller writes the driver's waker |
//!
//! # Writers
//!
//! The owner writes PARKED, PARKED_DRIVER and UNPARKED. Any thread writes NOTIFIED.
//!
//! # Invariants
//!
//! * TOKEN-STAYS: NOTIFIED is left only by the owner's swap to UNPARKED. Going to sleep is a
//!   compare-and-swap from UNPARKED, which fails if there is a token.
//! * SEES-ALL: what was done before any unpark is visible to the owner once it has taken a token
//!   left by, or overwritten by, that unpark.
//!
//! # Protocol
//!
//! * Sleep: (1) UNPARKED → PARKED, or return: a token is there; (2) wait while the word is PARKED.
//!   A token, a time-out or a spurious wake-up ends it. The word is left as it is.
//! * Spin, before a sleep: check whether the word is NOTIFIED, as often as the owner likes. The
//!   word stays UNPARKED, so an unpark has no thread to wake. The token is left for Take.
//! * Take: swap in UNPARKED; if the word was NOTIFIED, the token is taken.
//! * Unpark: (1) swap in NOTIFIED, always; (2) wake the owner if it slept: on the futex, or, by the
//!   caller, in the driver.
//!
//! # Rejected
//!
//! * Resetting the word with a store: a store does not acquire, so a second unpark just before it
//!   is lost, and the owner does not see what that unpark announced.
//! * "Already notified, return" in unpark, by a plain load: the same, from the other side.
//! * `std::thread::park`: there is one token per thread, shared with every other use of it, and it
//!   cannot wake a thread that sleeps in the I/O driver.
//!
//! The reasons for the swaps are those of tokio's `park.rs`.

use std::time::Duration;

use volt_shim::Ordering;

#[cfg(all(test, loom))]
mod loom_models;

#[cfg(not(all(target_os = "linux", not(loom), not(miri))))]
use emulated::Futex;
#[cfg(all(target_os = "linux", not(loom), not(miri)))]
use native::Futex;

const UNPARKED: u32 = 0;
const PARKED: u32 = 1;
const NOTIFIED: u32 = 2;
const PARKED_DRIVER: u32 = 3;

/// The park word of one thread, its owner. All methods except [`unpark`](Self::unpark) are for the
/// owner only.
#[derive(Debug)]
pub(crate) struct Parker {
    word: Futex,
}

/// The action that the caller has to take after [`Parker::unpark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a thread in the I/O driver is woken by the caller"]
pub(crate) enum Unparked {
    /// Nothing.
    Done,
    /// The owner sleeps in the I/O driver: write the driver's waker.
    InDriver,
}

/// The reason why [`Parker::sleep`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slept {
    /// A token, or a spurious wake-up.
    Woken,
    /// The time-out. A token may have been left since.
    TimedOut,
}

impl Parker {
    pub(crate) fn new() -> Self {
        Self { word: Futex::new(UNPARKED) }
    }

    /// Records that the owner is about to sleep in the I/O driver. Returns `false` if there is
    /// already a token: the owner must not sleep.
    ///
    /// Like a sleep, it is ended by [`take_token`](Self::take_token) or
    /// [`wait_token`](Self::wait_token).
    #[must_use = "with a token there, the owner must not sleep"]
    pub(crate) fn begin_driver(&self) -> bool {
        self.leave_unparked(PARKED_DRIVER)
    }

    /// Spin: returns whether there is a token. Does not take it.
    #[inline]
    #[must_use = "a token that is there is to be taken"]
    pub(crate) fn has_token(&self) -> bool {
        // ORDERING: Relaxed; a hint: `take_token` acquires what the token announces.
        self.word.value.load(Ordering::Relaxed) == NOTIFIED
    }

    /// Returns whether the owner sleeps on the futex and was not woken.
    #[cfg(not(loom))]
    pub(crate) fn is_parked(&self) -> bool {
        // ORDERING: Acquire. The RMW by which the owner goes to sleep is Relaxed. But if the owner
        // has submitted a task, the fence of that submission (`scheduler/idle`) comes before the
        // RMW and pairs with this load, so that the task is visible.
        self.word.value.load(Ordering::Acquire) == PARKED
    }

    /// Sleeps until there is a token or `timeout` has passed. May return spuriously. Does not take
    /// the token.
    pub(crate) fn sleep(&self, timeout: Option<Duration>) -> Slept {
        // Sleep (1)
        if !self.leave_unparked(PARKED) {
            return Slept::Woken;
        }
        // Sleep (2)
        self.word.wait(PARKED, timeout)
    }

    /// Take: takes the token and returns whether there was one. The owner is awake afterwards.
    #[must_use = "a token can be taken only once"]
    pub(crate) fn take_token(&self) -> bool {
        // ORDERING: Acquire; pairs with the Release of every earlier `unpark`: SEES-ALL. A swap, so
        // that it reads the last of them.
        self.word.value.swap(UNPARKED, Ordering::Acquire) == NOTIFIED
    }

    /// Takes the token of an unpark that is certain to come, and sleeps until it does.
    pub(crate) fn wait_token(&self) {
        while !self.take_token() {
            self.sleep(None);
        }
    }

    /// Leaves a token, and wakes the owner if it sleeps on the futex. Any thread may call it.
    pub(crate) fn unpark(&self) -> Unparked {
        // Unpark (1)
        // ORDERING: Release; pairs with the Acquire in `take_token`: SEES-ALL. That includes an
        // unpark that this one overwrites, since a swap continues its release sequence.
        let before = self.word.value.swap(NOTIFIED, Ordering::Release);
        // Unpark (2)
        if before == PARKED {
            self.word.wake();
        }
        if before == PARKED_DRIVER { Unparked::InDriver } else { Unparked::Done }
    }

    /// Sleep (1): changes the word from UNPARKED to `to`. Returns false if there is a token.
    fn leave_unparked(&self, to: u32) -> bool {
        // ORDERING: Relaxed: publishes nothing. If it fails because of a token, `take_token`
        // acquires what the token announces.
        let left = self.word.value.compare_exchange(UNPARKED, to, Ordering::Relaxed, Ordering::Relaxed);
        debug_assert!(matches!(left, Ok(_) | Err(NOTIFIED)), "slept without taking the token of the sleep before");
        left.is_ok()
    }
}

/// The futex of Linux.
#[cfg(all(target_os = "linux", not(loom), not(miri)))]
mod native {
    use std::time::Duration;

    use rustix::io::Errno;
    use rustix::thread::futex::{self, Flags, Timespec};
    use volt_shim::AtomicU32;

    use super::Slept;

    /// A word on which a thread can wait.
    #[derive(Debug)]
    pub(super) struct Futex {
        pub(super) value: AtomicU32,
    }

    impl Futex {
        pub(super) fn new(value: u32) -> Self {
            Self { value: AtomicU32::new(value) }
        }

        /// Sleeps if the word is `expected`, until a wake, a signal or the time-out.
        pub(super) fn wait(&self, expected: u32, timeout: Option<Duration>) -> Slept {
            let timeout = timeout.map(|timeout| Timespec {
                // A value that does not fit is more than 292 billion years.
                tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: timeout.subsec_nanos().into(),
            });
            match futex::wait(&self.value, Flags::PRIVATE, expected, timeout.as_ref()) {
                Err(Errno::TIMEDOUT) => Slept::TimedOut,
                // The word had another value, or a signal came.
                Ok(()) | Err(Errno::AGAIN | Errno::INTR) => Slept::Woken,
                Err(error) => panic!("futex wait failed: {error}"),
            }
        }

        /// Wakes a thread that sleeps in [`wait`](Self::wait).
        pub(super) fn wake(&self) {
            // Fails only for an invalid address.
            let _ = futex::wake(&self.value, Flags::PRIVATE, 1);
        }
    }
}

/// An emulation by a lock and a condition variable: for other systems, for loom and for Miri.
#[cfg(any(test, not(all(target_os = "linux", not(loom), not(miri)))))]
mod emulated {
    use std::time::Duration;

    use volt_shim::{AtomicU32, Condvar, Mutex, Ordering};

    use super::Slept;

    /// A word on which a thread can wait.
    #[derive(Debug)]
    pub(super) struct Futex {
        pub(super) value: AtomicU32,
        /// Held from the check of the word to the wait. A wake takes it too, so it cannot fall in
        /// between.
        lock: Mutex<()>,
        pub(super) wakes: Condvar,
    }

    impl Futex {
        pub(super) fn new(value: u32) -> Self {
            Self { value: AtomicU32::new(value), lock: Mutex::new(()), wakes: Condvar::new() }
        }

        /// Sleeps if the word is `expected`, until a wake, the time-out or a spurious wake-up.
        pub(super) fn wait(&self, expected: u32, timeout: Option<Duration>) -> Slept {
            let guard = self.lock.lock();
            // ORDERING: Relaxed: a thread that changed the word and then wakes takes the lock in
            // between.
            if self.value.load(Ordering::Relaxed) != expected {
                return Slept::Woken;
            }
            match timeout {
                None => {
                    drop(self.wakes.wait(guard));
                    Slept::Woken
                }
                // loom's condition variable has no time-out. For the other threads, an immediate
                // return is the same as a time-out at any moment.
                #[cfg(loom)]
                Some(_) => Slept::TimedOut,
                #[cfg(not(loom))]
                Some(timeout) => {
                    let (_guard, result) =
                        self.wakes.wait_timeout(guard, timeout).unwrap_or_else(|poisoned| poisoned.into_inner());
                    if result.timed_out() { Slept::TimedOut } else { Slept::Woken }
                }
            }
        }

        /// Wakes a thread that sleeps in [`wait`](Self::wait).
        pub(super) fn wake(&self) {
            drop(self.lock.lock());
            self.wakes.notify_one();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
