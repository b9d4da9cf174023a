//! The driver: what an idle worker sleeps on, and where timers and I/O are polled.
//!
//! It contains each worker's park word, the runtime's timers and the kernel's list of ready
//! sockets. It depends on nothing of the scheduler or of tasks but `Waker`.

pub(crate) mod parker;

#[cfg(not(loom))]
pub(crate) mod poller;
pub mod readiness;
#[cfg(not(loom))]
pub mod registration;
#[cfg(not(loom))]
pub(crate) mod spin;
#[cfg(not(loom))]
pub mod test_clock;
#[cfg(not(loom))]
pub(crate) mod timers;
#[cfg(not(loom))]
pub mod turn;
pub(crate) mod turn_lock;
#[cfg(not(loom))]
pub(crate) mod wheel;
