//! An open file.

use std::fmt;
use std::fs::{self, FileTimes, Metadata, Permissions};
use std::future::poll_fn;
use std::io::{self, IoSlice, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::BufMut;
use tokio::io::{AsyncRead, AsyncSeek, AsyncWrite, ReadBuf};
use tokio::sync::{Mutex, MutexGuard};

use crate::fs::{OpenOptions, run};
use crate::io::offload::{Blocks, Buffer, Offload, append};
use crate::net::bytes::read_buf;

impl Blocks for fs::File {
    fn read_some(&self, into: &mut Vec<u8>, max: usize) -> io::Result<usize> {
        into.reserve_exact(max);
        // Not as much as there is room for: a buffer that was written from may be larger.
        read_buf(self, &mut into.limit(max))
    }

    fn write_whole(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = self;
        file.write_all(bytes)
    }

    fn seek_to(&self, to: SeekFrom) -> io::Result<u64> {
        let mut file = self;
        file.seek(to)
    }
}

/// An open file, read and written on threads for blocking work.
///
/// A write is done with when its bytes are handed over; the thread that writes them goes on. So
/// **end with [`flush`](crate::io::AsyncWriteExt::flush)**: it waits until they are with the
/// kernel, and gives the error if they did not get there. An error that was not asked for comes
/// with the next write. Dropping the file while a write is in flight loses no byte: it is carried
/// out even if the runtime is shut down meanwhile, but nobody is told whether it succeeded, and
/// another reader may not see it yet.
///
/// A `File` reads and writes what it is asked for, and each of them costs a hand-over to another
/// thread: put small ones into a [`BufReader`](crate::io::BufReader) or
/// [`BufWriter`](crate::io::BufWriter).
///
/// ```
/// use volt::fs::File;
/// use volt::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// # let path = std::env::temp_dir().join(format!("volt-doc-file-{}", std::process::id()));
/// let mut file = File::options().read(true).write(true).create_new(true).open(&path).await?;
/// file.write_all(b"hello").await?;
/// file.flush().await?;
/// file.rewind().await?;
/// let mut text = String::new();
/// file.read_to_string(&mut text).await?;
/// assert_eq!(text, "hello");
/// # volt::fs::remove_file(&path).await?;
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
pub struct File {
    /// The same as in `io`, to be reached without a lock.
    file: Arc<fs::File>,
    io: Mutex<Offload<fs::File>>,
}

impl File {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// What the system says.
    ///
    /// # Panics
    /// Outside a runtime.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn open(path: impl AsRef<Path>) -> io::Result<File> {
        File::options().read(true).open(path).await
    }

    /// Makes a file, or empties the one that is there, for writing.
    ///
    /// # Errors
    /// What the system says.
    ///
    /// # Panics
    /// Outside a runtime.
    ///
    /// # Cancel safety
    /// Dropping the future does not undo what has begun.
    pub async fn create(path: impl AsRef<Path>) -> io::Result<File> {
        File::options().write(true).create(true).truncate(true).open(path).await
    }

    /// Makes a file that must not be there yet, for reading and writing.
    ///
    /// # Errors
    /// `AlreadyExists`; what the system says.
    ///
    /// # Panics
    /// Outside a runtime.
    ///
    /// # Cancel safety
    /// Dropping the future does not undo what has begun.
    pub async fn create_new(path: impl AsRef<Path>) -> io::Result<File> {
        File::options().read(true).write(true).create_new(true).open(path).await
    }

    /// How a file is opened otherwise.
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Takes over a file of the standard library.
    pub fn from_std(file: fs::File) -> File {
        let io = Offload::new(file);
        File { file: io.source().clone(), io: Mutex::new(io) }
    }

    /// Gives the file to the standard library, once what is in flight has ended. (A call whose
    /// future was dropped may go on: then what it has is another descriptor of the same open
    /// file.)
    ///
    /// # Panics
    /// If such a call goes on, and the process is out of descriptors.
    pub async fn into_std(mut self) -> fs::File {
        // An error is a job that panicked or was cancelled: nothing is in flight then either.
        let _ = poll_fn(|cx| self.io.get_mut().poll_idle(cx)).await;
        self.source()
    }

    /// As [`into_std`](Self::into_std), without waiting.
    ///
    /// # Errors
    /// The file, if something is in flight.
    pub fn try_into_std(mut self) -> Result<fs::File, Self> {
        // This and the one in `io`; more = a call that was given up, and goes on.
        let is_shared = Arc::strong_count(&self.file) > 2;
        if is_shared || self.io.get_mut().is_busy() { Err(self) } else { Ok(self.source()) }
    }

    fn source(self) -> fs::File {
        let File { file, io } = self;
        drop(io);
        Arc::try_unwrap(file).unwrap_or_else(|shared| shared.try_clone().expect("a second descriptor of the file"))
    }

    /// Waits until what was written is on the disk, with what is known of the file.
    ///
    /// # Errors
    /// Of a write that nobody was told of yet; what the system says.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn sync_all(&self) -> io::Result<()> {
        self.change(|file, _| file.sync_all()).await
    }

    /// As [`sync_all`](Self::sync_all), but of what is known of the file only what is needed to
    /// read it.
    ///
    /// # Errors
    /// As [`sync_all`](Self::sync_all).
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn sync_data(&self) -> io::Result<()> {
        self.change(|file, _| file.sync_data()).await
    }

    /// Cuts the file to `size` bytes, or lengthens it with zeros.
    ///
    /// # Errors
    /// As [`sync_all`](Self::sync_all).
    ///
    /// # Cancel safety
    /// Dropping the future does not undo what has begun.
    pub async fn set_len(&self, size: u64) -> io::Result<()> {
        let cut = move |file: &fs::File, ahead: &mut Buffer| {
            ahead.give_back(file)?;
            file.set_len(size)
        };
        self.change(cut).await
    }

    /// Runs `operation` when nothing is in flight. If this is dropped, what is asked for next waits
    /// for it all the same.
    async fn change(
        &self,
        operation: impl FnOnce(&fs::File, &mut Buffer) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let mut io = self.after_writes().await?;
        io.begin_other(operation);
        poll_fn(|cx| io.poll_flush(cx)).await
    }

    /// Waits until nothing is in flight.
    async fn after_writes(&self) -> io::Result<MutexGuard<'_, Offload<fs::File>>> {
        let mut io = self.io.lock().await;
        poll_fn(|cx| io.poll_flush(cx)).await?;
        Ok(io)
    }

    async fn run<R: Send + 'static>(
        &self,
        operation: impl FnOnce(&fs::File) -> io::Result<R> + Send + 'static,
    ) -> io::Result<R> {
        let file = self.file.clone();
        run(move || operation(&file)).await
    }

    /// What is known of the file.
    ///
    /// # Errors
    /// What the system says.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn metadata(&self) -> io::Result<Metadata> {
        self.run(fs::File::metadata).await
    }

    /// A second handle to the same open file: they have one position.
    ///
    /// # Errors
    /// As [`sync_all`](Self::sync_all).
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn try_clone(&self) -> io::Result<File> {
        let _io = self.after_writes().await?;
        self.run(fs::File::try_clone).await.map(File::from_std)
    }

    /// Sets the permissions.
    ///
    /// # Errors
    /// What the system says.
    ///
    /// # Cancel safety
    /// Dropping the future does not undo what has begun.
    pub async fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        self.run(move |file| file.set_permissions(permissions)).await
    }

    /// Sets when it was read and changed last.
    ///
    /// # Errors
    /// As [`sync_all`](Self::sync_all).
    ///
    /// # Cancel safety
    /// Dropping the future does not undo what has begun.
    pub async fn set_times(&self, times: FileTimes) -> io::Result<()> {
        self.change(move |file, _| file.set_times(times)).await
    }

    /// Sets how many bytes one operation moves at most. Default 2 MiB.
    pub fn set_max_buf_size(&mut self, bytes: usize) {
        self.io.get_mut().max_buf_size = bytes.max(1);
    }

    /// How many bytes one operation moves at most.
    pub fn max_buf_size(&mut self) -> usize {
        self.io.get_mut().max_buf_size
    }
}

impl AsyncRead for File {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.io.get_mut().poll_read(cx, into)
    }
}

impl AsyncSeek for File {
    fn start_seek(mut self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        self.io.get_mut().start_seek(to)
    }

    fn poll_complete(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        self.io.get_mut().poll_complete(cx)
    }
}

impl AsyncWrite for File {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.io.get_mut().poll_write(cx, |buffer, max| append(buffer, bytes, max))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let put = |buffer: &mut Vec<u8>, max| slices.iter().for_each(|slice| append(buffer, slice, max));
        self.io.get_mut().poll_write(cx, put)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.get_mut().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

impl From<fs::File> for File {
    fn from(file: fs::File) -> File {
        File::from_std(file)
    }
}

impl From<OwnedFd> for File {
    fn from(fd: OwnedFd) -> File {
        File::from_std(fd.into())
    }
}

impl FromRawFd for File {
    unsafe fn from_raw_fd(fd: RawFd) -> File {
        // SAFETY: the caller says that it is open and nobody else's.
        File::from_std(unsafe { fs::File::from_raw_fd(fd) })
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("File").field(&self.file).finish()
    }
}
