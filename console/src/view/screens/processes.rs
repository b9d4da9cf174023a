//! The processes screen: the processes (actors with mailboxes) that rank highest and, if it is
//! open, the detail of the selected one.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::Line;
use volt_telemetry::processes::{Process, Query, State};

use crate::facts::Tone;
use crate::facts::incidents::shortened;
use crate::model::Model;
use crate::tables::processes::{COLUMNS, NAME_TITLE, mailbox_tone, name_and_kind, summary};
use crate::text::figures::{ABSENT, count, head, maybe_duration, tail, width};
use crate::view::hits::Hits;
use crate::view::parts::layout::{self, TITLE_WIDTH, draw_message, rows};
use crate::view::parts::table::{Table, top_line};
use crate::view::theme::Theme;

/// The meaning of the columns, at most as wide as the narrowest screen.
const LEGEND: &str = "mailbox, peak, lost: messages   steps: runs by a worker   busy: total of steps";

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme, hits: &mut Hits) {
    let [top, rest] = rows(area, [Constraint::Length(1), Constraint::Fill(1)]);
    let error = model.processes.error.as_deref();
    frame
        .render_widget(top_line("processes", &summary_text(model), error, &model.list().filter, top.width, theme), top);
    let table = model.process_rows();
    if table.is_empty() {
        return draw_message(frame, rest, &nothing(model), theme);
    }
    let selected = model.position().unwrap_or(0);
    let detail = if model.processes.is_open {
        detail_lines(table[selected].item, usize::from(area.width), theme)
    } else {
        Vec::new()
    };
    let Query { rank, is_inverted, .. } = model.process_query();
    let (columns, rest_title) = (&COLUMNS, NAME_TITLE);
    let table =
        Table { columns, rows: &table, selected, rank, is_inverted, rest_title, rest: named, detail, legend: LEGEND };
    table.draw(frame, rest, theme, hits);
}

/// Formats the size of the list, and the counters of the runtime's process systems.
fn summary_text(model: &Model) -> String {
    let list = model.state().processes.as_ref().map(summary);
    let totals = model.scene().and_then(|scene| scene.snapshot.processes.as_ref()).map(|all| {
        let [failed, restarts, lost] = [all.ended_abnormally, all.restarts, all.messages_lost].map(count);
        format!("{lost} messages lost, {failed} failed, {restarts} restarts")
    });
    list.into_iter().chain(totals).collect::<Vec<_>>().join(", ")
}

fn nothing(model: &Model) -> String {
    match &model.state().processes {
        _ if model.played.is_some() => "A recording has no list of processes; attach to a running program.".into(),
        None if model.has_ended() => "The program exited before its processes were listed.".into(),
        None if model.processes.error.is_some() => "Cannot list the processes: see above.".into(),
        None => "Requesting the processes …".into(),
        Some(_) if !model.list().filter.is_empty() => "No process matches the filter; Esc shows all.".into(),
        Some(_) => "This runtime has no processes; volt_process::System starts them.".into(),
    }
}

/// Formats the name and kind, and as much of the location as fits after them.
fn named(process: &Process, room: usize) -> String {
    let name = head(&name_and_kind(process), room);
    let left_over = room.saturating_sub(width(&name) + 2);
    if left_over < 8 { name } else { format!("{name}  {}", tail(&process.spawned_at, left_over)) }
}

fn detail_lines(process: &Process, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let room = columns.saturating_sub(TITLE_WIDTH + 1);
    let fact = |title: &str, text: String, tone: Tone| layout::fact_lines(title, &text, room, theme.tone(tone), theme);
    let title = format!(" process {} {} ", process.pid, process.name.as_deref().unwrap_or(""));
    let rule = format!("─{title}{}", "─".repeat(columns.saturating_sub(width(&title) + 1)));
    let (state, tone) = match process.state {
        State::Running => {
            let tone = Tone::of_duration(process.in_poll_ns.unwrap_or(0));
            (format!("in a step for {}{}", maybe_duration(process.in_poll_ns), tone.mark()), tone)
        }
        State::Ready => ("ready: its task is queued for the next step".into(), Tone::Plain),
        State::Blocked => ("blocked: awaiting a future in its step".into(), Tone::Plain),
        State::Idle => ("idle: waiting for messages".into(), Tone::Plain),
        State::Complete => ("complete: it has exited".into(), Tone::Plain),
        _ => ("unknown to this version of the console".into(), Tone::Plain),
    };
    let tone_of_mailbox = mailbox_tone(process);
    let mailbox = format!(
        "{} of {} messages{}, peak {}; {} lost because it was full",
        count(process.mailbox_len),
        count(process.mailbox_capacity),
        tone_of_mailbox.mark(),
        count(process.mailbox_high_water),
        count(process.messages_lost)
    );
    let several = |n: u64, thing: &str| format!("{} {thing}{}", count(n), if n == 1 { "" } else { "s" });
    let links = format!(
        "parent {}; {}, {}",
        process.parent.as_deref().unwrap_or("none"),
        several(process.links, "link"),
        several(process.monitors, "monitor")
    );
    let task = process.task.map_or_else(|| ABSENT.to_owned(), |task| format!("#{task} (press t, then /#{task})"));
    let facts = [
        fact("kind", shortened(&process.kind, room), Tone::Plain),
        fact("spawned", format!("at {}", tail(&process.spawned_at, room.saturating_sub(3))), Tone::Plain),
        fact("state", state, tone),
        fact("mailbox", mailbox, tone_of_mailbox),
        fact("steps", format!("{} in {} total", count(process.steps), maybe_duration(process.busy_ns)), Tone::Plain),
        fact("links", links, Tone::Plain),
        fact("task", task, Tone::Plain),
    ];
    std::iter::once(Line::styled(rule, theme.label())).chain(facts.into_iter().flatten()).collect()
}
