//! The layout of lines and rows, and which rows of a list are visible.

use std::ops::Range;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::facts::Group;
use crate::model::Action;
use crate::text::figures::{width, wrapped};
use crate::view::hits::Hits;
use crate::view::theme::Theme;

/// The width of a line's title, including the space before it.
pub(crate) const TITLE_WIDTH: usize = 11;

/// Returns a line's title, padded to [`TITLE_WIDTH`].
pub(crate) fn title(text: &str, theme: Theme) -> Span<'static> {
    Span::styled(format!(" {text:<0$}", TITLE_WIDTH - 1), theme.title())
}

/// Returns a fact with its title: a text in lines of at most `columns`.
pub(crate) fn fact_lines(name: &str, text: &str, columns: usize, style: Style, theme: Theme) -> Vec<Line<'static>> {
    let parts = wrapped(text, columns).into_iter().enumerate();
    let line =
        |(index, part)| Line::from(vec![title(if index == 0 { name } else { "" }, theme), Span::styled(part, style)]);
    parts.map(line).collect()
}

/// Draws lines one below the other, as many as fit.
pub(crate) fn draw_lines(frame: &mut Frame<'_>, area: Rect, lines: impl IntoIterator<Item = Line<'static>>) {
    for (row, line) in (area.y..area.bottom()).zip(lines) {
        frame.render_widget(line, Rect { y: row, height: 1, ..area });
    }
}

/// Draws a heading and the visible rows of a list. A click on a row selects it.
pub(crate) fn draw_rows(
    frame: &mut Frame<'_>,
    area: Rect,
    heads: Line<'static>,
    first: usize,
    lines: Vec<Line<'static>>,
    hits: &mut Hits,
) {
    for (offset, row) in (area.y + 1..area.bottom()).enumerate().take(lines.len()) {
        hits.add(Rect { y: row, height: 1, ..area }, Action::Pick(first + offset));
    }
    draw_lines(frame, area, std::iter::once(heads).chain(lines));
}

/// Draws a line in the middle of `area`.
pub(crate) fn draw_message(frame: &mut Frame<'_>, area: Rect, text: &str, theme: Theme) {
    let [_, line, _] = rows(area, [Constraint::Fill(1), Constraint::Length(1), Constraint::Fill(1)]);
    frame.render_widget(Line::styled(text.to_owned(), theme.label()).centered(), line);
}

/// Returns `3-12/300` if not all rows are visible, else an empty text.
pub(crate) fn part(shown: &Range<usize>, total: usize) -> String {
    if shown.len() < total { format!("{}-{}/{total}", shown.start + 1, shown.end) } else { String::new() }
}

/// Splits `area` into rows of these heights.
pub(crate) fn rows<const N: usize>(area: Rect, heights: [Constraint; N]) -> [Rect; N] {
    Layout::vertical(heights).areas(area)
}

/// Formats a group as `title label value  label value` in at most `columns`. Facts that do not fit
/// are left out; none is cut.
pub(crate) fn fact_line(group: &Group, title_width: usize, columns: usize, theme: Theme) -> Line<'static> {
    let mut spans = vec![Span::styled(format!("{:<title_width$}", group.title), theme.title())];
    let mut used = title_width;
    for fact in &group.facts {
        let value = fact.marked();
        let gap = if spans.len() > 1 { "  " } else { "" };
        let label = if fact.label.is_empty() { gap.to_string() } else { format!("{gap}{} ", fact.label) };
        let needed = width(&label) + width(&value);
        if used + needed > columns {
            break;
        }
        used += needed;
        spans.push(Span::styled(label, theme.label()));
        spans.push(Span::styled(value, theme.tone(fact.tone)));
    }
    Line::from(spans)
}

/// Returns which of `count` rows are visible if `rows` fit and `selected` is to be among them, in
/// the middle if possible.
pub fn window(count: usize, selected: usize, rows: usize) -> Range<usize> {
    let start = selected.saturating_sub(rows / 2).min(count.saturating_sub(rows));
    start..(start + rows).min(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selected_worker_is_always_in_sight() {
        for (count, rows) in [(2, 7), (64, 5), (64, 64), (64, 1), (1, 1), (1024, 20)] {
            for selected in 0..count {
                let shown = window(count, selected, rows);
                assert!(shown.contains(&selected), "{selected} of {count} in {shown:?}");
                assert_eq!(shown.len(), rows.min(count), "no row is wasted");
                assert!(shown.end <= count);
            }
        }
        assert_eq!(window(0, 0, 5), 0..0);
    }
}
