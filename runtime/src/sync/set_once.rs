//! A cell that is set once and can be awaited.

use std::fmt::Debug;
use std::future::Future;

use tokio::sync::SetOnceError;
use volt_core::task::details::awaits::Awaits;
use volt_core::task::resources::{Awaited, Key};
use volt_telemetry::dump::Resource;

use super::spend::spend;
use super::wrapper::impl_debug;

/// A thread-safe cell that is set once, and that tasks can await.
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
#[derive(Clone, PartialEq, Eq)]
pub struct SetOnce<T>(tokio::sync::SetOnce<T>);

impl_debug!([T: Debug] SetOnce<T>);

impl<T> Default for SetOnce<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> From<T> for SetOnce<T> {
    fn from(value: T) -> Self {
        Self(value.into())
    }
}

impl<T> SetOnce<T> {
    /// Creates a new, empty cell.
    pub fn new() -> Self {
        Self(tokio::sync::SetOnce::new())
    }

    /// Creates a new, empty cell in a constant context.
    pub const fn const_new() -> Self {
        Self(tokio::sync::SetOnce::const_new())
    }

    /// Creates a cell that contains `value` if it is `Some`, and an empty cell otherwise.
    pub fn new_with(value: Option<T>) -> Self {
        Self(tokio::sync::SetOnce::new_with(value))
    }

    /// Creates a cell that contains `value`, in a constant context.
    pub const fn const_new_with(value: T) -> Self {
        Self(tokio::sync::SetOnce::const_new_with(value))
    }

    /// Returns `true` if the cell contains a value.
    pub fn initialized(&self) -> bool {
        self.0.initialized()
    }

    /// Returns a reference to the value, or `None` if the cell is empty.
    pub fn get(&self) -> Option<&T> {
        self.0.get()
    }

    /// Sets the value of the cell and wakes all waiting tasks.
    ///
    /// # Errors
    /// Returns an error that contains `value` if the cell is already set.
    pub fn set(&self, value: T) -> Result<(), SetOnceError<T>> {
        self.0.set(value)
    }

    /// Consumes the cell and returns the value, or `None` if the cell is empty.
    pub fn into_inner(self) -> Option<T> {
        self.0.into_inner()
    }

    /// Waits until the cell is set, and returns a reference to the value.
    ///
    /// # Cancel safety
    /// Cancel safe.
    #[track_caller]
    pub fn wait(&self) -> impl Future<Output = &T> {
        let resource = || Some(Awaited::new(Key::of(self), "set_once", Resource::default()));
        spend(Awaits::Value, resource, self.0.wait())
    }
}
