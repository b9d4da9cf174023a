//! A `LocalSet` with Tokio's unstable method, so that a program that calls it gets an error with
//! the reason.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::runtime::Panics;

/// A set of tasks that need not be `Send`. See `volt::task::LocalSet`.
#[derive(Debug, Default)]
pub struct LocalSet(volt::task::LocalSet);

impl LocalSet {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Does not exist on Volt.
    pub fn unhandled_panic<T: Panics>(&mut self, _behavior: T) -> &mut Self {
        self
    }
}

impl Future for LocalSet {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.get_mut().0).poll(cx)
    }
}

/// For all other methods, and for the functions that take a set.
impl Deref for LocalSet {
    type Target = volt::task::LocalSet;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
