//! Starts the benchmark again as a child, with `--child` and the measurement that it makes
//! (`workloads::run_child`), and reads its output.

use std::process::{Child, Command, Stdio};

/// The first argument of a child.
pub(crate) const CHILD: &str = "--child";

/// Starts this program as a child with these arguments. Its input and output are pipes.
pub(crate) fn start(arguments: &[String]) -> Child {
    let program = std::env::current_exe().expect("this program can be started again");
    let mut command = Command::new(program);
    command.arg(CHILD).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().expect("a child starts")
}

/// Starts all children at the same time, and returns the figures of each.
pub(crate) fn measure(children: &[Vec<String>]) -> Vec<Vec<f64>> {
    let started: Vec<_> = children.iter().map(|arguments| start(arguments)).collect();
    let figures = started.into_iter().map(|child| {
        let output = child.wait_with_output().expect("a child ends");
        assert!(output.status.success(), "a child failed: {}", output.status);
        let text = String::from_utf8_lossy(&output.stdout);
        text.split_whitespace().map(|figure| figure.parse().expect("a child prints numbers")).collect()
    });
    figures.collect()
}
