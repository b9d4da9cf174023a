//! Queues of runnable items. They are generic and do not depend on tasks or statistics.

pub(crate) mod injector;
pub(crate) mod lifo;
pub(crate) mod ring;
