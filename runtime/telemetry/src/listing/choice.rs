//! The rows that a program has chosen for a list, and the reuse of that choice.
//!
//! A program handles a [`Query`] in two steps. It walks through all tasks, or all processes, and
//! keeps the [`Highest`]: the ids of as many as the query requests. Then it looks these up, and
//! reads their current values. The [`Choice`] of the first step is reused for a while. So a client
//! that queries often gets current values of the same rows, and the program rarely pays for a walk.
//!
//! Bounds: a walk covers at most [`WALK_MAX`] rows. For the same query, its choice is reused for
//! `REST` times as long as the walk took; for another query, for `REST_OF_ANOTHER` times as long.
//! So the walks for one list use at most a two-hundredth of a processor, whatever the number of
//! clients, or a tenth while the query changes all the time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use super::Query;

/// The maximum number of tasks or processes that a walk covers.
pub const WALK_MAX: usize = 4_000_000;
/// See the module's documentation.
const REST: u32 = 200;
const REST_OF_ANOTHER: u32 = 10;

/// The result of a walk: what was chosen for a query, and when.
#[derive(Debug)]
pub struct Choice<R: Default, C> {
    /// The query of the walk.
    pub query: Query<R>,
    /// What was chosen.
    pub content: C,
    began: Instant,
    took: Duration,
}

impl<R: Default + PartialEq, C> Choice<R, C> {
    /// Returns the choice of a walk that began at this time and ends now.
    pub fn of_walk(query: Query<R>, content: C, began: Instant) -> Self {
        Self { query, content, began, took: began.elapsed() }
    }

    /// Returns whether `query` may be answered from this choice.
    pub fn is_good_for(&self, query: &Query<R>, now: Instant) -> bool {
        let rest = if self.query == *query { REST } else { REST_OF_ANOTHER };
        now < self.began + self.took + self.took.saturating_mul(rest)
    }

    /// Returns the time since the walk began, in nanoseconds.
    pub fn ago_ns(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.began).as_nanos() as u64
    }

    /// Returns how long the walk took, in nanoseconds.
    pub fn took_ns(&self) -> u64 {
        self.took.as_nanos() as u64
    }
}

/// Keeps those of many rows that come first in the order of a query, as many as it requests.
#[derive(Debug)]
pub struct Highest<K, T> {
    limit: usize,
    /// The last of those kept is on top.
    kept: BinaryHeap<Row<K, T>>,
    offered: u64,
}

/// A row, ordered by its key alone.
#[derive(Debug)]
struct Row<K, T> {
    key: K,
    row: T,
}

impl<K: Ord, T> Highest<K, T> {
    /// Returns an empty collection that keeps up to `limit` rows.
    pub fn new(limit: usize) -> Self {
        Self { limit, kept: BinaryHeap::with_capacity(limit + 1), offered: 0 }
    }

    /// Keeps `row` if its key is among the first ones so far.
    pub fn offer(&mut self, key: K, row: T) {
        self.offered += 1;
        if self.kept.len() < self.limit || self.kept.peek().is_some_and(|last| key < last.key) {
            self.kept.push(Row { key, row });
            if self.kept.len() > self.limit {
                self.kept.pop();
            }
        }
    }

    /// Returns the number of rows that were offered.
    pub fn offered(&self) -> u64 {
        self.offered
    }

    /// Returns the rows that were kept, in no order.
    pub fn into_rows(self) -> Vec<T> {
        self.kept.into_iter().map(|kept| kept.row).collect()
    }
}

impl<K: Ord, T> PartialEq for Row<K, T> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<K: Ord, T> Eq for Row<K, T> {}

impl<K: Ord, T> PartialOrd for Row<K, T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K: Ord, T> Ord for Row<K, T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::Rank;

    #[test]
    fn the_first_rows_are_kept_in_any_order_of_offers() {
        for step in [1, 7, 11] {
            let mut highest = Highest::new(3);
            (0..20).map(|index| index * step % 20).for_each(|key| highest.offer(key, key * 10));
            assert_eq!(highest.offered(), 20);
            let mut rows = highest.into_rows();
            rows.sort_unstable();
            assert_eq!(rows, [0, 10, 20]);
        }
    }

    #[test]
    fn a_choice_is_reused_longer_for_the_same_query() {
        let (began, took) = (Instant::now(), Duration::from_millis(2));
        let query = Query::<Rank>::default();
        let choice = Choice { query: query.clone(), content: (), began, took };
        let other = Query { limit: 5, ..query.clone() };
        assert!(choice.is_good_for(&query, began + took * 200) && !choice.is_good_for(&query, began + took * 202));
        assert!(choice.is_good_for(&other, began + took * 10) && !choice.is_good_for(&other, began + took * 12));
        assert_eq!((choice.ago_ns(began + took), choice.took_ns()), (2_000_000, 2_000_000));
    }
}
