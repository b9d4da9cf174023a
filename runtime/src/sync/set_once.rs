//! A value that is set once, and waited for.

use std::future::Future;

use tokio::sync::SetOnceError;

use super::{Awaits, spend};

/// Empty until somebody sets it, and then the same for good.
///
/// ```
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
/// # runtime.block_on(async {
/// static READY: volt::sync::SetOnce<u16> = volt::sync::SetOnce::const_new();
/// let waiter = volt::spawn(async { *READY.wait().await });
/// READY.set(8080).unwrap();
/// assert_eq!(waiter.await.unwrap(), 8080);
/// # });
/// # Ok::<(), volt::BuildError>(())
/// ```
#[derive(Debug, Default)]
pub struct SetOnce<T>(tokio::sync::SetOnce<T>);

impl<T> SetOnce<T> {
    /// An empty one.
    pub fn new() -> Self {
        Self(tokio::sync::SetOnce::new())
    }

    /// An empty one, in a constant.
    pub const fn const_new() -> Self {
        Self(tokio::sync::SetOnce::const_new())
    }

    /// One that has its value, if that is `Some`.
    pub fn new_with(value: Option<T>) -> Self {
        Self(tokio::sync::SetOnce::new_with(value))
    }

    /// One that has its value, in a constant.
    pub const fn const_new_with(value: T) -> Self {
        Self(tokio::sync::SetOnce::const_new_with(value))
    }

    /// Whether it has its value.
    pub fn initialized(&self) -> bool {
        self.0.initialized()
    }

    /// Its value, if it has it.
    pub fn get(&self) -> Option<&T> {
        self.0.get()
    }

    /// Sets its value, and wakes all that wait.
    ///
    /// # Errors
    /// It has one: `value` comes back.
    pub fn set(&self, value: T) -> Result<(), SetOnceError<T>> {
        self.0.set(value)
    }

    /// Its value, if it has it.
    pub fn into_inner(self) -> Option<T> {
        self.0.into_inner()
    }

    /// Waits until it has its value.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping it.
    #[track_caller]
    pub fn wait(&self) -> impl Future<Output = &T> {
        spend(Awaits::Value, self.0.wait())
    }
}
