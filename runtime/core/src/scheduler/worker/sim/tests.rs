//! Runs the simulation with fixed seeds, with a fresh one, and with faults that it must find.

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime};

use super::random::Random;
use super::simulate;
use super::world::Fault;
use crate::task::id::Id;

/// Steps per seed.
const STEPS: u64 = 1_000_000;
/// Steps of one runtime; the next runtime has other settings.
const STEPS_OF_ONE: u64 = 10_000;
/// Steps that a seed has to find a fault.
const STEPS_TO_FAULT: u64 = 300_000;
/// Seeds of which one must find the fault.
const SEEDS_TO_FAULT: std::ops::Range<u64> = 4..64;

/// Simulates runtimes drawn from `seed` until they have taken `steps` steps. Returns the number of
/// steps, and what has happened.
fn run(seed: u64, steps: u64, fault: Option<Fault>) -> Result<(u64, BTreeMap<&'static str, u64>), String> {
    let random = Random::new(seed);
    let (mut taken, mut reached) = (0, BTreeMap::new());
    while taken < steps {
        let outcome = simulate(&random, STEPS_OF_ONE, fault);
        outcome.result.map_err(|violation| format!("seed {seed}, after {taken} steps: {violation}"))?;
        taken += outcome.steps;
        outcome.reached.into_iter().for_each(|(what, count)| *reached.entry(what).or_default() += count);
    }
    Ok((taken, reached))
}

fn holds(seed: u64) {
    let began = Instant::now();
    match run(seed, STEPS, None) {
        Ok((taken, reached)) => {
            println!("seed {seed}: {taken} steps in {:?}: {reached:?}", began.elapsed());
            assert!(reached.values().all(|count| *count > 0), "seed {seed} has not got everywhere: {reached:?}");
        }
        Err(violation) => panic!("{violation}\nrepeat with VOLT_SIM_SEED={seed}"),
    }
}

#[test]
fn a_million_steps_of_seed_1_keep_every_promise() {
    holds(1);
}

#[test]
fn a_million_steps_of_seed_2_keep_every_promise() {
    holds(2);
}

#[test]
fn a_million_steps_of_seed_3_keep_every_promise() {
    holds(3);
}

#[test]
fn a_million_steps_of_a_fresh_seed_keep_every_promise() {
    let given = std::env::var("VOLT_SIM_SEED").ok().map(|seed| seed.parse().expect("VOLT_SIM_SEED is a number"));
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
    holds(given.unwrap_or_else(now));
}

#[test]
fn a_seed_determines_the_whole_run() {
    let first = run(7, 30_000, None).expect("keeps every promise");
    // Tasks elsewhere in the program must not matter.
    let _used = Id::next();
    assert_eq!(run(7, 30_000, None), Ok(first));
}

/// Asserts that `fault` is found, by one of the checks with the messages `violations`. Which seed
/// finds it is random, and changes with every line of the scheduler.
fn breaks(fault: Fault, violations: &[&str]) {
    let found = SEEDS_TO_FAULT
        .into_iter()
        .find_map(|seed| run(seed, STEPS_TO_FAULT, Some(fault)).err().map(|found| (seed, found)));
    let Some((seed, found)) = found else { panic!("{fault:?} was not found") };
    println!("seed {seed}: {}", found.lines().next().unwrap_or_default());
    let is_expected = violations.iter().any(|violation| found.contains(violation));
    assert!(is_expected, "expected one of {violations:?}, but: {found}");
}

#[test]
fn a_park_without_a_check_is_found() {
    breaks(Fault::NoCheck, &["every worker sleeps", "it does not come to rest", "none searches, and"]);
}

#[test]
fn a_check_before_the_park_is_found() {
    breaks(Fault::CheckFirst, &["every worker sleeps", "it does not come to rest", "none searches, and"]);
}

#[test]
fn a_submission_that_wakes_no_worker_is_found() {
    breaks(Fault::NoWakeUp, &["every worker sleeps", "none searches, and"]);
}

#[test]
fn a_broken_chain_is_found() {
    breaks(Fault::NoChain, &["none searches, and"]);
}

#[test]
fn a_retract_whose_result_is_ignored_is_found() {
    breaks(Fault::RetractIgnored, &["workers search, and", "ONE-TOKEN", "its bit is wrong"]);
}

#[test]
fn a_forgotten_batch_is_found() {
    breaks(Fault::BatchDropped, &["tasks are queued, and the queues hold"]);
}

#[test]
fn a_lifo_slot_without_a_cap_is_found() {
    breaks(Fault::NoLifoCap, &["polls from its LIFO slot"]);
}

#[test]
fn a_global_queue_that_is_never_due_is_found() {
    breaks(Fault::GlobalNeverDue, &["passes the global queue over"]);
}

#[test]
fn a_lifo_slot_renewed_before_the_rings_turn_is_found() {
    breaks(Fault::LifoRenewed, &["passes its ring over", "waits in Ring", "waits in Inbox"]);
}

#[test]
fn a_global_queue_that_leaves_local_tasks_no_turn_is_found() {
    breaks(Fault::GlobalAlwaysDue, &["passes its ring over", "waits in Lifo", "waits in Ring", "waits in Inbox"]);
}

#[test]
fn an_inbox_that_is_locked_by_a_full_ring_is_found() {
    breaks(Fault::InboxBehindRing, &["waits in Inbox", "finds nothing, and there is something"]);
}

#[test]
fn a_worker_that_stays_up_and_is_no_searcher_is_found() {
    breaks(Fault::UpWithoutSearch, &["none searches, and"]);
}
