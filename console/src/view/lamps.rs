//! The parked bitmap as lamps: `●B●B○P○D`, one for each worker, in groups of eight.
//!
//! Shape: the lamp is the worker's bit (○ set: parked and claimed by nobody, ● clear), the letter its phase. The two disagree for
//! the moment between a claim and the worker's waking up, and that is worth seeing.

use ratatui::text::{Line, Span};
use volt_telemetry::snapshot::Snapshot;

use crate::columns::{LAMP_AWAKE, LAMP_PARKED};
use crate::facts::phase_letter;
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

/// The lamps in lines of at most `columns`, at most `max_lines` of them; the last then tells how many are left out.
pub fn lines(snapshot: &Snapshot, columns: usize, max_lines: usize, theme: Theme) -> Vec<Line<'static>> {
    let workers = &snapshot.workers;
    let per_line = per_line(columns);
    let mut lines: Vec<Line<'static>> = Vec::new();
    for (line, chunk) in workers.chunks(per_line).enumerate().take(max_lines) {
        let mut spans = Vec::new();
        for (offset, worker) in chunk.iter().enumerate() {
            let is_parked = snapshot.is_parked(line * per_line + offset);
            let lamp = if is_parked { LAMP_PARKED } else { LAMP_AWAKE };
            let gap = if offset > 0 && offset % GROUP == 0 { " " } else { "" };
            spans.push(Span::raw(gap));
            spans.push(Span::styled(format!("{lamp}{}", phase_letter(worker.phase)), theme.phase(worker.phase)));
        }
        lines.push(Line::from(spans));
    }
    let shown = lines.len() * per_line;
    if let (Some(last), true) = (lines.last_mut(), shown < workers.len()) {
        let hidden = workers.len() - shown + per_line;
        *last = Line::styled(format!("… and {hidden} more workers: see the table"), theme.label());
    }
    lines
}
