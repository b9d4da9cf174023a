//! The sets of tasks that the runtimes have, for the workload that uses them.

use std::future::Future;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::peer::Peer;
use super::smol::Smol;
use super::tokio::{Tokio, Watch};
use super::volt::Volt;

/// See the header of this file.
pub(crate) trait Sets: Peer {
    /// Spawns `count` tasks that do nothing in a set, and joins them.
    fn join_set(count: usize) -> impl Future<Output = ()> + Send;
}

impl Sets for Volt {
    async fn join_set(count: usize) {
        let mut set = volt::task::JoinSet::new();
        (0..count).for_each(|_| _ = set.spawn(async {}));
        while let Some(joined) = set.join_next().await {
            joined.expect("no task of the bench panics");
        }
    }
}

impl<W: Watch> Sets for Tokio<W> {
    async fn join_set(count: usize) {
        let mut set = tokio::task::JoinSet::new();
        (0..count).for_each(|_| _ = set.spawn(async {}));
        while let Some(joined) = set.join_next().await {
            joined.expect("no task of the bench panics");
        }
    }
}

/// smol has no such set. Its users put the tasks into a `FuturesUnordered`.
impl Sets for Smol {
    async fn join_set(count: usize) {
        let mut tasks: FuturesUnordered<_> = (0..count).map(|_| Self::spawn(async {})).collect();
        while tasks.next().await.is_some() {}
    }
}
