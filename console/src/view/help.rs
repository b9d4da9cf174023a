//! The help: what the screen means and which keys there are, over everything else.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Block, BorderType, Clear};

use crate::view::theme::Theme;

/// What it says; each line in at most 74 columns, so that it fits the smallest screen.
const TEXT: [&str; 22] = [
    "Lamps  ○ parked and free to be claimed   ● awake, or claimed just now",
    "       ◇ ◆ (s) the same of a spare, on duty while others are stuck",
    "       B busy  S searching  P parked  D asleep in the I/O driver",
    "       M maintenance  A away: stuck in a poll  K block_in_place  - stopped",
    "Marks  ! worth a look   !! wrong: 10 ms and 100 ms for polls and delays",
    "queue  lifo slot, batch from the global queue, ring of local tasks",
    "budget polls left in this tick; spent = ticks that used all of them",
    "yields polls ended early because a task did too much in one",
    "ewma   average poll time; intv = polls between looks at the global queue",
    "lifo   hits: run from the slot; evict: pushed out; cap: flushed at limit",
    "steals tries; ok = victims that gave; tasks taken; races lost to others;",
    "       (tasks) given = tasks that others took from this worker",
    "unpark why it woke: notif = claimed by another thread, io, timer,",
    "       t.out = its park time-out ran out, spur = no reason known",
    "delay  from the wake-up of a task to its poll: what your users wait",
    "search searching/limit; oldest = how long the global queue's head waits",
    "stacks → the line to look at   + your code   dim: libraries",
    "1 2 3 screens     space pause      Tab Shift-Tab runtime    ? Esc close",
    "↑ ↓ j k row       PgUp PgDn page   Home End first, last     Enter detail",
    "- more often      + less often     r per second or total    q Ctrl-C quit",
    "< > sort column   i invert         (blame)",
    "One screen, one moment: every number comes from the same snapshot.",
];

/// Draws the help in the middle of `area`.
pub fn draw(frame: &mut Frame<'_>, area: Rect, theme: Theme) {
    // A margin of one or two columns would show scraps of what lies below.
    let columns = if area.width < 90 { area.width } else { 80 };
    let lines = (TEXT.len() as u16 + 2).min(area.height);
    let x = area.x + (area.width - columns) / 2;
    let y = area.y + (area.height - lines) / 2;
    let area = Rect { x, y, width: columns, height: lines };
    frame.render_widget(Clear, area);
    let block = Block::bordered().border_type(BorderType::Rounded).title(Line::styled(" help ", theme.title()));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    for (row, text) in (inner.y..inner.bottom()).zip(TEXT) {
        frame.render_widget(Line::raw(format!(" {text}")), Rect { y: row, height: 1, ..inner });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::width;
    use crate::view::MIN_SIZE;

    #[test]
    fn the_help_fits_the_smallest_screen() {
        assert!(TEXT.len() + 2 <= usize::from(MIN_SIZE.1));
        TEXT.iter().for_each(|line| assert!(width(line) <= 75, "{line}"));
    }
}
