//! The table of workers: one line each, scrolled so that the selected one is visible.

use std::ops::Range;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::facts::{Scene, Tone};
use crate::model::{Action, Model, WORKER_ORDERS};
use crate::tables::workers::{self, Column, IN_FLIGHT_TITLE, Row};
use crate::text::figures::{head, left, right, width};
use crate::view::hits::Hits;
use crate::view::parts::layout::{part, window};
use crate::view::theme::Theme;

/// The columns before the first one, for the mark of the selected worker.
const MARK_WIDTH: usize = 1;
/// The text if no worker matches the filter.
pub const NONE_MATCHES: &str = "No worker matches the filter; Esc shows all.";
/// The text if there is no worker.
pub const NONE: &str = "The snapshot contains no workers.";
/// The smallest width at which the titles of groups are shown.
const GROUPS_FROM: u16 = 100;

/// Returns how many lines the whole table needs.
pub fn wanted_height(model: &Model, columns: u16) -> u16 {
    head_height(columns).saturating_add(model.worker_rows().len().max(1) as u16)
}

/// Draws the table.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, scene: &Scene<'_>, theme: Theme, hits: &mut Hits) {
    let all = workers::columns(&scene.snapshot.workers);
    let (chosen, rest) = workers::fitting(&all, usize::from(area.width) - MARK_WIDTH);
    let rows = area.height.saturating_sub(head_height(area.width));
    let workers = model.worker_rows();
    let selected = workers.iter().position(|index| *index == model.selected_worker).unwrap_or(0);
    let shown = window(workers.len(), selected, usize::from(rows));
    let mut lines = Vec::new();
    if area.width >= GROUPS_FROM {
        lines.push(Line::styled(group_heads(&chosen, rest, model), theme.label()));
    }
    lines.push(Line::styled(heads(&chosen, rest, &shown, workers.len(), scene, model), theme.title()));
    let first = area.y + head_height(area.width);
    for (row, place) in (first..area.bottom()).zip(shown.clone()) {
        hits.add(Rect { y: row, height: 1, ..area }, Action::Pick(place));
    }
    if workers.is_empty() && !model.list().filter.is_empty() {
        lines.push(Line::styled(format!(" {NONE_MATCHES}"), theme.label()));
    }
    lines.extend(workers[shown].iter().filter_map(|index| line(scene, *index, &chosen, rest, model, theme)));
    for (row, line) in (area.y..area.bottom()).zip(lines) {
        frame.render_widget(line, Rect { y: row, height: 1, ..area });
    }
}

fn head_height(columns: u16) -> u16 {
    if columns >= GROUPS_FROM { 2 } else { 1 }
}

fn group_heads(chosen: &[&Column], rest: usize, model: &Model) -> String {
    let mut text = " ".repeat(MARK_WIDTH) + &workers::group_titles(chosen);
    let counters = if model.shows_totals { "counters since the runtime started" } else { "counters per second" };
    if chosen.iter().any(|column| column.is_counter()) {
        text.push_str(&right(counters, rest));
    }
    text
}

fn heads(
    chosen: &[&Column],
    rest: usize,
    shown: &Range<usize>,
    total: usize,
    scene: &Scene<'_>,
    model: &Model,
) -> String {
    let mut text = " ".repeat(MARK_WIDTH);
    for column in chosen {
        text.push_str(&format!("{} ", column.set(&column.title(&scene.snapshot.config, model.shows_totals))));
    }
    let list = model.list();
    let order = WORKER_ORDERS.get(list.order).filter(|_| list.order > 0 || list.is_inverted);
    let order = order.map_or_else(String::new, |order| format!("{}{order} ", if list.is_inverted { "▲" } else { "▼" }));
    let filter = if list.filter.is_empty() { "" } else { "filtered " };
    let part = format!("{order}{filter}{}", part(shown, total));
    text.push_str(&format!("{}{part}", left(IN_FLIGHT_TITLE, rest.saturating_sub(width(&part)))));
    text
}

fn line(
    scene: &Scene<'_>,
    index: usize,
    chosen: &[&Column],
    rest: usize,
    model: &Model,
    theme: Theme,
) -> Option<Line<'static>> {
    let row = Row::of(scene, index, model.shows_totals)?;
    let is_selected = index == model.selected_worker;
    let mut spans = vec![Span::styled(if is_selected { "▸" } else { " " }, theme.strong())];
    for column in chosen {
        let cell = column.cell(&row);
        let style = match cell.tone {
            Tone::Plain if column.shows_phase() => theme.phase(row.worker.phase),
            tone => theme.tone(tone),
        };
        spans.push(Span::styled(format!("{} ", column.set(&cell.text)), style));
    }
    let cell = workers::in_flight(row.worker.in_flight.as_ref(), rest);
    spans.push(Span::styled(head(&cell.text, rest), theme.tone(cell.tone)));
    let line = Line::from(spans);
    Some(if is_selected { line.style(theme.strong()) } else { line })
}
