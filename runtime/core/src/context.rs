//! Which runtime this thread is in. Which worker it is stands in `scheduler/current`.
//!
//! Who writes: the worker's thread when it starts and ends, `block_on`, `enter`, and blocking
//! threads around a job. Who reads: everything that needs "the current runtime", on the same
//! thread.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use crate::compat::Entered;
use crate::coop;
use crate::driver::turn::Driver;
use crate::handle::Handle;
use crate::scheduler::current;

thread_local! {
    /// Runtimes that were entered and not left; the last is the current one. Counted on this
    /// thread, so that reading it costs no read-modify-write, and may be held while code of the
    /// user's runs.
    static ENTERED: RefCell<Vec<Rc<Handle>>> = const { RefCell::new(Vec::new()) };
    static IS_IN_BLOCK_ON: Cell<bool> = const { Cell::new(false) };
}

/// Why this thread can be in no runtime any more, for people.
const THREAD_ENDS: &str = "this thread is ending: the destructor of a thread-local can neither enter a Volt runtime nor use the current \
                           one; do this before the thread ends, or spawn a task with `Handle::spawn`";
/// Why there is no current runtime, for people.
const NO_RUNTIME: &str = "this must be called inside a Volt runtime: in a task, in `Runtime::block_on`, or while the guard of \
                          `Handle::enter` is held";

/// Keeps a runtime current on this thread; the one before is current again afterwards. Guards may
/// be dropped in any order: current is the runtime of the latest that lives. (With a Tokio runtime
/// beside it, in the reverse order only: see `Builder::tokio_compat`.)
#[derive(Debug)]
#[must_use = "the runtime is current only while the guard lives"]
pub struct EnterGuard<'a> {
    /// Not Send: the thread it is dropped on must be the one that it was made on.
    entered: Rc<Handle>,
    /// The Tokio runtime beside it, if there is one.
    _tokio: Option<Entered<'a>>,
    _handle: PhantomData<&'a Handle>,
}

impl Drop for EnterGuard<'_> {
    fn drop(&mut self) {
        let leave = |entered: &RefCell<Vec<Rc<Handle>>>| {
            let mut entered = entered.borrow_mut();
            let place = entered.iter().rposition(|handle| Rc::ptr_eq(handle, &self.entered));
            place.map(|place| entered.remove(place))
        };
        // The thread may be ending; then nothing is current anyway.
        let _left = ENTERED.try_with(leave);
    }
}

/// Makes `handle`'s runtime current until the guard is dropped.
///
/// # Panics
/// If the thread is ending and has destroyed [`ENTERED`].
#[track_caller]
pub(crate) fn enter(handle: &Handle) -> EnterGuard<'_> {
    let entered = Rc::new(handle.clone());
    if ENTERED.try_with(|all| all.borrow_mut().push(entered.clone())).is_err() {
        panic!("{THREAD_ENDS}");
    }
    EnterGuard { entered, _tokio: handle.shared().compat().map(|tokio| tokio.enter()), _handle: PhantomData }
}

/// Makes `handle`'s runtime current on this thread for as long as the thread lives: on the threads
/// of the Tokio runtime beside it.
pub(crate) fn enter_for_good(handle: Handle) {
    ENTERED.with_borrow_mut(|all| all.push(Rc::new(handle)));
}

/// The current runtime.
pub fn try_handle() -> Option<Rc<Handle>> {
    ENTERED.try_with(|entered| entered.borrow().last().cloned()).ok().flatten()
}

/// The current runtime.
///
/// # Panics
/// Outside a runtime.
#[track_caller]
pub fn handle() -> Rc<Handle> {
    match ENTERED.try_with(|entered| entered.borrow().last().cloned()) {
        Ok(Some(handle)) => handle,
        Ok(None) => panic!("{NO_RUNTIME}"),
        Err(_destroyed) => panic!("{THREAD_ENDS}"),
    }
}

/// The current runtime's driver.
///
/// # Panics
/// Outside a runtime, and in a child forked from its process.
#[track_caller]
pub fn driver() -> Arc<Driver> {
    let handle = handle();
    let shared = handle.shared();
    shared.home.expect_here();
    shared.driver.clone()
}

/// Whether this thread runs tasks or the future of a `block_on`, and so must not block.
pub(crate) fn is_async() -> bool {
    IS_IN_BLOCK_ON.get() || current::is_worker()
}

/// Marks this thread as inside `block_on` while `f` runs.
///
/// # Panics
/// As [`enter`].
#[track_caller]
pub(crate) fn in_block_on<R>(handle: &Handle, f: impl FnOnce() -> R) -> R {
    let _entered = enter(handle);
    set_in_block_on(true, f)
}

/// Marks this thread as outside while `f` runs, which may block in the middle of a `block_on`.
pub(crate) fn outside_block_on<R>(f: impl FnOnce() -> R) -> R {
    set_in_block_on(false, || coop::outside_polls(f))
}

/// As it was before afterwards.
fn set_in_block_on<R>(is_in_block_on: bool, f: impl FnOnce() -> R) -> R {
    struct Reset(bool);
    impl Drop for Reset {
        fn drop(&mut self) {
            IS_IN_BLOCK_ON.set(self.0);
        }
    }
    let _reset = Reset(IS_IN_BLOCK_ON.replace(is_in_block_on));
    f()
}
