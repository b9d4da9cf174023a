//! Runs loom models: in every order of their threads, up to a bound, or until a fault that was put
//! in shows.
//!
//! Only with `--cfg loom`; without it this crate is empty.

#![cfg(loom)]

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use std::{env, thread};

/// The most preemptions tried in one order, switches away from a thread that could go on,
/// unless `LOOM_MAX_PREEMPTIONS` says otherwise.
const PREEMPTIONS: usize = 3;
/// With `full`, models that have a lower bound get one preemption more. Without it they take a
/// minute at most.
const FORM: &str = "VOLT_GATE";
/// Sets the bound of every model, whatever its own is: to measure how long a higher one takes.
const BOUND: &str = "VOLT_LOOM_BOUND";
/// Set in a process that runs a model with a fault put in.
const IN_CHILD: &str = "VOLT_LOOM_FAULT";

/// Runs `model` in every order of its threads with at most [`PREEMPTIONS`]. `preemptions` is a
/// lower bound, for models with so many threads or steps that the usual one takes minutes.
///
/// # Panics
///
/// If one order panics or ends with threads that wait for ever; or if there was only one, which
/// means that nothing was explored.
pub fn holds(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let orders = explore(preemptions, model);
    assert!(orders > 1, "the model has one order only");
}

/// Runs `model`, which has a fault put in, and requires that some order fails with `failure` in its
/// message. Once a test.
///
/// In a separate process: loom, when it gives up on threads that wait for ever, drops what they
/// hold, and that aborts.
///
/// # Panics
///
/// If no order fails, or one fails otherwise.
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
