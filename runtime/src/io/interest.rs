//! Sets of I/O events: the events that a task waits for, and those that the driver has found.
//!
//! Users pass an [`Interest`] to methods such as `ready`, which return a [`Ready`]. Names and
//! semantics are Tokio's. In addition, an error makes a socket readable and writable, because the
//! next attempt in either direction returns it.

use std::fmt;
use std::ops::{BitAnd, BitOr, BitOrAssign, Sub};

use volt_core::driver::readiness::Flags;

/// A set of events that a task waits for. It is never empty.
///
/// ```
/// use volt::io::Interest;
///
/// let both = Interest::READABLE | Interest::WRITABLE;
/// assert!(both.is_readable() && both.is_writable());
/// assert_eq!(both.remove(Interest::READABLE), Some(Interest::WRITABLE));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Interest(Flags);

impl Interest {
    /// Interest in reading: data is available, or the end of the stream was reached.
    pub const READABLE: Interest = Interest(Flags::READABLE);
    /// Interest in writing: there is room to write, or the other end reads no more.
    pub const WRITABLE: Interest = Interest(Flags::WRITABLE);
    /// Interest in priority data, such as TCP's urgent data (`EPOLLPRI`).
    ///
    /// The sockets of [`net`](crate::net) never report priority data. An
    /// [`AsyncFd`](crate::io::unix::AsyncFd) reports it if it was created with this interest.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub const PRIORITY: Interest = Interest(Flags::PRIORITY);

    /// Interest in errors: an error of the socket is pending, or its error queue is not empty
    /// (`EPOLLERR`).
    ///
    /// The system reports errors of every descriptor that is watched, whatever the interest.
    pub const ERROR: Interest = Interest(Flags::ERROR);

    /// Returns true if the value includes [`READABLE`](Self::READABLE).
    pub const fn is_readable(self) -> bool {
        self.0.intersects(Flags::READABLE)
    }

    /// Returns true if the value includes [`WRITABLE`](Self::WRITABLE).
    pub const fn is_writable(self) -> bool {
        self.0.intersects(Flags::WRITABLE)
    }

    /// Returns true if the value includes [`PRIORITY`](Self::PRIORITY).
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub const fn is_priority(self) -> bool {
        self.0.intersects(Flags::PRIORITY)
    }

    /// Returns true if the value includes [`ERROR`](Self::ERROR).
    pub const fn is_error(self) -> bool {
        self.0.intersects(Flags::ERROR)
    }

    /// Returns the union of two interests, like the operator `|`.
    #[must_use = "returns the union, and changes neither interest"]
    #[allow(clippy::should_implement_trait, reason = "Tokio's name, and const")]
    pub const fn add(self, other: Interest) -> Interest {
        Interest(self.0.and(other.0))
    }

    /// Returns this interest without the events of `other`, or `None` if no event is left.
    #[must_use = "returns the remaining interest, and changes neither"]
    pub fn remove(self, other: Interest) -> Option<Interest> {
        let left = self.0.without(other.0);
        (left != Flags::NONE).then_some(Interest(left))
    }

    /// Returns the flags that end a wait for this interest.
    pub(crate) fn awaited(self) -> Flags {
        let ends = [(Flags::READABLE.and(Flags::PRIORITY), Flags::READ_CLOSED), (Flags::WRITABLE, Flags::WRITE_CLOSED)];
        let wanted = ends.into_iter().filter(|&(flags, _)| self.0.intersects(flags));
        wanted.fold(self.0, |awaited, (_, closed)| awaited.and(closed))
    }

    /// Returns the events that the kernel must report for this interest.
    pub(crate) fn to_mio(self) -> mio::Interest {
        let mut interest = None::<mio::Interest>;
        let mut want = |flag, more| {
            if self.0.intersects(flag) {
                interest = Some(interest.map_or(more, |interest| interest | more));
            }
        };
        want(Flags::READABLE, mio::Interest::READABLE);
        want(Flags::WRITABLE, mio::Interest::WRITABLE);
        #[cfg(any(target_os = "linux", target_os = "android"))]
        want(Flags::PRIORITY, mio::Interest::PRIORITY);
        // Errors are always reported, but mio needs some interest. An interest is never empty.
        interest.unwrap_or(mio::Interest::READABLE)
    }
}

impl BitOr for Interest {
    type Output = Interest;

    fn bitor(self, other: Interest) -> Interest {
        self.add(other)
    }
}

impl BitOrAssign for Interest {
    fn bitor_assign(&mut self, other: Interest) {
        *self = *self | other;
    }
}

impl fmt::Debug for Interest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = [
            (Flags::READABLE, "READABLE"),
            (Flags::WRITABLE, "WRITABLE"),
            (Flags::PRIORITY, "PRIORITY"),
            (Flags::ERROR, "ERROR"),
        ];
        let names = named.iter().filter(|&&(flag, _)| self.0.intersects(flag)).map(|&(_, name)| name);
        f.write_str(&names.collect::<Vec<_>>().join(" | "))
    }
}

/// A set of readiness states that the driver has found. Readiness is a hint: an attempt can still
/// fail with `ErrorKind::WouldBlock`.
///
/// ```
/// use volt::io::Ready;
///
/// let ready = Ready::READABLE | Ready::READ_CLOSED;
/// assert!(ready.is_readable() && ready.is_read_closed() && !ready.is_writable());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ready(Flags);

impl Ready {
    /// The empty set.
    pub const EMPTY: Ready = Ready(Flags::NONE);
    /// Data may be available to read.
    pub const READABLE: Ready = Ready(Flags::READABLE);
    /// There may be room to write.
    pub const WRITABLE: Ready = Ready(Flags::WRITABLE);
    /// The read direction is closed: the other end sends no more data.
    pub const READ_CLOSED: Ready = Ready(Flags::READ_CLOSED);
    /// The write direction is closed: the other end receives no more data.
    pub const WRITE_CLOSED: Ready = Ready(Flags::WRITE_CLOSED);
    /// Priority data may be available to read.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub const PRIORITY: Ready = Ready(Flags::PRIORITY);
    /// An error may be pending.
    pub const ERROR: Ready = Ready(Flags::ERROR);
    /// All readiness states.
    pub const ALL: Ready = Ready(
        Flags::READABLE
            .and(Flags::WRITABLE)
            .and(Flags::READ_CLOSED)
            .and(Flags::WRITE_CLOSED)
            .and(Flags::PRIORITY)
            .and(Flags::ERROR),
    );

    pub(crate) fn of(flags: Flags) -> Ready {
        Ready(flags.within(Self::ALL.0))
    }

    pub(crate) fn flags(self) -> Flags {
        self.0
    }

    /// Returns true if the set is empty.
    pub fn is_empty(self) -> bool {
        self == Ready::EMPTY
    }

    /// Returns true if a read may complete without blocking. That includes a read that finds the
    /// end of the stream.
    pub fn is_readable(self) -> bool {
        self.0.intersects(Flags::READABLE) || self.is_read_closed()
    }

    /// Returns true if a write may complete without blocking. That includes a write that fails
    /// because the direction is closed.
    pub fn is_writable(self) -> bool {
        self.0.intersects(Flags::WRITABLE) || self.is_write_closed()
    }

    /// Returns true if the other end sends no more data.
    pub fn is_read_closed(self) -> bool {
        self.0.intersects(Flags::READ_CLOSED)
    }

    /// Returns true if the other end receives no more data.
    pub fn is_write_closed(self) -> bool {
        self.0.intersects(Flags::WRITE_CLOSED)
    }

    /// Returns true if priority data may be available to read.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub fn is_priority(self) -> bool {
        self.0.intersects(Flags::PRIORITY)
    }

    /// Returns true if an error may be pending.
    pub fn is_error(self) -> bool {
        self.0.intersects(Flags::ERROR)
    }
}

impl BitOr for Ready {
    type Output = Ready;

    fn bitor(self, other: Ready) -> Ready {
        Ready(self.0.and(other.0))
    }
}

impl BitOrAssign for Ready {
    fn bitor_assign(&mut self, other: Ready) {
        *self = *self | other;
    }
}

impl BitAnd for Ready {
    type Output = Ready;

    fn bitand(self, other: Ready) -> Ready {
        Ready(self.0.within(other.0))
    }
}

impl Sub for Ready {
    type Output = Ready;

    fn sub(self, other: Ready) -> Ready {
        Ready(self.0.without(other.0))
    }
}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Ready");
        debug
            .field("is_readable", &self.is_readable())
            .field("is_writable", &self.is_writable())
            .field("is_read_closed", &self.is_read_closed())
            .field("is_write_closed", &self.is_write_closed())
            .field("is_error", &self.is_error());
        #[cfg(any(target_os = "linux", target_os = "android"))]
        debug.field("is_priority", &self.is_priority());
        debug.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_for_a_direction_also_ends_when_it_is_closed() {
        assert_eq!(Interest::READABLE.awaited(), Flags::READABLE.and(Flags::READ_CLOSED));
        let both = Interest::READABLE | Interest::WRITABLE;
        assert_eq!(Ready::of(both.awaited()), Ready::ALL - Ready(Flags::PRIORITY) - Ready::ERROR);
        assert_eq!(both.to_mio(), mio::Interest::READABLE | mio::Interest::WRITABLE);
        assert_eq!(format!("{:?}", both | Interest::ERROR), "READABLE | WRITABLE | ERROR");
    }

    #[test]
    fn an_interest_in_errors_alone_is_awaited_alone() {
        assert_eq!(Interest::ERROR.awaited(), Flags::ERROR);
        assert_eq!(Interest::ERROR.to_mio(), mio::Interest::READABLE, "for the registration");
    }
}
