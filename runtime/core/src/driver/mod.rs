//! The driver: idle workers sleep in it, and workers poll timers and I/O through it.
//!
//! `parker` is each worker's park word, and `spin` decides whether a thread stays awake for a
//! moment before it sleeps. `leases` keep the memory of a driver or of a runtime. `turn` has the
//! timers (`timers` and `wheel`) and the sockets (`registration` and `readiness`) of a runtime. It
//! waits for both in the kernel, by `poller`; `turn_lock` is the right of one thread at a time to
//! do that. `test_clock` is a clock that tests pause and advance. `compat` is the companion Tokio
//! runtime, which drives Tokio's timers and sockets.
//!
//! Apart from its models, the driver does not depend on the scheduler. All that it uses of a task
//! is the `Waker`.

#[cfg(not(loom))]
pub(crate) mod compat;

pub(crate) mod leases;

pub(crate) mod parker;

pub mod readiness;

#[cfg(not(loom))]
pub(crate) mod poller;

#[cfg(not(loom))]
pub(crate) mod spin;

#[cfg(not(loom))]
pub mod test_clock;

pub(crate) mod turn_lock;

#[cfg(not(loom))]
pub(crate) mod wheel;

#[cfg(not(loom))]
pub(crate) mod timers;

#[cfg(not(loom))]
pub mod turn;

#[cfg(not(loom))]
pub mod registration;
