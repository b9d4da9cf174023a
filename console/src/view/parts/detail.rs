//! The selected worker in full: its poll in flight, and all numbers for which the table has no
//! room.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use volt_telemetry::snapshot::{Duty, InFlight, Worker};

use crate::facts::{Scene, Tone};
use crate::model::Model;
use crate::text::figures::{duration, head, tail, width};
use crate::view::parts::layout::{self, TITLE_WIDTH, fact_line};
use crate::view::theme::Theme;

/// The smallest screen height at which all groups of facts are shown. A lower screen omits the last
/// two, and two more if the table of workers needs their lines.
const ALL_GROUPS_FROM: u16 = 28;

/// Returns the least and the most lines that [`draw`] needs on a screen of `screen_height`.
pub fn heights(scene: &Scene<'_>, worker: usize, screen_height: u16) -> (u16, u16) {
    // The rule, the poll in flight, and the groups.
    let all = 2 + scene.worker(worker).len() as u16;
    if screen_height < ALL_GROUPS_FROM { (all.saturating_sub(4), all.saturating_sub(2)) } else { (all, all) }
}

/// Draws the lines.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, scene: &Scene<'_>, theme: Theme) {
    let Some(worker) = scene.snapshot.workers.get(model.selected_worker) else { return };
    let columns = usize::from(area.width) - 1;
    let poll = poll_line("in flight", "", worker.in_flight.as_ref(), columns, theme);
    let mut lines = vec![rule(worker, usize::from(area.width), theme), poll];
    lines.extend(scene.worker(model.selected_worker).iter().map(|group| {
        let mut line = fact_line(group, TITLE_WIDTH - 1, columns, theme);
        line.spans.insert(0, Span::raw(" "));
        line
    }));
    for (row, line) in (area.y..area.bottom()).zip(lines) {
        frame.render_widget(line, Rect { y: row, height: 1, ..area });
    }
}

fn rule(worker: &Worker, columns: usize, theme: Theme) -> Line<'static> {
    let thread = worker.thread_id.map_or_else(String::new, |id| format!(", thread {id}"));
    let phase = format!("{} for {}", worker.phase.name(), duration(worker.phase_for_ns));
    let kind = if worker.is_spare { "spare worker" } else { "worker" };
    let duty = if worker.duty == Duty::Present { String::new() } else { format!("{}, ", worker.duty.name()) };
    let title = format!(" {kind} {}{thread}, {duty}{phase} ", worker.index);
    // Percentiles and shares are of the last interval.
    let unit = " counters since the runtime started ";
    let room = columns.saturating_sub(width(&title) + 2);
    let unit = if width(unit) <= room { unit } else { " totals " };
    let fill = "─".repeat(columns.saturating_sub(width(&title) + width(unit) + 2));
    Line::from(vec![
        Span::styled("─", theme.label()),
        Span::styled(title, theme.title()),
        Span::styled(format!("{fill}{unit}─"), theme.label()),
    ])
}

/// Formats the longest poll in flight of the whole runtime.
pub fn longest_poll(scene: &Scene<'_>, columns: usize, theme: Theme) -> Line<'static> {
    let longest = scene.snapshot.longest_in_flight();
    let by = longest.map_or_else(String::new, |(worker, _)| format!("poll on worker {}: ", worker.index));
    poll_line("longest", &by, longest.map(|(_, poll)| poll), columns, theme)
}

fn poll_line(title: &str, by: &str, poll: Option<&InFlight>, columns: usize, theme: Theme) -> Line<'static> {
    let title = layout::title(title, theme);
    let Some(poll) = poll else { return Line::from(vec![title, Span::styled("no poll in flight", theme.label())]) };
    let tone = Tone::of_duration(poll.for_ns);
    let name = poll.name().unwrap_or("task");
    let id = format!(" #{}", poll.task_id);
    let how_long = format!("{}{}", duration(poll.for_ns), tone.mark());
    // The remaining room after the figures: up to half of it for the name, the rest for the
    // location.
    let room = columns.saturating_sub(TITLE_WIDTH + width(by) + width(&how_long) + width("   from ") + width(&id));
    let name = head(name, (room / 2).max(8));
    let place = tail(&poll.spawned_at, room.saturating_sub(width(&name)));
    Line::from(vec![
        title,
        Span::styled(how_long, theme.tone(tone)),
        Span::raw(format!("  {by}")),
        Span::styled(format!("{name}{id}"), theme.strong()),
        Span::styled(" from ", theme.label()),
        Span::raw(place),
    ])
}
