//! Tests the task dump with the futures of many libraries, on a release build.
//!
//! Each [case](case::Case) spawns a task that waits in a known future, compares the dump of it with
//! the marks in the source, wakes the task, and waits for its end. The checks in [`behaviour`] are
//! about what a dump does to the tasks.
//!
//! `cargo run --release` runs everything. With words as arguments, it runs the cases with one of
//! them in their name, and prints their dumps.

use std::process::ExitCode;

mod case;

mod behaviour;
mod combinators;
mod leaves;
mod limits;
mod servers;
mod volt_own;

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let runtime = volt::Builder::new_multi_thread().worker_threads(1).name("cases").tokio_compat(true).build();
    let runtime = runtime.expect("the runtime of the cases");
    let entered = runtime.enter();
    let groups = [leaves::all(), combinators::all(), servers::all(), volt_own::all(), limits::all()];
    let (mut run, mut failed) = (0, 0);
    for make in groups.into_iter().flatten() {
        let case = make();
        if !wanted.is_empty() && !wanted.iter().any(|word| case.name().contains(word.as_str())) {
            continue;
        }
        let (name, text, wrong) = case.run(&runtime);
        run += 1;
        if !wanted.is_empty() || !wrong.is_empty() {
            println!("{name}\n{text}");
        }
        if !wrong.is_empty() {
            failed += 1;
            println!("FAILED: {name}: {}", wrong.join("; "));
        }
    }
    if wanted.is_empty() {
        behaviour::all(&runtime);
    }
    drop(entered);
    println!("{} cases passed, {failed} failed", run - failed);
    if failed == 0 && run > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
