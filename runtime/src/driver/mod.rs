//! What a worker sleeps on: its park word, the timers, and the kernel's ready list. Knows nothing above a `Waker`.

pub(crate) mod parker;

#[cfg(all(test, loom))]
#[path = "turn_loom.rs"]
mod loom_of_turn;
#[cfg(not(loom))]
pub(crate) mod poller;
pub(crate) mod readiness;
#[cfg(not(loom))]
pub(crate) mod registration;
#[cfg(not(loom))]
pub(crate) mod spin;
#[cfg(not(loom))]
pub(crate) mod test_clock;
#[cfg(not(loom))]
pub(crate) mod timers;
#[cfg(not(loom))]
mod turn;
#[cfg(not(loom))]
pub(crate) mod wheel;

#[cfg(not(loom))]
pub(crate) use turn::{Driver, ERROR_PAUSE, Polled, Turn, Wait};
