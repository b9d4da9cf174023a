//! The query that the lists of tasks and of processes share: which rows, in which order.

pub mod choice;
pub mod order;

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

/// Maximum number of rows in a list, whatever the query's limit.
pub const MAX_ROWS: usize = 1000;
/// Maximum length of the filter text in bytes; longer text is truncated.
pub const MAX_FILTER_BYTES: usize = 200;

/// Selects the rows of a list, ranked by an `R`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Query<R: Default> {
    /// The ranking.
    pub rank: R,
    /// Whether the smallest come first.
    pub is_inverted: bool,
    /// Selects only rows that contain this text, ignoring case. Empty selects all.
    pub filter: String,
    /// Maximum number of rows; at most [`MAX_ROWS`].
    pub limit: u32,
}

impl<R: Copy + Default> Query<R> {
    /// Returns the query within its bounds: a limit from 1 to [`MAX_ROWS`], and a filter of at most
    /// [`MAX_FILTER_BYTES`].
    pub fn bounded(&self) -> Self {
        let end = self.filter.floor_char_boundary(MAX_FILTER_BYTES);
        let limit = self.limit.clamp(1, MAX_ROWS as u32);
        Self { rank: self.rank, is_inverted: self.is_inverted, filter: self.filter[..end].to_owned(), limit }
    }

    /// Returns the key by which rows of this weight are sorted: the greatest weight first, or the
    /// smallest if the query is inverted.
    pub fn key(&self, weight: u64) -> Reverse<u64> {
        Reverse(if self.is_inverted { !weight } else { weight })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::Rank;

    #[test]
    fn a_query_is_cut_to_its_bounds_between_characters() {
        let long = Query::<Rank> { filter: "é".repeat(MAX_FILTER_BYTES), limit: u32::MAX, ..Query::default() };
        let bounded = Query { filter: format!("x{}", long.filter), ..long.clone() }.bounded();
        assert_eq!((bounded.filter.len(), bounded.limit), (MAX_FILTER_BYTES - 1, MAX_ROWS as u32));
        assert_eq!(Query { limit: 0, ..long }.bounded().limit, 1);
    }

    #[test]
    fn the_greatest_come_first_unless_inverted() {
        let sorted = |is_inverted| {
            let query = Query::<Rank> { is_inverted, ..Query::default() };
            let mut weights = [3, u64::MAX, 0];
            weights.sort_by_key(|weight| query.key(*weight));
            weights
        };
        assert_eq!((sorted(false), sorted(true)), ([u64::MAX, 3, 0], [0, 3, u64::MAX]));
    }
}
