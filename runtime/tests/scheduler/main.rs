//! The scheduler through the public API: no task is lost or starved, stuck workers are replaced,
//! every shutdown is orderly, and telemetry reports it correctly.

#[path = "../watchdog/mod.rs"]
mod watchdog;

mod control_socket;
mod current_thread;
mod debugger;
mod doctor_events;
mod driver;
mod fairness;
mod handle;
mod healing;
mod hooks;
mod incidents;
mod messages;
mod metrics;
mod metrics_page;
mod options;
mod placement;
mod promises;
mod proof;
mod recorder;
mod sentinel;
mod shutdown;
mod shutdown_report;
mod stress;
mod stuck_log;
mod task_hooks;
mod task_log;
mod tokio_console;
mod why;
