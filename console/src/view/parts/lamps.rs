//! The parked bitmap as lamps: `●B●B○P○D`, one for each worker, in groups of eight.
//!
//! A lamp is the worker's bit (○ set: parked and not claimed; ● clear), and the letter is its
//! phase. The two disagree between the moment when a waker claims the worker and the moment when it
//! wakes up, which is useful to see. Active spares follow the others, as ◇ and ◆.

use ratatui::text::{Line, Span};
use volt_telemetry::snapshot::Duty;

use crate::facts::{Scene, Tone, state_letter};
use crate::tables::workers::lamp;
use crate::text::figures::width;
use crate::view::theme::Theme;

/// The meaning of the letters: the longest form that fits is shown.
const LETTERS: [&[&str]; 3] = [
    &["B busy  S search  P parked  D driver  M maintenance  X stuck  K blocking"],
    &["B busy S search P parked D driver M maintenance X stuck K blocking"],
    &["B busy S search P parked D driver", "M maintenance X stuck K blocking"],
];
/// The number of workers between two spaces.
const GROUP: usize = 8;
/// The width of a group and its space.
const GROUP_WIDTH: usize = 2 * GROUP + 1;

/// Returns how many workers fit into a line of `columns`.
pub fn per_line(columns: usize) -> usize {
    (columns / GROUP_WIDTH).max(1) * GROUP
}

/// Returns how many lines the lamps of `workers` take.
pub fn height(workers: usize, columns: usize) -> usize {
    workers.div_ceil(per_line(columns)).max(1)
}

/// Returns the meaning of the letters, in lines of at most `columns`; none if they are too narrow.
pub fn letters(columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let fits = |lines: &&&[&str]| lines.iter().all(|line| width(line) <= columns);
    let lines = LETTERS.iter().find(fits).copied().unwrap_or_default();
    lines.iter().map(|line| Line::styled(*line, theme.label())).collect()
}

/// Returns the lamps in lines of at most `columns`, at most `max_lines` of them. The last line then
/// has the number of workers that are left out.
pub fn lines(scene: &Scene<'_>, columns: usize, max_lines: usize, theme: Theme) -> Vec<Line<'static>> {
    let shown = scene.shown_workers();
    let per_line = per_line(columns);
    let mut lines: Vec<Line<'static>> = Vec::new();
    for chunk in shown.chunks(per_line).take(max_lines) {
        let mut spans = Vec::new();
        for (offset, index) in chunk.iter().enumerate() {
            let worker = &scene.snapshot.workers[*index];
            let lamp = lamp(worker, scene.snapshot.is_parked(*index));
            let gap = if offset > 0 && offset % GROUP == 0 { " " } else { "" };
            let style = if worker.duty == Duty::Stuck { theme.tone(Tone::Alarm) } else { theme.phase(worker.phase) };
            spans.push(Span::raw(gap));
            spans.push(Span::styled(format!("{lamp}{}", state_letter(worker)), style));
        }
        lines.push(Line::from(spans));
    }
    let fitting = lines.len() * per_line;
    if let (Some(last), true) = (lines.last_mut(), fitting < shown.len()) {
        let hidden = shown.len() - fitting + per_line;
        *last = Line::styled(format!("… and {hidden} more workers: see the table"), theme.label());
    }
    lines
}
