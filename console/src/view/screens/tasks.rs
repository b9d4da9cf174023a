//! The tasks screen: the tasks that rank highest and, if it is open, the detail of the selected
//! one: its state, its poll durations, and the chain of wake-ups that led to its last poll.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::Line;
use volt_telemetry::tasks::{LONGEST_FROM_NS, Query, State, Task};

use crate::facts::why;
use crate::facts::{LONG_NS, Tone};
use crate::model::Model;
use crate::tables::tasks::{
    COLUMNS, NAME_TITLE, awaits, held_by, is_await_unknown, permits_of, place, position, summary,
};
use crate::text::figures::{ABSENT, count, duration, head, maybe_duration, tail, width, wrapped};
use crate::view::hits::Hits;
use crate::view::parts::layout::{self, TITLE_WIDTH, draw_message, rows};
use crate::view::parts::table::{Table, top_line};
use crate::view::theme::Theme;

/// The meaning of the columns, at most as wide as the narrowest screen.
const LEGEND: &str = "busy: total, and share now  longest: poll  delay: wake-up to poll  woken: ago";

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme, hits: &mut Hits) {
    let [top, rest] = rows(area, [Constraint::Length(1), Constraint::Fill(1)]);
    let summary_text = model.state().tasks.as_ref().map_or_else(String::new, summary);
    let error = model.tasks.error.as_deref();
    frame.render_widget(top_line("tasks", &summary_text, error, &model.list().filter, top.width, theme), top);
    let table = model.task_rows();
    if table.is_empty() {
        return draw_message(frame, rest, &nothing(model), theme);
    }
    let selected = model.position().unwrap_or(0);
    let task = table[selected].item;
    let detail = if model.tasks.is_open {
        detail_lines(task, &chain(model, task.id), usize::from(area.width), theme)
    } else {
        Vec::new()
    };
    let Query { rank, is_inverted, .. } = model.task_query();
    let (columns, rest_title) = (&COLUMNS, NAME_TITLE);
    let table =
        Table { columns, rows: &table, selected, rank, is_inverted, rest_title, rest: named, detail, legend: LEGEND };
    table.draw(frame, rest, theme, hits);
}

fn nothing(model: &Model) -> String {
    match &model.state().tasks {
        _ if model.played.is_some() => "A recording has no list of tasks; attach to a running program.".into(),
        None if model.has_ended() => "The program exited before its tasks were listed.".into(),
        None if model.tasks.error.is_some() => "Cannot list the tasks: see above.".into(),
        None => "Requesting the tasks …".into(),
        Some(_) if !model.list().filter.is_empty() => "No task matches the filter; Esc shows all.".into(),
        Some(list) if list.alive > 0 => "No task has waited yet, and none has a name.".into(),
        Some(_) => "No live tasks.".into(),
    }
}

/// Formats the name, and as much of the location as fits after it; without a name, only the
/// location.
fn named(task: &Task, room: usize) -> String {
    let Some(name) = &task.name else { return tail(place(task), room) };
    let name = head(name, room);
    let left_over = room.saturating_sub(width(&name) + 2);
    if left_over < 8 { name } else { format!("{name}  {}", tail(&task.spawned_at, left_over)) }
}

/// Returns why the task was polled, in lines.
fn chain(model: &Model, id: u64) -> Vec<String> {
    match model.tasks.why.as_ref().filter(|(task, _)| *task == id) {
        Some((_, Ok(why))) => why::text(why).lines().map(str::to_owned).collect(),
        Some((_, Err(error))) => vec![error.clone()],
        None => vec!["requesting …".into()],
    }
}

fn detail_lines(task: &Task, chain: &[String], columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let room = columns.saturating_sub(TITLE_WIDTH + 1);
    let fact = |title: &str, text: String, tone: Tone| layout::fact_lines(title, &text, room, theme.tone(tone), theme);
    let title = format!(" task #{} {} ", task.id, task.name.as_deref().unwrap_or(""));
    let rule = format!("─{title}{}", "─".repeat(columns.saturating_sub(width(&title) + 1)));
    let in_poll = task.in_poll_ns.unwrap_or(0);
    let (state, tone) = match (task.state, task.worker) {
        (State::Polled, worker) => {
            let worker = worker.map_or_else(|| "a worker".into(), |worker| format!("worker {worker}"));
            let tone = Tone::of_duration(in_poll);
            (format!("being polled by {worker} for {}{}", maybe_duration(task.in_poll_ns), tone.mark()), tone)
        }
        (State::Stranded, _) => ("! stranded: waiting, but no waker is left to wake it".into(), Tone::Warn),
        (State::Queued, _) => ("queued: woken and not polled yet".into(), Tone::Plain),
        (State::Waits, _) => ("waiting to be woken".into(), Tone::Plain),
        _ => ("unknown to this version of the console".into(), Tone::Plain),
    };
    let number = |n: Option<u64>| n.map_or_else(|| ABSENT.to_owned(), count);
    let longest = task.longest_ns.or(task.in_poll_ns);
    let polls = format!(
        "{} in {} total, longest {}{}",
        number(task.polls),
        maybe_duration(task.busy_ns),
        if longest == Some(0) { format!("below {}", duration(LONGEST_FROM_NS)) } else { maybe_duration(longest) },
        longest.map_or("", |ns| Tone::of_duration(ns).mark()),
    );
    let tone_of_polls = if longest.is_some_and(|ns| ns >= LONG_NS) { Tone::Warn } else { Tone::Plain };
    let wakers = if task.wakers == Some(1) { "live waker" } else { "live wakers" };
    let delay =
        format!("{} in total from wake-ups to polls; {} {wakers}", maybe_duration(task.delay_ns), number(task.wakers),);
    let ago = format!("{} ago at ", maybe_duration(task.age_ns));
    let spawned = tail(&task.spawned_at, room.saturating_sub(width(&ago)));
    let mut lines = vec![Line::styled(rule, theme.label())];
    lines.extend(fact("spawned", format!("{ago}{spawned}"), Tone::Plain));
    lines.extend(fact("state", state, tone));
    if let Some((what, at)) = awaits(task) {
        let at = at.map_or_else(String::new, |at| format!(", at {}", tail(at, room.saturating_sub(width(&what) + 5))));
        lines.extend(fact("awaits", format!("{what}{at}"), Tone::Plain));
    } else if is_await_unknown(task) {
        let unknown = "not recorded: a timer, a socket, or another crate's future; press w to find the line";
        lines.extend(fact("awaits", unknown.into(), Tone::Plain));
    }
    if let Some(holder) = held_by(task) {
        lines.extend(fact("held by", holder, Tone::Plain));
    }
    for holder in permits_of(task) {
        lines.extend(fact("permits", holder, Tone::Plain));
    }
    if let Some(position) = position(task) {
        let what = if task.awaits.as_deref() == Some("permits") { "semaphore" } else { "lock" };
        lines.extend(fact("queue", format!("{position} in the queue of the {what}"), Tone::Plain));
    }
    lines.extend(fact("polls", polls, tone_of_polls));
    lines.extend(fact("delay", delay, Tone::Plain));
    lines.push(Line::styled(" reason for the last poll", theme.title()));
    for text in chain {
        let indent = text.len() - text.trim_start().len() + 3;
        let parts = wrapped(text, columns.saturating_sub(indent + 5));
        let begin = |index: usize| " ".repeat(if index == 0 { indent } else { indent + 4 });
        lines.extend(parts.iter().enumerate().map(|(index, part)| Line::raw(begin(index) + part)));
    }
    lines
}
