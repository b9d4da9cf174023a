//! A table with one row for each group of tasks or requests, and below it the facts about the
//! selected one.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::{Line, Span};

use crate::model::Model;
use crate::tables::grouped::{Column, Row};
use crate::text::figures::{left, right, tail, width};
use crate::view::hits::Hits;
use crate::view::parts::layout::{draw_message, draw_rows, part, rows, window};
use crate::view::theme::Theme;

/// The smallest width at which the extra columns are shown.
const EXTRAS_FROM: u16 = 110;
/// The smallest height of the table, including its heading.
const LIST_MIN: u16 = 4;
/// The mark of the column by which the table is sorted.
const DESCENDING: &str = "▼";
const ASCENDING: &str = "▲";

/// A table: its rows, columns and texts.
pub struct Table<'a, T, R> {
    /// The rows, in their order.
    pub rows: &'a [Row<'a, T, R>],
    /// The columns before the name.
    pub columns: &'a [Column<T, R>],
    /// The title of the names.
    pub title: &'static str,
    /// The name of a row.
    pub name: fn(&T) -> String,
    /// The message if there is no row.
    pub empty: &'static str,
    /// The message if the filter selects no row.
    pub filtered: &'static str,
}

/// Draws the table. `foot` returns the lines below it, for the selected row.
pub fn draw<T, R>(
    frame: &mut Frame<'_>,
    area: Rect,
    model: &Model,
    table: &Table<'_, T, R>,
    foot: impl Fn(&Row<'_, T, R>, usize) -> Vec<Line<'static>>,
    (theme, hits): (Theme, &mut Hits),
) {
    let selected = model.position().unwrap_or(0);
    let Some(row) = table.rows.get(selected) else {
        let text = if model.list().filter.is_empty() { table.empty } else { table.filtered };
        return draw_message(frame, area, text, theme);
    };
    let foot = foot(row, usize::from(area.width));
    let foot_height = foot.len() as u16 + 1;
    let height = (table.rows.len() as u16 + 1).min(area.height.saturating_sub(foot_height).max(LIST_MIN));
    let [list, below, _] =
        rows(area, [Constraint::Length(height), Constraint::Length(foot_height), Constraint::Fill(1)]);
    let shown = window(table.rows.len(), selected, usize::from(list.height) - 1);
    // The column of the order is shown in any case.
    let is_shown = |(index, column): &(usize, &Column<T, R>)| {
        !column.is_extra || area.width >= EXTRAS_FROM || model.list().order == *index
    };
    let columns: Vec<(usize, &Column<T, R>)> = table.columns.iter().enumerate().filter(is_shown).collect();
    let room = usize::from(area.width) - 1 - columns.iter().map(|(_, column)| column.full_width() + 1).sum::<usize>();
    let filter = if model.list().filter.is_empty() { "" } else { "filtered " };
    let heads = heads(model, &columns, table.title, room, &format!("{filter}{}", part(&shown, table.rows.len())));
    let in_sight = table.rows.iter().enumerate().skip(shown.start).take(shown.len());
    let lines =
        in_sight.map(|(place, row)| line(row, place == selected, &columns, (table.name, room), theme)).collect();
    draw_rows(frame, list, Line::styled(heads, theme.title()), shown.start, lines, hits);
    let rule = Line::styled("─".repeat(usize::from(area.width)), theme.label());
    for (row, line) in (below.y..below.bottom()).zip(std::iter::once(rule).chain(foot)) {
        frame.render_widget(line, Rect { y: row, height: 1, ..below });
    }
}

fn heads<T, R>(model: &Model, columns: &[(usize, &Column<T, R>)], names: &str, room: usize, part: &str) -> String {
    let rows = model.list();
    let arrow = if rows.is_inverted { ASCENDING } else { DESCENDING };
    let is_sorted_by_name = columns.iter().all(|(index, _)| rows.order != *index);
    let title = |is_order: bool, title: &str| if is_order { format!("{arrow}{title}") } else { title.into() };
    let mut text = String::from(" ");
    for (index, column) in columns {
        text.push_str(&format!("{} ", right(&title(rows.order == *index, column.title), column.full_width())));
    }
    let names = title(is_sorted_by_name, names);
    text.push_str(&format!("{}{part}", left(&names, room.saturating_sub(width(part)))));
    text
}

fn line<T, R>(
    row: &Row<'_, T, R>,
    is_selected: bool,
    columns: &[(usize, &Column<T, R>)],
    (name, room): (fn(&T) -> String, usize),
    theme: Theme,
) -> Line<'static> {
    let mut spans = vec![Span::styled(if is_selected { "▸" } else { " " }, theme.strong())];
    for (_, column) in columns {
        let cell = column.cell(row);
        spans.push(Span::styled(format!("{} ", right(&cell.text, column.full_width())), theme.tone(cell.tone)));
    }
    spans.push(Span::raw(tail(&name(row.item), room)));
    let line = Line::from(spans);
    if is_selected { line.style(theme.strong()) } else { line }
}
