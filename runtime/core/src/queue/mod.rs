//! Queues of things to run. They know no task and no statistics.

pub(crate) mod injector;
pub(crate) mod lifo;
pub(crate) mod ring;
