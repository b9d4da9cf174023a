//! What one thread sleeps on when it has nothing to do: the park word, and a futex on it.
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
//! # Who writes, who reads
//!
//! The owner makes it PARKED, PARKED_DRIVER and UNPARKED; anybody makes it NOTIFIED.
//!
//! # Invariants
//!
//! * TOKEN-STAYS: NOTIFIED is left only by the owner's swap to UNPARKED. Going to sleep is a
//!   compare-and-swap from UNPARKED, which a token refuses.
//! * SEES-ALL: what was done before any unpark is visible to the owner once it has taken a token
//!   left by, or overwritten by, that unpark.
//!
//! # Protocol
//!
//! * Sleep: (1) UNPARKED → PARKED, or return: a token is there; (2) wait while the word is PARKED.
//!   A token, a time-out or nothing at all ends it. The word is left as it is.
//! * Spin, before a sleep: check whether the word is NOTIFIED, as often as the owner likes. The
//!   word stays UNPARKED, so an unpark has nobody to wake. The token is left for Take.
//! * Take: swap in UNPARKED; it was NOTIFIED: the token is taken.
//! * Unpark: (1) swap in NOTIFIED, always; (2) wake whoever slept: the futex, or, by the caller,
//!   the driver.
//!
//! # Rejected
//!
//! * Resetting the word with a store: it does not acquire, so a second unpark just before it is
//!   eaten, and what it announced not seen.
//! * "Already notified, return" in unpark, by a plain load: the same, from the other side.
//! * `std::thread::park`: one token a thread, shared with everybody's use of it, and no way to be
//!   woken in the I/O driver.
//!
//! Source: the states are the design's; the reasons for the swaps are those of tokio's `park.rs`.

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

/// The park word of one thread, its owner. The methods but [`unpark`](Self::unpark) are for the
/// owner only.
#[derive(Debug)]
pub(crate) struct Parker {
    word: Futex,
}

/// What [`Parker::unpark`] leaves to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a thread in the I/O driver is woken by the caller"]
pub(crate) enum Unparked {
    /// Nothing.
    Done,
    /// The owner sleeps in the I/O driver: write the driver's waker.
    InDriver,
}

/// What ended a [`Parker::sleep`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slept {
    /// A token, or nothing at all.
    Woken,
    /// The time-out; a token may have come since.
    TimedOut,
}

impl Parker {
    pub(crate) fn new() -> Self {
        Self { word: Futex::new(UNPARKED) }
    }

    /// Says that the owner is about to sleep in the I/O driver. `false` = a token is already there:
    /// it must not.
    ///
    /// Ended, like a sleep, by [`take_token`](Self::take_token) or
    /// [`wait_token`](Self::wait_token).
    #[must_use = "with a token there, the owner must not sleep"]
    pub(crate) fn begin_driver(&self) -> bool {
        self.leave_unparked(PARKED_DRIVER)
    }

    /// Spin: whether a token is there. Does not take it.
    #[inline]
    #[must_use = "a token that is there is to be taken"]
    pub(crate) fn has_token(&self) -> bool {
        // ORDERING: Relaxed; a hint: `take_token` acquires what the token announces.
        self.word.value.load(Ordering::Relaxed) == NOTIFIED
    }

    /// Whether its owner sleeps on the futex, and nobody has woken it.
    #[cfg(not(loom))]
    pub(crate) fn is_parked(&self) -> bool {
        // ORDERING: Acquire; pairs with the RMW by which the owner goes to sleep: what it did
        // before is done.
        self.word.value.load(Ordering::Acquire) == PARKED
    }

    /// Sleeps until a token comes, or `timeout` has passed, or for no reason. Does not take the
    /// token.
    pub(crate) fn sleep(&self, timeout: Option<Duration>) -> Slept {
        // Sleep (1)
        if !self.leave_unparked(PARKED) {
            return Slept::Woken;
        }
        // Sleep (2)
        self.word.wait(PARKED, timeout)
    }

    /// Take: whether there was a token; there is none now, and the owner is awake.
    #[must_use = "a token that was taken is gone"]
    pub(crate) fn take_token(&self) -> bool {
        // ORDERING: Acquire; pairs with the Release of every `unpark` before it: SEES-ALL. A swap,
        // so that it reads the last of them.
        self.word.value.swap(UNPARKED, Ordering::Acquire) == NOTIFIED
    }

    /// Takes the token that is on its way, sleeping until it comes.
    pub(crate) fn wait_token(&self) {
        while !self.take_token() {
            self.sleep(None);
        }
    }

    /// Leaves a token, and wakes the owner if it sleeps on the futex. For anybody.
    pub(crate) fn unpark(&self) -> Unparked {
        // Unpark (1)
        // ORDERING: Release; pairs with the Acquire in `take_token`: SEES-ALL, also of an unpark
        // that this one overwrites, since a swap continues its release sequence.
        let before = self.word.value.swap(NOTIFIED, Ordering::Release);
        // Unpark (2)
        if before == PARKED {
            self.word.wake();
        }
        if before == PARKED_DRIVER { Unparked::InDriver } else { Unparked::Done }
    }

    /// Sleep (1): whether the word was UNPARKED, and is `to` now.
    fn leave_unparked(&self, to: u32) -> bool {
        // ORDERING: Relaxed: publishes nothing. If a token refuses it, `take_token` acquires what
        // it announces.
        let left = self.word.value.compare_exchange(UNPARKED, to, Ordering::Relaxed, Ordering::Relaxed);
        debug_assert!(matches!(left, Ok(_) | Err(NOTIFIED)), "slept without taking the token of the sleep before");
        left.is_ok()
    }
}

/// Linux's futex.
#[cfg(all(target_os = "linux", not(loom), not(miri)))]
mod native {
    use std::time::Duration;

    use rustix::io::Errno;
    use rustix::thread::futex::{self, Flags, Timespec};
    use volt_shim::AtomicU32;

    use super::Slept;

    /// A word that a thread can wait for.
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
                // What does not fit is 292 billion years.
                tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: timeout.subsec_nanos().into(),
            });
            match futex::wait(&self.value, Flags::PRIVATE, expected, timeout.as_ref()) {
                Err(Errno::TIMEDOUT) => Slept::TimedOut,
                // The word was another, or a signal came.
                Ok(()) | Err(Errno::AGAIN | Errno::INTR) => Slept::Woken,
                Err(error) => panic!("futex wait failed: {error}"),
            }
        }

        /// Wakes a thread that sleeps in [`wait`](Self::wait).
        pub(super) fn wake(&self) {
            // Fails only for an address that is none.
            let _ = futex::wake(&self.value, Flags::PRIVATE, 1);
        }
    }
}

/// The same from a lock and a condition: for other systems, and for loom and Miri.
#[cfg(any(test, not(all(target_os = "linux", not(loom), not(miri)))))]
mod emulated {
    use std::time::Duration;

    use volt_shim::{AtomicU32, Condvar, Mutex, Ordering};

    use super::Slept;

    /// A word that a thread can wait for.
    #[derive(Debug)]
    pub(super) struct Futex {
        pub(super) value: AtomicU32,
        /// Held from the check of the word to the wait, so that a wake, which takes it too, does
        /// not fall in between.
        lock: Mutex<()>,
        pub(super) wakes: Condvar,
    }

    impl Futex {
        pub(super) fn new(value: u32) -> Self {
            Self { value: AtomicU32::new(value), lock: Mutex::new(()), wakes: Condvar::new() }
        }

        /// Sleeps if the word is `expected`, until a wake, the time-out, or nothing at all.
        pub(super) fn wait(&self, expected: u32, timeout: Option<Duration>) -> Slept {
            let guard = self.lock.lock();
            // ORDERING: Relaxed: who changed the word before waking has held the lock since.
            if self.value.load(Ordering::Relaxed) != expected {
                return Slept::Woken;
            }
            match timeout {
                None => {
                    drop(self.wakes.wait(guard));
                    Slept::Woken
                }
                // loom's condition has no time-out. Returning at once is one at any time that the
                // other threads can tell.
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
