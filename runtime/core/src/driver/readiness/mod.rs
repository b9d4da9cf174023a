//! Whether a socket can be read and written, as far as the kernel told, and who waits for that.
//!
//! Shape. One 64-bit word, `| tick 56 | flags 8 |`, and the wakers of those who wait, behind a
//! lock.
//!
//! | flag | meaning | set by | cleared by |
//! |---|---|---|---|
//! | `READABLE` `WRITABLE` | an attempt may succeed | the driver | whoever tried and would have blocked |
//! | `PRIORITY` | as these, for what is out of the ordinary (`EPOLLPRI`), if it was asked for | the driver | whoever tried |
//! | `READ_CLOSED` `WRITE_CLOSED` | no attempt will block again | the driver | whoever tried in that direction and would have blocked all the same, since a named pipe has a writer again, a terminal is open again |
//! | `SHUT_DOWN` | the runtime is gone, no event will come | `shut_down` | nobody |
//!
//! Who writes: the thread in the driver turn (`set`), tasks (`clear`). Who reads: tasks.
//!
//! Invariants. *Edge*: the kernel tells of a change once, so a flag is never cleared on the
//! strength of an attempt that began before the last telling. The tick counts tellings; it has 56
//! bits, and a narrow one that comes round between a check and its clear would lose an event for
//! ever (tokio #6133, #8331). *Unlocked wakers*: no waker is called or dropped under the lock.
//!
//! *No spin*: what ends a wait is taken back by the attempt that it did not help, or the next wait
//! would end at once, for ever, within one poll.
//!
//! Protocol. Waiter: (1) lock; (2) read the word; (3) not ready: leave a waker; (4) unlock. Teller:
//! (1) set the flags and count the tick, in one step; (2) lock; (3) take the wakers; (4) unlock,
//! and wake later. If the teller gets the lock first, the waiter's check sees the flags; if second,
//! it finds the waker.
//!
//! In each direction wait: one *slot*, for the `poll_` functions, where the last waker counts; and
//! a *queue* of any number of waiters, for the `async` ones, all of which are woken, since which of
//! them will use the event is unknown.
//!
//! Rejected: one waker a direction for all (two tasks in `accept` on one listener: the first is
//! never woken); an intrusive list in the futures (unsafe code to save one allocation, and only for
//! those who share a direction).

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use volt_shim::{AtomicU64, Mutex, Ordering};

use crate::coop;

#[cfg(all(test, loom))]
mod loom_models;

/// Bits of the word below the tick.
const TICK_SHIFT: u32 = 8;

/// A set of the flags in the table above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(u64);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// A read would not block.
    pub const READABLE: Flags = Flags(1);
    /// A write would not block.
    pub const WRITABLE: Flags = Flags(1 << 1);
    /// The other side writes no more.
    pub const READ_CLOSED: Flags = Flags(1 << 2);
    /// The other side reads no more.
    pub const WRITE_CLOSED: Flags = Flags(1 << 3);
    const SHUT_DOWN: Flags = Flags(1 << 4);
    /// Urgent data arrived.
    pub const PRIORITY: Flags = Flags(1 << 5);
    /// What an attempt that would have blocked takes back.
    const CLEARED: Flags = Self::READABLE.and(Self::WRITABLE).and(Self::PRIORITY);

    /// The flags of both.
    pub const fn and(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// The flags that are in both.
    pub const fn within(self, other: Flags) -> Flags {
        Flags(self.0 & other.0)
    }

    /// These flags but for those of `other`.
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }

    /// Whether the two share a flag.
    pub const fn intersects(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }
}

const _: () = assert!(Flags::SHUT_DOWN.0 < 1 << TICK_SHIFT);

/// What a task wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Read.
    Read,
    /// Write.
    Write,
}

impl Direction {
    /// The flags that end a wait.
    const fn awaited(self) -> Flags {
        match self {
            Direction::Read => Flags::READABLE.and(Flags::READ_CLOSED),
            Direction::Write => Flags::WRITABLE.and(Flags::WRITE_CLOSED),
        }
    }
}

impl From<Direction> for Flags {
    fn from(direction: Direction) -> Flags {
        direction.awaited()
    }
}

/// One check of the word that found something ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an attempt that would have blocked must be reported by `clear`"]
pub struct Seen {
    tick: u64,
    found: Flags,
}

impl Seen {
    /// What was found, of what was awaited.
    pub fn found(self) -> Flags {
        self.found
    }

    /// As if only these had been awaited.
    pub fn only(self, flags: Flags) -> Seen {
        Seen { found: self.found.within(flags), ..self }
    }
}

/// One socket's state.
pub(crate) struct Readiness {
    word: AtomicU64,
    waiters: Mutex<Waiters>,
}

#[derive(Debug, Default)]
struct Waiters {
    reader: Option<Waker>,
    writer: Option<Waker>,
    queue: slab::Slab<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    awaited: Flags,
    /// `None` once woken.
    waker: Option<Waker>,
}

impl Readiness {
    /// Begins with `flags`: a socket that may be ready is cheaper to try than to be told about.
    pub(crate) fn new(flags: Flags) -> Self {
        Self { word: AtomicU64::new(flags.0), waiters: Mutex::new(Waiters::default()) }
    }

    /// A telling: sets `flags` and collects the wakers of those who wait for them.
    pub(crate) fn set(&self, flags: Flags, into: &mut Vec<Waker>) {
        let tell = |word: u64| Some((word | flags.0).wrapping_add(1 << TICK_SHIFT));
        // ORDERING: Release; pairs with the Acquire in `check`: an attempt that sees a flag comes
        // after the kernel's telling. Relaxed on failure: a retry value.
        let _ = self.word.fetch_update(Ordering::Release, Ordering::Relaxed, tell);
        let mut waiters = self.waiters.lock();
        let ends = |awaited: Flags| flags.intersects(awaited.and(Flags::SHUT_DOWN));
        if ends(Direction::Read.awaited()) {
            into.extend(waiters.reader.take());
        }
        if ends(Direction::Write.awaited()) {
            into.extend(waiters.writer.take());
        }
        for (_, waiter) in &mut waiters.queue {
            if ends(waiter.awaited) {
                into.extend(waiter.waker.take());
            }
        }
    }

    /// No event will come any more: every wait and every later attempt ends in an error.
    pub(crate) fn shut_down(&self, into: &mut Vec<Waker>) {
        self.set(Flags::SHUT_DOWN, into);
    }

    /// Whether an attempt may succeed: which of the flags that it waits for are set.
    ///
    /// # Errors
    /// The runtime is shut down.
    #[inline]
    pub(crate) fn check(&self, awaited: impl Into<Flags>) -> io::Result<Option<Seen>> {
        // ORDERING: Acquire; pairs with the Release in `set`.
        let word = self.word.load(Ordering::Acquire);
        if Flags(word).intersects(Flags::SHUT_DOWN) {
            return Err(io::Error::other("the runtime that this socket belongs to is shut down"));
        }
        let found = Flags(word).within(awaited.into());
        Ok((found != Flags::NONE).then_some(Seen { tick: word >> TICK_SHIFT, found }))
    }

    /// The attempt after this check would have blocked, or left nothing for the next. See *Edge*.
    pub(crate) fn clear(&self, seen: Seen) {
        self.take_back(seen, Flags::CLEARED);
    }

    /// The attempt after a check for `awaited` would have blocked. Whether what was found is all
    /// taken back: not what is closed if both directions were awaited, since which of them the
    /// attempt was in is unknown. See *No spin*.
    pub(crate) fn refute(&self, seen: Seen, awaited: Flags) -> bool {
        let is_known = awaited == Direction::Read.awaited() || awaited == Direction::Write.awaited();
        let refuted = if is_known { awaited } else { Flags::CLEARED };
        self.take_back(seen, refuted);
        seen.found.without(refuted) == Flags::NONE
    }

    /// Clears `flags`, of what was seen, unless something was told since.
    fn take_back(&self, seen: Seen, flags: Flags) {
        let clear = |word: u64| (word >> TICK_SHIFT == seen.tick).then_some(word & !seen.found.within(flags).0);
        // ORDERING: Relaxed: the word publishes nothing when a flag goes; the comparison of the
        // tick is part of the same RMW, so no telling can come in between.
        let _ = self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, clear);
    }

    /// Waits in the slot of this direction: of several tasks that do so, the last one is woken.
    pub(crate) fn poll_ready(&self, cx: &mut Context<'_>, direction: Direction) -> Poll<io::Result<Seen>> {
        if let Some(seen) = self.check(direction)? {
            return Poll::Ready(Ok(seen));
        }
        let waker = cx.waker().clone();
        let mut waiters = self.waiters.lock();
        if let Some(seen) = self.check(direction)? {
            return Poll::Ready(Ok(seen));
        }
        let slot = match direction {
            Direction::Read => &mut waiters.reader,
            Direction::Write => &mut waiters.writer,
        };
        let former = slot.replace(waker);
        // *Unlocked wakers*: the former one goes after the lock.
        drop(waiters);
        drop(former);
        Poll::Pending
    }

    /// Waits in the queue: any number of tasks may, each for flags of its own.
    pub(crate) fn ready(&self, awaited: impl Into<Flags>) -> Ready<'_> {
        Ready { readiness: self, awaited: awaited.into(), queued: None }
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // ORDERING: Relaxed; for people only.
        let word = self.word.load(Ordering::Relaxed);
        f.debug_struct("Readiness")
            .field("flags", &format_args!("{:#08b}", word & ((1 << TICK_SHIFT) - 1)))
            .field("tick", &(word >> TICK_SHIFT))
            .finish_non_exhaustive()
    }
}

/// A place in the queue; see [`Readiness::ready`]. Spends a unit of the cooperative budget, which
/// the caller keeps.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub(crate) struct Ready<'a> {
    readiness: &'a Readiness,
    awaited: Flags,
    /// Key of the place, once it was taken.
    queued: Option<usize>,
}

impl Future for Ready<'_> {
    type Output = io::Result<(Seen, coop::Unit)>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let unit = ready!(coop::poll_proceed(cx));
        let (readiness, awaited) = (self.readiness, self.awaited);
        if let Some(seen) = readiness.check(awaited)? {
            return Poll::Ready(Ok((seen, unit)));
        }
        let waker = Some(cx.waker().clone());
        let mut waiters = readiness.waiters.lock();
        if let Some(seen) = readiness.check(awaited)? {
            return Poll::Ready(Ok((seen, unit)));
        }
        let former = match self.queued {
            Some(key) => std::mem::replace(&mut waiters.queue[key].waker, waker),
            None => {
                self.queued = Some(waiters.queue.insert(Waiter { awaited, waker }));
                None
            }
        };
        // *Unlocked wakers*: the former one goes after the lock.
        drop(waiters);
        drop(former);
        Poll::Pending
    }
}

impl Drop for Ready<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.queued {
            let mut waiters = self.readiness.waiters.lock();
            let waiter = waiters.queue.remove(key);
            // *Unlocked wakers*: it goes after the lock.
            drop(waiters);
            drop(waiter);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
