//! Tables with one row for each group of tasks or requests, and figures in columns: those of spawn
//! locations and of HTTP routes.
//!
//! Independent of the terminal. Used by [`view`](crate::view).
//!
//! Invariants. *A figure is never cut*: a column is as wide as its widest value, and as its title
//! with the arrow of the order. *Equal rows keep one order*, by name, so that rows do not jump.

use std::cmp::Ordering;

use crate::facts::Tone;
use crate::tables::cell::Cell;
use crate::text::figures::{ABSENT, count, duration, rate};

/// One group: its counts `T` since the runtime started, and its rates `R` between the last two
/// snapshots.
#[derive(Debug)]
pub struct Row<'a, T, R> {
    /// The counts.
    pub item: &'a T,
    /// The rates; `None` after the first snapshot.
    pub rates: Option<&'a R>,
}

impl<T, R> Clone for Row<'_, T, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, R> Copy for Row<'_, T, R> {}

/// One column. The table can be sorted by each.
#[derive(Debug)]
pub struct Column<T, R> {
    /// The title.
    pub title: &'static str,
    /// The largest width of its values.
    pub width: usize,
    /// Whether only a wide screen shows it.
    pub is_extra: bool,
    pub(super) content: Content<T, R>,
    pub(super) meaning: Meaning,
}

#[derive(Debug)]
pub(super) enum Content<T, R> {
    Time(fn(&T) -> u64),
    KnownTime(fn(&T) -> Option<u64>),
    Count(fn(&T) -> u64),
    Known(fn(&T) -> Option<u64>),
    Now(fn(&R) -> f64),
}

/// The meaning of a value above 0.
#[derive(Clone, Copy, Debug)]
pub(super) enum Meaning {
    Nothing,
    Fault,
    Length,
}

pub(super) const fn column<T, R>(title: &'static str, width: usize, content: Content<T, R>) -> Column<T, R> {
    Column { title, width, is_extra: false, content, meaning: Meaning::Nothing }
}

/// Returns the rows sorted by column `order`, the largest first, or by name if `order` is past the
/// last column. `is_inverted` reverses the order. `rates` are those of `items`, in their order.
pub(super) fn rows<'a, T, R>(
    items: &'a [T],
    rates: &'a [R],
    columns: &[Column<T, R>],
    name: fn(&'a T) -> (&'a str, &'a str),
    (order, is_inverted): (usize, bool),
) -> Vec<Row<'a, T, R>> {
    let row = |(index, item): (usize, &'a T)| Row { item, rates: rates.get(index) };
    let mut rows: Vec<Row<'a, T, R>> = items.iter().enumerate().map(row).collect();
    rows.sort_by(|a, b| {
        let by_name = name(a.item).cmp(&name(b.item));
        let first = match columns.get(order) {
            Some(column) => Weight(column.weight(b).unwrap_or(-1.0)).cmp(&Weight(column.weight(a).unwrap_or(-1.0))),
            None => by_name,
        };
        let first = if is_inverted { first.reverse() } else { first };
        first.then(by_name)
    });
    rows
}

impl<T, R> Column<T, R> {
    /// Returns the cell of a row.
    pub fn cell(&self, row: &Row<'_, T, R>) -> Cell {
        let weight = self.weight(row);
        let text = match (&self.content, weight) {
            (_, None) => ABSENT.into(),
            (Content::Time(of), _) => duration(of(row.item)),
            (Content::KnownTime(_), Some(ns)) => duration(ns as u64),
            (Content::Count(of), _) => count(of(row.item)),
            (Content::Known(_), Some(n)) => count(n as u64),
            (Content::Now(_), Some(now)) => rate(now),
        };
        let tone = match (self.meaning, weight.unwrap_or(0.0)) {
            (_, nothing) if nothing <= 0.0 => Tone::Quiet,
            (Meaning::Nothing, _) => Tone::Plain,
            (Meaning::Fault, _) => Tone::Warn,
            (Meaning::Length, ns) => Tone::of_duration(ns as u64),
        };
        Cell { text: format!("{text}{}", tone.mark()), tone }
    }

    /// Returns its width on a terminal: its values with their marks, and its title with the arrow
    /// of the order.
    pub fn full_width(&self) -> usize {
        let mark = match self.meaning {
            Meaning::Nothing => 0,
            Meaning::Fault => 1,
            Meaning::Length => 2,
        };
        (self.width + mark).max(self.title.len() + 1)
    }

    /// Returns the number to sort by; `None` if there is none.
    fn weight(&self, row: &Row<'_, T, R>) -> Option<f64> {
        match self.content {
            Content::Time(of) | Content::Count(of) => Some(of(row.item) as f64),
            Content::Known(of) | Content::KnownTime(of) => of(row.item).map(|n| n as f64),
            Content::Now(of) => row.rates.map(of),
        }
    }
}

/// A number with a total order.
#[derive(PartialEq)]
struct Weight(f64);

impl Eq for Weight {}

impl PartialOrd for Weight {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Weight {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}
