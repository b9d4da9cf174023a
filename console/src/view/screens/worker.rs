//! The workers screen: the table of workers, and the selected one in full: its poll in flight,
//! counters, queues and time shares, and their history.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{RenderDirection, Sparkline, SparklineBar};

use crate::facts::Scene;
use crate::model::{Model, Point};
use crate::text::figures::{ABSENT, bar, count, percent};
use crate::view::hits::Hits;
use crate::view::parts::detail;
use crate::view::parts::layout::{self, TITLE_WIDTH, draw_message, rows};
use crate::view::parts::workers;
use crate::view::theme::Theme;

/// A curve of the history: its title, its values, what its full height stands for, and its style.
struct Curve {
    title: &'static str,
    of: fn(&Point) -> u64,
    /// The value at full height; `None` means the largest value of the curve.
    top: Option<u64>,
    style: fn(Theme) -> Style,
}

const CURVES: [Curve; 5] = [
    Curve { title: "busy", of: |point| point.busy.into(), top: Some(100), style: Theme::curve },
    Curve { title: "search", of: |point| point.searching.into(), top: Some(100), style: Theme::title },
    Curve { title: "idle", of: |point| point.asleep.into(), top: Some(100), style: Theme::label },
    Curve { title: "polls/s", of: |point| point.polls.into(), top: None, style: Theme::curve },
    Curve { title: "queued", of: |point| point.queued.into(), top: None, style: Theme::title },
];
/// The smallest height of the table, including its heading.
const TABLE_MIN: u16 = 4;
/// The width of the texts in the line of queues, without the two bars, and without the run delay.
const QUEUE_TEXTS: usize = 72;
/// The width of the run delay, and the smallest width of a screen that shows it.
const RUN_DELAY_WIDTH: usize = "run delay 100%  ".len();
const RUN_DELAY_FROM: usize = 100;
/// The largest height of a curve.
const CURVE_MAX: u16 = 4;

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, scene: &Scene<'_>, theme: Theme, hits: &mut Hits) {
    if model.worker_rows().is_empty() {
        let text = if model.list().filter.is_empty() { workers::NONE } else { workers::NONE_MATCHES };
        return draw_message(frame, area, text, theme);
    }
    let curves = CURVES.len() as u16;
    // The rule, the poll, the groups of facts, and the queues.
    let facts = scene.worker(model.selected_worker).len() as u16 + 2;
    let wanted = workers::wanted_height(model, area.width);
    let free = area.height.saturating_sub(facts + 1 + curves);
    let table = wanted.min(free.max(TABLE_MIN)).min((area.height / 2).max(TABLE_MIN));
    let left = area.height.saturating_sub(table + facts + 1);
    let each = (left / curves).clamp(1, CURVE_MAX);
    let [list, full, queues, past, _] = rows(
        area,
        [
            Constraint::Length(table),
            Constraint::Length(facts),
            Constraint::Length(1),
            Constraint::Length(each * curves),
            Constraint::Fill(1),
        ],
    );
    workers::draw(frame, list, model, scene, theme, hits);
    detail::draw(frame, full, model, scene, theme);
    frame.render_widget(queue_line(model, scene, usize::from(area.width), theme), queues);
    draw_past(frame, past, each, model, theme);
}

fn queue_line(model: &Model, scene: &Scene<'_>, columns: usize, theme: Theme) -> Line<'static> {
    let Some(worker) = scene.snapshot.workers.get(model.selected_worker) else { return Line::default() };
    let config = &scene.snapshot.config;
    let gauge = |len: u32, cap: u32, columns: usize| {
        let ratio = f64::from(len) / f64::from(cap.max(1));
        format!("{} {len}/{cap}", bar(ratio, columns))
    };
    let run_delay = scene.worker_rates(worker.index as usize).and_then(|rates| rates.run_delay_ratio);
    let run_delay = run_delay.filter(|_| columns >= RUN_DELAY_FROM);
    let texts = QUEUE_TEXTS + if run_delay.is_some() { RUN_DELAY_WIDTH } else { 0 };
    let room = (columns.saturating_sub(texts) / 2).clamp(4, 24);
    let fact = |label: &str, value: String| {
        [Span::styled(format!("{label} "), theme.label()), Span::raw(format!("{value}  "))]
    };
    let mut spans = vec![layout::title("queues", theme)];
    spans.extend(fact("ring", gauge(worker.ring_len, config.local_queue_capacity, room)));
    spans.extend(fact("lifo", u8::from(worker.is_lifo_filled).to_string()));
    spans.extend(fact("batch", worker.batch_len.to_string()));
    spans.extend(fact("inbox", worker.inbox_len.to_string()));
    spans.extend(fact("budget", gauge(worker.budget_left, config.budget_per_tick, room)));
    if let Some(ratio) = run_delay {
        spans.extend(fact("run delay", percent(ratio)));
    }
    Line::from(spans)
}

fn draw_past(frame: &mut Frame<'_>, area: Rect, each: u16, model: &Model, theme: Theme) {
    let points = model.past().and_then(|past| past.workers.get(model.selected_worker));
    let areas = Layout::vertical(CURVES.iter().map(|_| Constraint::Length(each))).split(area);
    for (curve, area) in CURVES.iter().zip(areas.iter()) {
        let [title, line] =
            Layout::horizontal([Constraint::Length(TITLE_WIDTH as u16 + 7), Constraint::Fill(1)]).areas(*area);
        let latest_first: Vec<Option<u64>> = points.map_or_else(Vec::new, |points| {
            points.iter().rev().take(usize::from(line.width)).map(|point| point.as_ref().map(curve.of)).collect()
        });
        let now = latest_first.first().copied().flatten();
        let now = match (now, curve.top) {
            (None, _) => ABSENT.into(),
            (Some(n), Some(_)) => format!("{n}%"),
            (Some(n), None) => count(n),
        };
        let heads = [layout::title(curve.title, theme), Span::styled(format!("{now:<6}"), theme.strong())];
        frame.render_widget(Line::from_iter(heads), title);
        let top = curve.top.or_else(|| latest_first.iter().copied().flatten().max()).unwrap_or(1).max(1);
        let bars: Vec<SparklineBar> = latest_first.into_iter().map(SparklineBar::from).collect();
        let sparkline = Sparkline::default()
            .data(bars)
            .max(top)
            .direction(RenderDirection::RightToLeft)
            .absent_value_symbol("╳")
            .style((curve.style)(theme));
        frame.render_widget(sparkline, line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::figures::width;

    #[test]
    fn the_line_of_queues_is_never_cut() {
        let model = crate::fixture::model(2, 3);
        let scene = model.scene().unwrap();
        let mut rates = scene.rates.unwrap().clone();
        rates.workers[0].run_delay_ratio = Some(0.12);
        let scene = Scene { rates: Some(&rates), ..scene };
        for columns in 80..240 {
            let line = queue_line(&model, &scene, columns, Theme::new(true)).to_string();
            assert!(width(line.trim_end()) <= columns, "{columns}: {line}");
            assert_eq!(line.contains("run delay 12%"), columns >= RUN_DELAY_FROM, "{columns}: {line}");
        }
    }
}
