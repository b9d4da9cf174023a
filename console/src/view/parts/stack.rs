//! One incident: its facts and its stack. The application's calls are marked, and calls of
//! libraries are dim.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use volt_telemetry::incident::Incident;

use crate::facts::incidents::{Call, Whose, calls, cause, how_long, remedy, shortened, task, when};
use crate::text::figures::{head, left, tail, width};
use crate::view::parts::layout::{self, TITLE_WIDTH, rows, window};
use crate::view::theme::Theme;

/// The lines below an open stack: the selected call in full.
const FULL_HEIGHT: u16 = 4;
/// The columns before a call: the pointer, its number, its mark.
const NUMBER_WIDTH: usize = 7;
/// The columns between a call and its location.
const GAP_WIDTH: usize = 2;
/// The largest share of the functions, in per cent of the columns for functions and locations.
const FUNCTION_SHARE: usize = 60;

/// Draws `incident`. `pointed_at` is the selected call of an open stack. If the stack is not open,
/// draws the calls that fit, and the line to fix in any case.
pub fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    incident: &Incident,
    at_ns: u64,
    pointed_at: Option<usize>,
    theme: Theme,
) {
    let columns = usize::from(area.width);
    let calls = calls(incident);
    let full = if pointed_at.is_some() && !calls.is_empty() { FULL_HEIGHT } else { 0 };
    let head_height = head_lines(incident, at_ns, "", columns, theme).len() as u16;
    let [top, middle, bottom] =
        rows(area, [Constraint::Length(head_height.min(area.height)), Constraint::Fill(1), Constraint::Length(full)]);
    let guilty = calls.iter().position(|call| call.whose == Whose::Guilty).unwrap_or(0);
    // The call that must be visible. If the stack is not open, it is the innermost call if the line
    // to fix is visible with it, else the line to fix.
    let in_sight = pointed_at.unwrap_or(if guilty < usize::from(middle.height) { 0 } else { guilty });
    let shown = window(calls.len(), in_sight, usize::from(middle.height));
    let part = format!("calls {}-{} of {} ", shown.start + 1, shown.end, calls.len());
    let part = if calls.is_empty() { String::new() } else { part };
    draw_lines(frame, top, head_lines(incident, at_ns, &part, columns, theme));
    if calls.is_empty() {
        let why = incident.stack_error.as_deref().unwrap_or("not read yet, or stack capture is off");
        let text = head(&format!(" {:<1$}none: {why}", "stack", TITLE_WIDTH - 1), columns);
        return draw_lines(frame, middle, [Line::styled(text, theme.label())]);
    }
    let widest = calls.iter().map(|call| width(&call.function)).max().unwrap_or(0);
    let room = columns.saturating_sub(NUMBER_WIDTH + GAP_WIDTH);
    // Locations follow the functions, in a separate column.
    let function_width = widest.min(room * FUNCTION_SHARE / 100);
    let numbered = calls.iter().enumerate().skip(shown.start).take(shown.len());
    let line = |(number, call)| {
        call_line(number, call, pointed_at == Some(number), [function_width, room - function_width], theme)
    };
    draw_lines(frame, middle, numbered.map(line));
    if let Some(call) = pointed_at.and_then(|number| calls.get(number)) {
        draw_lines(frame, bottom, full_lines(call, incident, columns, theme));
    }
}

fn draw_lines(frame: &mut Frame<'_>, area: Rect, lines: impl IntoIterator<Item = Line<'static>>) {
    for (row, line) in (area.y..area.bottom()).zip(lines) {
        frame.render_widget(line, Rect { y: row, height: 1, ..area });
    }
}

/// Returns the lines above the stack: the rule, the task, the cause, and what the runtime did.
fn head_lines(incident: &Incident, at_ns: u64, part: &str, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let (how_long, tone) = how_long(incident);
    let (held, end) = match incident.is_over {
        true => (" was stuck for ", format!(", began {} ago ", when(incident, at_ns))),
        false => (" has been stuck for ", " so far ".to_string()),
    };
    let title = format!(" incident {}, worker {}{held}", incident.id, incident.worker);
    let used = width(&title) + width(&how_long) + width(&end) + width(part) + 3;
    let part = if part.is_empty() { String::new() } else { format!(" {part}") };
    let fill = "─".repeat(columns.saturating_sub(used));
    let rule = Line::from(vec![
        Span::styled("─", theme.label()),
        Span::styled(title, theme.title()),
        Span::styled(how_long, theme.tone(tone)),
        Span::styled(end, theme.title()),
        Span::styled(format!("{fill}{part}─"), theme.label()),
    ]);
    let room = columns.saturating_sub(TITLE_WIDTH);
    let fact = |title: &str, text: String| layout::fact_lines(title, &text, room, Style::default(), theme);
    let task = task(incident);
    let place = tail(&incident.spawned_at, room.saturating_sub(width(&task) + width(" from ")));
    let facts = [
        fact("task", format!("{task} from {place}")),
        fact("cause", cause(incident)),
        fact("action", remedy(incident)),
    ];
    std::iter::once(rule).chain(facts.into_iter().flatten()).collect()
}

/// Formats a call. `widths` are those of the function and of the location.
fn call_line(number: usize, call: &Call, is_pointed_at: bool, widths: [usize; 2], theme: Theme) -> Line<'static> {
    let function = left(&shortened(&call.function, widths[0]), widths[0]);
    let style = theme.call(call.whose);
    let line = Line::from(vec![
        Span::styled(if is_pointed_at { "▸" } else { " " }, theme.strong()),
        Span::styled(format!("{number:>3} "), theme.label()),
        Span::styled(format!("{} {function}{:GAP_WIDTH$}", call.whose.mark(), ""), style),
        Span::styled(tail(&call.place, widths[1]), style),
    ]);
    if is_pointed_at { line.style(theme.strong()) } else { line }
}

/// Formats the selected call without omissions, as long as it fits.
fn full_lines(call: &Call, incident: &Incident, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let room = columns.saturating_sub(2);
    let mut lines = vec![Line::styled("─".repeat(columns), theme.label())];
    let (first, rest) = split(&call.function, room);
    lines.push(Line::styled(format!(" {first}"), theme.call(call.whose)));
    lines.push(Line::styled(format!(" {}", head(rest, room)), theme.call(call.whose)));
    let legend = "→ suspect line   + your code";
    let error = incident.stack_error.as_ref().map_or_else(String::new, |error| format!("incomplete: {error}  "));
    let beside = format!("{error}{legend} ");
    let place = tail(&call.place, room.saturating_sub(width(&beside) + 1));
    let fill = columns.saturating_sub(width(&place) + width(&beside) + 1);
    lines.push(Line::from(vec![
        Span::raw(format!(" {place}{}", " ".repeat(fill))),
        Span::styled(beside, theme.label()),
    ]));
    lines
}

/// Splits `text` into the part that fits into `columns`, and the rest.
fn split(text: &str, columns: usize) -> (&str, &str) {
    let fits = |(at, _): &(usize, char)| width(&text[..*at]) <= columns;
    let end = if width(text) <= columns {
        text.len()
    } else {
        text.char_indices().take_while(fits).last().map_or(0, |(at, _)| at)
    };
    text.split_at(end)
}
