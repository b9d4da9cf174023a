//! Draws the screens from `&Model`, without changing it.
//!
//! From top to bottom: the program, the doctor's verdict and the runtimes (three lines); one of the
//! [screens](crate::model::Screen); the names of the screens, and the keys (two or three lines).

pub mod ascii;
pub mod hits;
pub mod theme;

pub mod parts;
pub mod screens;

pub mod footer;

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::Line;

use crate::model::{Model, Screen, tone_of};
use crate::text::figures::tail;
use crate::view::hits::Hits;
use crate::view::parts::layout::{draw_lines, draw_message, rows};
use crate::view::parts::{header, help};
use crate::view::screens::{
    blame, doctor, events, incidents, latency, overview, processes, routes, tasks, waits, worker,
};
use crate::view::theme::Theme;

/// The smallest full screen, in columns and rows.
pub const MIN_SIZE: (u16, u16) = (80, 24);
/// The smallest screen that shows a summary. A smaller one shows only a sentence.
const SMALL_MIN_SIZE: (u16, u16) = (40, 6);

/// Draws one screen, and stores the clickable areas in `hits`.
pub fn draw(frame: &mut Frame<'_>, model: &Model, theme: Theme, hits: &mut Hits) {
    hits.clear();
    let area = frame.area();
    if area.width < MIN_SIZE.0 || area.height < MIN_SIZE.1 {
        draw_small(frame, area, model, theme);
    } else {
        draw_whole(frame, area, model, theme, hits);
    }
    if theme.is_ascii() {
        ascii::replace(frame.buffer_mut());
    }
}

fn draw_whole(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme, hits: &mut Hits) {
    let keys = footer::height(area.width);
    let [top, body, bottom] =
        rows(area, [Constraint::Length(header::TOP_HEIGHT), Constraint::Fill(1), Constraint::Length(keys)]);
    header::draw(frame, top, model, theme);
    match model.scene() {
        Some(scene) => match model.screen {
            Screen::Overview => overview::draw(frame, body, model, &scene, theme, hits),
            Screen::Workers => worker::draw(frame, body, model, &scene, theme, hits),
            Screen::Tasks => tasks::draw(frame, body, model, theme, hits),
            Screen::Processes => processes::draw(frame, body, model, theme, hits),
            Screen::Latency => latency::draw(frame, body, model, &scene, theme),
            Screen::Incidents => incidents::draw(frame, body, model, &scene, theme, hits),
            Screen::Blame => blame::draw(frame, body, model, &scene, theme, hits),
            Screen::Doctor => doctor::draw(frame, body, model, theme, hits),
            Screen::Events => events::draw(frame, body, model, theme, hits),
            Screen::Waits => waits::draw(frame, body, model, theme, hits),
            Screen::Routes => routes::draw(frame, body, model, &scene, theme, hits),
        },
        None => draw_nothing(frame, body, model, theme),
    }
    footer::draw(frame, bottom, model, theme, hits);
    if let Some(page) = model.help_page {
        help::draw(frame, area, model, page, theme);
        hits.clear();
    }
}

fn draw_nothing(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme) {
    let text = if model.state().program.is_some() {
        "This program has no running runtime."
    } else {
        "Waiting for the first snapshot …"
    };
    draw_message(frame, area, text, theme);
}

/// Draws the most important facts if there is no room for a screen: whether there are findings, and
/// if so, which.
fn draw_small(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme) {
    if area.width < SMALL_MIN_SIZE.0 || area.height < SMALL_MIN_SIZE.1 || model.state().program.is_none() {
        return draw_too_small(frame, area);
    }
    let [top, body, bottom] = rows(area, [Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1)]);
    header::draw_identity(frame, top, model, theme);
    let current = || model.state().findings.iter().filter(|(_, finding)| finding.seen.is_current);
    let mut lines = vec![header::verdict(model, theme, usize::from(area.width))];
    for (_, finding) in current() {
        let style = theme.tone(tone_of(finding.severity));
        lines.push(Line::styled(format!("{} {}", finding.severity.name(), finding.rule.name()), style));
        let place = finding.locations.first().map_or("", |place| place.at());
        lines.push(Line::raw(format!("  {}", tail(place, usize::from(area.width).saturating_sub(2)))));
    }
    if lines.len() > usize::from(body.height) {
        // A finding has two lines. The verdict has one, and so has the number of the others.
        let fitting = usize::from(body.height).saturating_sub(2) / 2;
        lines.truncate(1 + 2 * fitting);
        lines.push(Line::styled(format!("and {} more", current().count() - fitting), theme.label()));
    }
    draw_lines(frame, body, lines);
    let text = format!("Enlarge to {}x{} for more; q quits", MIN_SIZE.0, MIN_SIZE.1);
    frame.render_widget(Line::styled(text, theme.label()), bottom);
}

fn draw_too_small(frame: &mut Frame<'_>, area: Rect) {
    let text = [
        "The terminal is too small.".into(),
        format!("It is {}x{}; the screens need {}x{}.", area.width, area.height, MIN_SIZE.0, MIN_SIZE.1),
        "Enlarge it, or press q to quit.".into(),
    ];
    let top = area.height.saturating_sub(text.len() as u16) / 2;
    for (row, line) in (top..area.height).zip(text) {
        frame.render_widget(Line::raw(line).centered(), Rect { y: area.y + row, height: 1, ..area });
    }
}

#[cfg(test)]
mod tests;
