//! Runs loom models: in every order of their threads up to a bound, or until a deliberate fault is
//! found.
//!
//! Without `--cfg loom` this crate is empty.

#![cfg(loom)]

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use std::{env, thread};

/// Maximum number of preemptions per order, that is, of switches from a thread that could continue
/// to another one. `LOOM_MAX_PREEMPTIONS` overrides it.
const PREEMPTIONS: usize = 3;
/// If set to `full`, models with a lower bound get one preemption more. Otherwise they take at most
/// a minute.
const FORM: &str = "VOLT_GATE";
/// Sets the bound of every model, to measure how long a higher one takes.
const BOUND: &str = "VOLT_LOOM_BOUND";
/// Set in a child process that runs a model with a fault.
const IN_CHILD: &str = "VOLT_LOOM_FAULT";

/// Runs `model` in every order of its threads with at most [`PREEMPTIONS`]. `preemptions` is a
/// lower bound, for models that take minutes with the usual bound.
///
/// # Panics
///
/// Panics if any order panics or ends with threads that wait forever, or if there was only one
/// order, which means that nothing was explored.
pub fn holds(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let orders = explore(preemptions, model);
    assert!(orders > 1, "the model has one order only");
}

/// Runs `model`, which contains a deliberate fault, and requires that some order fails with
/// `failure` in its message. Call it once per test.
///
/// The model runs in a child process: when loom gives up on threads that wait forever, it drops
/// their values, and that aborts.
///
/// # Panics
///
/// Panics if no order fails, or if one fails with another message.
pub fn breaks(failure: &str, preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    if env::var_os(IN_CHILD).is_some() {
        explore(preemptions, model);
        return;
    }
    let test = thread::current().name().expect("the test harness names its threads").to_owned();
    let child = Command::new(env::current_exe().unwrap())
        .args([&test, "--exact", "--nocapture"])
        .env(IN_CHILD, "1")
        .env("RUST_BACKTRACE", "0")
        .output()
        .unwrap();
    let output = [child.stdout, child.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(!child.status.success() && output.contains(failure), "expected \"{failure}\", but:\n{output}");
}

fn explore(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) -> usize {
    let is_full = env::var_os(FORM).is_some_and(|form| form == "full");
    let mut builder = loom::model::Builder::new();
    let usual = builder.preemption_bound.unwrap_or(PREEMPTIONS);
    let own = preemptions.map_or(usual, |lower| lower + usize::from(is_full));
    let bound = env::var(BOUND).map_or(own, |bound| bound.parse().expect("VOLT_LOOM_BOUND is a number"));
    builder.preemption_bound = Some(bound);
    let orders = Arc::new(AtomicUsize::new(0));
    let counted = orders.clone();
    let began = Instant::now();
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let orders = orders.load(Ordering::Relaxed);
    println!("{orders} orders with at most {bound} preemptions in {:.1} s", began.elapsed().as_secs_f64());
    orders
}
