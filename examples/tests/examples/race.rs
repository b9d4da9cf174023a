//! Tests of the example `race`: the simulation finds the planted race and replays it.

use std::process::Command;

/// Runs the program. Returns whether it succeeded, and what it wrote to stdout.
fn race(arguments: &[&str]) -> (bool, String) {
    let run = Command::new(env!("CARGO_BIN_EXE_race")).args(arguments).output().unwrap();
    (run.status.success(), String::from_utf8(run.stdout).unwrap())
}

#[test]
fn the_race_is_found_within_1000_seeds_and_replayed() {
    let (has_passed, found) = race(&["--seeds", "1000"]);
    assert!(!has_passed && found.contains("the transfers have changed the sum of all accounts"), "{found}");
    let seed = found.strip_prefix("seed ").and_then(|rest| rest.split(' ').next()).expect(&found);
    let schedule = |text: &str| text.lines().find(|line| line.starts_with("schedule ")).map(str::to_owned);
    assert!(schedule(&found).is_some(), "{found}");
    for _ in 0..3 {
        let (has_passed, replayed) = race(&["--seed", seed]);
        assert!(!has_passed);
        assert_eq!(schedule(&replayed), schedule(&found), "{replayed}");
        assert!(replayed.starts_with(&format!("seed {seed} fails: ")), "{replayed}");
    }
    let (has_passed, other) = race(&["--seeds", seed]);
    assert!(has_passed, "seeds before the first failure pass: {other}");
}

#[test]
fn the_corrected_transfer_passes_1000_seeds() {
    assert_eq!(race(&["--corrected", "--seeds", "1000"]), (true, "no failure with 1000 seeds\n".to_owned()));
}
