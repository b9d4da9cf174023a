//! The runtime as a whole on a wide screen: a row of panels and, if there is room, the
//! distributions of poll durations and delays.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType};
use volt_telemetry::histogram::Histogram;

use crate::facts::{Group, Scene};
use crate::model::{EDGE_POWERS, Model};
use crate::text::figures::{ABSENT, bar, count, duration, percent, rate, right, width};
use crate::view::parts::lamps;
use crate::view::parts::layout::fact_line;
use crate::view::parts::lines;
use crate::view::theme::Theme;

/// The height of the row of panels, including frames.
pub const HEIGHT: u16 = 9;
/// The largest height of the row of panels: it can grow by the lines that are too few for the
/// distributions.
pub const MAX_HEIGHT: u16 = HEIGHT + SPREAD_HEIGHTS[1] - 1;
/// The heights of the distributions, including frames: with edges that double, and with edges that
/// quadruple.
pub const SPREAD_HEIGHTS: [u16; 2] = [spread_height(1), spread_height(2)];

/// Returns the height of the distributions if each edge is 2 to the power of `step` times the
/// previous one.
const fn spread_height(step: usize) -> u16 {
    let edges = (EDGE_POWERS[1] - EDGE_POWERS[0]) / step + 1;
    // The class above the last edge, and the frame.
    edges as u16 + 3
}

/// Draws the row of panels.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, scene: &Scene<'_>, theme: Theme) {
    let widths = [
        Constraint::Length(38),
        Constraint::Fill(1),
        Constraint::Length(25),
        Constraint::Length(19),
        Constraint::Length(19),
        Constraint::Length(21),
        Constraint::Length(17),
        Constraint::Length(17),
    ];
    let [workers, polls, times, queues, tasks, driver, timers, blocking] = Layout::horizontal(widths).areas(area);
    draw_workers(frame, workers, scene, theme);
    draw_polls(frame, polls, model, scene, theme);
    draw_times(frame, times, scene, theme);
    draw_facts(frame, queues, &scene.queues(), theme);
    draw_facts(frame, tasks, &scene.tasks(), theme);
    draw_facts(frame, driver, &scene.driver(), theme);
    draw_facts(frame, timers, &scene.timers(), theme);
    draw_facts(frame, blocking, &scene.blocking(), theme);
}

/// Draws the distributions of the poll durations and schedule delays of the last interval. `area`
/// has one of [`SPREAD_HEIGHTS`].
pub fn draw_spread(frame: &mut Frame<'_>, area: Rect, scene: &Scene<'_>, theme: Theme) {
    let [left, right] = Layout::horizontal([Constraint::Fill(1); 2]).areas(area);
    let poll_time = scene.rates.map(|rates| &rates.poll_time_histogram);
    let delay = scene.rates.map(|rates| &rates.schedule_delay_histogram);
    draw_histogram(frame, left, "poll duration in the last interval", poll_time, theme);
    draw_histogram(frame, right, "schedule delay (wake-up to poll) in the last interval", delay, theme);
}

fn framed(frame: &mut Frame<'_>, area: Rect, title: &str, theme: Theme) -> Rect {
    let block = Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(theme.label())
        .title(Span::styled(format!(" {title} "), theme.title()));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    inner
}

fn draw_lines(frame: &mut Frame<'_>, area: Rect, lines: impl IntoIterator<Item = Line<'static>>) {
    for (row, line) in (area.y..area.bottom()).zip(lines) {
        frame.render_widget(line, Rect { y: row, height: 1, ..area });
    }
}

fn draw_workers(frame: &mut Frame<'_>, area: Rect, scene: &Scene<'_>, theme: Theme) {
    let inner = framed(frame, area, "workers", theme);
    let columns = usize::from(inner.width);
    // The facts take three lines. The lamps get the rest.
    let facts = scene.workers().facts;
    let (first, rest) = facts.split_at(2);
    let (second, third) = rest.split_at(3);
    let lines = [first, second, third].map(|facts| {
        let group = Group { title: "", facts: facts.to_vec() };
        fact_line(&group, 1, columns, theme)
    });
    let lamp_lines = usize::from(inner.height) - lines.len();
    let mut lamps = lamps::lines(scene, columns - 1, lamp_lines, theme);
    let letters = lamps::letters(columns - 1, theme);
    if lamps.len() + letters.len() <= lamp_lines {
        lamps.resize(lamp_lines - letters.len(), Line::default());
        lamps.extend(letters);
    }
    lamps.iter_mut().for_each(|line| line.spans.insert(0, Span::raw(" ")));
    lamps.resize(lamp_lines, Line::default());
    draw_lines(frame, inner, lamps.into_iter().chain(lines));
}

fn draw_polls(frame: &mut Frame<'_>, area: Rect, model: &Model, scene: &Scene<'_>, theme: Theme) {
    let now = scene.rates.map_or_else(|| ABSENT.into(), |rates| rate(rates.polls_per_second));
    let peak = model.history().flatten().max().unwrap_or(0);
    let title = format!("polls/s  {now}  peak {}", rate(peak as f64));
    let inner = framed(frame, area, &title, theme);
    lines::draw_curve(frame, inner, model, theme);
}

fn draw_times(frame: &mut Frame<'_>, area: Rect, scene: &Scene<'_>, theme: Theme) {
    let inner = framed(frame, area, "times", theme);
    let mut lines = vec![Line::styled(format!("{:>13}{:>9}", "poll", "delay"), theme.label())];
    let (polls, delays) = (scene.poll_time().facts, scene.schedule_delay().facts);
    let order = ["p50", "p90", "p99", "p99.9", "max", "count"];
    lines.extend(order.iter().filter_map(|label| {
        let poll = polls.iter().find(|fact| fact.label == *label)?;
        let delay = delays.iter().find(|fact| fact.label == *label)?;
        Some(Line::from(vec![
            Span::styled(format!(" {label:<5}"), theme.label()),
            Span::styled(right(&poll.value, 7), theme.tone(poll.tone)),
            Span::styled(format!("{:<2}", poll.tone.mark()), theme.tone(poll.tone)),
            Span::styled(right(&delay.value, 6), theme.tone(delay.tone)),
            Span::styled(format!("{:<2}", delay.tone.mark()), theme.tone(delay.tone)),
        ]))
    }));
    draw_lines(frame, inner, lines);
}

fn draw_facts(frame: &mut Frame<'_>, area: Rect, group: &Group, theme: Theme) {
    let inner = framed(frame, area, group.title, theme);
    let columns = usize::from(inner.width).saturating_sub(2);
    let lines = group.facts.iter().map(|fact| {
        let value = fact.marked();
        // At least a space: a value that does not fit is cut at its end, not joined to the label.
        let fill = columns.saturating_sub(width(fact.label) + width(&value)).max(1);
        Line::from(vec![
            Span::styled(format!(" {}{}", fact.label, " ".repeat(fill)), theme.label()),
            Span::styled(value, theme.tone(fact.tone)),
        ])
    });
    draw_lines(frame, inner, lines);
}

fn draw_histogram(frame: &mut Frame<'_>, area: Rect, title: &str, histogram: Option<&Histogram>, theme: Theme) {
    let total = histogram.map_or(0, Histogram::count);
    let inner = framed(frame, area, &format!("{title}, count {}", count(total)), theme);
    let Some(histogram) = histogram else { return };
    let step = if area.height < SPREAD_HEIGHTS[0] { 2 } else { 1 };
    let edges_ns: Vec<u64> = (EDGE_POWERS[0]..=EDGE_POWERS[1]).step_by(step).map(|power| 1 << power).collect();
    let below: Vec<u64> = edges_ns.iter().map(|edge| histogram.count_below(*edge)).chain([total]).collect();
    let classes = below.iter().scan(0, |before, below| Some(below - std::mem::replace(before, *below)));
    let classes: Vec<u64> = classes.collect();
    let largest = classes.iter().copied().max().unwrap_or(0).max(1);
    let columns = usize::from(inner.width).saturating_sub(25);
    let lines = classes.iter().enumerate().map(|(class, n)| {
        let label = match edges_ns.get(class) {
            Some(edge) => format!("< {:>6}", duration(*edge)),
            None => format!(">={:>6}", duration(1 << EDGE_POWERS[1])),
        };
        let style = if *n == 0 { theme.label() } else { theme.curve() };
        let share = *n as f64 / total.max(1) as f64;
        Line::from(vec![
            Span::styled(format!(" {label} "), theme.label()),
            Span::styled(bar(*n as f64 / largest as f64, columns).replace('·', " "), style),
            Span::styled(
                format!(" {:>5} {:>4}", count(*n), percent(share)),
                if *n == 0 { theme.label() } else { theme.strong() },
            ),
        ])
    });
    draw_lines(frame, inner, lines);
}
