//! Tables of tasks and of processes, with columns that screen and text output share.
//!
//! Invariant *a figure is never cut*: a column is as wide as its widest cell, and as its title with
//! the arrow of the order, whatever the program's numbers are.

use volt_telemetry::listing::MAX_FILTER_BYTES;

use crate::tables::cell::{Align, Cell};
use crate::text::figures::{ABSENT, count, width};

/// The title of columns that need two snapshots.
pub const NOW_TITLE: &str = "now";

/// One row of a table.
#[derive(Debug)]
pub struct Row<'a, T> {
    /// The task or process.
    pub item: &'a T,
    /// The share of the time since the previous list that it was being polled; `None` if unknown.
    pub busy_ratio: Option<f64>,
}

/// One column of a table that can be ranked by an `R`.
#[derive(Clone, Copy, Debug)]
pub struct Column<T, R> {
    /// The title.
    pub title: &'static str,
    /// The rank that sorts the table by this column, if there is one.
    pub rank: Option<R>,
    /// Whether only a wide screen shows it.
    pub is_extra: bool,
    align: Align,
    /// The smallest width on a terminal, so that the column does not move while figures change.
    min_width: usize,
    content: fn(&Row<'_, T>) -> Cell,
}

/// Creates a column of figures.
pub(crate) const fn plain<T, R: Copy>(
    title: &'static str,
    min_width: usize,
    content: fn(&Row<'_, T>) -> Cell,
) -> Column<T, R> {
    Column { title, rank: None, is_extra: false, align: Align::Right, min_width, content }
}

/// Creates a column of words.
pub(crate) const fn words<T, R: Copy>(
    title: &'static str,
    min_width: usize,
    content: fn(&Row<'_, T>) -> Cell,
) -> Column<T, R> {
    Column { align: Align::Left, ..plain(title, min_width, content) }
}

/// Creates a column of figures by which the table can be ranked.
pub(crate) const fn ranked<T, R: Copy>(
    title: &'static str,
    min_width: usize,
    rank: R,
    content: fn(&Row<'_, T>) -> Cell,
) -> Column<T, R> {
    Column { rank: Some(rank), ..plain(title, min_width, content) }
}

/// Returns `column`, for wide screens only.
pub(crate) const fn extra<T, R: Copy>(column: Column<T, R>) -> Column<T, R> {
    Column { is_extra: true, ..column }
}

/// Creates a cell with `text`, or with the mark for an absent value.
pub(crate) fn absent(text: Option<String>) -> Cell {
    Cell::new(text.unwrap_or_else(|| ABSENT.into()))
}

impl<T, R: Copy> Column<T, R> {
    /// Returns the cell of a row.
    pub fn cell(&self, row: &Row<'_, T>) -> Cell {
        (self.content)(row)
    }

    /// Returns its width on a terminal in a table of these rows.
    pub fn width(&self, rows: &[Row<'_, T>]) -> usize {
        let least = self.min_width.max(self.title.len() + usize::from(self.rank.is_some()));
        rows.iter().map(|row| width(&self.cell(row).text)).fold(least, usize::max)
    }

    /// Aligns `text` in `width`.
    pub fn set(&self, text: &str, width: usize) -> String {
        self.align.set(text, width)
    }
}

/// Returns the ranks in the order of their columns.
pub fn orders<T, R: Copy>(columns: &[Column<T, R>]) -> Vec<R> {
    columns.iter().filter_map(|column| column.rank).collect()
}

/// Returns the table as text: a line of titles, and one for each of `items`. `rest` is the text
/// after the columns, and `rest_title` its title.
pub fn text<T, R: Copy>(
    columns: &[Column<T, R>],
    items: &[T],
    rest_title: &str,
    rest: impl Fn(&T) -> String,
) -> String {
    let rows: Vec<_> = items.iter().map(|item| Row { item, busy_ratio: None }).collect();
    // A single snapshot has no rates.
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

/// Cuts `text` to the longest filter that a program accepts.
pub fn filter(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_FILTER_BYTES)].to_owned()
}

/// Formats the size of a list as `200 of 211 matching shown, by busy`.
pub(crate) fn shown(rows: usize, matching: u64, filter: &str, is_inverted: bool, rank: &str) -> String {
    let filter = if filter.is_empty() { "" } else { " matching" };
    let order = if is_inverted { ", lowest first" } else { "" };
    format!("{} of {}{filter} shown, by {rank}{order}", count(rows as u64), count(matching))
}
