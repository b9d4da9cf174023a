//! What a worker sleeps on: its park word, the timers, and the kernel's ready list. Knows nothing
//! above a `Waker`.

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
