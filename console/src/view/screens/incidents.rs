//! The incidents screen: the stuck polls, the latest first, and below the list the selected one
//! with the start of its stack. When the stack is open, it fills the screen.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::{Line, Span};
use volt_telemetry::incident::{Incident, Incidents};

use crate::facts::incidents::{how_long, line_within, place_of, remedy_word, task, task_within, when, worst};
use crate::facts::{Scene, Tone, causes};
use crate::model::Model;
use crate::text::figures::{ABSENT, COUNT_WIDTH, DURATION_WIDTH, count, duration, left, right, tail, width};
use crate::view::hits::Hits;
use crate::view::parts::detail;
use crate::view::parts::layout::{self, TITLE_WIDTH, draw_message, draw_rows, fact_line, part, rows, window};
use crate::view::parts::stack;
use crate::view::theme::Theme;

/// The widths of the list's columns: when, duration with its mark, worker, cause, remedy, and
/// number of similar incidents.
const WHEN_WIDTH: usize = DURATION_WIDTH;
const FOR_WIDTH: usize = DURATION_WIDTH + 2;
const WORKER_WIDTH: usize = 6;
const CAUSE_WIDTH: usize = 13;
const REMEDY_WIDTH: usize = 8;
const SIMILAR_WIDTH: usize = COUNT_WIDTH + 2;
/// The smallest width at which the list has the number of similar incidents. A narrower screen has
/// it only below the list.
const SIMILAR_FROM: usize = 100;
/// The width of the line of code on the narrowest screen.
const LINE_WIDTH: usize = 18;
/// The smallest height of the list before the stack gets its lines, if there are that many
/// incidents.
const LIST_MIN: u16 = 4;

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, scene: &Scene<'_>, theme: Theme, hits: &mut Hits) {
    let incidents = &scene.snapshot.incidents;
    let [counts, remedies, longest, rest] =
        rows(area, [Constraint::Length(1), Constraint::Length(1), Constraint::Length(1), Constraint::Fill(1)]);
    let columns = usize::from(area.width) - 1;
    for (line, group) in [(counts, scene.incidents()), (remedies, scene.sentinel())] {
        let mut facts = fact_line(&group, TITLE_WIDTH - 1, columns, theme);
        facts.spans.insert(0, Span::raw(" "));
        frame.render_widget(facts, line);
    }
    // Of many similar polls, only one is captured within some time, so a poll in flight may not be
    // in the list.
    frame.render_widget(detail::longest_poll(scene, columns, theme), longest);
    let shown = model.incident_rows();
    let Some(selected) = model.incidents.selected(&shown) else {
        return draw_nothing(frame, rest, model, incidents, theme);
    };
    if let Some(call) = model.incidents.open_call() {
        return stack::draw(frame, rest, selected, scene.snapshot.at_ns, Some(call), theme);
    }
    let wanted = shown.len() as u16 + 1;
    let list = wanted.min((rest.height / 3).max(LIST_MIN + 1));
    let [list, below] = rows(rest, [Constraint::Length(list), Constraint::Fill(1)]);
    draw_list(frame, list, model, &shown, scene.snapshot.at_ns, theme, hits);
    stack::draw(frame, below, selected, scene.snapshot.at_ns, None, theme);
}

fn draw_nothing(frame: &mut Frame<'_>, area: Rect, model: &Model, incidents: &Incidents, theme: Theme) {
    let text = match incidents.total() {
        _ if !model.list().filter.is_empty() => "No incident matches the filter; Esc shows all.",
        0 => "No stuck polls since the runtime started.",
        _ => "The program no longer keeps the incidents of its stuck polls.",
    };
    draw_message(frame, area, text, theme);
}

fn draw_list(
    frame: &mut Frame<'_>,
    area: Rect,
    model: &Model,
    incidents: &[&Incident],
    at_ns: u64,
    theme: Theme,
    hits: &mut Hits,
) {
    let selected = model.incidents.position(incidents);
    let shown = window(incidents.len(), selected, usize::from(area.height) - 1);
    let columns = usize::from(area.width);
    let list = model.list();
    let order = model.orders().get(list.order).copied().filter(|_| list.order > 0 || list.is_inverted);
    let arrow = if list.is_inverted { "▲" } else { "▼" };
    let order = order.map_or_else(String::new, |order| format!("{arrow}{order} "));
    let filter = if list.filter.is_empty() { "" } else { "filtered " };
    let heads = heads(columns, &format!("{order}{filter}{}", part(&shown, incidents.len())));
    let in_sight = incidents.iter().enumerate().skip(shown.start).take(shown.len());
    let lines = in_sight.map(|(place, incident)| line(incident, at_ns, place == selected, columns, theme)).collect();
    draw_rows(frame, area, Line::styled(heads, theme.title()), shown.start, lines, hits);
}

fn heads(columns: usize, part: &str) -> String {
    let cells = [
        right("when", WHEN_WIDTH),
        left("duration", FOR_WIDTH),
        right("worker", WORKER_WIDTH),
        left("cause", CAUSE_WIDTH),
        left("action", REMEDY_WIDTH),
    ];
    let similar = (columns >= SIMILAR_FROM).then(|| right("similar", SIMILAR_WIDTH));
    let ends = [left("line", line_width(columns)), "task".into()];
    let text = cells.into_iter().chain(similar).chain(ends).fold(String::new(), |text, cell| text + " " + &cell);
    format!("{}{part}", left(&text, columns.saturating_sub(width(part))))
}

/// Returns the width of the line of code for a screen of `columns`: its smallest width, and a
/// quarter of the columns beyond those of a narrow screen.
fn line_width(columns: usize) -> usize {
    LINE_WIDTH + columns.saturating_sub(SIMILAR_FROM) / 4
}

fn line(incident: &Incident, at_ns: u64, is_selected: bool, columns: usize, theme: Theme) -> Line<'static> {
    let tone = Tone::of_duration(incident.for_ns);
    // Figures are aligned, and the marks follow them.
    let how_long = format!("{}{:<2}", right(&duration(incident.for_ns), DURATION_WIDTH), tone.mark());
    let when_style = if incident.is_over { theme.label() } else { theme.tone(Tone::Alarm) };
    let line_width = line_width(columns);
    let line = line_within(incident, line_width).unwrap_or_else(|| ABSENT.into());
    let mut spans = vec![
        Span::styled(if is_selected { "▸" } else { " " }, theme.strong()),
        Span::styled(format!("{} ", right(&when(incident, at_ns), WHEN_WIDTH)), when_style),
        Span::styled(format!("{how_long} "), theme.tone(tone)),
        Span::raw(format!("{} ", right(&incident.worker.to_string(), WORKER_WIDTH))),
        Span::raw(format!("{} ", left(incident.cause.name(), CAUSE_WIDTH))),
        Span::raw(format!("{} ", left(remedy_word(incident.remedy), REMEDY_WIDTH))),
    ];
    if columns >= SIMILAR_FROM {
        let similar = if incident.suppressed > 0 { format!("+{}", count(incident.suppressed)) } else { String::new() };
        spans.push(Span::styled(format!("{} ", right(&similar, SIMILAR_WIDTH)), theme.label()));
    }
    spans.push(Span::styled(format!("{} ", left(&line, line_width)), theme.strong()));
    let used: usize = spans.iter().map(Span::width).sum();
    let room = columns.saturating_sub(used);
    let task = task_within(incident, room);
    let from = room.saturating_sub(width(&task) + width("  from "));
    spans.push(Span::raw(task));
    if from >= LINE_WIDTH {
        spans.push(Span::styled(format!("  from {}", tail(&incident.spawned_at, from)), theme.label()));
    }
    let line = Line::from(spans);
    if is_selected { line.style(theme.strong()) } else { line }
}

/// Returns whether the longest poll in flight is the one of [`summary`].
pub fn has_longest(scene: &Scene<'_>) -> bool {
    let worst = worst(&scene.snapshot.incidents).filter(|worst| !worst.is_over);
    let longest = scene.snapshot.longest_in_flight();
    worst.zip(longest).is_some_and(|(worst, (_, poll))| worst.task_id == poll.task_id)
}

/// Formats the line on the overview: the number of incidents, and the worst. `None` if there are
/// none.
pub fn summary(scene: &Scene<'_>, columns: usize, theme: Theme) -> Option<Line<'static>> {
    let incidents = &scene.snapshot.incidents;
    let worst = worst(incidents)?;
    let (how_long, tone) = how_long(worst);
    let (verb, tone, ago) = match worst.is_over {
        true => ("was stuck", Tone::Plain, format!(", began {} ago", when(worst, scene.snapshot.at_ns))),
        false => ("stuck", tone, String::new()),
    };
    let total = count(incidents.total());
    let who = format!("worker {} {verb} ", worst.worker);
    let cause = format!(" ({})", worst.cause.name());
    let place = format!(" {}", place_of(worst));
    let fixed: usize = [&total, &who, &how_long, &cause, &place, &ago].into_iter().map(|text| width(text)).sum();
    let room = columns.saturating_sub(TITLE_WIDTH + fixed + width("   by "));
    // All causes, if there is also room for the task's name and id.
    let by_cause = format!(" ({})", causes(incidents));
    let by_cause = if room >= width(&by_cause) + width(&task(worst)) { by_cause } else { String::new() };
    let room = room.saturating_sub(width(&by_cause));
    // A cut id is useless, and the line above may have the task.
    let has_room = room > worst.task_id.to_string().len();
    let by = if has_room { (" by ", task_within(worst, room)) } else { ("", String::new()) };
    Some(Line::from(vec![
        layout::title("incidents", theme),
        Span::styled(total, theme.strong()),
        Span::raw(format!("{by_cause}  {who}")),
        Span::styled(how_long, theme.tone(tone)),
        Span::raw(cause),
        Span::styled(by.0, theme.label()),
        Span::raw(by.1),
        Span::styled(place, theme.strong()),
        Span::styled(ago, theme.label()),
    ]))
}
