//! Makes the callbacks for the start and the end of a thread run inside the runtime on the threads
//! of the blocking pool, which enter the runtime only for their jobs.

use std::sync::{Arc, OnceLock, Weak};

use crate::config::hooks::{Hook, Hooks};
use crate::context;
use crate::handle::Handle;
use crate::scheduler::shared::Shared;

/// The runtime whose callbacks a pool calls. The pool is created first.
pub(super) type Owner = Arc<OnceLock<Weak<Shared>>>;

/// Returns the hooks for threads that are not inside the runtime by themselves: each callback
/// enters the runtime of `owner` first.
pub(super) fn inside(owner: &Owner, hooks: &Hooks) -> Hooks {
    let wrap = |hook: &Hook| -> Hook {
        let (owner, hook) = (owner.clone(), hook.clone());
        Arc::new(move || {
            // If the runtime was dropped, no runtime is current.
            let handle = owner.get().and_then(Weak::upgrade).map(Handle::new);
            let _entered = handle.as_ref().map(context::enter);
            hook();
        })
    };
    Hooks { start: hooks.start.as_ref().map(wrap), stop: hooks.stop.as_ref().map(wrap), ..hooks.clone() }
}
