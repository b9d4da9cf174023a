//! Tables of tasks and of processes, one row each: the columns that screen and text share.
//!
//! Invariant: *A figure is never cut*: a column is as wide as its widest cell and its title with
//! the arrow of the order, whatever the numbers are that a program has come to.

use volt_telemetry::tasks::MAX_FILTER_BYTES;

use crate::tables::cell::{Align, Cell};
use crate::text::figures::{ABSENT, count, width};

/// The heading of what two snapshots show.
pub const NOW_TITLE: &str = "now";

/// One line of a table.
#[derive(Debug)]
pub struct Row<'a, T> {
    /// What it is of.
    pub item: &'a T,
    /// How much of the time since the list before it was polled; `None` when that is not known.
    pub busy_ratio: Option<f64>,
}

/// One column, of things that may be ranked by an `R`.
#[derive(Clone, Copy, Debug)]
pub struct Column<T, R> {
    /// Its heading.
    pub title: &'static str,
    /// What the table is ranked by for it, if it can be.
    pub rank: Option<R>,
    /// Whether only a wide screen has it.
    pub is_extra: bool,
    align: Align,
    /// Columns of a terminal that it takes at least, so that it keeps its place while figures come
    /// and go.
    min_width: usize,
    content: fn(&Row<'_, T>) -> Cell,
}

/// A column of figures.
pub(crate) const fn plain<T, R: Copy>(
    title: &'static str,
    min_width: usize,
    content: fn(&Row<'_, T>) -> Cell,
) -> Column<T, R> {
    Column { title, rank: None, is_extra: false, align: Align::Right, min_width, content }
}

/// A column of words.
pub(crate) const fn words<T, R: Copy>(
    title: &'static str,
    min_width: usize,
    content: fn(&Row<'_, T>) -> Cell,
) -> Column<T, R> {
    Column { align: Align::Left, ..plain(title, min_width, content) }
}

/// A column of figures by which the table may be ranked.
pub(crate) const fn ranked<T, R: Copy>(
    title: &'static str,
    min_width: usize,
    rank: R,
    content: fn(&Row<'_, T>) -> Cell,
) -> Column<T, R> {
    Column { rank: Some(rank), ..plain(title, min_width, content) }
}

/// `column`, for wide screens.
pub(crate) const fn extra<T, R: Copy>(column: Column<T, R>) -> Column<T, R> {
    Column { is_extra: true, ..column }
}

/// `text`, or that there is none.
pub(crate) fn absent(text: Option<String>) -> Cell {
    Cell::new(text.unwrap_or_else(|| ABSENT.into()))
}

impl<T, R: Copy> Column<T, R> {
    /// What it says of a row.
    pub fn cell(&self, row: &Row<'_, T>) -> Cell {
        (self.content)(row)
    }

    /// How many columns of a terminal it takes in a table of these rows.
    pub fn width(&self, rows: &[Row<'_, T>]) -> usize {
        let least = self.min_width.max(self.title.len() + usize::from(self.rank.is_some()));
        rows.iter().map(|row| width(&self.cell(row).text)).fold(least, usize::max)
    }

    /// `text` set into `width`.
    pub fn set(&self, text: &str, width: usize) -> String {
        self.align.set(text, width)
    }
}

/// Ranks in the order of their columns.
pub fn orders<T, R: Copy>(columns: &[Column<T, R>]) -> Vec<R> {
    columns.iter().filter_map(|column| column.rank).collect()
}

/// For people: a line of titles, and one for each of `items`; `rest` says what stands behind the
/// columns, `rest_title` what that is.
pub fn text<T, R: Copy>(
    columns: &[Column<T, R>],
    items: &[T],
    rest_title: &str,
    rest: impl Fn(&T) -> String,
) -> String {
    let rows: Vec<_> = items.iter().map(|item| Row { item, busy_ratio: None }).collect();
    // One snapshot shows nothing of the time just past.
    let columns = columns.iter().filter(|column| column.title != NOW_TITLE);
    let columns: Vec<_> = columns.map(|column| (column, column.width(&rows))).collect();
    let line = |cell: &dyn Fn(&Column<T, R>) -> String, rest: &str| {
        let cells = columns.iter().map(|(column, width)| column.set(&cell(column), *width) + " ");
        cells.collect::<String>() + rest + "\n"
    };
    let mut text = line(&|column| column.title.into(), rest_title);
    text.extend(rows.iter().map(|row| line(&|column| column.cell(row).text, &rest(row.item))));
    text
}

/// `text` as a program searches for it: what is longer than it takes is cut.
pub fn filter(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_FILTER_BYTES)].to_owned()
}

/// `200 of 211 that match shown by busy`.
pub(crate) fn shown(rows: usize, matching: u64, filter: &str, is_inverted: bool, rank: &str) -> String {
    let filter = if filter.is_empty() { "" } else { " matching" };
    let order = if is_inverted { "lowest " } else { "" };
    format!("{} of {}{filter} shown, by {order}{rank}", count(rows as u64), count(matching))
}
