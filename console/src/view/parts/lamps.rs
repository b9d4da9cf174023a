//! The parked bitmap as lamps: `●B●B○P○D`, one for each worker, in groups of eight.
//!
//! Shape: the lamp is the worker's bit (○ set: parked and claimed by nobody, ● clear), the letter
//! its phase. The two disagree for the moment between a claim and the worker's waking up, and that
//! is worth seeing. Spares stand behind the others, as ◇ and ◆, while they are needed.

use ratatui::text::{Line, Span};
use volt_telemetry::snapshot::Duty;

use crate::facts::{Scene, Tone, state_letter};
use crate::tables::workers::lamp;
use crate::view::theme::Theme;

/// Workers between two blanks.
const GROUP: usize = 8;
/// Columns of a group and its blank.
const GROUP_WIDTH: usize = 2 * GROUP + 1;

/// How many workers a line of `columns` holds.
pub fn per_line(columns: usize) -> usize {
    (columns / GROUP_WIDTH).max(1) * GROUP
}

/// How many lines the lamps of `workers` take.
pub fn height(workers: usize, columns: usize) -> usize {
    workers.div_ceil(per_line(columns)).max(1)
}

/// The lamps in lines of at most `columns`, at most `max_lines` of them; the last then tells how
/// many are left out.
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
            let style = if worker.duty == Duty::Away { theme.tone(Tone::Alarm) } else { theme.phase(worker.phase) };
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
