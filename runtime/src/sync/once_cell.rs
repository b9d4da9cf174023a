//! A cell that an async function initializes once.

use std::fmt::Debug;
use std::future::Future;

use tokio::sync::SetError;
use volt_core::task::details::awaits::Awaits;

use super::spend::spend;
use super::wrapper::impl_debug;

/// A thread-safe cell that can be written only once, usually by an async function.
///
/// The first initialization that neither fails nor is cancelled sets the value. After that the
/// value stays the same.
///
/// ```
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
/// # runtime.block_on(async {
/// static ADDRESS: volt::sync::OnceCell<String> = volt::sync::OnceCell::const_new();
/// let address = ADDRESS.get_or_init(async || "looked up once".to_owned()).await;
/// assert_eq!(ADDRESS.get(), Some(address));
/// # });
/// # Ok::<(), volt::BuildError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct OnceCell<T>(tokio::sync::OnceCell<T>);

impl_debug!([T: Debug] OnceCell<T>);

impl<T> Default for OnceCell<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> From<T> for OnceCell<T> {
    fn from(value: T) -> Self {
        Self(value.into())
    }
}

impl<T> OnceCell<T> {
    /// Creates a new, empty cell.
    pub fn new() -> Self {
        Self(tokio::sync::OnceCell::new())
    }

    /// Creates a new, empty cell in a constant context.
    pub const fn const_new() -> Self {
        Self(tokio::sync::OnceCell::const_new())
    }

    /// Creates a cell that contains `value` if it is `Some`, and an empty cell otherwise.
    ///
    /// ```
    /// use volt::sync::OnceCell;
    ///
    /// assert_eq!(OnceCell::new_with(Some(8080)).get(), Some(&8080));
    /// assert!(!OnceCell::<u16>::new_with(None).initialized());
    /// ```
    pub fn new_with(value: Option<T>) -> Self {
        Self(tokio::sync::OnceCell::new_with(value))
    }

    /// Creates a cell that contains `value`, in a constant context.
    ///
    /// ```
    /// static PORT: volt::sync::OnceCell<u16> = volt::sync::OnceCell::const_new_with(8080);
    /// assert_eq!(PORT.get(), Some(&8080));
    /// ```
    pub const fn const_new_with(value: T) -> Self {
        Self(tokio::sync::OnceCell::const_new_with(value))
    }

    /// Returns `true` if the cell contains a value.
    pub fn initialized(&self) -> bool {
        self.0.initialized()
    }

    /// Returns a reference to the value, or `None` if the cell is empty.
    pub fn get(&self) -> Option<&T> {
        self.0.get()
    }

    /// Returns a mutable reference to the value, or `None` if the cell is empty.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.0.get_mut()
    }

    /// Sets the value of the cell.
    ///
    /// # Errors
    /// Returns an error that contains `value` if the cell is initialized, or is being initialized.
    pub fn set(&self, value: T) -> Result<(), SetError<T>> {
        self.0.set(value)
    }

    /// Returns a reference to the value, initializing the cell with `init` if it is empty.
    ///
    /// If another task already initializes the cell, waits for that task instead. If `init` awaits
    /// the initialization of the same cell, it waits forever.
    ///
    /// # Panics
    /// Panics if `init` panics. The cell then stays empty.
    ///
    /// # Cancel safety
    /// Cancel safe. If the future is dropped while it runs `init`, the cell stays empty, and the
    /// next waiting task initializes it.
    #[track_caller]
    pub fn get_or_init<F, Fut>(&self, init: F) -> impl Future<Output = &T>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = T>,
    {
        spend(Awaits::Others, || None, self.0.get_or_init(init))
    }

    /// Returns a reference to the value, initializing the cell with the fallible `init` if it is
    /// empty.
    ///
    /// If another task already initializes the cell, waits for that task instead.
    ///
    /// # Errors
    /// Returns the error of `init`. The cell then stays empty.
    ///
    /// # Panics
    /// Same as [`get_or_init`](Self::get_or_init).
    ///
    /// # Cancel safety
    /// Same as [`get_or_init`](Self::get_or_init).
    #[track_caller]
    pub fn get_or_try_init<E, F, Fut>(&self, init: F) -> impl Future<Output = Result<&T, E>>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        spend(Awaits::Others, || None, self.0.get_or_try_init(init))
    }

    /// Consumes the cell and returns the value, or `None` if the cell is empty.
    pub fn into_inner(self) -> Option<T> {
        self.0.into_inner()
    }

    /// Takes the value out of the cell and leaves the cell empty.
    pub fn take(&mut self) -> Option<T> {
        self.0.take()
    }
}
