//! The lines below every screen: the names of the screens, in one line or on a narrow screen in
//! two, and in the last line the keys, or why the last key did nothing.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::{Line, Span};
use volt_diagnosis::doctor::Verdict;

use crate::facts::Tone;
use crate::model::{Action, Model, Screen, tone_of};
use crate::text::figures::{tail, width};
use crate::view::hits::Hits;
use crate::view::parts::header;
use crate::view::parts::layout::rows;
use crate::view::screens::latency;
use crate::view::theme::Theme;

/// The width of a screen's key, with the space after it.
const KEY_WIDTH: usize = 2;
/// The width of the badge of the doctor, with the space after it, if there are less than a hundred
/// findings.
const BADGE_WIDTH: usize = "99!! ".len();
/// The screens in the first of two lines of tabs.
const IN_FIRST_LINE: usize = 7;
/// The smallest width at which all tabs fit into one line. It does not depend on the findings, so
/// that the lines stay where they are.
const ONE_LINE_FROM: usize = tabs_width(&Screen::ALL) + BADGE_WIDTH;

/// Returns the width of these tabs, one of them in brackets, without the badge.
const fn tabs_width(screens: &[Screen]) -> usize {
    // The brackets around one of the names.
    let (mut width, mut index) = (2, 0);
    while index < screens.len() {
        // The space after it.
        width += KEY_WIDTH + screens[index].name().len() + 1;
        index += 1;
    }
    width
}

/// Returns the screens in each line of tabs.
fn tab_lines(columns: u16) -> impl Iterator<Item = &'static [Screen]> {
    let first = if usize::from(columns) < ONE_LINE_FROM { IN_FIRST_LINE } else { Screen::ALL.len() };
    let (first, second) = Screen::ALL.split_at(first);
    [first, second].into_iter().filter(|line| !line.is_empty())
}

/// Returns the number of lines that [`draw`] needs.
pub fn height(columns: u16) -> u16 {
    tab_lines(columns).count() as u16 + 1
}

/// Draws the lines at the bottom: the screens, and as many keys as fit, the more important ones
/// first; or the filter that is being typed, or why the last key did nothing.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme, hits: &mut Hits) {
    let [tabs, keys] = rows(area, [Constraint::Fill(1), Constraint::Length(1)]);
    for (row, screens) in (tabs.y..tabs.bottom()).zip(tab_lines(area.width)) {
        draw_tabs(frame, Rect { y: row, height: 1, ..tabs }, screens, model, theme, hits);
    }
    let list = model.list();
    if model.is_typing {
        let spans = vec![
            Span::styled(" filter ", theme.title()),
            Span::styled(tail(&list.filter, usize::from(keys.width).saturating_sub(44)), theme.strong()),
            Span::styled(" ", theme.selected()),
            Span::styled("  Enter apply   Esc show all rows", theme.label()),
        ];
        return frame.render_widget(Line::from(spans), keys);
    }
    if let Some(note) = model.note() {
        return frame.render_widget(Line::styled(format!(" {note}"), theme.strong()), keys);
    }
    let mut shown = vec![("?", "help"), ("q", "quit")];
    let pause = match &model.played {
        Some(played) => {
            shown.push(("←→", "seek"));
            if played.is_playing { "stop" } else { "play" }
        }
        None if model.is_paused() => "resume",
        None => "pause",
    };
    let keys_of = keys_of(model);
    // On a high screen, the latency screen has no other kind to switch to.
    let body = frame.area().height.saturating_sub(header::TOP_HEIGHT + area.height);
    let is_idle = |key: &str| model.screen == Screen::Latency && key == "Enter" && latency::shows_both(body);
    shown.extend(keys_of.iter().filter(|(key, _)| !is_idle(key)));
    shown.push(("space", pause));
    if model.screen != Screen::Latency {
        shown.push(("/", if list.filter.is_empty() { "filter" } else { "filtered" }));
        shown.push(("i", "reverse"));
    }
    if model.runtimes().len() > 1 {
        shown.push(("Tab", "runtime"));
    }
    shown.push(("-+", "interval"));
    if matches!(model.screen, Screen::Overview | Screen::Workers) {
        shown.push(("r", if model.shows_totals { "per second" } else { "totals" }));
    }
    let mut spans = Vec::new();
    let mut used = 0;
    for (key, what) in shown {
        used += width(key) + width(what) + 3;
        if used > usize::from(area.width) {
            break;
        }
        spans.push(Span::styled(format!(" {key} "), theme.selected()));
        spans.push(Span::styled(format!("{what} "), theme.label()));
    }
    frame.render_widget(Line::from(spans), keys);
}

/// Returns the number of current findings that need action, with the mark of the worst: `3!!`.
fn badge(model: &Model) -> Option<(String, Tone)> {
    let verdict = Verdict::of(model.runtimes());
    let tone = tone_of(verdict.severity()?);
    Some((format!("{}{}", verdict.critical + verdict.warnings, tone.mark()), tone))
}

/// Draws one line of tabs: the keys and names of `screens`.
fn draw_tabs(frame: &mut Frame<'_>, area: Rect, screens: &[Screen], model: &Model, theme: Theme, hits: &mut Hits) {
    let mut spans = Vec::new();
    let mut x = area.x;
    let badge = badge(model);
    for screen in screens.iter().copied() {
        let is_shown = model.screen == screen;
        let text = if is_shown { format!("[{}] ", screen.name()) } else { format!("{} ", screen.name()) };
        let style = if is_shown { theme.strong() } else { theme.label() };
        let mut columns = (KEY_WIDTH + text.len()) as u16;
        spans.push(Span::styled(format!("{} ", screen.key()), theme.title()));
        spans.push(Span::styled(text, style));
        if let Some((count, tone)) = badge.as_ref().filter(|_| screen == Screen::Doctor) {
            spans.push(Span::styled(format!("{count} "), theme.tone(*tone)));
            columns += count.len() as u16 + 1;
        }
        hits.add(Rect { x, y: area.y, width: columns, height: 1 }, Action::Show(screen));
        x += columns;
    }
    frame.render_widget(Line::from(spans), area);
}

/// Returns the keys of the current screen.
fn keys_of(model: &Model) -> &'static [(&'static str, &'static str)] {
    match model.screen {
        Screen::Overview => &[("↑↓", "worker"), ("Enter", "detail"), ("<>", "sort")],
        Screen::Workers => &[("↑↓", "worker"), ("<>", "sort")],
        Screen::Tasks if model.tasks.is_open => &[("↑↓", "row"), ("Enter", "close"), ("<>", "sort")],
        Screen::Tasks => &[("↑↓", "row"), ("Enter", "detail"), ("<>", "sort")],
        Screen::Processes if model.processes.is_open => &[("↑↓", "row"), ("Enter", "close"), ("<>", "sort")],
        Screen::Processes => &[("↑↓", "row"), ("Enter", "detail"), ("<>", "sort")],
        Screen::Latency => &[("↑↓", "worker"), ("Enter", "delay or poll")],
        Screen::Incidents if model.incidents.open_call().is_some() => &[("↑↓", "call"), ("Esc", "back")],
        Screen::Incidents => &[("↑↓", "row"), ("Enter", "stack"), ("<>", "sort")],
        Screen::Blame => &[("↑↓", "row"), ("Enter", "stack or waits"), ("<>", "sort")],
        Screen::Routes => &[("↑↓", "row"), ("Enter", "stack"), ("<>", "sort")],
        Screen::Doctor => &[("↑↓", "row"), ("Enter", "stack or waits")],
        Screen::Events => &[("↑↓", "row")],
        Screen::Waits => &[("↑↓", "row"), ("r", "refresh")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::MIN_SIZE;

    #[test]
    fn each_line_of_tabs_fits_from_the_smallest_screen_on() {
        for columns in MIN_SIZE.0..300 {
            let lines: Vec<&[Screen]> = tab_lines(columns).collect();
            assert_eq!(lines.concat(), Screen::ALL, "{columns}: every screen is named once");
            for line in lines {
                let badge = if line.contains(&Screen::Doctor) { BADGE_WIDTH } else { 0 };
                assert!(tabs_width(line) + badge <= usize::from(columns), "{columns}: {line:?}");
            }
        }
        assert_eq!([height(80), height(120), height(200)], [3, 2, 2]);
    }
}
