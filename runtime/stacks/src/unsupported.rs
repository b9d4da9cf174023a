//! Stand-ins for systems on which stacks are not supported. This module defines the same names, but
//! most of its types have no values.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use volt_telemetry::Frame;

/// Why there is no stack.
pub type CaptureError = io::Error;

/// A thread whose stack can be captured. There are no values.
#[derive(Debug)]
pub enum Thread {}

/// The registration of a thread. There are no values.
#[derive(Debug)]
pub enum Registered {}

impl Registered {
    /// Returns the registered thread.
    pub fn thread(&self) -> &Arc<Thread> {
        match *self {}
    }
}

/// A copied stack. There are no values.
#[derive(Debug)]
pub enum RawStack {}

/// Captures stacks. There are no values.
#[derive(Debug)]
pub enum Sampler {}

impl Sampler {
    /// Fails, since stacks are not supported on this system.
    ///
    /// # Errors
    /// Always returns an error of kind `Unsupported`.
    pub fn new(_signal: Option<i32>) -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "stacks are not supported on this system"))
    }

    /// Registers the calling thread.
    ///
    /// # Errors
    /// Never called: there are no samplers.
    pub fn register(&self) -> io::Result<Registered> {
        match *self {}
    }

    /// Captures the current stack of `thread`.
    ///
    /// # Errors
    /// Never called: there are no samplers.
    pub fn capture(&self, thread: &Thread, _timeout: Duration) -> Result<RawStack, CaptureError> {
        match *thread {}
    }
}

/// The function at which the stack of a poll ends.
#[derive(Clone, Copy, Debug)]
pub struct Marker;

impl Marker {
    /// Returns a marker for `function`.
    pub fn function(_function: *const ()) -> Self {
        Self
    }
}

/// A stack that is resolved to functions, files and lines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resolved {
    /// The frames, innermost first.
    pub frames: Vec<Frame>,
    /// Why frames are missing.
    pub error: Option<String>,
    /// Whether another stack of the same thread may be complete.
    pub is_lost: bool,
}

/// The calls of a stack. There are none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Calls;

impl Calls {
    /// Returns why calls are missing.
    pub fn error(&self) -> Option<&str> {
        None
    }
}

/// Captures stacks of the calling thread: none on this system.
#[derive(Debug, Default)]
pub struct Tape;

/// The stacks of a recording.
#[derive(Debug, Default)]
pub struct Recorded {
    /// The stacks. There are none.
    pub stacks: Vec<RawStack>,
    /// The number of notes without a stack.
    pub left_out: usize,
}

impl Tape {
    /// Creates a tape.
    pub fn new() -> Self {
        Self
    }

    /// Returns a marker.
    pub fn marker() -> Marker {
        Marker
    }

    /// Calls `f`.
    pub fn record(&mut self, f: &mut dyn FnMut()) {
        f();
    }

    /// Does nothing.
    pub fn note() {}

    /// Does nothing.
    pub fn leave_out() {}

    /// Returns no stacks.
    pub fn take(&mut self) -> Recorded {
        Recorded::default()
    }
}

/// Returns the build id of this program: it is not known here.
pub fn build_id() -> Option<String> {
    None
}

/// Resolves stacks to functions, files and lines.
#[derive(Default)]
pub struct Resolver;

impl Resolver {
    /// Creates a resolver.
    pub fn new() -> Self {
        Self
    }

    /// Captures and resolves the current stack of `thread`.
    ///
    /// # Errors
    /// Never called: there are no threads.
    pub fn stack_of(
        &mut self,
        _sampler: &Sampler,
        thread: &Thread,
        _marker: Option<Marker>,
        _timeout: Duration,
    ) -> Result<Resolved, CaptureError> {
        match *thread {}
    }

    /// Resolves `stack` to its frames.
    pub fn resolve(&mut self, stack: &RawStack, _marker: Option<Marker>) -> Resolved {
        match *stack {}
    }

    /// Unwinds `stack`.
    pub fn calls(&mut self, stack: &RawStack, _marker: Marker) -> Calls {
        match *stack {}
    }

    /// Resolves calls to frames: there are none.
    pub fn frames(&mut self, _calls: &Calls) -> Resolved {
        Resolved::default()
    }
}
