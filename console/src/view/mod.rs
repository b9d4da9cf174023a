//! The overview screen, drawn from `&Model`; changes nothing.
//!
//! Shape, from top to bottom: who and how fresh (two lines); the runtime as a whole; the table of workers; the selected worker in
//! full; the keys. A narrow screen gives the runtime a line for each group of facts, a wide and high one a row of panels. What
//! is left over goes to the workers first, then to the spread of times where there are panels, then to the curve of polls; the rest
//! stays blank below the selected worker.

pub mod detail;
pub mod header;
pub mod help;
pub mod lamps;
pub mod lines;
pub mod panels;
pub mod theme;
pub mod workers;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};

use crate::facts::{Group, Scene};
use crate::figures::width;
use crate::model::Model;
use crate::view::theme::Theme;

/// The smallest screen that is drawn on, in columns and rows.
pub const MIN_SIZE: (u16, u16) = (80, 24);
/// From here on the runtime is shown in panels.
const PANELS_FROM: (u16, u16) = (176, 36);

/// Draws one screen.
pub fn draw(frame: &mut Frame<'_>, model: &Model, theme: Theme) {
    let area = frame.area();
    if area.width < MIN_SIZE.0 || area.height < MIN_SIZE.1 {
        return draw_too_small(frame, area);
    }
    let [top, body, bottom] = rows(area, [Constraint::Length(2), Constraint::Fill(1), Constraint::Length(1)]);
    header::draw(frame, top, model, theme);
    match model.scene() {
        Some(scene) => draw_body(frame, body, model, &scene, theme),
        None => draw_nothing(frame, body, model, theme),
    }
    header::draw_keys(frame, bottom, model, theme);
    if model.is_help_open {
        help::draw(frame, area, theme);
    }
}

fn draw_body(frame: &mut Frame<'_>, area: Rect, model: &Model, scene: &Scene<'_>, theme: Theme) {
    let has_panels = area.width >= PANELS_FROM.0 && frame.area().height >= PANELS_FROM.1;
    let detail =
        if model.is_detail_open { detail::height(scene, model.selected_worker, frame.area().height) } else { 0 };
    let least = if has_panels { panels::HEIGHT } else { lines::min_height(scene, area.width) };
    let table_wants = workers::wanted_height(scene, area.width);
    let spare = area.height.saturating_sub(least + 1 + detail + table_wants);
    let fitting = panels::SPREAD_HEIGHTS.into_iter().find(|height| has_panels && *height <= spare);
    let spread = fitting.unwrap_or(0);
    let growth = if has_panels { panels::MAX_HEIGHT - panels::HEIGHT } else { lines::CURVE_MAX_HEIGHT - 1 };
    let summary = least + growth.min(spare - spread);
    let table = table_wants.min(area.height.saturating_sub(summary + spread + 1 + detail));
    let heights = [summary, spread, 1, table, detail].map(Constraint::Length);
    let [summary, middle, longest, table, detail, _] =
        rows(area, [heights[0], heights[1], heights[2], heights[3], heights[4], Constraint::Fill(1)]);
    if has_panels {
        panels::draw(frame, summary, model, scene, theme);
        if spread > 0 {
            panels::draw_spread(frame, middle, scene, theme);
        }
    } else {
        lines::draw(frame, summary, model, scene, theme);
    }
    frame.render_widget(detail::longest_poll(scene, usize::from(area.width) - 1, theme), longest);
    workers::draw(frame, table, model, scene, theme);
    if model.is_detail_open {
        detail::draw(frame, detail, model, scene, theme);
    }
}

fn draw_nothing(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme) {
    let text = if model.picture().process.is_some() {
        "This program has no runtime at the moment."
    } else {
        "Waiting for the first snapshot …"
    };
    let [_, line, _] = rows(area, [Constraint::Fill(1), Constraint::Length(1), Constraint::Fill(1)]);
    frame.render_widget(Line::styled(text, theme.label()).centered(), line);
}

fn draw_too_small(frame: &mut Frame<'_>, area: Rect) {
    let text = [
        "This screen is too small for me.".into(),
        format!("It has {}x{}, I need {}x{}.", area.width, area.height, MIN_SIZE.0, MIN_SIZE.1),
        "Make it larger, or press q.".into(),
    ];
    let top = area.height.saturating_sub(text.len() as u16) / 2;
    for (row, line) in (top..area.height).zip(text) {
        frame.render_widget(Line::raw(line).centered(), Rect { y: area.y + row, height: 1, ..area });
    }
}

pub(crate) fn rows<const N: usize>(area: Rect, heights: [Constraint; N]) -> [Rect; N] {
    Layout::vertical(heights).areas(area)
}

/// `title label value  label value` in at most `columns`; facts that do not fit are left out, none is cut.
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

#[cfg(test)]
mod tests;
