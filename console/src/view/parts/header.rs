//! The three lines above every screen: the program and how recent its numbers are, the verdict of
//! the doctor, and the runtimes.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use volt_diagnosis::doctor::Verdict;
use volt_diagnosis::rates::worker_count;

use crate::facts::Tone;
use crate::model::{Link, Model, Played, tone_of};
use crate::text::figures::{age, count, head, span, width};
use crate::view::parts::layout::rows;
use crate::view::theme::Theme;

/// The columns that the runtime tabs leave to their title and to the text next to them.
const TABS_LEAVE: usize = 40;
/// The number of lines at the top.
pub const TOP_HEIGHT: u16 = 3;
/// The width of the reason why a connection was lost or a recording ends early. The event log has
/// the full reason of a lost connection, but not those of later attempts.
const REASON_MAX_WIDTH: usize = 60;
/// The largest width of the program's name, and of a runtime's.
const NAME_MAX_WIDTH: usize = 24;

/// Draws the three lines at the top.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme) {
    let [first, second, third] = rows(area, [Constraint::Length(1); TOP_HEIGHT as usize]);
    draw_identity(frame, first, model, theme);
    frame.render_widget(verdict(model, theme, usize::from(area.width)), second);
    let tabs = tabs(model, theme, usize::from(area.width));
    let room = usize::from(area.width).saturating_sub(tabs.width() + 2);
    draw_split(frame, third, tabs, losses(model, theme, room.min(REASON_MAX_WIDTH)));
}

/// Draws the first of them: which program this is, and how recent the numbers are.
pub fn draw_identity(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme) {
    draw_split(frame, area, identity(model, theme), freshness(model, theme));
}

/// Returns the verdict of the doctor on all runtimes; an empty line before the first snapshot.
pub fn verdict(model: &Model, theme: Theme, columns: usize) -> Line<'static> {
    if model.runtimes().is_empty() {
        return Line::default();
    }
    let verdict = Verdict::of(model.runtimes());
    let style = match verdict.severity() {
        Some(severity) => theme.tone(tone_of(severity)),
        None if verdict.stuck_workers() > 0 => theme.tone(Tone::Warn),
        None => theme.good(),
    };
    let before = if model.link == Link::Live { " " } else { " last known: " };
    let text = verdict.in_columns(columns.saturating_sub(before.len()));
    Line::from(vec![Span::styled(before, theme.label()), Span::styled(head(&text, columns - before.len()), style)])
}

fn draw_split(frame: &mut Frame<'_>, area: Rect, left: Line<'_>, right: Line<'_>) {
    let right_width = (right.width() as u16).min(area.width);
    let [left_area, right_area] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(right_width)]).areas(area);
    frame.render_widget(left, left_area);
    frame.render_widget(right, right_area);
}

fn identity(model: &Model, theme: Theme) -> Line<'static> {
    let program = model.state().program.as_ref();
    let name = program.map_or(&model.hello.program, |program| &program.name);
    let pid = program.map_or(model.hello.pid, |program| program.pid);
    let mut spans = vec![
        Span::styled(format!(" {}", head(name, NAME_MAX_WIDTH)), theme.header()),
        Span::styled("  pid ", theme.label()),
        Span::raw(pid.to_string()),
    ];
    if let Some(scene) = model.scene() {
        let up = scene.snapshot.at_ns.saturating_sub(scene.snapshot.started_at_ns);
        spans.push(Span::styled("  up ", theme.label()));
        spans.push(Span::raw(age(up)));
    }
    Line::from(spans)
}

fn freshness(model: &Model, theme: Theme) -> Line<'static> {
    let mut spans = Vec::new();
    if let Some(played) = &model.played {
        let state = if played.is_playing { "▶ replay" } else { "■ replay" };
        // As in the option `--at`, which accepts them.
        let [at, whole] = [played.at, played.whole].map(|time| format!("{:.2}s", time.as_secs_f64()));
        spans.push(Span::styled(format!("{state} {at}"), theme.good()));
        spans.push(Span::styled(" of ", theme.label()));
        spans.push(Span::raw(format!("{whole} ")));
        return Line::from(spans);
    }
    if model.is_paused() {
        let held = model.now.saturating_sub(model.state().received_at);
        let how_long = age(nanos(held));
        spans.push(Span::styled(format!(" PAUSED {how_long} "), theme.selected()));
        spans.push(Span::raw(" "));
    }
    match (&model.link, model.silent_for()) {
        (Link::Lost { since, retry_at, .. }, _) => {
            let ago = age(nanos(model.now.saturating_sub(*since)));
            // Rounded up, because "in 0s" would be wrong for most of the wait.
            let again = age(nanos(retry_at.saturating_sub(model.now) + Duration::from_millis(999)));
            let text = format!("✗ connection lost {ago} ago, retry in {again} ");
            spans.push(Span::styled(text, theme.tone(Tone::Alarm)));
        }
        (Link::Exited { since, pid }, _) => {
            let ago = age(nanos(model.now.saturating_sub(*since)));
            let text = format!("✗ pid {pid} exited {ago} ago; q quits ");
            spans.push(Span::styled(text, theme.tone(Tone::Alarm)));
        }
        (Link::Live, Some(silent)) => {
            let text = format!("! no snapshot for {} ", age(nanos(silent)));
            spans.push(Span::styled(text, theme.tone(Tone::Warn)));
        }
        // The numbers on the screen are not live.
        (Link::Live, None) if model.is_paused() => {}
        (Link::Live, None) => {
            spans.push(Span::styled("● live", theme.good()));
            spans.push(Span::styled("  every ", theme.label()));
            spans.push(Span::raw(format!("{} ", span(model.interval))));
        }
    }
    Line::from(spans)
}

fn tabs(model: &Model, theme: Theme, columns: usize) -> Line<'static> {
    let mut spans = vec![Span::styled(" runtime ", theme.title())];
    let selected = model.runtime_index();
    // As many tabs as fit, including the selected one; with their workers if all fit so.
    let room = columns.saturating_sub(TABS_LEAVE);
    let tab = |index: usize, has_workers: bool| {
        let runtime = &model.runtimes()[index];
        let name = if runtime.runtime.is_empty() { "(unnamed)" } else { &runtime.runtime };
        let (open, close) = if index == selected { ('[', ']') } else { (' ', ' ') };
        let workers = match worker_count(runtime) {
            _ if !has_workers => String::new(),
            1 => " 1 worker".into(),
            workers => format!(" {workers} workers"),
        };
        format!("{open}{}{workers}{close}", head(name, NAME_MAX_WIDTH))
    };
    let whole: usize = (0..model.runtimes().len()).map(|index| width(&tab(index, true))).sum();
    let tab = |index: usize| tab(index, whole <= room);
    let mut shown = selected..(selected + 1).min(model.runtimes().len());
    let mut used: usize = shown.clone().map(|index| width(&tab(index))).sum();
    loop {
        let before = shown.clone();
        if shown.end < model.runtimes().len() && used + width(&tab(shown.end)) <= room {
            used += width(&tab(shown.end));
            shown.end += 1;
        }
        if shown.start > 0 && used + width(&tab(shown.start - 1)) <= room {
            shown.start -= 1;
            used += width(&tab(shown.start));
        }
        if shown == before {
            break;
        }
    }
    let hidden = model.runtimes().len() - shown.len();
    for index in shown {
        let style = if index == selected { theme.strong() } else { theme.label() };
        spans.push(Span::styled(tab(index), style));
    }
    if hidden > 0 {
        spans.push(Span::styled(format!(" +{hidden} more"), theme.label()));
    }
    Line::from(spans)
}

/// Formats the losses, with a reason in at most `room` columns.
fn losses(model: &Model, theme: Theme, room: usize) -> Line<'static> {
    if let Link::Lost { reason, .. } = &model.link {
        return Line::styled(format!("{} ", head(reason, room)), theme.tone(Tone::Warn));
    }
    if let Some(Played { broke: Some(broke), .. }) = &model.played {
        return Line::styled(format!("! {} ", head(broke, room.saturating_sub(2))), theme.tone(Tone::Warn));
    }
    let mut spans = Vec::new();
    let incomplete = model.scene().map(|scene| scene.snapshot.incomplete.join(", ")).unwrap_or_default();
    if !incomplete.is_empty() {
        let text = format!("! incomplete: {} ", head(&incomplete, 24));
        spans.push(Span::styled(text, theme.tone(Tone::Warn)));
    }
    if model.lost > 0 {
        spans.push(Span::styled(format!("! snapshots lost {} ", count(model.lost)), theme.tone(Tone::Warn)));
    } else {
        spans.push(Span::styled("snapshots lost 0 ", theme.label()));
    }
    Line::from(spans)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
