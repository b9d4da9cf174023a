//! The data that observers receive from a runtime: the control socket, the recorder, metrics, the
//! doctor's events, and the spans and events of tasks.

mod control_socket;
mod doctor_events;
mod metrics;
mod metrics_page;
mod recorder;
mod task_log;
mod tokio_console;
mod why;
