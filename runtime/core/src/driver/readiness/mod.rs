//! The readiness of one socket: whether the kernel has reported that it can be read or written, and
//! the tasks that wait for that.
//!
//! Every registered socket has one. A task checks it before it tries an operation, and waits here
//! if the operation would block. The thread in the driver turn *reports* the kernel's events here,
//! which wakes the waiting tasks.
//!
//! An ordinary case. A task reads from a socket and gets `WouldBlock`. It clears READABLE and
//! leaves its waker. A packet arrives; the driver sets READABLE, takes the waker and wakes the
//! task, whose next read succeeds.
//!
//! The race. The packet may arrive between the failed read and the clear. If the clear then removed
//! the new READABLE, the task would wait forever, since the kernel reports a change only once. So
//! the word counts the reports in its *tick*, and a clear takes effect only if the tick is
//! unchanged since the check before the attempt.
//!
//! Shape. One 64-bit word, `| tick 55 | flags 9 |`, and the wakers of the waiting tasks behind a
//! lock.
//!
//! | flag | meaning | set by | cleared by |
//! |---|---|---|---|
//! | `READABLE` `WRITABLE` | an attempt may succeed | the driver | a task whose attempt would have blocked, or left nothing for the next one |
//! | `PRIORITY` | the same for out-of-band data (`EPOLLPRI`), if registered for it | the driver | a task whose attempt would have blocked |
//! | `ERROR` | an error is pending, or the error queue is not empty (`EPOLLERR`) | the driver | a task whose attempt would have blocked |
//! | `READ_CLOSED` `WRITE_CLOSED` | no attempt will block again | the driver | a task whose attempt in that direction would have blocked nevertheless: a named pipe has a writer again, or a terminal is open again |
//! | `MARKABLE` | a TCP stream: `EPOLLPRI` sets `MARKED`, and neither `PRIORITY` nor `READABLE` | the registration | never |
//! | `MARKED` | urgent data was sent: a read ends at its mark, although there may be more data | the driver | never |
//! | `SHUT_DOWN` | the runtime is shut down, no event will come: a wait fails, an attempt is still made if a flag is set | `shut_down` | never |
//!
//! The thread in the driver turn (`set`), the shutdown (`shut_down`) and tasks (`clear`, `refute`)
//! write. Tasks read.
//!
//! Invariants:
//! * *Edge*: the kernel reports a change once, so a flag is never cleared because of an attempt
//!   that began before the last report. The tick counts reports. It has 55 bits, since a narrow one
//!   that wraps around between a check and its clear would lose an event forever (tokio #6133,
//!   #8331).
//! * *Unlocked wakers*: no waker is called or dropped under the lock.
//! * *No spin*: an attempt that would have blocked clears the flag that ended its wait. Otherwise
//!   the next wait would end immediately, without end, within one poll. If it is unknown in which
//!   direction the attempt was, a `_CLOSED` flag stays, and the task yields (`registration`).
//! * *Marks*: urgent data of a TCP stream does not wake a reader. A read that begins at the mark
//!   discards the urgent byte, which other code may be about to receive with `MSG_OOB`.
//!
//! Protocol:
//! * Waiter: (1) lock; (2) read the word; (3) if not ready, leave a waker; (4) unlock.
//! * Reporter, the thread with an event: (1) set the flags and increment the tick, in one step; (2)
//!   lock; (3) take the wakers; (4) unlock, and wake later.
//!
//! If the reporter gets the lock first, the waiter's check sees the flags. If it gets the lock
//! second, it finds the waker.
//!
//! Each direction has one *slot*, for the `poll_` functions, of which only the last waker counts. A
//! *queue* of any number of waiters serves the `async` functions. All of its waiters are woken,
//! since it is unknown which of them will use the event.
//!
//! Rejected:
//! * One waker per direction for all tasks: of two tasks in `accept` on one listener, the first is
//!   never woken.
//! * An intrusive list in the futures: unsafe code to save one allocation, and only for tasks that
//!   share a direction.

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
const TICK_SHIFT: u32 = 9;

/// A set of the flags in the table above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flags(u64);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// A read may succeed without blocking.
    pub const READABLE: Flags = Flags(1);
    /// A write may succeed without blocking.
    pub const WRITABLE: Flags = Flags(1 << 1);
    /// The peer writes no more.
    pub const READ_CLOSED: Flags = Flags(1 << 2);
    /// The peer reads no more.
    pub const WRITE_CLOSED: Flags = Flags(1 << 3);
    const SHUT_DOWN: Flags = Flags(1 << 4);
    /// Priority data arrived.
    pub const PRIORITY: Flags = Flags(1 << 5);
    /// An error is pending. The driver also sets `READABLE` and `WRITABLE`, as an attempt in either
    /// direction returns the error.
    pub const ERROR: Flags = Flags(1 << 6);
    /// Priority data is urgent data, which only sets `MARKED`. For TCP streams, from the start.
    pub(crate) const MARKABLE: Flags = Flags(1 << 7);
    /// Urgent data was sent, at whose mark a read ends.
    pub(crate) const MARKED: Flags = Flags(1 << 8);
    /// The flags that `clear` clears, and `refute` if the direction of the attempt is unknown.
    const CLEARED: Flags = Self::READABLE.and(Self::WRITABLE).and(Self::PRIORITY).and(Self::ERROR);

    /// Returns the flags of both.
    pub const fn and(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Returns the flags that are in both.
    pub const fn within(self, other: Flags) -> Flags {
        Flags(self.0 & other.0)
    }

    /// Returns these flags except those of `other`.
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }

    /// Returns whether the two share a flag.
    pub const fn intersects(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }
}

const _: () = assert!(Flags::MARKED.0 < 1 << TICK_SHIFT);

/// The direction of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Read.
    Read,
    /// Write.
    Write,
}

impl Direction {
    /// Returns the flags that end a wait.
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

/// The result of a check that found flags set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an attempt that would have blocked must be reported by `clear`"]
pub struct Seen {
    tick: u64,
    found: Flags,
}

impl Seen {
    /// Returns the awaited flags that were found set.
    pub fn found(self) -> Flags {
        self.found
    }

    /// Returns the result as if only `flags` had been awaited.
    pub fn only(self, flags: Flags) -> Seen {
        Seen { found: self.found.within(flags), ..self }
    }
}

/// The source of the error of an operation whose runtime is shut down.
#[derive(Debug)]
pub struct ShutDownError(());

impl ShutDownError {
    /// Returns the error as one of I/O.
    pub fn io() -> io::Error {
        io::Error::other(Self(()))
    }

    /// Returns whether `error` reports that a runtime is shut down.
    pub fn is_in(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|source| source.is::<ShutDownError>())
    }
}

impl fmt::Display for ShutDownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the runtime that this operation needs is shut down")
    }
}

impl std::error::Error for ShutDownError {}

/// The readiness of one socket.
///
/// Each begins a cache line, and what an event changes is in that line. Otherwise the workers of
/// two sockets that were accepted one after the other would share a line.
#[repr(C, align(64))]
pub(crate) struct Readiness {
    word: AtomicU64,
    waiters: Mutex<Waiters>,
}

/// In this order, so that only the queue is in the second cache line.
#[derive(Debug, Default)]
#[repr(C)]
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
    /// Creates the readiness of a socket, with `flags` set. It is cheaper to try a socket that may
    /// be ready than to wait for an event.
    pub(crate) fn new(flags: Flags) -> Self {
        Self { word: AtomicU64::new(flags.0), waiters: Mutex::new(Waiters::default()) }
    }

    /// Reports an event: sets `flags` and collects the wakers of the tasks that wait for them.
    pub(crate) fn set(&self, flags: Flags, into: &mut Vec<Waker>) {
        let flags = self.interpret(flags);
        let notify = |word: u64| Some((word | flags.0).wrapping_add(1 << TICK_SHIFT));
        // ORDERING: Release; pairs with the Acquire in `check`: an attempt that sees a flag comes
        // after the kernel's report. Relaxed on failure: a retry value.
        let _ = self.word.fetch_update(Ordering::Release, Ordering::Relaxed, notify);
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

    /// Returns the flags that an event with these flags sets.
    fn interpret(&self, flags: Flags) -> Flags {
        if !flags.intersects(Flags::PRIORITY) {
            return flags;
        }
        // ORDERING: Relaxed; `MARKABLE` never changes.
        if Flags(self.word.load(Ordering::Relaxed)).intersects(Flags::MARKABLE) {
            return flags.without(Flags::PRIORITY).and(Flags::MARKED);
        }
        // An attempt to read may find the data, as in mio and Tokio.
        flags.and(Flags::READABLE)
    }

    /// Sets `SHUT_DOWN`: no event will come, and every wait fails.
    pub(crate) fn shut_down(&self, into: &mut Vec<Waker>) {
        self.set(Flags::SHUT_DOWN, into);
    }

    /// Checks whether an attempt may succeed. Returns which of the awaited flags are set.
    ///
    /// # Errors
    /// Fails if the runtime is shut down.
    #[inline]
    pub(crate) fn check(&self, awaited: impl Into<Flags>) -> io::Result<Option<Seen>> {
        // ORDERING: Acquire; pairs with the Release in `set`.
        let word = self.word.load(Ordering::Acquire);
        if Flags(word).intersects(Flags::SHUT_DOWN) {
            return Err(ShutDownError::io());
        }
        Ok(Self::found(word, awaited.into()))
    }

    /// Checks as [`check`](Self::check) does, also after the shutdown, when the flags of the last
    /// events are still set: an attempt needs no driver unless it would block.
    #[inline]
    pub(crate) fn check_for_attempt(&self, awaited: Flags) -> Option<Seen> {
        // ORDERING: Acquire; pairs with the Release in `set`.
        Self::found(self.word.load(Ordering::Acquire), awaited)
    }

    fn found(word: u64, awaited: Flags) -> Option<Seen> {
        let found = Flags(word).within(awaited);
        (found != Flags::NONE).then_some(Seen { tick: word >> TICK_SHIFT, found })
    }

    /// Clears the flags of a check after which the attempt would have blocked, or left nothing for
    /// the next attempt. See *Edge*.
    pub(crate) fn clear(&self, seen: Seen) {
        self.take_back(seen, Flags::CLEARED);
    }

    /// Clears the flags of a check for `awaited` after which the attempt would have blocked.
    ///
    /// Returns whether everything that the check found is cleared. If both directions were awaited,
    /// the `_CLOSED` flags stay, since it is unknown in which direction the attempt was. See *No
    /// spin*.
    pub(crate) fn refute(&self, seen: Seen, awaited: Flags) -> bool {
        let is_known = awaited == Direction::Read.awaited() || awaited == Direction::Write.awaited();
        let refuted = if is_known { awaited } else { Flags::CLEARED };
        self.take_back(seen, refuted);
        seen.found.without(refuted) == Flags::NONE
    }

    /// Clears those of `flags` that the check found, unless an event was reported since.
    fn take_back(&self, seen: Seen, flags: Flags) {
        let clear = |word: u64| (word >> TICK_SHIFT == seen.tick).then_some(word & !seen.found.within(flags).0);
        // ORDERING: Relaxed: clearing a flag publishes nothing. The comparison of the tick is part
        // of the same RMW, so no report can come in between.
        let _ = self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, clear);
    }

    /// Waits in the slot of this direction. Of several tasks that do so, only the last one is
    /// woken.
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
        // *Unlocked wakers*: the former waker is dropped after the lock is released.
        drop(waiters);
        drop(former);
        Poll::Pending
    }

    /// Returns a future that waits in the queue. Any number of tasks may wait there, each for
    /// different flags.
    pub(crate) fn ready(&self, awaited: impl Into<Flags>) -> Ready<'_> {
        Ready { readiness: self, awaited: awaited.into(), queued: None }
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // ORDERING: Relaxed; only for debug output.
        let word = self.word.load(Ordering::Relaxed);
        f.debug_struct("Readiness")
            .field("flags", &format_args!("{:#011b}", word & ((1 << TICK_SHIFT) - 1)))
            .field("tick", &(word >> TICK_SHIFT))
            .finish_non_exhaustive()
    }
}

/// A place in the queue; see [`Readiness::ready`]. Takes a unit of the cooperative budget, which it
/// passes on to the caller.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub(crate) struct Ready<'a> {
    readiness: &'a Readiness,
    awaited: Flags,
    /// The key of the place in the queue, once there is one.
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
        // *Unlocked wakers*: the former waker is dropped after the lock is released.
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
            // *Unlocked wakers*: it is dropped after the lock is released.
            drop(waiters);
            drop(waiter);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
