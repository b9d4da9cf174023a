//! Queues of runnable items. They are generic and do not depend on tasks or statistics.
//!
//! Each worker has a `ring`, its run queue, and a `lifo`, a slot for the item to run next. The
//! `injector` is the global queue of a runtime.

pub(crate) mod injector;
pub(crate) mod lifo;
pub(crate) mod ring;
