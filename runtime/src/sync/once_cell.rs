//! A value that is made once, by a future.

use std::future::Future;

use tokio::sync::SetError;

use super::{Awaits, spend};

/// Empty, and then for good what the first initialisation made that was not cancelled and did not
/// fail.
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
#[derive(Debug, Default)]
pub struct OnceCell<T>(tokio::sync::OnceCell<T>);

impl<T> OnceCell<T> {
    /// An empty one.
    pub fn new() -> Self {
        Self(tokio::sync::OnceCell::new())
    }

    /// An empty one, in a constant.
    pub const fn const_new() -> Self {
        Self(tokio::sync::OnceCell::const_new())
    }

    /// Whether it has its value.
    pub fn initialized(&self) -> bool {
        self.0.initialized()
    }

    /// Its value, if it has it.
    pub fn get(&self) -> Option<&T> {
        self.0.get()
    }

    /// Its value, if it has it.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.0.get_mut()
    }

    /// Sets its value.
    ///
    /// # Errors
    /// It has one, or is about to: `value` comes back.
    pub fn set(&self, value: T) -> Result<(), SetError<T>> {
        self.0.set(value)
    }

    /// Its value, which is made by `init` if it is empty and nobody makes one already.
    ///
    /// # Cancel safety
    /// Dropped before it is done, it leaves the cell empty, and the next that waits makes the
    /// value.
    #[track_caller]
    pub fn get_or_init<F, Fut>(&self, init: F) -> impl Future<Output = &T>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = T>,
    {
        spend(Awaits::Value, self.0.get_or_init(init))
    }

    /// As [`get_or_init`](Self::get_or_init), for what may fail.
    ///
    /// # Errors
    /// That of `init`; the cell stays empty.
    ///
    /// # Cancel safety
    /// As [`get_or_init`](Self::get_or_init).
    #[track_caller]
    pub fn get_or_try_init<E, F, Fut>(&self, init: F) -> impl Future<Output = Result<&T, E>>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        spend(Awaits::Value, self.0.get_or_try_init(init))
    }

    /// Its value, if it has it.
    pub fn into_inner(self) -> Option<T> {
        self.0.into_inner()
    }

    /// Takes its value out, and leaves it empty.
    pub fn take(&mut self) -> Option<T> {
        self.0.take()
    }
}
