//! Reading, writing and seeking of what blocks (files, the standard streams) from async code: each
//! operation is a job on a thread for blocking work, one at a time.
//!
//! Shape. The source, shared with the job in flight, and a buffer, which is with that job or here.
//! A write is done with when its bytes are in the buffer; the job goes on. So an error of a write
//! comes with the next write or flush, whichever is first, and only once.
//!
//! Invariants. *One job*: the next begins when the one before has ended, whatever its future did,
//! so operations come in the order in which they were asked for. *Nothing read is lost*: bytes that
//! were read ahead for a future that is gone are the next read's; before a write, a cut or a
//! seek the source is moved back by as many. *Nothing written is lost*: a job that writes is begun
//! even if the runtime is shut down meanwhile (`Pool::submit`).
//!
//! Bound: `max_buf_size` bytes are in the buffer at most.

use std::io::{self, SeekFrom};
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::ReadBuf;

use volt_core::context;
use volt_core::coop;
use volt_core::task::join::JoinHandle;

/// Most bytes that one operation moves, unless told otherwise: large enough that what a hand-over
/// to another thread costs does not count.
const MAX_BUF_BYTES: usize = 2 << 20;

/// What blocks. What it cannot do is an error.
pub(crate) trait Blocks: Send + Sync + 'static {
    /// Appends up to `max` bytes; 0 at the end.
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

/// See the header of this file.
#[derive(Debug)]
pub(crate) struct Offload<S> {
    source: Arc<S>,
    state: State,
    /// Of a write that nobody was told of yet.
    failed: Option<io::Error>,
    /// Where the last seek led.
    sought: u64,
    pub(crate) max_buf_size: usize,
}

#[derive(Debug)]
enum State {
    Idle(Buffer),
    Busy(JoinHandle<(Outcome, Buffer)>),
}

/// Bytes of which the first `taken` were taken.
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

    /// Moves what was read ahead, as much as fits; whether that was anything.
    fn give(&mut self, into: &mut ReadBuf<'_>) -> bool {
        let len = self.unread().len().min(into.remaining());
        into.put_slice(&self.bytes[self.taken..self.taken + len]);
        self.taken += len;
        len > 0
    }

    /// Forgets what was read ahead; how far back the source is to be moved for that.
    fn forget(&mut self) -> i64 {
        let ahead = self.unread().len() as i64;
        self.clear();
        ahead
    }

    /// Forgets what was read ahead, and moves `source` back by as much.
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

    /// Begins a job with the buffer, which must be here.
    fn begin(&mut self, is_mandatory: bool, work: impl FnOnce(&S, &mut Buffer) -> Outcome + Send + 'static) {
        let State::Idle(buffer) = &mut self.state else { unreachable!("a job begins when the one before has ended") };
        let (source, mut buffer) = (self.source.clone(), mem::take(buffer));
        let job = move || {
            let outcome = work(&source, &mut buffer);
            // Before whoever waits for the job is woken, and may want the source for itself.
            drop(source);
            (outcome, buffer)
        };
        let handle = context::handle();
        let job = if is_mandatory { handle.spawn_mandatory_blocking(job) } else { handle.spawn_blocking(job) };
        self.state = State::Busy(job);
    }

    /// Waits for the job in flight; `None` if there is none.
    fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Outcome>>> {
        let State::Busy(job) = &mut self.state else { return Poll::Ready(Ok(None)) };
        let ended = ready!(Pin::new(job).poll(cx));
        let (outcome, buffer) = ended.inspect_err(|_| self.state = State::Idle(Buffer::default()))?;
        self.state = State::Idle(buffer);
        Poll::Ready(Ok(Some(outcome)))
    }

    /// Notes a failed write down for whoever asks next.
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

    /// Takes what `put` appends, which is told how many bytes at most.
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
        Poll::Ready(Ok(len))
    }

    /// Begins another operation, while nothing is in flight; its error comes as that of a write
    /// does.
    pub(crate) fn begin_other(&mut self, operation: impl FnOnce(&S, &mut Buffer) -> io::Result<()> + Send + 'static) {
        self.begin(false, |source, buffer| Outcome::Written(operation(source, buffer)));
    }

    /// Waits until nothing is in flight; the error of a write that nobody was told of yet.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_idle(cx))?;
        Poll::Ready(self.failed.take().map_or(Ok(()), Err))
    }

    /// Waits until nothing is in flight. The error of a write stays for the next write or flush.
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
        let ahead = buffer.forget();
        let to = match to {
            SeekFrom::Current(by) => SeekFrom::Current(by.saturating_sub(ahead)),
            to => to,
        };
        self.begin(false, move |source, _| Outcome::Sought(source.seek_to(to)));
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

/// Again, as long as signals come before anything is done.
fn uninterrupted<R>(mut operation: impl FnMut() -> io::Result<R>) -> io::Result<R> {
    loop {
        match operation() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Appends `bytes`, `max` at most in all.
pub(crate) fn append(to: &mut Vec<u8>, bytes: &[u8], max: usize) {
    let room = max.saturating_sub(to.len());
    to.extend_from_slice(&bytes[..bytes.len().min(room)]);
}
