//! Bytes a process: in a child of this program, since memory that an earlier workload has freed
//! would be used again.

use std::process::Command;
use std::{fs, mem};

use crate::peer::Peer;
use crate::tally::BEGUN;

pub(crate) const CHILD: &str = "--child";
/// Started before it is waited until all have begun, so that queues do not grow to hold them all.
const AT_ONCE: usize = 1_000;

/// Starts the child, and gives what it found.
pub(crate) fn measure(peer: &str, workers: usize, count: usize) -> f64 {
    let program = std::env::current_exe().expect("this program can be started again");
    let mut command = Command::new(program);
    command.args([CHILD, peer, &workers.to_string(), &count.to_string()]);
    let output = command.output().expect("a child starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "the child of {peer} failed: {}{text}", String::from_utf8_lossy(&output.stderr));
    text.trim().parse().expect("a child prints a number")
}

/// In the child. What is kept to reach a process counts: one that nobody can reach is of no use,
/// and some libraries end it.
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
    // They go with the program: ending a million of them is not what is measured.
    mem::forget((idle, peer));
    bytes / (rounds * AT_ONCE) as f64
}

/// Of anonymous memory: code and files are not the processes'.
fn resident_bytes() -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("this system has /proc");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("the kernel tells");
    let kilobytes = line.trim().trim_end_matches(" kB").parse::<f64>();
    kilobytes.expect("it is a number") * 1024.0
}
