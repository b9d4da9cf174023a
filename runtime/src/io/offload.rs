//! Asynchronous reading, writing and seeking for objects whose operations block: files and the
//! standard streams.
//!
//! Each operation runs as a job on a thread for blocking work, one job at a time. The object is
//! called the *source*. `fs::File` and the types of `io::stdio` wrap an [`Offload`] around their
//! source.
//!
//! # Shape
//!
//! The source is shared with the job in flight. The buffer is moved to that job, and moved back
//! when the job has ended.
//!
//! A read starts a job that fills the buffer. When the job has ended, the bytes are copied to the
//! caller. A write copies the bytes into the buffer, starts a job that writes them, and completes
//! immediately. If the runtime refuses the job, the write fails. If the job fails, the
//! next write or flush returns the error, whichever comes first. Each error is returned once.
//!
//! # Invariants
//!
//! *One job*: a job starts only after the previous one has ended, even if the future that started
//! the previous one was dropped. So operations run in the order in which they were requested.
//!
//! *Nothing read is lost*: bytes that were read for a future that was dropped are returned by the
//! next read. Before a write or a truncation, the source is moved back by the number of such bytes.
//! A seek takes them into account.
//!
//! *Nothing written is lost*: a job that writes is started even if the runtime is shut down before
//! that (`Pool::submit`).
//!
//! Bound: the buffer contains at most `max_buf_size` bytes.

use std::io::{self, SeekFrom};
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::ReadBuf;

use volt_core::context;
use volt_core::coop;
use volt_core::driver::readiness::ShutDownError;
use volt_core::task::JoinHandle;

/// Default maximum number of bytes that one operation moves. It is large enough that the cost of
/// the hand-over to another thread is negligible.
const MAX_BUF_BYTES: usize = 2 << 20;

/// A source of which all operations block. An operation that it does not support returns an error.
pub(crate) trait Blocks: Send + Sync + 'static {
    /// Appends up to `max` bytes to `into`, and returns their number; 0 at the end of the source.
    fn read_some(&self, into: &mut Vec<u8>, max: usize) -> io::Result<usize> {
        let _ = (into, max);
        Err(io::ErrorKind::Unsupported.into())
    }

    fn write_whole(&self, bytes: &[u8]) -> io::Result<()> {
        let _ = bytes;
        Err(io::ErrorKind::Unsupported.into())
    }

    fn seek_to(&self, to: SeekFrom) -> io::Result<u64> {
        let _ = to;
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A source, and the buffer and job of its current operation; see the header of this file.
#[derive(Debug)]
pub(crate) struct Offload<S> {
    source: Arc<S>,
    state: State,
    /// The error of a write that no call has returned yet.
    failed: Option<io::Error>,
    /// The position after the last seek.
    sought: u64,
    pub(crate) max_buf_size: usize,
}

#[derive(Debug)]
enum State {
    Idle(Buffer),
    Busy(JoinHandle<(Outcome, Buffer)>),
}

/// Bytes, of which the first `taken` have been returned to a reader.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    taken: usize,
}

#[derive(Debug)]
enum Outcome {
    Read(io::Result<usize>),
    Written(io::Result<()>),
    Sought(io::Result<u64>),
}

impl Buffer {
    fn unread(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.taken = 0;
    }

    /// Moves unread bytes into `into`, as many as fit. Returns whether any byte was moved.
    fn give(&mut self, into: &mut ReadBuf<'_>) -> bool {
        let len = self.unread().len().min(into.remaining());
        into.put_slice(&self.bytes[self.taken..self.taken + len]);
        self.taken += len;
        len > 0
    }

    /// Discards the unread bytes, and returns how far the source must be moved back for them.
    fn forget(&mut self) -> i64 {
        let ahead = self.ahead();
        self.clear();
        ahead
    }

    /// How far the source is ahead of the bytes that were read.
    fn ahead(&self) -> i64 {
        self.unread().len() as i64
    }

    /// Discards the unread bytes, and moves `source` back by their number.
    pub(crate) fn give_back(&mut self, source: &impl Blocks) -> io::Result<()> {
        move_back(source, self.forget())
    }
}

fn move_back(source: &impl Blocks, by: i64) -> io::Result<()> {
    if by == 0 { Ok(()) } else { source.seek_to(SeekFrom::Current(-by)).map(drop) }
}

impl<S: Blocks> Offload<S> {
    pub(crate) fn new(source: S) -> Self {
        let state = State::Idle(Buffer::default());
        Self { source: Arc::new(source), state, failed: None, sought: 0, max_buf_size: MAX_BUF_BYTES }
    }

    pub(crate) fn source(&self) -> &Arc<S> {
        &self.source
    }

    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.state, State::Busy(_))
    }

    /// Returns whether a job was started and has ended.
    fn has_ended(&self) -> bool {
        matches!(&self.state, State::Busy(job) if job.is_finished())
    }

    /// Starts a job with the buffer. No other job may be in flight.
    fn begin(&mut self, is_mandatory: bool, work: impl FnOnce(&S, &mut Buffer) -> Outcome + Send + 'static) {
        let State::Idle(buffer) = &mut self.state else { unreachable!("a job begins when the one before has ended") };
        let (source, mut buffer) = (self.source.clone(), mem::take(buffer));
        let job = move || {
            let outcome = work(&source, &mut buffer);
            // Dropped before the task that waits for the job is woken, as that task may need the
            // source exclusively.
            drop(source);
            (outcome, buffer)
        };
        let handle = context::handle();
        let job = if is_mandatory { handle.spawn_mandatory_blocking(job) } else { handle.spawn_blocking(job) };
        self.state = State::Busy(job);
    }

    /// Waits for the job in flight, and returns its outcome, or `None` if there is none.
    fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Outcome>>> {
        let State::Busy(job) = &mut self.state else { return Poll::Ready(Ok(None)) };
        let ended = ready!(Pin::new(job).poll(cx));
        let (outcome, buffer) = ended.map_err(|error| {
            self.state = State::Idle(Buffer::default());
            // No handle aborts the job.
            if error.is_cancelled() && !error.is_refused() { ShutDownError::io() } else { error.into() }
        })?;
        self.state = State::Idle(buffer);
        Poll::Ready(Ok(Some(outcome)))
    }

    /// Keeps the error of a failed write for the next write or flush.
    fn note(&mut self, outcome: Outcome) {
        if let Outcome::Written(Err(error)) = outcome {
            self.failed = Some(error);
        }
    }

    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let unit = ready!(coop::poll_proceed(cx));
        loop {
            match ready!(self.poll_ended(cx))? {
                Some(Outcome::Read(Ok(0))) => break,
                Some(Outcome::Read(Err(error))) => return Poll::Ready(Err(error)),
                Some(outcome) => self.note(outcome),
                None => {}
            }
            let State::Idle(buffer) = &mut self.state else { unreachable!("it has ended") };
            if into.remaining() == 0 || buffer.give(into) {
                break;
            }
            let max = into.remaining().min(self.max_buf_size);
            self.begin(false, move |source, buffer| {
                buffer.clear();
                Outcome::Read(uninterrupted(|| source.read_some(&mut buffer.bytes, max)))
            });
        }
        unit.made_progress();
        Poll::Ready(Ok(()))
    }

    /// Starts a write of the bytes that `put` appends to the buffer. Its second argument is the
    /// maximum length of the buffer.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        put: impl FnOnce(&mut Vec<u8>, usize),
    ) -> Poll<io::Result<usize>> {
        let unit = ready!(coop::poll_proceed(cx));
        ready!(self.poll_flush(cx))?;
        let State::Idle(buffer) = &mut self.state else { unreachable!("it has ended") };
        let ahead = buffer.forget();
        put(&mut buffer.bytes, self.max_buf_size);
        let len = buffer.bytes.len();
        self.begin(true, move |source, buffer| {
            let written = move_back(source, ahead).and_then(|()| source.write_whole(&buffer.bytes));
            buffer.clear();
            Outcome::Written(written)
        });
        unit.made_progress();
        // A runtime that is shut down, or has no thread for the job, refuses it immediately.
        if self.has_ended()
            && let Poll::Ready(Err(error)) = self.poll_idle(cx)
        {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(len))
    }

    /// Starts another operation. No job may be in flight. Its error is returned like that of a
    /// write.
    pub(crate) fn begin_other(&mut self, operation: impl FnOnce(&S, &mut Buffer) -> io::Result<()> + Send + 'static) {
        self.begin(false, |source, buffer| Outcome::Written(operation(source, buffer)));
    }

    /// Waits until no job is in flight, and returns the error of a write that no call has returned
    /// yet.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_idle(cx))?;
        Poll::Ready(self.failed.take().map_or(Ok(()), Err))
    }

    /// Waits until no job is in flight. The error of a write is kept for the next write or flush.
    pub(crate) fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(outcome) = ready!(self.poll_ended(cx))? {
            self.note(outcome);
        }
        Poll::Ready(Ok(()))
    }

    pub(crate) fn start_seek(&mut self, to: SeekFrom) -> io::Result<()> {
        let State::Idle(buffer) = &mut self.state else {
            return Err(io::Error::other("another operation is in flight: call poll_complete before start_seek"));
        };
        let to = match to {
            SeekFrom::Current(by) => SeekFrom::Current(by.saturating_sub(buffer.ahead())),
            to => to,
        };
        self.begin(false, move |source, buffer| {
            let sought = source.seek_to(to);
            // After an error, the source is where the unread bytes end.
            if sought.is_ok() {
                buffer.clear();
            }
            Outcome::Sought(sought)
        });
        Ok(())
    }

    pub(crate) fn poll_complete(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        match ready!(self.poll_ended(cx))? {
            Some(Outcome::Sought(sought)) => self.sought = sought?,
            Some(outcome) => self.note(outcome),
            None => {}
        }
        Poll::Ready(Ok(self.sought))
    }
}

/// Repeats `operation` for as long as signals interrupt it before it has done anything.
fn uninterrupted<R>(mut operation: impl FnMut() -> io::Result<R>) -> io::Result<R> {
    loop {
        match operation() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Appends `bytes` to `to`, up to a total length of `max`.
pub(crate) fn append(to: &mut Vec<u8>, bytes: &[u8], max: usize) {
    let room = max.saturating_sub(to.len());
    to.extend_from_slice(&bytes[..bytes.len().min(room)]);
}
