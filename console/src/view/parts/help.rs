//! The help: what the present screen means and which keys it has, over everything else.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Block, BorderType, Clear};

use crate::model::Screen;
use crate::view::theme::Theme;

/// The keys that every screen has; each line in at most 75 columns, so that it fits the smallest screen.
const KEYS: [&str; 6] = [
    "1 to 9 screens (t tasks, p processes)   space pause   Tab ←→ runtime",
    "↑ ↓ j k  row or worker     PgUp PgDn page   Home End g G  first, last",
    "- more often  + less often     ? h F1 help  Esc back      q Ctrl-C quit",
    "mouse: click a screen's name or a row, again to open it; the wheel moves",
    "Marks: ! worth a look   !! wrong: 10 ms and 100 ms for polls and delays",
    "One screen, one snapshot. Lists of tasks are taken a moment after it.",
];

/// [`KEYS`], or what they are in a replay.
fn keys(is_replay: bool) -> [&'static str; 6] {
    let mut keys = KEYS;
    if is_replay {
        keys[0] = "1 to 9 screens   space play, stop   ←→ seek   Tab runtime";
        keys[2] = "- plays faster  + slower        ? h F1 help  Esc back      q Ctrl-C quit";
    }
    keys
}

/// What the tables of workers say.
const WORKERS: [&str; 14] = [
    "Enter detail on, off   < > sort   i invert   / filter   r totals",
    "Lamps  ○ parked and free to be claimed   ● awake, or claimed just now",
    "       ◇ ◆ (s) the same of a spare, on duty while others are stuck",
    "       B busy  S searching  P parked  D asleep in the I/O driver",
    "       M maintenance  A away: stuck in a poll  K block_in_place  - stopped",
    "queue  lifo slot, batch from the global queue, ring of local tasks",
    "budget polls left in this tick; spent = ticks that used all of them",
    "ewma   average poll time; intv = polls between looks at the global queue",
    "lifo   hits: run from the slot; evict: pushed out; cap: flushed at limit",
    "steals tries; ok = victims that gave; tasks taken; races lost to others;",
    "       (tasks) given = tasks that others took from this worker",
    "unpark why it woke: notif = claimed by another thread, io, timer,",
    "       t.out = its park time-out ran out, spur = no reason known",
    "delay  from the wake-up of a task to its poll: what your users wait",
];

/// What is said of each screen before the keys.
fn text_of(screen: Screen) -> &'static [&'static str] {
    match screen {
        Screen::Overview => &WORKERS,
        Screen::Workers => &[
            "< > sort   i invert   / filter   r totals or per second",
            "Above, the table of workers; below, the selected one since start.",
            "queues what waits in its ring, LIFO slot, batch and inbox; its budget",
            "busy search asleep  per cent of its time, now and before, latest right",
            "polls/s queued      the same, up to the largest that is shown",
            "run delay           time in which the kernel ran others instead",
            "╳ no connection at that moment",
        ],
        Screen::Tasks => &[
            "Enter all of the selected task, and why it was polled   < > sort",
            "i invert   / filter by name, #id, spawn location or state",
            "state   waits, queued, polled; stranded: no waker is left for it",
            "busy    time that its polls took; now: share of the time just past",
            "longest its longest poll, to a sixteenth",
            "delay   how long it waited, woken, for its polls, the sum",
            "woken   how long ago it was woken last, and by what",
            "wakers  that are alive, with abort handles and shields",
            "A program with very many tasks tells those that rank highest.",
            "Tasks that were never polled and have no name are only counted.",
        ],
        Screen::Processes => &[
            "Enter all of the selected process   < > sort   i invert",
            "/ filter by name, pid, kind, spawn location or state",
            "A process is a state machine with a mailbox (volt_process).",
            "pid     its place and which of those that had that place it is",
            "state   ready, running; blocked: waits for yields; idle: for messages",
            "mailbox messages that wait; ! half full   !! full   peak  most so far",
            "lost    messages that its mailbox dropped or refused",
            "steps   so far   busy  time that they took, as its task's account says",
            "parent  who started it",
            "A program with very many processes tells those that rank highest.",
        ],
        Screen::Latency => &[
            "↑ ↓ all workers or one   Enter delay or poll time   r since start",
            "Bars: how many in each class of times, of what stands in the title.",
            "Heat map: each column one snapshot, the latest at the right; the",
            "darker, the more of that moment's were so long. ╳ no connection.",
            "schedule delay  from a task's wake-up to its poll: what users wait",
            "poll time       how long a task kept its worker",
        ],
        Screen::Incidents => &[
            "Enter stack of the selected one   < > sort   i invert   / filter",
            "A poll that holds its worker for too long is an incident.",
            "cause   what the kernel says of the thread: cpu, sleep, lock, io …",
            "remedy  what Volt did: a spare took the worker's place, or others",
            "        took the tasks that waited behind it",
            "more    stuck polls of that kind which were counted only",
            "stacks  → the line to look at   + your code   dim: libraries",
        ],
        Screen::Blame => &[
            "< > sort column   i invert   / filter by location",
            "Each row: all tasks that were spawned at one line of code.",
            "caused   how long other tasks waited behind long polls of these",
            "now      how many waited so at a time, in the last interval",
            "suffered how long these waited behind long polls of others",
            "stalls   polls that were stuck     longest  poll   busy  in polls",
            "stranded tasks that nothing can wake any more",
        ],
        Screen::Doctor => &[
            "i the mildest first   / filter",
            "What is wrong, judged anew every second, the worst first. Below:",
            "the numbers that it rests on, where in the code, what to change.",
            "The same as text: volt-console doctor",
        ],
        Screen::Events => &[
            "i the oldest first   / filter by kind, runtime or text",
            "stuck, unstuck  a poll holds its worker; it has ended",
            "stall           one that began and ended between two snapshots",
            "replaced capped a spare took a worker's place; none was left",
            "found, over     findings of the doctor, as they come and go",
            "link, lost      the connection; snapshots that were skipped",
            "runtime panic   runtimes that came or went; tasks that panicked",
            "process restart processes that ended abnormally, were started anew",
        ],
    }
}

/// Draws the help in the middle of `area`.
pub fn draw(frame: &mut Frame<'_>, area: Rect, screen: Screen, is_replay: bool, theme: Theme) {
    let texts: Vec<&str> = text_of(screen).iter().copied().chain(keys(is_replay)).collect();
    // A margin of one or two columns would show scraps of what lies below.
    let columns = if area.width < 90 { area.width } else { 80 };
    let lines = (texts.len() as u16 + 2).min(area.height);
    let x = area.x + (area.width - columns) / 2;
    let y = area.y + (area.height - lines) / 2;
    let area = Rect { x, y, width: columns, height: lines };
    frame.render_widget(Clear, area);
    let title = format!(" help: {} ", screen.name());
    let block = Block::bordered().border_type(BorderType::Rounded).title(Line::styled(title, theme.title()));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    for (row, text) in (inner.y..inner.bottom()).zip(texts) {
        frame.render_widget(Line::raw(format!(" {text}")), Rect { y: row, height: 1, ..inner });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::figures::width;
    use crate::view::MIN_SIZE;

    #[test]
    fn the_help_fits_the_smallest_screen() {
        for screen in Screen::ALL {
            assert!(text_of(screen).len() + KEYS.len() + 2 <= usize::from(MIN_SIZE.1), "{}", screen.name());
            text_of(screen).iter().for_each(|line| assert!(width(line) <= 75, "{line}"));
        }
        [false, true]
            .iter()
            .flat_map(|is_replay| keys(*is_replay))
            .for_each(|line| assert!(width(line) <= 75, "{line}"));
    }
}
