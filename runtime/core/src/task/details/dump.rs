//! Marks the tasks that the runtime itself spawns for a dump: by their spawn location, which no
//! other task has.
//!
//! A dump polls the program's tasks from a task of the same runtime (`scheduler/dump`). The
//! program has not spawned that task, so the program's callbacks and the list of running tasks
//! leave it out. This module is separate, because both are below the dump.

use std::panic::Location;
use std::ptr;

/// The spawn location. A static, since it is recognized by its address.
pub(crate) static SPAWNED_AT: &Location<'static> = Location::caller();

/// Returns whether a task with this spawn location belongs to a dump.
#[inline]
pub(crate) fn is_of_dump(spawned_at: &'static Location<'static>) -> bool {
    ptr::eq(spawned_at, SPAWNED_AT)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use volt_telemetry::dump::is_of_dump;

    use super::*;

    #[test]
    fn the_console_recognizes_the_tasks_of_a_dump_by_their_place() {
        assert!(is_of_dump(&SPAWNED_AT.to_string()));
        assert!(!is_of_dump(&Location::caller().to_string().replace("dump.rs", "program.rs")));
    }
}
