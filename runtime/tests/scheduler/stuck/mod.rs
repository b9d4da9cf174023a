//! Polls that do not end: the sentinel replaces their workers, leaves others alone, and records
//! incidents, whatever the application's log does.

mod debugger;
mod incidents;
mod replaced;
mod sentinel;
mod stuck_log;
