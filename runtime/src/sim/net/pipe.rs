//! A simulated connection: two pipes, one for each direction.
//!
//! A write appends a *segment* to the pipe, with the time at which it arrives. A read takes the
//! bytes of the first segment once that time has come. Segments arrive in order: none arrives
//! before the one in front of it.
//!
//! The lock is held for a read, a write or a change of the state. Wakers are called after it was
//! released.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::time::{Duration, Instant};

/// The most bytes in a pipe. A write waits while there are more.
const PIPE_BYTES: usize = 64 * 1024;

/// A connection between two hosts. End 0 has connected, end 1 has accepted.
pub(super) struct Connection {
    hosts: [String; 2],
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_reset: bool,
    /// The pipe into which the end of the same number writes.
    pipes: [Pipe; 2],
}

#[derive(Default)]
struct Pipe {
    segments: VecDeque<Segment>,
    /// The sum of the lengths of the segments.
    bytes: usize,
    is_writer_gone: bool,
    is_reader_gone: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// Bytes in flight. An empty segment is the end of the stream.
struct Segment {
    arrives_at: Instant,
    bytes: VecDeque<u8>,
}

/// Whether a read can continue.
pub(super) enum Arrived {
    /// Bytes were read, or none at the end of the stream.
    Now,
    /// The first segment arrives at this time.
    At(Instant),
    /// No segment is in flight, or the hosts are partitioned.
    Nothing,
}

impl Connection {
    pub(super) fn new(hosts: [&str; 2]) -> Self {
        Self { hosts: hosts.map(str::to_owned), state: Mutex::default() }
    }

    pub(super) fn host(&self, end: usize) -> &str {
        &self.hosts[end]
    }

    pub(super) fn is_between(&self, one: &str, other: &str) -> bool {
        let [first, second] = &self.hosts;
        (first == one && second == other) || (first == other && second == one)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Passes the bytes that have arrived at `end` to `to`, at most `max`. Stores the waker of
    /// `cx`, which the next write, a reset or the end of a partition calls.
    pub(super) fn read(
        &self,
        end: usize,
        max: usize,
        is_partitioned: bool,
        cx: &Context<'_>,
        mut to: impl FnMut(&[u8]),
    ) -> io::Result<Arrived> {
        let mut state = self.state();
        if state.is_reset {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let pipe = &mut state.pipes[1 - end];
        pipe.reader = Some(cx.waker().clone());
        let Some(first) = pipe.segments.front_mut().filter(|_| !is_partitioned) else { return Ok(Arrived::Nothing) };
        if first.arrives_at > Instant::now() {
            return Ok(Arrived::At(first.arrives_at));
        }
        let count = first.bytes.len().min(max);
        let (front, back) = first.bytes.as_slices();
        to(&front[..count.min(front.len())]);
        to(&back[..count.saturating_sub(front.len())]);
        first.bytes.drain(..count);
        // The end of the stream stays, for the next read.
        if first.bytes.is_empty() && count > 0 {
            pipe.segments.pop_front();
        }
        pipe.bytes -= count;
        let writer = pipe.writer.take();
        drop(state);
        writer.into_iter().for_each(Waker::wake);
        Ok(Arrived::Now)
    }

    /// Waits until there is room for bytes that `end` writes, or the write fails. Only `end` uses
    /// up the room.
    pub(super) fn poll_room(&self, end: usize, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        let is_reset = state.is_reset;
        let pipe = &mut state.pipes[end];
        if is_reset || pipe.is_closed() || pipe.bytes < PIPE_BYTES {
            return Poll::Ready(());
        }
        pipe.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Appends bytes that `end` writes; as many as there is room for.
    pub(super) fn write(&self, end: usize, bytes: &[u8], latency: Duration) -> io::Result<usize> {
        let mut state = self.state();
        if state.is_reset {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let pipe = &mut state.pipes[end];
        if pipe.is_closed() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let count = bytes.len().min(PIPE_BYTES - pipe.bytes);
        let reader = if count > 0 { pipe.append(&bytes[..count], latency) } else { None };
        drop(state);
        reader.into_iter().for_each(Waker::wake);
        Ok(count)
    }

    /// Ends the stream that `end` writes.
    pub(super) fn shut_down(&self, end: usize, latency: Duration) {
        let mut state = self.state();
        let pipe = &mut state.pipes[end];
        let reader = if std::mem::replace(&mut pipe.is_writer_gone, true) { None } else { pipe.append(&[], latency) };
        drop(state);
        reader.into_iter().for_each(Waker::wake);
    }

    /// `end` was dropped: the other end can no longer write.
    pub(super) fn leave(&self, end: usize) {
        let mut state = self.state();
        let pipe = &mut state.pipes[1 - end];
        pipe.is_reader_gone = true;
        let writer = pipe.writer.take();
        drop(state);
        writer.into_iter().for_each(Waker::wake);
    }

    /// Makes all operations fail from now on.
    pub(super) fn reset(&self) {
        let mut state = self.state();
        state.is_reset = true;
        let wakers: Vec<_> =
            state.pipes.iter_mut().flat_map(|pipe| [pipe.reader.take(), pipe.writer.take()]).flatten().collect();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// At the end of a partition: segments that would have arrived meanwhile arrive after another
    /// delay, and later ones not before them.
    pub(super) fn delay_held(&self, mut latency: impl FnMut() -> Duration) {
        let now = Instant::now();
        let mut state = self.state();
        for pipe in &mut state.pipes {
            let mut earliest = now + latency();
            for segment in &mut pipe.segments {
                segment.arrives_at = segment.arrives_at.max(earliest);
                earliest = segment.arrives_at;
            }
        }
        let readers: Vec<_> = state.pipes.iter_mut().filter_map(|pipe| pipe.reader.take()).collect();
        drop(state);
        readers.into_iter().for_each(Waker::wake);
    }
}

impl Pipe {
    /// Returns whether no more bytes can be written.
    fn is_closed(&self) -> bool {
        self.is_reader_gone || self.is_writer_gone
    }

    /// Appends a segment, and returns the waker of the reader.
    fn append(&mut self, bytes: &[u8], latency: Duration) -> Option<Waker> {
        let at = Instant::now() + latency;
        let arrives_at = self.segments.back().map_or(at, |last| last.arrives_at.max(at));
        self.bytes += bytes.len();
        self.segments.push_back(Segment { arrives_at, bytes: bytes.iter().copied().collect() });
        self.reader.take()
    }
}

/// Takes a lock, even if it is poisoned. Under these locks, the only foreign code is the clone of a
/// waker, so a panic leaves no value half written.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
