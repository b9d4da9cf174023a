//! The scheduler through the public API: no task is lost or starved, stuck workers are replaced,
//! every shutdown is orderly, and telemetry reports it correctly.

#[path = "../watchdog/mod.rs"]
mod watchdog;

mod current_thread;
mod driver;
mod fairness;
mod handle;
mod hooks;
mod messages;
mod observers;
mod options;
mod placement;
mod promises;
mod proof;
mod shutdown;
mod shutdown_report;
mod simulation;
mod stress;
mod stuck;
mod task_hooks;
