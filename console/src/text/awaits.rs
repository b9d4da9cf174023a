//! Describes what a task awaits, in full and for a column.

use volt_telemetry::waits;

/// Describes what a task awaits, by its name in JSON, and the task whose end it awaits, if that is
/// known.
pub fn awaited(name: &str, task: Option<u64>) -> String {
    if let Some(task) = task {
        return format!("the end of task {task}");
    }
    waits::awaited(name).to_owned()
}

/// Describes what a task awaits in at most 17 columns, unless the id of the awaited task is very
/// long.
pub fn awaited_briefly(name: &str, task: Option<u64>) -> String {
    match (name, task) {
        (_, Some(task)) => format!("task {task}"),
        ("others", None) => "other tasks".to_owned(),
        _ => awaited(name, None),
    }
}
