//! The driver: idle workers sleep in it, and workers poll timers and I/O through it.
//!
//! `parker` is each worker's park word, and `spin` decides whether a thread stays awake for a
//! moment before it sleeps. `turn` has the timers (`timers` and `wheel`) and the sockets
//! (`registration` and `readiness`) of a runtime. It waits for both in the kernel, by `poller`;
//! `turn_lock` is the right of one thread at a time to do that. `test_clock` is a clock that tests
//! pause and advance.
//!
//! Apart from its models, the driver does not depend on the scheduler. All that it uses of a task
//! is the `Waker`.

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
