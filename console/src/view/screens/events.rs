//! The events screen: the events since the console attached, the latest first.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::{Line, Span};

use crate::model::{EVENTS_MAX, Happened, Model};
use crate::text::figures::{age, count, head, left, right, width, wrapped};
use crate::view::hits::Hits;
use crate::view::parts::layout::{draw_lines, draw_message, draw_rows, part, rows, window};
use crate::view::theme::Theme;

/// The height of the full text of the selected event, including its rule.
const WHOLE_HEIGHT: u16 = 4;
/// The widths of the age, the kind, and the runtime.
const AGO_WIDTH: usize = 6;
const KIND_WIDTH: usize = 10;
const RUNTIME_WIDTH: usize = 12;

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme, hits: &mut Hits) {
    let events = model.event_rows();
    if events.is_empty() {
        let text = if model.list().filter.is_empty() {
            "No events since this console attached."
        } else {
            "No event matches the filter; Esc shows all."
        };
        return draw_message(frame, area, text, theme);
    }
    let selected = model.position().unwrap_or(0);
    let columns = usize::from(area.width);
    // The full text of the selected event, which may not fit into its line.
    let whole = wrapped(&events[selected].full_text(), columns.saturating_sub(2));
    let [list, below] = rows(area, [Constraint::Fill(1), Constraint::Length(WHOLE_HEIGHT)]);
    let rule = Line::styled("─".repeat(columns), theme.label());
    draw_lines(frame, below, std::iter::once(rule).chain(whole.into_iter().map(|text| Line::raw(format!(" {text}")))));
    let area = list;
    let shown = window(events.len(), selected, usize::from(area.height) - 1);
    let forgotten = match model.state().log.forgotten {
        0 => String::new(),
        n => format!("{} older events dropped, {EVENTS_MAX} kept  ", count(n)),
    };
    let end = format!("{forgotten}{}", part(&shown, events.len()));
    let arrow = if model.list().is_inverted { "▲" } else { "▼" };
    let titles = [right(&format!("{arrow}ago"), AGO_WIDTH), left("kind", KIND_WIDTH), left("runtime", RUNTIME_WIDTH)];
    let heads = titles.iter().fold(String::new(), |text, title| text + " " + title) + " what";
    let heads = format!("{}{end}", left(&heads, columns.saturating_sub(width(&end))));
    let line = |(place, event): (usize, &&Happened)| line(event, model, place == selected, columns, theme);
    let lines = events.iter().enumerate().skip(shown.start).take(shown.len()).map(line).collect();
    draw_rows(frame, area, Line::styled(heads, theme.title()), shown.start, lines, hits);
}

fn line(event: &Happened, model: &Model, is_selected: bool, columns: usize, theme: Theme) -> Line<'static> {
    let now = if model.is_paused() { model.state().received_at } else { model.now };
    let ago = now.saturating_sub(event.at);
    let ago = age(u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX));
    let room = columns.saturating_sub(AGO_WIDTH + KIND_WIDTH + RUNTIME_WIDTH + 4);
    let mark = event.tone.mark();
    let mark = if mark.is_empty() { String::new() } else { format!("{mark} ") };
    let line = Line::from(vec![
        Span::styled(if is_selected { "▸" } else { " " }, theme.strong()),
        Span::styled(format!("{} ", right(&ago, AGO_WIDTH)), theme.label()),
        Span::styled(format!("{} ", left(event.kind, KIND_WIDTH)), theme.title()),
        Span::styled(format!("{} ", left(&event.runtime, RUNTIME_WIDTH)), theme.label()),
        Span::styled(head(&format!("{mark}{}", event.full_text()), room), theme.tone(event.tone)),
    ]);
    if is_selected { line.style(theme.strong()) } else { line }
}
