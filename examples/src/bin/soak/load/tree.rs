//! Trees of tasks: each result arrives, each abort and each panic is reported as what it is.

use std::sync::Arc;
use std::time::Duration;

use volt::Handle;
use volt::task::JoinSet;

use crate::part::{Part, pause};
use crate::random::Random;

const TREES: u64 = 4;
const BRANCHES: u64 = 4;
const DEPTH: u32 = 3;
const PAUSE_MAX: Duration = Duration::from_millis(40);
/// The payload of the intended panics, which the hook leaves out of the log.
pub(crate) const INTENDED: &str = "an intended panic";

pub(super) fn start(runtime: &Handle, part: &Arc<Part>) {
    for tree in 0..TREES {
        drop(runtime.spawn(grow(part.clone(), tree)));
    }
}

async fn grow(part: Arc<Part>, seed: u64) {
    let mut random = Random::new(seed);
    while !part.is_over() {
        let leaves = leaves(DEPTH).await;
        part.verify(leaves == BRANCHES.pow(DEPTH), format_args!("{leaves} leaves of {}", BRANCHES.pow(DEPTH)));

        let forever = volt::spawn(std::future::pending::<()>());
        forever.abort();
        let outcome = forever.await;
        part.verify(outcome.is_err_and(|error| error.is_cancelled()), "an aborted task is not cancelled");

        let panics = volt::spawn(async {
            volt::task::yield_now().await;
            std::panic::panic_any(INTENDED);
        });
        let outcome = panics.await;
        part.verify(outcome.is_err_and(|error| error.is_panic()), "a panic is not reported");

        // A set that is dropped aborts its tasks.
        let mut set = JoinSet::new();
        for number in 0..BRANCHES {
            set.spawn(async move { number });
        }
        let first = set.join_next().await;
        part.verify(matches!(first, Some(Ok(number)) if number < BRANCHES), "a set returns no result");
        drop(set);
        pause(&mut random, PAUSE_MAX).await;
    }
}

/// Counts the leaves of a tree, each of whose nodes is a task.
fn leaves(depth: u32) -> std::pin::Pin<Box<dyn Future<Output = u64> + Send>> {
    Box::pin(async move {
        if depth == 0 {
            return 1;
        }
        let branches: Vec<_> = (0..BRANCHES).map(|_| volt::spawn(leaves(depth - 1))).collect();
        let mut sum = 0;
        for branch in branches {
            sum += branch.await.unwrap_or(0);
        }
        sum
    })
}
