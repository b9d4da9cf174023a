//! Stacks on systems where they cannot be taken: the same names, and no way to come by a value of theirs.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use volt_telemetry::Frame;

/// Why there is no stack.
pub(crate) type CaptureError = io::Error;

/// A thread that can be asked for its stack: none.
#[derive(Debug)]
pub(crate) enum Thread {}

/// The registration of a thread: none.
#[derive(Debug)]
pub(crate) enum Registered {}

impl Registered {
    pub(crate) fn thread(&self) -> &Arc<Thread> {
        match *self {}
    }
}

/// A stack that was copied: none.
#[derive(Debug)]
pub(crate) enum RawStack {}

/// What takes stacks: nothing.
#[derive(Debug)]
pub(crate) enum Sampler {}

impl Sampler {
    /// # Errors
    /// Always.
    pub(crate) fn new(_signal: Option<i32>) -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "stacks are not supported on this system"))
    }

    pub(crate) fn register(&self) -> io::Result<Registered> {
        match *self {}
    }

    pub(crate) fn capture(&self, thread: &Thread, _patience: Duration) -> Result<RawStack, CaptureError> {
        match *thread {}
    }
}

/// The function at which the stack of a poll ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marker;

impl Marker {
    pub(crate) fn function(_function: *const ()) -> Self {
        Self
    }
}

/// A stack for people.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Resolved {
    pub(crate) frames: Vec<Frame>,
    pub(crate) error: Option<String>,
    pub(crate) is_lost: bool,
}

/// Makes stacks readable.
#[derive(Default)]
pub(crate) struct Resolver;

impl Resolver {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn stack_of(
        &mut self,
        _sampler: &Sampler,
        thread: &Thread,
        _marker: Option<Marker>,
        _patience: Duration,
    ) -> Result<Resolved, CaptureError> {
        match *thread {}
    }

    pub(crate) fn resolve(&mut self, stack: &RawStack, _marker: Option<Marker>) -> Resolved {
        match *stack {}
    }
}
