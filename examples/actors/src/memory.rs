//! Measures the memory per process. Runs in a child process of the benchmark, because otherwise
//! memory freed by an earlier workload would be reused.

use std::process::Command;
use std::{fs, mem};

use crate::peer::Peer;
use crate::tally::BEGUN;

pub(crate) const CHILD: &str = "--child";
/// The number of processes that are started before waiting until all have begun. It limits the
/// growth of queues.
const AT_ONCE: usize = 1_000;

/// Starts the child process, and returns its result.
pub(crate) fn measure(peer: &str, workers: usize, count: usize) -> f64 {
    let program = std::env::current_exe().expect("this program can be started again");
    let mut command = Command::new(program);
    command.args([CHILD, peer, &workers.to_string(), &count.to_string()]);
    let output = command.output().expect("a child starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "the child of {peer} failed: {}{text}", String::from_utf8_lossy(&output.stderr));
    text.trim().parse().expect("a child prints a number")
}

/// Measures in the child process. The references that are kept to reach the processes count too: an
/// unreachable process is of no use, and some libraries stop it.
pub(crate) fn bytes_each<P: Peer>(workers: usize, count: usize) -> f64 {
    let peer = P::start(workers);
    let mut idle = Vec::with_capacity(count + AT_ONCE);
    let mut begin = || {
        BEGUN.arm(AT_ONCE);
        idle.extend(peer.idle(AT_ONCE));
        BEGUN.wait();
    };
    begin();
    let before = resident_bytes();
    let rounds = count.div_ceil(AT_ONCE);
    (0..rounds).for_each(|_| begin());
    let bytes = resident_bytes() - before;
    // The processes are dropped with the program: stopping a million of them is not part of the
    // measurement.
    mem::forget((idle, peer));
    bytes / (rounds * AT_ONCE) as f64
}

/// Returns the resident anonymous memory. Code and files do not belong to the processes.
fn resident_bytes() -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("this system has /proc");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("the kernel reports it");
    let kilobytes = line.trim().trim_end_matches(" kB").parse::<f64>();
    kilobytes.expect("it is a number") * 1024.0
}
