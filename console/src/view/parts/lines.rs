//! The runtime as a whole on a narrow screen: a line for each group of facts.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{RenderDirection, Sparkline, SparklineBar};

use crate::facts::{Group, Scene};
use crate::model::Model;
use crate::text::figures::{ABSENT, rate};
use crate::view::parts::lamps;
use crate::view::parts::layout::{self, TITLE_WIDTH, fact_line, rows};
use crate::view::theme::Theme;

/// The largest height of the curve of polls.
pub const CURVE_MAX_HEIGHT: u16 = 5;
/// The largest height of the lamps; workers that do not fit are in the table.
const LAMPS_MAX_HEIGHT: usize = 3;
/// Lines that are always present: the meaning of the lamps' letters, polls, times, queues, tasks,
/// driver, timers.
const FIXED: u16 = 7;
/// The width of the first of two groups on a line: three times, each with its mark.
const FIRST_OF_PAIR_WIDTH: usize = 48;
/// The width of the figures next to the lamps.
const BESIDE_LAMPS: usize = 34;

/// Returns the lines that [`draw`] needs, with a curve of one line.
pub fn min_height(scene: &Scene<'_>, columns: u16) -> u16 {
    let (lamps, is_beside) = lamp_lines(scene, columns);
    FIXED + lamps + u16::from(!is_beside)
}

/// Returns how many lines the lamps take, and whether the figures about workers fit next to them.
fn lamp_lines(scene: &Scene<'_>, columns: u16) -> (u16, bool) {
    let room = usize::from(columns) - TITLE_WIDTH;
    let workers = scene.shown_workers().len();
    let lines = lamps::height(workers, room).min(LAMPS_MAX_HEIGHT);
    (lines as u16, 2 * workers + workers / 8 + 2 + BESIDE_LAMPS <= room)
}

/// Draws the lines. The curve gets the height beyond [`min_height`].
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, scene: &Scene<'_>, theme: Theme) {
    let (lamp_height, is_beside) = lamp_lines(scene, area.width);
    let columns = usize::from(area.width) - 1;
    let heights = [lamp_height, 1, u16::from(!is_beside)].map(Constraint::Length);
    let [lamps, meaning, workers, polls, times, queues, tasks, driver, timers] = rows(
        area,
        [
            heights[0],
            heights[1],
            heights[2],
            Constraint::Fill(1),
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Length(1),
        ],
    );
    draw_lamps(frame, lamps, scene, is_beside, theme);
    for mut line in lamps::letters(usize::from(area.width) - TITLE_WIDTH, theme).into_iter().take(1) {
        line.spans.insert(0, layout::title("", theme));
        frame.render_widget(line, meaning);
    }
    if !is_beside {
        let group = Group { title: "", ..scene.workers() };
        frame.render_widget(indented(fact_line(&group, TITLE_WIDTH - 1, columns, theme)), workers);
    }
    draw_polls(frame, polls, model, scene, theme);
    let line = |group: Group| indented(fact_line(&group, TITLE_WIDTH - 1, columns, theme));
    frame.render_widget(pair(scene.poll_time(), scene.schedule_delay(), columns, theme), times);
    frame.render_widget(line(scene.queues()), queues);
    frame.render_widget(line(scene.tasks()), tasks);
    frame.render_widget(line(scene.driver()), driver);
    frame.render_widget(pair(scene.timers(), scene.blocking(), columns, theme), timers);
}

fn draw_lamps(frame: &mut Frame<'_>, area: Rect, scene: &Scene<'_>, is_beside: bool, theme: Theme) {
    let room = usize::from(area.width) - TITLE_WIDTH;
    let mut lines = lamps::lines(scene, room, usize::from(area.height), theme);
    if is_beside {
        let lamps_width = lines.first().map_or(0, Line::width);
        let group = Group { title: "", ..scene.workers() };
        let facts = fact_line(&group, 2, room - lamps_width, theme);
        if let Some(first) = lines.first_mut() {
            first.spans.extend(facts.spans);
        }
    }
    for (row, line) in lines.into_iter().enumerate() {
        let title = if row == 0 { "workers" } else { "" };
        let mut spans = vec![layout::title(title, theme)];
        spans.extend(line.spans);
        frame.render_widget(Line::from(spans), Rect { y: area.y + row as u16, height: 1, ..area });
    }
}

fn draw_polls(frame: &mut Frame<'_>, area: Rect, model: &Model, scene: &Scene<'_>, theme: Theme) {
    let now = scene.rates.map_or_else(|| ABSENT.into(), |rates| rate(rates.polls_per_second));
    let peak = model.history().flatten().max().unwrap_or(0);
    let right = format!(" peak {:<5}", rate(peak as f64));
    let [title, curve, beside] = Layout::horizontal([
        Constraint::Length(TITLE_WIDTH as u16 + 6),
        Constraint::Fill(1),
        Constraint::Length(right.len() as u16),
    ])
    .areas(area);
    let spans = [layout::title("polls/s", theme), Span::styled(format!("{now:<5}"), theme.strong())];
    frame.render_widget(Line::from_iter(spans), title);
    draw_curve(frame, curve, model, theme);
    frame.render_widget(Line::styled(right, theme.label()), beside);
}

/// Draws the curve of polls per second, the newest at the right end.
pub fn draw_curve(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme) {
    let newest_first = model.history().rev().take(usize::from(area.width));
    let bars: Vec<SparklineBar> = newest_first.map(SparklineBar::from).collect();
    let curve = Sparkline::default()
        .data(bars)
        .direction(RenderDirection::RightToLeft)
        .absent_value_symbol("╳")
        .style(theme.curve());
    frame.render_widget(curve, area);
}

/// Formats two groups on one line.
fn pair(first: Group, second: Group, columns: usize, theme: Theme) -> Line<'static> {
    let split = (columns / 2).max(FIRST_OF_PAIR_WIDTH);
    let mut left = indented(fact_line(&first, TITLE_WIDTH - 1, split - 2, theme));
    let fill = split - left.width();
    left.spans.push(Span::raw(" ".repeat(fill)));
    let right = fact_line(&second, second.title.len() + 1, columns - split, theme);
    left.spans.extend(right.spans);
    left
}

fn indented(mut line: Line<'static>) -> Line<'static> {
    line.spans.insert(0, Span::raw(" "));
    line
}
