//! The set that is current on a thread: [`spawn_local`](super::spawn_local) spawns onto it.
//!
//! Invariant: OWNED WHILE CURRENT: [`CURRENT`] owns a count of the set that it points to, and each
//! guard owns one of the set that was current before. So guards may be dropped in any order, also
//! after their set. `CURRENT` has no destructor, so a set may be dropped together with the other
//! thread-locals of its thread, in any order.

use std::cell::Cell;
use std::fmt;
use std::ptr;
use std::rc::Rc;

use super::shared::Shared;

thread_local! {
    /// The set that this thread polls or has entered, or null.
    static CURRENT: Cell<*const Shared> = const { Cell::new(ptr::null()) };
}

/// A guard that makes a set current on this thread. Returned by
/// [`LocalSet::enter`](super::LocalSet::enter).
///
/// When it is dropped, the set that was current before it is current again.
#[must_use = "the set is current only while the guard lives"]
pub struct LocalEnterGuard {
    former: Option<Rc<Shared>>,
}

impl LocalEnterGuard {
    pub(super) fn of(set: &Rc<Shared>) -> Self {
        Self { former: make_current(Some(set.clone())) }
    }
}

impl Drop for LocalEnterGuard {
    fn drop(&mut self) {
        drop(make_current(self.former.take()));
    }
}

impl fmt::Debug for LocalEnterGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalEnterGuard").finish_non_exhaustive()
    }
}

/// Makes `set` the current one of this thread. Returns the former one.
fn make_current(set: Option<Rc<Shared>>) -> Option<Rc<Shared>> {
    let former = CURRENT.replace(set.map_or(ptr::null(), Rc::into_raw));
    // SAFETY: OWNED WHILE CURRENT. The pointer came from `Rc::into_raw` on this thread, and its
    // count passes on to the caller.
    (!former.is_null()).then(|| unsafe { Rc::from_raw(former) })
}

/// Returns the current set of this thread.
pub(super) fn current() -> Option<Rc<Shared>> {
    let set = make_current(None);
    make_current(set.clone());
    set
}
