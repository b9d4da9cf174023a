//! Instructions an operation, counted by callgrind: the load of the machine does not touch them.
//!
//! A program is run twice, for few batches and for many, with one worker; the difference of the two
//! counts, divided by that of the operations, leaves out start and end. All threads of the process
//! count, and kernel time does not.
//!
//! What comes by chance only adds: under valgrind, and on a busy machine, the sentinel may find
//! that a poll has lasted for too long, and what its stack says then costs a hundred million
//! instructions, once. So each length is run again until its two smallest counts agree, and the
//! smallest is taken.
//!
//! Under valgrind one thread runs at a time, and time goes by some fifty times as fast. The cycle
//! counter is the processor's own there too, the processor still says that it can be trusted, and
//! Volt's clock is calibrated as ever: a reading is four loads, an `rdtsc` that counts as one
//! instruction, and a multiplication. Nothing in Volt spins for longer than it is told a number of
//! times, so nothing runs wild; what depends on time (the poll of the driver, the interval of the
//! tuner) moves the counts by some thousandths from run to run.

use std::process::{Child, Command, Stdio};

use crate::subjects::Subject;
use crate::workloads::Workload;

const VALGRIND: &str = "valgrind";
/// Of the batches of the longer run: what the shorter one does.
const SHORTER: usize = 5;
/// With `--quick`: batches divided by this.
const FEWER: usize = 4;
/// The two smallest counts agree if they differ by no more than this,
const AGREEMENT_RATIO: f64 = 0.005;
/// after so many runs at most.
const MAX_RUNS: usize = 5;

/// Whether there is a valgrind to count with; if not, why.
pub(crate) fn availability() -> Result<(), String> {
    let tried = Command::new(VALGRIND).args(["--tool=callgrind", "--version"]).output();
    match tried {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{VALGRIND} fails: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{VALGRIND} cannot be started ({error}); on Debian: apt-get install valgrind")),
    }
}

/// Instructions an operation of `workload`; `None` if it cannot be counted.
pub(crate) fn count(subject: &Subject, workload: &Workload, is_quick: bool) -> Option<f64> {
    if !subject.is_countable {
        return None;
    }
    let longer = if is_quick { (workload.batches / FEWER).max(2) } else { workload.batches };
    let shorter = (longer / SHORTER).max(1);
    let mut counts = [Vec::new(), Vec::new()];
    for _ in 0..MAX_RUNS {
        // Both at once: they do not disturb each other's counts.
        let runs = [shorter, longer].map(|batches| start(subject, workload, batches));
        for (counts, run) in counts.iter_mut().zip(runs) {
            counts.push(collected(run?)?);
            counts.sort_unstable_by(f64::total_cmp);
        }
        if counts.iter().all(|counts| do_agree(counts)) {
            break;
        }
    }
    let operations = (longer - shorter) * workload.operations;
    Some((counts[1][0] - counts[0][0]) / operations as f64)
}

/// The two smallest of them.
fn do_agree(counts: &[f64]) -> bool {
    matches!(counts, [least, next, ..] if next - least <= least * AGREEMENT_RATIO)
}

fn start(subject: &Subject, workload: &Workload, batches: usize) -> Option<Child> {
    let mut command = Command::new(VALGRIND);
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(&subject.program);
    subject.add_arguments(&mut command, workload.name, 1);
    command.args(["--batches", &batches.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().ok()
}

/// From its last words, such as `==11234== Collected : 50746535`.
fn collected(child: Child) -> Option<f64> {
    let output = child.wait_with_output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let (_, told) = text.split_once("Collected : ")?;
    output.status.success().then(|| told.split_whitespace().next()?.parse().ok()).flatten()
}
