//! The current runtime of this thread, and whether the thread may block. (Which worker the thread
//! is, if any, is in `scheduler/worker/current`.) `here` has the methods of a handle that concern
//! the calling thread, and `block_in_place` lets a task block its thread.
//!
//! `volt::spawn`, timers and sockets need no handle: they use the current runtime. A worker's
//! thread enters its runtime when it starts and leaves it when it ends. `block_on` and `enter`
//! enter a runtime for a scope, blocking threads around each job and callback, the sentinel while
//! it starts a spare worker, and the threads of the companion Tokio runtime for good. All this is
//! read on the same thread only.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use crate::coop;
use crate::driver::compat::Entered;
use crate::driver::test_clock;
use crate::driver::turn::Driver;
use crate::handle::Handle;
use crate::scheduler::lease::DriverLease;
use crate::scheduler::worker::current;

pub mod block_in_place;
mod here;

thread_local! {
    /// The runtimes that were entered and not left; the last one is current. The `Rc` is counted on
    /// this thread alone. So reading it costs no atomic read-modify-write, and the handle stays
    /// valid while user code runs.
    static ENTERED: RefCell<Vec<Rc<Handle>>> = const { RefCell::new(Vec::new()) };
    static WITHIN: Cell<Within> = const { Cell::new(Within::Nothing) };
}

/// The code that this thread runs, if it is no worker of a multi-thread runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Within {
    /// Code that may block.
    Nothing,
    /// The future of a `block_on`.
    BlockOn,
    /// A `block_on` that also polls tasks: of a current-thread runtime, or of a `LocalSet`. No
    /// other thread can take these tasks over.
    BlockOnOfTasks,
}

// Libraries search these messages for Tokio's, which they therefore contain.
/// The panic message if this thread can no longer be in a runtime.
const THREAD_ENDS: &str = "this thread is ending: the destructor of a thread-local can neither enter a Volt runtime nor use the current \
                           one; do this before the thread ends, or spawn a task with `Handle::spawn` (The Tokio context thread-local \
                           variable has been destroyed.)";
/// The panic message if there is no current runtime.
const NO_RUNTIME: &str = "this must be called inside a Volt runtime: in a task, in `Runtime::block_on`, or while the guard of \
                          `Handle::enter` is held (there is no reactor running, must be called from the context of a Tokio 1.x \
                          runtime)";

/// The panic message if the program has disabled I/O.
const NO_IO: &str =
    "A Tokio 1.x context was found, but IO is disabled. Call `enable_io` on the runtime builder to enable IO.";
/// The panic message for I/O in a runtime with a seed.
const IO_WITH_SEED: &str = "a runtime with a seed has no sockets, signals and child processes, since the kernel decides when they are \
                            ready: use `volt::sim::net`, or build the runtime without `Builder::seed`";
/// The panic message if the program has disabled timers.
const NO_TIME: &str = "A Tokio 1.x context was found, but timers are disabled. Call `enable_time` on the runtime builder to \
                       enable timers.";

/// The error of [`Handle::try_current`](crate::handle::Handle::try_current): this thread has no
/// current runtime.
///
/// ```
/// # use volt_core as volt;
/// let error = volt::Handle::try_current().unwrap_err();
/// assert!(error.is_missing_context() && !error.is_thread_local_destroyed());
/// ```
#[derive(Debug)]
pub struct TryCurrentError {
    is_thread_ending: bool,
}

impl TryCurrentError {
    /// Returns whether the thread is outside a runtime.
    pub fn is_missing_context(&self) -> bool {
        !self.is_thread_ending
    }

    /// Returns whether the thread is ending, and has destroyed the thread-local that contains the
    /// current runtime.
    pub fn is_thread_local_destroyed(&self) -> bool {
        self.is_thread_ending
    }
}

impl fmt::Display for TryCurrentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_thread_ending { THREAD_ENDS } else { NO_RUNTIME })
    }
}

impl std::error::Error for TryCurrentError {}

/// A guard that makes a runtime current on this thread. Returned by
/// [`Handle::enter`](crate::handle::Handle::enter).
///
/// When it is dropped, the former runtime is current again. Guards may be dropped in any order: the
/// runtime of the most recent remaining guard is current. With `Builder::tokio_compat`, they must
/// be dropped in the reverse order of their creation.
///
/// A guard may outlive the shutdown of its runtime:
///
/// ```
/// # use volt_core as volt;
/// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
/// let _entered = runtime.enter();
/// runtime.shutdown_background();
/// # Ok::<(), volt::BuildError>(())
/// ```
#[derive(Debug)]
#[must_use = "the runtime is current only while the guard lives"]
pub struct EnterGuard<'a> {
    // No destructor here: it would use the lifetime, so that a guard could not outlive a runtime
    // that is shut down by value.
    _entered: EnteredHere,
    /// Makes the companion Tokio runtime current, if there is one.
    _tokio: Option<Entered<'a>>,
    _handle: PhantomData<&'a Handle>,
}

/// Removes its entry from [`ENTERED`] when it is dropped.
#[derive(Debug)]
struct EnteredHere {
    /// The address of the entry. Nothing else has the address while the entry is in the list.
    entry: usize,
    /// Not Send: it must be dropped on the thread on which it was created.
    _not_send: PhantomData<MutexGuard<'static, ()>>,
}

impl Drop for EnteredHere {
    fn drop(&mut self) {
        let leave = |entered: &RefCell<Vec<Rc<Handle>>>| {
            let mut entered = entered.borrow_mut();
            let place = entered.iter().rposition(|handle| Rc::as_ptr(handle).addr() == self.entry);
            place.map(|place| entered.remove(place))
        };
        // If the thread is ending, no runtime is current anyway.
        let _left = ENTERED.try_with(leave);
    }
}

/// Makes `handle`'s runtime current until the guard is dropped.
///
/// # Panics
/// Panics if the thread is ending and has destroyed [`ENTERED`].
#[track_caller]
pub(crate) fn enter(handle: &Handle) -> EnterGuard<'_> {
    let entered = Rc::new(handle.clone());
    let entry = Rc::as_ptr(&entered).addr();
    if ENTERED.try_with(|all| all.borrow_mut().push(entered)).is_err() {
        panic!("{THREAD_ENDS}");
    }
    EnterGuard {
        _entered: EnteredHere { entry, _not_send: PhantomData },
        _tokio: handle.shared().compat().map(|tokio| tokio.enter()),
        _handle: PhantomData,
    }
}

/// Makes `handle`'s runtime current until the guard is dropped, or returns `None` if the thread is
/// ending and has destroyed [`ENTERED`].
pub(crate) fn try_enter(handle: &Handle) -> Option<EnterGuard<'_>> {
    ENTERED.try_with(|_| ()).is_ok().then(|| enter(handle))
}

/// Makes `handle`'s runtime current for the remaining life of this thread. Called on the threads of
/// the companion Tokio runtime.
pub(crate) fn enter_for_good(handle: Handle) {
    ENTERED.with_borrow_mut(|all| all.push(Rc::new(handle)));
}

/// Returns the handle of the current runtime, or `None` outside a runtime.
pub fn try_handle() -> Option<Rc<Handle>> {
    current().ok()
}

/// Returns the handle of the current runtime if that is a `LocalRuntime`.
pub fn local_handle() -> Option<Rc<Handle>> {
    let local = |entered: &RefCell<Vec<Rc<Handle>>>| {
        let entered = entered.borrow();
        entered.last().filter(|handle| handle.shared().config.local_to.is_some()).cloned()
    };
    // If the thread is ending, no runtime is current.
    ENTERED.try_with(local).ok().flatten()
}

/// Returns the handle of the current runtime.
///
/// # Errors
/// Fails outside a runtime, and if the thread is ending and has destroyed [`ENTERED`].
pub(crate) fn current() -> Result<Rc<Handle>, TryCurrentError> {
    of_current(Rc::clone)
}

/// Returns what `read` returns for the current runtime, without a clone of its handle.
#[inline]
fn of_current<R>(read: impl FnOnce(&Rc<Handle>) -> R) -> Result<R, TryCurrentError> {
    match ENTERED.try_with(|entered| entered.borrow().last().map(read)) {
        Ok(Some(value)) => Ok(value),
        Ok(None) => Err(TryCurrentError { is_thread_ending: false }),
        Err(_destroyed) => Err(TryCurrentError { is_thread_ending: true }),
    }
}

/// Returns the handle of the current runtime.
///
/// # Panics
/// Panics outside a runtime.
#[track_caller]
pub fn handle() -> Rc<Handle> {
    match current() {
        Ok(handle) => handle,
        Err(error) => panic!("{error}"),
    }
}

/// Returns the driver of the current runtime, for sockets, signals and child processes.
///
/// # Panics
/// Panics outside a runtime, in a child process that was forked from the runtime's program, in a
/// runtime whose builder has [`disable_io`](crate::builder::Builder::disable_io) set, and in one
/// with a seed.
#[track_caller]
pub fn driver() -> Arc<Driver> {
    let handle = handle();
    let shared = handle.shared();
    shared.identity.home.expect_here();
    assert!(!shared.config.is_io_disabled, "{NO_IO}");
    assert!(shared.seeded.is_none(), "{IO_WITH_SEED}");
    shared.workers.driver.clone()
}

/// Returns a lease on the driver of the current runtime, for timers.
///
/// # Panics
/// Panics outside a runtime, in a child process that was forked from the runtime's program, and in
/// a runtime whose builder has [`disable_time`](crate::builder::Builder::disable_time) set.
#[track_caller]
pub fn timers() -> DriverLease {
    let read = |handle: &Rc<Handle>| {
        let shared = handle.shared();
        (shared.identity.home, shared.config.is_time_disabled, DriverLease::of(&shared.workers.driver))
    };
    // Checked here and not in the closure, so that a panic names the caller.
    match of_current(read) {
        Ok((home, is_time_disabled, driver)) => {
            home.expect_here();
            assert!(!is_time_disabled, "{NO_TIME}");
            driver
        }
        Err(error) => panic!("{error}"),
    }
}

/// Returns the time of the current runtime's test clock, or `None` if there is no such clock.
#[inline]
pub(crate) fn test_now() -> Option<Instant> {
    test_clock::is_in_use().then(test_now_here).flatten()
}

#[cold]
fn test_now_here() -> Option<Instant> {
    let now = |entered: &RefCell<Vec<Rc<Handle>>>| {
        let entered = entered.borrow();
        let clock = entered.last()?.shared().workers.driver.test_clock.as_ref()?;
        Some(clock.now().now)
    };
    // If the thread is ending, no runtime is current.
    ENTERED.try_with(now).ok().flatten()
}

/// For the crate `volt`: returns the program's next random number, generated from the seed of the
/// current runtime, or `None` without such a runtime.
#[doc(hidden)]
pub fn draw() -> Option<u64> {
    of_current(|handle| handle.shared().seeded.as_ref().map(|seeded| seeded.draw())).ok().flatten()
}

/// For the crate `volt`: returns which of the branches of a `select!` is polled first, chosen from
/// the seed of the current runtime, or `None` without such a runtime.
#[doc(hidden)]
pub fn draw_branch(branches: u64) -> Option<u64> {
    of_current(|handle| handle.shared().seeded.as_ref().map(|seeded| seeded.draw_branch(branches))).ok().flatten()
}

/// For the crate `volt`: as [`draw`], a number in `0..n`, or 0 for `n = 0`.
#[doc(hidden)]
pub fn draw_below(n: u64) -> Option<u64> {
    of_current(|handle| handle.shared().seeded.as_ref().map(|seeded| seeded.draw_below(n))).ok().flatten()
}

/// Returns whether this thread runs a task or the future of a `block_on`, and so must not block.
pub(crate) fn is_async() -> bool {
    WITHIN.get() != Within::Nothing || current::is_worker()
}

/// Returns whether this thread polls tasks in a `block_on`, which no other thread can take over.
pub(crate) fn is_within_block_on_of_tasks() -> bool {
    WITHIN.get() == Within::BlockOnOfTasks
}

/// Checks that this thread may block, for methods that block it. `instead` is the method to await
/// in async code.
///
/// # Panics
/// Panics if this thread runs a task or the future of a `block_on`.
#[track_caller]
pub fn expect_may_block(instead: &str) {
    // Code outside Volt may search the message for its beginning, which is the same in Tokio.
    assert!(
        !is_async(),
        "Cannot block the current thread from within a runtime, because it runs async tasks: await `{instead}` instead, or \
         move the blocking code into `spawn_blocking` or `block_in_place`"
    );
}

/// Marks this thread as inside `block_on`, of the kind `within`, while `f` runs.
///
/// # Panics
/// As [`enter`].
#[track_caller]
pub(crate) fn in_block_on<R>(handle: &Handle, within: Within, f: impl FnOnce() -> R) -> R {
    let _entered = enter(handle);
    set_within(within, f)
}

/// For `LocalSet`: marks a `block_on` as one that polls tasks while `f` runs.
pub fn in_local_set<R>(f: impl FnOnce() -> R) -> R {
    if WITHIN.get() == Within::BlockOn { set_within(Within::BlockOnOfTasks, f) } else { f() }
}

/// Marks this thread as outside async code while `f` runs, which may block in the middle of a
/// `block_on`.
pub(crate) fn outside_block_on<R>(f: impl FnOnce() -> R) -> R {
    set_within(Within::Nothing, || coop::outside_polls(f))
}

/// Sets what this thread runs while `f` runs, and then restores the former one.
fn set_within<R>(within: Within, f: impl FnOnce() -> R) -> R {
    struct Reset(Within);
    impl Drop for Reset {
        fn drop(&mut self) {
            WITHIN.set(self.0);
        }
    }
    let _reset = Reset(WITHIN.replace(within));
    f()
}
