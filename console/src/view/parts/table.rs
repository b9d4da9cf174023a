//! A table of tasks or of processes and, if it is open, the detail of the selected row below it.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::{Line, Span};

use crate::facts::Tone;
use crate::tables::listing::{Column, Row};
use crate::text::figures::{head, left, width};
use crate::view::hits::Hits;
use crate::view::parts::layout::{self, TITLE_WIDTH, draw_lines, draw_rows, part, rows, window};
use crate::view::theme::Theme;

/// The smallest width at which the extra columns are shown.
const EXTRAS_FROM: u16 = 130;
/// The smallest height of the table, including its heading.
const TABLE_MIN: u16 = 4;

/// The visible columns, each with its width.
type Shown<'a, T, R> = Vec<(&'a Column<T, R>, usize)>;

/// The contents of a table.
pub(crate) struct Table<'a, T, R> {
    pub(crate) columns: &'a [Column<T, R>],
    pub(crate) rows: &'a [Row<'a, T>],
    /// The position of the selected row.
    pub(crate) selected: usize,
    /// The order of the rows.
    pub(crate) rank: R,
    pub(crate) is_inverted: bool,
    /// The title of the text after the columns, and that text in a given width.
    pub(crate) rest_title: &'static str,
    pub(crate) rest: fn(&T, usize) -> String,
    /// The lines of the detail; empty if it is closed.
    pub(crate) detail: Vec<Line<'static>>,
    /// The meaning of the columns, in a line below the table.
    pub(crate) legend: &'static str,
}

impl<T, R: Copy + PartialEq> Table<'_, T, R> {
    pub(crate) fn draw(self, frame: &mut Frame<'_>, area: Rect, theme: Theme, hits: &mut Hits) {
        let detail = (self.detail.len() as u16).min(area.height.saturating_sub(TABLE_MIN + 1));
        let [list, legend, below] =
            rows(area, [Constraint::Fill(1), Constraint::Length(1), Constraint::Length(detail)]);
        let shown = window(self.rows.len(), self.selected, usize::from(list.height).saturating_sub(1));
        let (columns, used) = self.fitting(area.width);
        let room = usize::from(area.width).saturating_sub(used);
        let heads = self.heads(&columns, room, &part(&shown, self.rows.len()));
        let lines = shown.clone().map(|place| self.line(place, &columns, room, theme)).collect();
        draw_rows(frame, list, Line::styled(heads, theme.title()), shown.start, lines, hits);
        frame.render_widget(Line::styled(format!(" {}", self.legend), theme.label()), legend);
        draw_lines(frame, below, self.detail);
    }

    /// Returns the columns that fit into `columns` of the terminal, each with its width, and their
    /// total width. The last columns are left out first; none is cut.
    fn fitting(&self, columns: u16) -> (Shown<'_, T, R>, usize) {
        let wanted = self.columns.iter().filter(|column| !column.is_extra || columns >= EXTRAS_FROM);
        let mut used = 1;
        let mut chosen = Vec::new();
        for column in wanted {
            let width = column.width(self.rows);
            if used + width + 1 > usize::from(columns) {
                break;
            }
            used += width + 1;
            chosen.push((column, width));
        }
        (chosen, used)
    }

    fn heads(&self, columns: &[(&Column<T, R>, usize)], room: usize, part: &str) -> String {
        let arrow = if self.is_inverted { "▲" } else { "▼" };
        let mut text = String::from(" ");
        for (column, width) in columns {
            let is_order = column.rank == Some(self.rank);
            let title = if is_order { format!("{arrow}{}", column.title) } else { column.title.into() };
            text.push_str(&format!("{} ", column.set(&title, *width)));
        }
        text + &left(self.rest_title, room.saturating_sub(width(part))) + part
    }

    fn line(&self, place: usize, columns: &[(&Column<T, R>, usize)], room: usize, theme: Theme) -> Line<'static> {
        let (row, is_selected) = (&self.rows[place], place == self.selected);
        let mut spans = vec![Span::styled(if is_selected { "▸" } else { " " }, theme.strong())];
        for (column, width) in columns {
            let cell = column.cell(row);
            spans.push(Span::styled(format!("{} ", column.set(&cell.text, *width)), theme.tone(cell.tone)));
        }
        spans.push(Span::raw((self.rest)(row.item, room)));
        let line = Line::from(spans);
        if is_selected { line.style(theme.strong()) } else { line }
    }
}

/// Formats the line above a table: its title, the size of the list or why there is none, and the
/// filter.
pub(crate) fn top_line(
    title: &str,
    summary_text: &str,
    error: Option<&str>,
    filter: &str,
    columns: u16,
    theme: Theme,
) -> Line<'static> {
    let title = layout::title(title, theme);
    if let Some(error) = error {
        return Line::from(vec![title, Span::styled(format!("! {error}"), theme.tone(Tone::Warn))]);
    }
    let filter = if filter.is_empty() { String::new() } else { format!("  filter \"{filter}\"") };
    let room = usize::from(columns).saturating_sub(TITLE_WIDTH + width(&filter));
    Line::from(vec![title, Span::raw(head(summary_text, room)), Span::styled(filter, theme.strong())])
}
