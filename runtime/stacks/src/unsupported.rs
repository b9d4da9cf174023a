//! Stacks on systems where they cannot be taken: the same names, and no way to come by a value of
//! theirs.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use volt_telemetry::Frame;

/// Why there is no stack.
pub type CaptureError = io::Error;

/// A thread that can be asked for its stack: none.
#[derive(Debug)]
pub enum Thread {}

/// The registration of a thread: none.
#[derive(Debug)]
pub enum Registered {}

impl Registered {
    /// The thread that is registered.
    pub fn thread(&self) -> &Arc<Thread> {
        match *self {}
    }
}

/// A stack that was copied: none.
#[derive(Debug)]
pub enum RawStack {}

/// What takes stacks: nothing.
#[derive(Debug)]
pub enum Sampler {}

impl Sampler {
    /// Makes no sampler.
    ///
    /// # Errors
    /// Always.
    pub fn new(_signal: Option<i32>) -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "stacks are not supported on this system"))
    }

    /// Registers the calling thread.
    ///
    /// # Errors
    /// None: there is no sampler.
    pub fn register(&self) -> io::Result<Registered> {
        match *self {}
    }

    /// The stack of `thread` as it is now.
    ///
    /// # Errors
    /// None: there is no sampler.
    pub fn capture(&self, thread: &Thread, _patience: Duration) -> Result<RawStack, CaptureError> {
        match *thread {}
    }
}

/// The function at which the stack of a poll ends.
#[derive(Clone, Copy, Debug)]
pub struct Marker;

impl Marker {
    /// `function` as a pointer.
    pub fn function(_function: *const ()) -> Self {
        Self
    }
}

/// A stack for people.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resolved {
    /// Innermost first.
    pub frames: Vec<Frame>,
    /// Why frames are missing.
    pub error: Option<String>,
    /// Whether another stack of the same thread may be complete.
    pub is_lost: bool,
}

/// Makes stacks readable.
#[derive(Default)]
pub struct Resolver;

impl Resolver {
    /// A resolver that has nothing to do.
    pub fn new() -> Self {
        Self
    }

    /// The stack of `thread` as it is now.
    ///
    /// # Errors
    /// None: there is no thread.
    pub fn stack_of(
        &mut self,
        _sampler: &Sampler,
        thread: &Thread,
        _marker: Option<Marker>,
        _patience: Duration,
    ) -> Result<Resolved, CaptureError> {
        match *thread {}
    }

    /// The calls of `stack`.
    pub fn resolve(&mut self, stack: &RawStack, _marker: Option<Marker>) -> Resolved {
        match *stack {}
    }
}
