//! `volt::task`, `time` and `runtime`, and Volt's macros, are those of Tokio, with the same
//! signatures: lists of uses are compiled with the types of either. Tokio's show that the lists
//! themselves are right.
//!
//! Two things are not in the lists. `runtime::Builder` is passed by value on Volt, so only its
//! chains of calls are the same. The functions that pause the clock need a feature of Tokio's that
//! these tests are built without.

mod of_tokio;
mod of_volt;

#[test]
fn volt_has_every_item_of_tokios_task_time_and_runtime() {
    of_volt::tasks::all();
    of_volt::sets::all();
    of_volt::times::all();
    of_volt::runtimes::all();
    of_tokio::tasks::all();
    of_tokio::sets::all();
    of_tokio::times::all();
    of_tokio::runtimes::all();
}
