//! The handles of a task, which await or abort it, and the error of a task that has no output.
//!
//! `spawn` returns a [`JoinHandle`]. It owns one reference to the task, and the right to take the
//! output. An [`AbortHandle`] owns a reference only. Both are pointers to the task's header:
//! `handover` describes how the output and the waker of the joiner pass between the handle and the
//! worker, and `state` how an abort meets a poll.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::task::{Context, Poll};
use std::time::Duration;

use volt_telemetry::dump::Resource;

use super::current;
use super::details::awaits::Awaits;
use super::header::{Header, Task};
use super::id::Id;
use super::resources::{self, Awaited, Key};
use crate::coop;

/// A handle to a spawned task. Awaiting it returns the task's output.
///
/// It returns a [`JoinError`] if the task was aborted or panicked. Dropping the handle detaches the
/// task, which continues to run.
///
/// # Panics
/// Panics if it is polled again after it has returned the output.
///
/// # Cancel safety
/// Awaiting `&mut handle` is cancel safe: if that future is dropped, the output stays in the task.
///
/// ```
/// # use volt_core as volt;
/// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// let output = runtime.block_on(async { volt::spawn(async { 6 * 7 }).await });
/// assert_eq!(output.unwrap(), 42);
/// ```
pub struct JoinHandle<T> {
    /// The handle's reference. ManuallyDrop, because `drop_join` takes it over.
    task: ManuallyDrop<Task>,
    _output: PhantomData<T>,
}

// SAFETY: the output is the only value of type T that the handle gives access to, and it moves to
// the handle's thread.
unsafe impl<T: Send> Send for JoinHandle<T> {}
// SAFETY: a shared handle gives no access to the output.
unsafe impl<T: Send> Sync for JoinHandle<T> {}
impl<T> UnwindSafe for JoinHandle<T> {}
impl<T> RefUnwindSafe for JoinHandle<T> {}
impl<T> Unpin for JoinHandle<T> {}

impl<T> JoinHandle<T> {
    /// # Safety
    /// The caller hands over one reference and the JOIN_INTEREST of a task whose output is `T`.
    pub(super) unsafe fn from_raw(raw: NonNull<Header>) -> Self {
        // SAFETY: the caller's contract includes Task's.
        Self { task: ManuallyDrop::new(unsafe { Task::from_raw(raw) }), _output: PhantomData }
    }

    /// Cancels the task: its future is dropped instead of being polled again.
    ///
    /// This method does not wait: the future may be dropped after it returns, and a poll in
    /// progress is not interrupted. Awaiting the handle waits for the end of the task. It returns a
    /// [`JoinError`] for which [`is_cancelled`](JoinError::is_cancelled) is true, unless the task
    /// ended first. A [`Shield`](crate::task::control::shield::Shield) defers the cancellation.
    ///
    /// A closure of `volt::task::spawn_blocking` that has started cannot be aborted. One that has
    /// not started is not called.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    /// runtime.block_on(async {
    ///     let task = volt::spawn(std::future::pending::<()>());
    ///     task.abort();
    ///     assert!(task.await.unwrap_err().is_cancelled());
    /// });
    /// ```
    pub fn abort(&self) {
        self.task.cancel();
    }

    /// Returns a handle that can abort the task but not await it.
    pub fn abort_handle(&self) -> AbortHandle {
        AbortHandle { task: Task::clone(&self.task) }
    }

    /// Returns whether the task has completed. May return false for a while after
    /// [`abort`](Self::abort), until the future of the task has been dropped.
    pub fn is_finished(&self) -> bool {
        self.task.header().state.is_complete()
    }

    /// Returns the id of the task.
    pub fn id(&self) -> Id {
        self.task.header().id
    }

    fn awaited(&self) -> Awaited {
        let id = self.id().as_u64();
        let numbers = Resource { awaited_tasks: vec![id], ..Resource::default() };
        Awaited::new(Key::Task(id), "join_handle", numbers)
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let unit = std::task::ready!(coop::poll_proceed(cx));
        let mut output = Poll::Pending;
        let into = (&raw mut output).cast::<()>();
        // SAFETY: by the contract of `from_raw` the output is a T, and the handle's reference keeps
        // the task alive.
        unsafe { (self.task.header().vtable.poll_join)(self.task.as_raw(), into, cx.waker()) };
        if output.is_ready() {
            unit.made_progress();
        } else if current::is_woken_by(cx.waker()) {
            // With another waker, some other future decides when the task is polled again.
            Awaits::Others.note(self.task.header().location());
        }
        if output.is_pending() {
            resources::note(|| Some(self.awaited()));
        }
        output
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        let drop_join = self.task.header().vtable.drop_join;
        // SAFETY: the handle's reference is handed over, and the ManuallyDrop is not used again.
        unsafe { drop_join(self.task.as_raw()) }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("id", &self.id()).field("is_finished", &self.is_finished()).finish()
    }
}

/// A handle that aborts a task; see [`JoinHandle::abort_handle`]. Dropping it does not abort the
/// task.
///
/// ```
/// # use volt_core as volt;
/// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// runtime.block_on(async {
///     let task = volt::spawn(std::future::pending::<()>());
///     task.abort_handle().abort();
///     assert!(task.await.unwrap_err().is_cancelled());
/// });
/// ```
#[derive(Clone)]
pub struct AbortHandle {
    task: Task,
}

// A panic elsewhere leaves no broken state behind this handle: it gives no access to the future.
impl UnwindSafe for AbortHandle {}
impl RefUnwindSafe for AbortHandle {}

impl AbortHandle {
    /// Cancels the task; see [`JoinHandle::abort`].
    pub fn abort(&self) {
        self.task.cancel();
    }

    /// Returns whether the task has completed.
    pub fn is_finished(&self) -> bool {
        self.task.header().state.is_complete()
    }

    /// Returns the id of the task.
    pub fn id(&self) -> Id {
        self.task.header().id
    }

    /// Returns the total duration of the task's polls so far, with a precision of about a
    /// microsecond. A poll in progress is not included.
    pub fn busy_time(&self) -> Duration {
        Duration::from_nanos(self.task.header().account.read().busy_ns)
    }
}

impl fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AbortHandle").field("id", &self.id()).finish()
    }
}

/// The error of a task that has no output: it was aborted, its runtime was shut down, or it
/// panicked.
///
/// ```
/// # use volt_core as volt;
/// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// let error = runtime.block_on(async { volt::spawn(async { panic!("no") }).await }).unwrap_err();
/// assert!(error.is_panic());
/// assert!(error.to_string().ends_with("panicked with message \"no\""));
/// ```
pub struct JoinError {
    id: Id,
    /// `None`: the task was cancelled.
    panic: Option<Panic>,
}

/// The payload of a panic, in one word. In a lock, because payloads are Send but not Sync.
pub(super) struct Panic(Box<Mutex<Box<dyn Any + Send + 'static>>>);

impl Panic {
    pub(super) fn new(payload: Box<dyn Any + Send + 'static>) -> Self {
        Self(Box::new(Mutex::new(payload)))
    }

    pub(super) fn refused(refused: Refused) -> Self {
        Self::new(Box::new(refused))
    }

    /// Returns a pointer that owns the payload. Its lowest bit is clear.
    pub(super) fn into_raw(self) -> NonNull<()> {
        const { assert!(align_of::<Mutex<Box<dyn Any + Send>>>() > 1, "a bit of the address is free") };
        NonNull::from(Box::leak(self.0)).cast()
    }

    /// # Safety
    /// `raw` comes from [`into_raw`](Self::into_raw), and is not used again.
    pub(super) unsafe fn from_raw(raw: NonNull<()>) -> Self {
        // SAFETY: by contract, `into_raw` made it from such a box.
        Self(unsafe { Box::from_raw(raw.cast().as_ptr()) })
    }
}

/// The reason why a job was never started, as a message. It is stored in place of a panic's
/// payload, but is not reported as a panic.
pub struct Refused(String);

impl Refused {
    pub(crate) fn new(cause: String) -> Self {
        Self(cause)
    }
}

impl JoinError {
    pub(super) fn cancelled(id: Id) -> Self {
        Self { id, panic: None }
    }

    pub(super) fn panicked(id: Id, panic: Panic) -> Self {
        Self { id, panic: Some(panic) }
    }

    /// Returns whether the task was cancelled, by a handle or by the shutdown of its runtime. Also
    /// true if the task was never started because no thread could be started for it; the error's
    /// message then contains that reason.
    pub fn is_cancelled(&self) -> bool {
        !self.is_panic()
    }

    /// Returns whether the task panicked.
    pub fn is_panic(&self) -> bool {
        self.panic.is_some() && self.refusal().is_none()
    }

    /// For the crate `volt`: returns whether the task was never started because no thread could be
    /// started for it.
    #[doc(hidden)]
    pub fn is_refused(&self) -> bool {
        self.refusal().is_some()
    }

    /// Returns why the task was never started, if it was refused.
    fn refusal(&self) -> Option<String> {
        self.payload(|payload| payload.downcast_ref().map(|Refused(cause)| cause.clone()))
    }

    fn payload<R>(&self, read: impl FnOnce(&(dyn Any + Send)) -> Option<R>) -> Option<R> {
        let Panic(payload) = self.panic.as_ref()?;
        read(&**payload.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// Returns the payload of the panic, which can be passed to `std::panic::resume_unwind`.
    ///
    /// # Panics
    /// Panics if the task did not panic; see [`try_into_panic`](Self::try_into_panic).
    ///
    /// ```should_panic
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    /// let error = runtime.block_on(async { volt::spawn(async { panic!("no") }).await }).unwrap_err();
    /// std::panic::resume_unwind(error.into_panic());
    /// ```
    #[track_caller]
    pub fn into_panic(self) -> Box<dyn Any + Send + 'static> {
        self.try_into_panic().expect("into_panic() on the error of a task that was cancelled and did not panic")
    }

    /// Returns the payload of the panic.
    ///
    /// # Errors
    /// Returns this error if the task was cancelled and did not panic.
    pub fn try_into_panic(self) -> Result<Box<dyn Any + Send + 'static>, JoinError> {
        if self.is_cancelled() {
            return Err(self);
        }
        let Panic(payload) = self.panic.expect("it panicked");
        Ok(payload.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// Returns the id of the task.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Returns the panic's message, if it is text.
    fn message(&self) -> Option<String> {
        self.payload(|payload| {
            let text = payload.downcast_ref::<&'static str>().map(|text| (*text).to_owned());
            text.or_else(|| payload.downcast_ref::<String>().cloned())
        })
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.is_panic(), self.message()) {
            (true, Some(message)) => write!(f, "task {} panicked with message {message:?}", self.id),
            (true, None) => write!(f, "task {} panicked", self.id),
            (false, _) => match self.refusal() {
                Some(cause) => write!(f, "task {} was not started: {cause}", self.id),
                None => write!(f, "task {} was cancelled", self.id),
            },
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.is_panic(), self.message()) {
            (true, Some(message)) => write!(f, "JoinError::Panic({:?}, {message:?}, ...)", self.id),
            (true, None) => write!(f, "JoinError::Panic({:?}, ...)", self.id),
            (false, _) => match self.refusal() {
                Some(cause) => write!(f, "JoinError::Cancelled({:?}, {cause:?})", self.id),
                None => write!(f, "JoinError::Cancelled({:?})", self.id),
            },
        }
    }
}

impl std::error::Error for JoinError {}

impl From<JoinError> for std::io::Error {
    fn from(error: JoinError) -> Self {
        std::io::Error::other(error)
    }
}
