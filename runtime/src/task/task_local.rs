//! Task-local values: like thread-locals, but for a task that may move between workers.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;

use pin_project_lite::pin_project;

/// Declares new task-local keys of type [`LocalKey`](crate::task::LocalKey).
///
/// The syntax is that of `thread_local!`.
///
/// ```
/// volt::task_local! {
///     /// The user of the current request.
///     pub static USER: String;
/// }
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// runtime.block_on(USER.scope("ada".to_owned(), async {
///     volt::task::yield_now().await;
///     assert_eq!(USER.get(), "ada");
/// }));
/// ```
#[macro_export]
macro_rules! task_local {
    () => {};
    ($(#[$attribute:meta])* $visibility:vis static $name:ident: $type:ty; $($rest:tt)*) => {
        $crate::task_local!($(#[$attribute])* $visibility static $name: $type);
        $crate::task_local!($($rest)*);
    };
    ($(#[$attribute:meta])* $visibility:vis static $name:ident: $type:ty) => {
        $(#[$attribute])*
        $visibility static $name: $crate::task::LocalKey<$type> = {
            ::std::thread_local! {
                static KEY: ::std::cell::RefCell<::std::option::Option<$type>> = const { ::std::cell::RefCell::new(None) };
            }
            $crate::task::LocalKey::__new(&KEY)
        };
    };
}

/// The panic message when a scope is entered inside `with` of the same key.
const IN_USE: &str = "a scope of a task-local cannot be entered while its value is borrowed: leave `with` first";

/// A key for a task-local value.
///
/// [`scope`](Self::scope) stores a value under the key for one future, on whichever worker that
/// future is polled. Tasks that are spawned inside the scope do not inherit the value.
pub struct LocalKey<T: 'static> {
    slot: &'static thread::LocalKey<RefCell<Option<T>>>,
}

impl<T: 'static> LocalKey<T> {
    #[doc(hidden)]
    pub const fn __new(slot: &'static thread::LocalKey<RefCell<Option<T>>>) -> Self {
        Self { slot }
    }

    /// Sets `value` as the task-local value while `future` runs.
    ///
    /// # Panics
    /// The returned future panics if it is polled inside [`with`](Self::with) of the same key.
    ///
    /// # Cancel safety
    /// Same as `future`. Dropping the returned future drops `future` first; its destructor can
    /// still read the value.
    pub fn scope<F: Future>(&'static self, value: T, future: F) -> TaskLocalFuture<T, F> {
        TaskLocalFuture { key: self, value: Some(value), future: Some(future) }
    }

    /// Sets `value` as the task-local value while the closure `f` runs.
    ///
    /// # Panics
    /// Panics if called inside [`with`](Self::with) of the same key.
    ///
    /// ```
    /// volt::task_local! {
    ///     static NUMBER: u32;
    /// }
    /// assert_eq!(NUMBER.sync_scope(21, || NUMBER.get() * 2), 42);
    /// assert!(NUMBER.try_get().is_err());
    /// ```
    #[track_caller]
    pub fn sync_scope<F, R>(&'static self, value: T, f: F) -> R
    where
        F: FnOnce() -> R,
    {
        let mut value = Some(value);
        match self.swapped(&mut value, f) {
            Some(result) => result,
            None => panic!("{IN_USE}"),
        }
    }

    /// Calls `f` with a reference to the current value.
    ///
    /// # Panics
    /// Panics if called outside a [`scope`](Self::scope) of this key; see
    /// [`try_with`](Self::try_with).
    #[track_caller]
    pub fn with<F, R>(&'static self, f: F) -> R
    where
        F: FnOnce(&T) -> R,
    {
        match self.try_with(f) {
            Ok(result) => result,
            Err(error) => panic!("{error}"),
        }
    }

    /// Calls `f` with a reference to the current value.
    ///
    /// # Errors
    /// Returns an error if called outside a [`scope`](Self::scope) of this key.
    pub fn try_with<F, R>(&'static self, f: F) -> Result<R, LocalAccessError>
    where
        F: FnOnce(&T) -> R,
    {
        let found = self.slot.try_with(|slot| slot.borrow().as_ref().map(f));
        found.ok().flatten().ok_or(LocalAccessError(()))
    }

    /// Returns a clone of the current value.
    ///
    /// # Panics
    /// Panics if called outside a [`scope`](Self::scope) of this key.
    #[track_caller]
    pub fn get(&'static self) -> T
    where
        T: Clone,
    {
        self.with(T::clone)
    }

    /// Returns a clone of the current value.
    ///
    /// # Errors
    /// Returns an error if called outside a [`scope`](Self::scope) of this key.
    pub fn try_get(&'static self) -> Result<T, LocalAccessError>
    where
        T: Clone,
    {
        self.try_with(T::clone)
    }

    /// Calls `f` while `value` is in the thread's slot, and restores the slot afterwards, also if
    /// `f` panics.
    ///
    /// Returns `None` without calling `f` if the slot is not available: [`with`](Self::with)
    /// borrows it further up the stack, or the thread is ending.
    fn swapped<R>(&'static self, value: &mut Option<T>, f: impl FnOnce() -> R) -> Option<R> {
        struct Restore<'a, T: 'static> {
            key: &'static LocalKey<T>,
            value: &'a mut Option<T>,
        }
        impl<T> Drop for Restore<'_, T> {
            fn drop(&mut self) {
                let _is_restored = self.key.swap(self.value);
            }
        }
        if !self.swap(value) {
            return None;
        }
        let _restore = Restore { key: self, value };
        Some(f())
    }

    /// Swaps `value` with the thread's slot. Returns `false` if the slot is not available.
    fn swap(&'static self, value: &mut Option<T>) -> bool {
        let swap = |slot: &RefCell<Option<T>>| slot.try_borrow_mut().map(|mut held| std::mem::swap(&mut *held, value));
        self.slot.try_with(swap).is_ok_and(|swapped| swapped.is_ok())
    }
}

impl<T> fmt::Debug for LocalKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalKey").finish_non_exhaustive()
    }
}

pin_project! {
    /// The future returned by [`LocalKey::scope`].
    ///
    /// It is not `Unpin`, even if its future is, as in Tokio.
    #[project(!Unpin)]
    #[must_use = "futures do nothing unless they are awaited"]
    pub struct TaskLocalFuture<T: 'static, F> {
        key: &'static LocalKey<T>,
        value: Option<T>,
        #[pin]
        future: Option<F>,
    }

    impl<T: 'static, F> PinnedDrop for TaskLocalFuture<T, F> {
        fn drop(this: Pin<&mut Self>) {
            // The future's destructor can read the value.
            let mut this = this.project();
            let key = *this.key;
            // If the slot is not available, drop the future without the value: a destructor must
            // not panic.
            if key.swapped(this.value, || this.future.set(None)).is_none() {
                this.future.set(None);
            }
        }
    }
}

impl<T: 'static, F> TaskLocalFuture<T, F> {
    /// Takes the value out of the future, usually after its end. Later polls find no value.
    ///
    /// Returns `None` if it was taken before, or if called by the future itself.
    ///
    /// ```
    /// volt::task_local! {
    ///     static STEPS: std::cell::Cell<u32>;
    /// }
    /// # let runtime = volt::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// let work = async { STEPS.with(|steps| steps.set(steps.get() + 1)) };
    /// let mut work = Box::pin(STEPS.scope(Default::default(), work));
    /// work.as_mut().await;
    /// assert_eq!(work.as_mut().take_value().unwrap().get(), 1);
    /// # });
    /// ```
    pub fn take_value(self: Pin<&mut Self>) -> Option<T> {
        self.project().value.take()
    }
}

impl<T: 'static, F: Future> Future for TaskLocalFuture<T, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        let key = *this.key;
        let poll = || {
            let Some(future) = this.future.as_mut().as_pin_mut() else {
                panic!("TaskLocalFuture polled after it completed")
            };
            let polled = future.poll(cx);
            if polled.is_ready() {
                this.future.set(None);
            }
            polled
        };
        match key.swapped(this.value, poll) {
            Some(polled) => polled,
            None => panic!("{IN_USE}"),
        }
    }
}

impl<T: fmt::Debug + 'static, F> fmt::Debug for TaskLocalFuture<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value: &dyn fmt::Debug = match &self.value {
            Some(value) => value,
            None => &format_args!("<missing>"),
        };
        f.debug_struct("TaskLocalFuture").field("value", value).finish_non_exhaustive()
    }
}

/// Error returned by [`LocalKey::try_with`] outside a [`scope`](LocalKey::scope) of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalAccessError(());

impl fmt::Display for LocalAccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this task-local has no value here: wrap the future in its scope(), and note that spawned tasks do not inherit it")
    }
}

impl std::error::Error for LocalAccessError {}
