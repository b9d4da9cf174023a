//! The latency screen: how long tasks waited for their polls, and how long polls took, for all
//! workers or for one. It shows quantiles and the counts of each class of times, in the last
//! interval or since the runtime started, and a heat map over time.
//!
//! A cell of the heat map is a character, darker for a larger share of its moment. The shades are a
//! factor of about three apart, so that one in a thousand is still visible. A high screen shows
//! delays and poll durations, a low one only one of them.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use volt_diagnosis::rates::Quantiles;
use volt_telemetry::histogram::Histogram;

use crate::facts::{Scene, Tone};
use crate::model::{CLASSES, EDGE_POWERS, Kind, Model, Spread, spread};
use crate::text::figures::{ABSENT, bar, count, duration, maybe_duration, percent, right};
use crate::view::parts::layout::{self, draw_lines, rows};
use crate::view::theme::Theme;

/// The lines at the top, at most: what is shown, the heading of the quantiles, and two lines of
/// them.
const TOP_HEIGHT: u16 = 4;
/// The widths of a class's label, and of the figures after its bar.
const LABEL_WIDTH: u16 = 12;
const FIGURES_WIDTH: u16 = 12;
/// The width of the bars.
const BARS_WIDTH: u16 = 18;
/// The smallest height at which both kinds are shown, each with this many lines, including its
/// heading.
const BOTH_FROM: u16 = 2 * 11;
/// The characters of a heat map, each with the share of a moment from which it is used.
pub(crate) const SHADES: [(f64, char); 6] = [(0.3, '█'), (0.1, '▓'), (0.03, '▒'), (0.01, '░'), (0.0, '·'), (-1.0, ' ')];

/// The width from which the title of the quantiles stands beside their labels.
const ONE_HEAD_FROM: u16 = 120;

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, scene: &Scene<'_>, theme: Theme) {
    let lines = quantile_lines(model, scene, area.width >= ONE_HEAD_FROM, theme);
    let [top, rest] = rows(area, [Constraint::Length(lines.len() as u16), Constraint::Fill(1)]);
    draw_lines(frame, top, lines);
    let shown: Vec<Kind> = if shows_both(area.height) { Kind::ALL.to_vec() } else { vec![model.latency.kind] };
    let areas = Layout::vertical(shown.iter().map(|_| Constraint::Fill(1))).split(rest);
    for (kind, area) in shown.iter().zip(areas.iter()) {
        draw_kind(frame, *area, *kind, model, scene, theme);
    }
}

/// Returns whether a screen with `height` lines for this shows both kinds.
pub fn shows_both(height: u16) -> bool {
    height >= TOP_HEIGHT + BOTH_FROM
}

/// Returns the table of quantiles; its title is a separate line, or stands beside the labels if
/// `has_one_head`.
fn quantile_lines(model: &Model, scene: &Scene<'_>, has_one_head: bool, theme: Theme) -> Vec<Line<'static>> {
    let worker = model.latency.worker;
    let of = worker.map_or_else(|| "of all workers".into(), |index| format!("of worker {index}"));
    let since = if model.shows_totals { "since the runtime started" } else { "in the last interval" };
    let of = [Span::styled(of, theme.strong()), Span::raw(format!(" {since}"))];
    let labels = ["p50", "p90", "p99", "p99.9", "max", "mean", "count"];
    let heads: String = labels.iter().map(|label| right(label, 7) + "  ").collect();
    let mut lines = if has_one_head {
        let head = [Span::styled(format!(" {:16}", "latency"), theme.title()), Span::styled(heads, theme.label())];
        vec![Line::from_iter(head.into_iter().chain(of))]
    } else {
        let title = Line::from_iter([layout::title("latency", theme)].into_iter().chain(of));
        vec![title, Line::styled(format!("{:17}{heads}", ""), theme.label())]
    };
    for kind in Kind::ALL {
        let quantiles = quantiles(kind, model, scene).unwrap_or_default();
        let times = [quantiles.p50_ns, quantiles.p90_ns, quantiles.p99_ns, quantiles.p999_ns, quantiles.max_ns];
        let mut spans = vec![Span::styled(format!(" {:16}", kind.name()), theme.title())];
        for ns in times.into_iter().chain([quantiles.mean_ns]) {
            let tone = ns.map_or(Tone::Quiet, Tone::of_duration);
            let text = format!("{}{:<2}", right(&maybe_duration(ns), 7), tone.mark());
            spans.push(Span::styled(text, theme.tone(tone)));
        }
        spans.push(Span::raw(right(&count(quantiles.count), 7)));
        lines.push(Line::from(spans));
    }
    lines
}

fn quantiles(kind: Kind, model: &Model, scene: &Scene<'_>) -> Option<Quantiles> {
    if model.shows_totals {
        return Some(Quantiles::of(&histogram(kind, model, scene)?));
    }
    Some(match (model.latency.worker, kind) {
        (None, Kind::Delay) => scene.rates?.schedule_delay,
        (None, Kind::Poll) => scene.rates?.poll_time,
        (Some(index), Kind::Delay) => scene.worker_rates(index)?.schedule_delay,
        (Some(index), Kind::Poll) => scene.worker_rates(index)?.poll_time,
    })
}

/// Returns the histogram for the bars: of all workers or one, since the runtime started or in the
/// last interval.
fn histogram(kind: Kind, model: &Model, scene: &Scene<'_>) -> Option<Histogram> {
    let pick = |worker: &volt_telemetry::Worker| match kind {
        Kind::Delay => worker.schedule_delay.clone(),
        Kind::Poll => worker.poll_time.clone(),
    };
    let workers = &scene.snapshot.workers;
    match (model.latency.worker, model.shows_totals) {
        (None, false) => Some(match kind {
            Kind::Delay => scene.rates?.schedule_delay_histogram.clone(),
            Kind::Poll => scene.rates?.poll_time_histogram.clone(),
        }),
        (None, true) => {
            let mut sum = Histogram::default();
            workers.iter().for_each(|worker| sum.merge(&pick(worker)));
            Some(sum)
        }
        (Some(index), true) => workers.get(index).map(pick),
        (Some(index), false) => {
            let before = model.earlier()?.workers.get(index).map(pick)?;
            Some(workers.get(index).map(pick)?.since(&before))
        }
    }
}

fn draw_kind(frame: &mut Frame<'_>, area: Rect, kind: Kind, model: &Model, scene: &Scene<'_>, theme: Theme) {
    let [head, body] = rows(area, [Constraint::Length(1), Constraint::Fill(1)]);
    // Merges neighbouring classes until there are at most as many as lines.
    let step = (1..=CLASSES).find(|step| CLASSES.div_ceil(*step) <= usize::from(body.height)).unwrap_or(CLASSES);
    let grouped = |spread: &Spread| -> Vec<u64> {
        spread.chunks(step).map(|chunk| chunk.iter().copied().map(u64::from).sum()).collect()
    };
    let now = histogram(kind, model, scene).map(|histogram| grouped(&spread(&histogram)));
    let now = now.unwrap_or_else(|| vec![0; CLASSES.div_ceil(step)]);
    let (total, largest) = (now.iter().sum::<u64>(), now.iter().copied().max().unwrap_or(0).max(1));
    let heat_columns = usize::from(area.width.saturating_sub(LABEL_WIDTH + BARS_WIDTH + FIGURES_WIDTH + 1));
    let moments: Vec<Option<Vec<u64>>> = model.past().map_or_else(Vec::new, |past| {
        past.spreads_of(kind).take(heat_columns).map(|spread| spread.map(grouped)).collect()
    });
    let title = format!("─ {} ", kind.name());
    // The history has no heat map of each worker.
    let what = if model.latency.worker.is_some() { "all workers" } else { "share of a snapshot" };
    let over = format!(" {what}: · >0 ░ 1% ▒ 3% ▓ 10% █ 30%  newest → ─");
    let fill = "─".repeat(usize::from(area.width).saturating_sub(title.chars().count() + over.chars().count()));
    let rule =
        Line::from(vec![Span::styled(title, theme.title()), Span::styled(format!("{fill}{over}"), theme.label())]);
    frame.render_widget(rule, head);
    // The longest times are at the top.
    let lines = (0..now.len()).rev().map(|class| {
        let from = if class == 0 { 0 } else { 1u64 << (EDGE_POWERS[0] + class * step - 1) };
        let tone = Tone::of_duration(from);
        let label = match class {
            0 => format!("< {:>6}", duration(1 << (EDGE_POWERS[0] + step - 1))),
            _ => format!(">={:>6}", duration(from)),
        };
        let style = |n: u64, tone: Tone| if n == 0 { theme.label() } else { theme.tone(tone) };
        let n = now[class];
        let share = n as f64 / total.max(1) as f64;
        let filled = bar(n as f64 / largest as f64, usize::from(BARS_WIDTH)).replace('·', " ");
        let mut spans = vec![
            Span::styled(format!(" {label}{:<2} ", tone.mark()), theme.label()),
            Span::styled(filled, if n == 0 { theme.label() } else { theme.curve() }),
            Span::styled(format!(" {:>5} {:>4} ", count(n), percent(share)), style(n, Tone::Plain)),
        ];
        spans.push(Span::raw(" ".repeat(heat_columns.saturating_sub(moments.len()))));
        let heat: String = moments.iter().rev().map(|moment| shade(moment.as_ref(), class)).collect();
        let has_any = heat.chars().any(|c| c != ' ');
        spans.push(Span::styled(heat, if has_any { theme.tone(tone) } else { theme.label() }));
        Line::from(spans)
    });
    draw_lines(frame, body, lines);
}

fn shade(moment: Option<&Vec<u64>>, class: usize) -> char {
    let Some(moment) = moment else { return '╳' };
    let total = moment.iter().sum::<u64>();
    let n = moment.get(class).copied().unwrap_or(0);
    if n == 0 {
        return ' ';
    }
    let share = n as f64 / total as f64;
    SHADES.iter().find(|(from, _)| share >= *from).map_or(ABSENT.chars().next().unwrap_or(' '), |(_, shade)| *shade)
}
