//! The blame screen: the spawn locations in a sorted table, and below it the facts about the
//! selected one.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::{Line, Span};

use crate::facts::Scene;
use crate::facts::incidents::{cause, how_long, newest_first, place_of, when};
use crate::model::Model;
use crate::tables::blame::{COLUMNS, Column, LOCATION_TITLE, Row};
use crate::text::figures::{head, left, right, tail, width};
use crate::view::hits::Hits;
use crate::view::parts::layout::{self, TITLE_WIDTH, draw_message, draw_rows, part, rows, window};
use crate::view::theme::Theme;

/// The smallest width at which the extra columns are shown.
const EXTRAS_FROM: u16 = 110;
/// The lines below the table: a rule, the location in full, its latest incident, and what the
/// columns mean.
const FOOT_HEIGHT: u16 = 5;
/// The mark of the column by which the table is sorted.
const DESCENDING: &str = "▼";
const ASCENDING: &str = "▲";

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, scene: &Scene<'_>, theme: Theme, hits: &mut Hits) {
    let table = model.blame_rows();
    if table.is_empty() {
        let text = match model.list().filter.is_empty() {
            true => "No task has been polled yet.",
            false => "No spawn location matches the filter; Esc shows all.",
        };
        return draw_message(frame, area, text, theme);
    }
    let wanted = table.len() as u16 + 1;
    let height = wanted.min(area.height - FOOT_HEIGHT);
    let [list, foot, _] =
        rows(area, [Constraint::Length(height), Constraint::Length(FOOT_HEIGHT), Constraint::Fill(1)]);
    let selected = model.position().unwrap_or(0);
    let shown = window(table.len(), selected, usize::from(list.height) - 1);
    let columns: Vec<(usize, &Column)> =
        COLUMNS.iter().enumerate().filter(|(_, column)| !column.is_extra || area.width >= EXTRAS_FROM).collect();
    let room = usize::from(area.width) - 1 - columns.iter().map(|(_, column)| column.full_width() + 1).sum::<usize>();
    let filter = if model.list().filter.is_empty() { "" } else { "filtered " };
    let heads = heads(model, &columns, room, &format!("{filter}{}", part(&shown, table.len())));
    let in_sight = table.iter().enumerate().skip(shown.start).take(shown.len());
    let lines = in_sight.map(|(place, row)| line(row, place == selected, &columns, room, theme)).collect();
    draw_rows(frame, list, Line::styled(heads, theme.title()), shown.start, lines, hits);
    draw_foot(frame, foot, &table[selected], scene, theme);
}

fn heads(model: &Model, columns: &[(usize, &Column)], room: usize, part: &str) -> String {
    let rows = model.list();
    let arrow = if rows.is_inverted { ASCENDING } else { DESCENDING };
    let title = |of: usize, title: &str| if rows.order == of { format!("{arrow}{title}") } else { title.into() };
    let mut text = String::from(" ");
    for (index, column) in columns {
        text.push_str(&format!("{} ", right(&title(*index, column.title), column.full_width())));
    }
    let location = title(COLUMNS.len(), LOCATION_TITLE);
    text.push_str(&format!("{}{part}", left(&location, room.saturating_sub(width(part)))));
    text
}

fn line(row: &Row<'_>, is_selected: bool, columns: &[(usize, &Column)], room: usize, theme: Theme) -> Line<'static> {
    let mut spans = vec![Span::styled(if is_selected { "▸" } else { " " }, theme.strong())];
    for (_, column) in columns {
        let cell = column.cell(row);
        spans.push(Span::styled(format!("{} ", right(&cell.text, column.full_width())), theme.tone(cell.tone)));
    }
    spans.push(Span::raw(tail(&row.blame.spawned_at, room)));
    let line = Line::from(spans);
    if is_selected { line.style(theme.strong()) } else { line }
}

fn draw_foot(frame: &mut Frame<'_>, area: Rect, row: &Row<'_>, scene: &Scene<'_>, theme: Theme) {
    let columns = usize::from(area.width);
    let room = columns.saturating_sub(TITLE_WIDTH + 1);
    let spawned_at = &row.blame.spawned_at;
    let fact = |title: &str, text: &str| Line::from(vec![layout::title(title, theme), Span::raw(head(text, room))]);
    let incident = newest_first(&scene.snapshot.incidents).find(|incident| incident.spawned_at == *spawned_at);
    let incident = incident.map_or_else(
        || "no incident recorded".into(),
        |incident| {
            let (how_long, _) = how_long(incident);
            let ago =
                if incident.is_over { format!("{} ago", when(incident, scene.snapshot.at_ns)) } else { "now".into() };
            format!("{how_long} {} {ago}; {}", place_of(incident), cause(incident))
        },
    );
    let meaning = [
        "caused: delay of other tasks by polls of these   now: tasks delayed at a time",
        "suffered: delay of these by others   stuck: stuck polls   stranded: no waker",
    ];
    let lines = [
        Line::styled("─".repeat(columns), theme.label()),
        fact("tasks of", &tail(spawned_at, room)),
        fact("incident", &incident),
    ];
    let lines = lines.into_iter().chain(meaning.map(|text| Line::styled(format!(" {text}"), theme.label())));
    for (row, line) in (area.y..area.bottom()).zip(lines) {
        frame.render_widget(line, Rect { y: row, height: 1, ..area });
    }
}
