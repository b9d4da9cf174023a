//! Open files.

use std::fmt;
use std::fs::{self, FileTimes, Metadata, Permissions};
use std::future::poll_fn;
use std::io::{self, IoSlice, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use bytes::BufMut;
use tokio::io::{AsyncRead, AsyncSeek, AsyncWrite, ReadBuf};
use tokio::sync::{Mutex, MutexGuard};

use crate::fs::run;
use crate::io::offload::{Blocks, Buffer, Offload, append};
use crate::net::bytes::read_buf;

impl Blocks for fs::File {
    fn read_some(&self, into: &mut Vec<u8>, max: usize) -> io::Result<usize> {
        into.reserve_exact(max);
        // Not the entire capacity: a buffer that a write has used may have a larger one.
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

/// An open file, which is read and written on threads of the blocking pool.
///
/// A write completes when its bytes are passed to the thread that writes them. So **call
/// [`flush`](crate::io::AsyncWriteExt::flush) after the last write**. It waits until the bytes are
/// written to the kernel, and returns the error if the write failed. Without a flush, the next
/// write returns that error.
///
/// If the file is dropped while a write is in flight, the write is carried out nevertheless, even
/// if the runtime is shut down in the meantime. But its error is discarded, and other readers of
/// the file may not see the bytes yet.
///
/// A `File` has no buffer that collects small reads and writes: each one costs a hand-over to
/// another thread. For small operations, wrap the file in a [`BufReader`](crate::io::BufReader) or
/// [`BufWriter`](crate::io::BufWriter).
///
/// # Panics
/// Reading, writing, seeking and the `async` methods panic if they start an operation outside the
/// context of a runtime.
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
    /// The same file as in `io`, accessible without the lock.
    file: Arc<fs::File>,
    io: Mutex<Offload<fs::File>>,
    /// The same number as in `io`, readable without the lock.
    max_buf_size: usize,
}

impl File {
    /// Opens a file in read-only mode.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    ///
    /// # Panics
    /// Panics if the future is polled outside the context of a runtime.
    ///
    /// # Cancel safety
    /// This function is cancel safe.
    pub async fn open(path: impl AsRef<Path>) -> io::Result<File> {
        File::options().read(true).open(path).await
    }

    /// Opens a file in write-only mode. Creates the file if it does not exist, and truncates it if
    /// it does.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    ///
    /// # Panics
    /// Panics if the future is polled outside the context of a runtime.
    ///
    /// # Cancel safety
    /// Dropping the future does not undo an operation that has started.
    pub async fn create(path: impl AsRef<Path>) -> io::Result<File> {
        File::options().write(true).create(true).truncate(true).open(path).await
    }

    /// Creates a new file in read-write mode. Fails if the file already exists.
    ///
    /// # Errors
    /// Returns `AlreadyExists` if the file exists. Also returns an error if the underlying system
    /// call fails.
    ///
    /// # Panics
    /// Panics if the future is polled outside the context of a runtime.
    ///
    /// # Cancel safety
    /// Dropping the future does not undo an operation that has started.
    pub async fn create_new<P: AsRef<Path>>(path: P) -> io::Result<File> {
        File::options().read(true).write(true).create_new(true).open(path).await
    }

    /// Converts a file of the standard library. May be called outside a runtime.
    pub fn from_std(file: fs::File) -> File {
        let io = Offload::new(file);
        File { file: io.source().clone(), max_buf_size: io.max_buf_size, io: Mutex::new(io) }
    }

    /// Converts the file into a file of the standard library. Waits until no operation is in
    /// flight.
    ///
    /// If the future of an earlier call was dropped, that call may still be running. In that case,
    /// the returned file is another descriptor of the same open file.
    ///
    /// # Panics
    /// Panics if an earlier call is still running and the program has run out of file descriptors.
    ///
    /// # Cancel safety
    /// If the future is dropped, so is the file. A write that is in flight is carried out.
    pub async fn into_std(mut self) -> fs::File {
        // An error means that the job panicked or was cancelled, so nothing is in flight in that
        // case either.
        let _ = poll_fn(|cx| self.io.get_mut().poll_idle(cx)).await;
        self.source()
    }

    /// Converts the file into a file of the standard library without waiting.
    ///
    /// # Errors
    /// Returns the file unchanged if an operation is in flight.
    pub fn try_into_std(mut self) -> Result<fs::File, Self> {
        // References: this one and the one in `io`. A further one belongs to a call whose future
        // was dropped and that is still running.
        let is_shared = Arc::strong_count(&self.file) > 2;
        if is_shared || self.io.get_mut().is_busy() { Err(self) } else { Ok(self.source()) }
    }

    fn source(self) -> fs::File {
        let File { file, io, .. } = self;
        drop(io);
        Arc::try_unwrap(file).unwrap_or_else(|shared| shared.try_clone().expect("a second descriptor of the file"))
    }

    /// Waits until all data and metadata of the file are written to disk.
    ///
    /// # Errors
    /// Returns the error of a previous write that has not been returned yet. Also returns an error
    /// if the underlying system call fails.
    ///
    /// # Cancel safety
    /// This method is cancel safe.
    pub async fn sync_all(&self) -> io::Result<()> {
        self.change(|file, _| file.sync_all()).await
    }

    /// Waits until all data of the file is written to disk, as [`sync_all`](Self::sync_all) does.
    /// Of the metadata, only the part that is needed to read the data is written.
    ///
    /// # Errors
    /// Returns the same errors as [`sync_all`](Self::sync_all).
    ///
    /// # Cancel safety
    /// This method is cancel safe.
    pub async fn sync_data(&self) -> io::Result<()> {
        self.change(|file, _| file.sync_data()).await
    }

    /// Truncates or extends the file to `size` bytes. If the file is extended, the new part is
    /// filled with zeros.
    ///
    /// # Errors
    /// Returns the same errors as [`sync_all`](Self::sync_all).
    ///
    /// # Cancel safety
    /// Dropping the future does not undo an operation that has started.
    pub async fn set_len(&self, size: u64) -> io::Result<()> {
        let cut = move |file: &fs::File, ahead: &mut Buffer| {
            ahead.give_back(file)?;
            file.set_len(size)
        };
        self.change(cut).await
    }

    /// Runs `operation` when nothing is in flight. If the future is dropped, the next operation
    /// still waits for this one.
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

    /// Returns the metadata of the file.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    ///
    /// # Cancel safety
    /// This method is cancel safe.
    pub async fn metadata(&self) -> io::Result<Metadata> {
        self.run(fs::File::metadata).await
    }

    /// Creates another `File` for the same open file, with the same
    /// [`max_buf_size`](Self::max_buf_size). Both share one position.
    ///
    /// # Errors
    /// Returns the same errors as [`sync_all`](Self::sync_all).
    ///
    /// # Cancel safety
    /// This method is cancel safe.
    pub async fn try_clone(&self) -> io::Result<File> {
        let _io = self.after_writes().await?;
        let mut clone = File::from_std(self.run(fs::File::try_clone).await?);
        clone.set_max_buf_size(self.max_buf_size);
        Ok(clone)
    }

    /// Sets the permissions of the file.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    ///
    /// # Cancel safety
    /// Dropping the future does not undo an operation that has started.
    pub async fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        self.run(move |file| file.set_permissions(permissions)).await
    }

    /// Sets the times of the last access and the last modification of the file.
    ///
    /// # Errors
    /// Returns the same errors as [`sync_all`](Self::sync_all).
    ///
    /// # Cancel safety
    /// Dropping the future does not undo an operation that has started.
    pub async fn set_times(&self, times: FileTimes) -> io::Result<()> {
        self.change(move |file, _| file.set_times(times)).await
    }

    /// Sets the time of the last modification of the file.
    ///
    /// # Errors
    /// Returns the same errors as [`sync_all`](Self::sync_all).
    ///
    /// # Cancel safety
    /// Dropping the future does not undo an operation that has started.
    pub async fn set_modified(&self, time: SystemTime) -> io::Result<()> {
        self.set_times(FileTimes::new().set_modified(time)).await
    }

    /// Sets the maximum number of bytes that one operation moves. Default 2 MiB.
    ///
    /// # Panics
    /// Panics if `bytes` is 0.
    #[track_caller]
    pub fn set_max_buf_size(&mut self, bytes: usize) {
        assert!(bytes > 0, "`max_buf_size` must be greater than 0");
        self.max_buf_size = bytes;
        self.io.get_mut().max_buf_size = bytes;
    }

    /// Returns the maximum number of bytes that one operation moves.
    pub fn max_buf_size(&self) -> usize {
        self.max_buf_size
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
        // SAFETY: the caller guarantees that the descriptor is open and owned by no other object.
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
        // The name that programs and their tests know from Tokio.
        f.debug_struct("tokio::fs::File").field("std", &self.file).finish()
    }
}
