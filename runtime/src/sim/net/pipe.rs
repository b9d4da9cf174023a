//! A simulated connection: two pipes, one for each direction.
//!
//! A write appends a *segment* to the pipe, with the time at which it arrives. A read takes the
//! bytes of the first segment once that time has come. Segments arrive in order: none arrives
//! before the one in front of it.
//!
//! An empty segment is an end of the stream, and stays in the pipe. When one end of the connection
//! is dropped, it appends another such segment. Once that has arrived, writes of the other end
//! fail. Until then, their bytes are accepted, and are never read.
//!
//! The lock is held for a read, a write or a change of the state. Wakers are called after it was
//! released.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

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
    /// No more bytes are accepted: the writer has ended its stream, or was refused a write since it
    /// has no reader.
    is_closed: bool,
    /// The reader was dropped. The writer may not know that yet.
    is_reader_gone: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// Bytes in flight. An empty segment is an end of the stream.
struct Segment {
    arrives_at: Instant,
    bytes: VecDeque<u8>,
}

/// Whether a read or a write can continue.
pub(super) enum Arrived {
    /// It can. A read has read bytes, or none at the end of the stream.
    Now,
    /// The segment that it waits for arrives at this time.
    At(Instant),
    /// No such segment is in flight, or the hosts are partitioned.
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

    /// Returns whether there is room for bytes that `end` writes, or the write fails. Otherwise
    /// stores the waker of `cx`, which a read, a reset, the drop of the other end and, after that,
    /// the end of a partition call. Only `end` uses up the room.
    pub(super) fn room(&self, end: usize, is_partitioned: bool, cx: &Context<'_>) -> Arrived {
        let mut state = self.state();
        let is_reset = state.is_reset;
        let pipe = &mut state.pipes[end];
        if is_reset || pipe.is_closed || pipe.bytes < PIPE_BYTES {
            return Arrived::Now;
        }
        pipe.writer = Some(cx.waker().clone());
        state.drop_of_reader(end, is_partitioned)
    }

    /// Appends bytes that `end` writes; as many as there is room for.
    pub(super) fn write(&self, end: usize, bytes: &[u8], is_partitioned: bool, latency: Duration) -> io::Result<usize> {
        let mut state = self.state();
        if state.is_reset {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let has_no_reader = matches!(state.drop_of_reader(end, is_partitioned), Arrived::Now);
        let pipe = &mut state.pipes[end];
        // A later partition does not undo this.
        pipe.is_closed |= has_no_reader;
        if pipe.is_closed {
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
        let reader = if std::mem::replace(&mut pipe.is_closed, true) { None } else { pipe.append(&[], latency) };
        drop(state);
        reader.into_iter().for_each(Waker::wake);
    }

    /// `end` was dropped: ends its stream, and wakes the other end to wait for the news.
    pub(super) fn leave(&self, end: usize, latency: Duration) {
        self.shut_down(end, latency);
        let mut state = self.state();
        // No reader is woken, since none reads beyond the first end of the stream.
        state.pipes[end].push(&[], latency);
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
        let wakers = state.pipes.iter_mut().flat_map(|pipe| {
            // Other writers wait only for room.
            let writer = if pipe.is_reader_gone { pipe.writer.take() } else { None };
            [pipe.reader.take(), writer]
        });
        let wakers: Vec<_> = wakers.flatten().collect();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl State {
    /// Returns whether the news that the other end was dropped has arrived at `end`.
    fn drop_of_reader(&self, end: usize, is_partitioned: bool) -> Arrived {
        let last = self.pipes[1 - end].segments.back();
        match last.filter(|_| self.pipes[end].is_reader_gone && !is_partitioned) {
            None => Arrived::Nothing,
            Some(last) if last.arrives_at > Instant::now() => Arrived::At(last.arrives_at),
            Some(_) => Arrived::Now,
        }
    }
}

impl Pipe {
    /// Appends a segment, and returns the waker of the reader.
    fn append(&mut self, bytes: &[u8], latency: Duration) -> Option<Waker> {
        self.push(bytes, latency);
        self.reader.take()
    }

    fn push(&mut self, bytes: &[u8], latency: Duration) {
        let at = Instant::now() + latency;
        let arrives_at = self.segments.back().map_or(at, |last| last.arrives_at.max(at));
        self.bytes += bytes.len();
        self.segments.push_back(Segment { arrives_at, bytes: bytes.iter().copied().collect() });
    }
}

/// Takes a lock, even if it is poisoned. Under these locks, the only foreign code is the clone of a
/// waker, so a panic leaves no value half written.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
