//! The help screen: explains the current screen and its keys.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Block, BorderType, Clear};

use crate::model::Screen;
use crate::view::theme::Theme;

/// The keys that every screen has. A line has at most 75 columns, so that it fits the smallest
/// screen.
const KEYS: [&str; 6] = [
    "1 overview 2 workers 3 tasks (t) 4 latency 5 incidents 6 blame 7 doctor",
    "8 events 9 processes (p) 0 waits (w) u routes  space pause  Tab runtime",
    "↑ ↓ j k  row or worker   PgUp PgDn  page   Home End g G  first or last row",
    "- shorter interval  + longer    ? h F1 help  Esc back    q Ctrl-C quit",
    "Mouse: click a screen name or a row (again to open it); wheel moves",
    "Marks: ! warning   !! alarm: 10 ms and 100 ms for polls and delays",
];

/// Returns [`KEYS`], with the keys of a replay if `is_replay`.
fn keys(is_replay: bool) -> [&'static str; 6] {
    let mut keys = KEYS;
    if is_replay {
        keys[1] = "8 events 9 processes 0 waits   space play, stop   ←→ seek   Tab runtime";
        keys[3] = "- play faster  + play slower    ? h F1 help  Esc back    q Ctrl-C quit";
    }
    keys
}

/// Explains the columns of the table of workers.
const WORKERS: [&str; 15] = [
    "Enter detail on or off   < > sort   i reverse   / filter   r totals",
    "state  ○ parked   ● awake, or being woken   ◇ ◆ the same, spare worker (s2)",
    "       B busy  S search  P parked  D driver: parked in the I/O driver",
    "       M maint.: maintenance  X stuck in a poll  K block: block_in_place",
    "queue  tasks in the LIFO slot, batch from the global queue, ring (local)",
    "budget polls left in this tick; spent: ticks that used the whole budget",
    "tuner  avg: average poll; intv: polls between checks of the global queue",
    "lifo   hits: polls from the slot; evict: displaced; cap: flushed at limit",
    "steals tries; ok: successful; tasks: stolen; races: lost; given: to others",
    "unpark notif: by a thread; io; timer; t.out: time-out; spur: unknown reason",
    "poll   duration of a poll      delay   from a task's wake-up to its poll",
    "queues oldest: longest wait; injected: from outside the workers;",
    "       overflowed: moved from a full ring to the global queue",
    "driver owner: worker that waits in it; idle: time since its last poll",
    "timers late: lateness of the latest timers   blocking: spawn_blocking",
];

/// Returns the lines for a screen, above the keys.
fn text_of(screen: Screen) -> &'static [&'static str] {
    match screen {
        Screen::Overview => &WORKERS,
        Screen::Workers => &[
            "< > sort   i reverse   / filter   r totals or rates per second",
            "Above: the table. Below: the selected worker since the runtime started.",
            "budget    spent: ticks that used all of it; yields: polls ended for lack",
            "          of it; evicted: tasks displaced from the LIFO slot; cap: flushes",
            "steals    races lost: tries that lost to another worker; given: tasks",
            "          that others stole from this one; checks: of the global queue,",
            "          by interval, elapsed target time, or empty own queues",
            "parks     notified, io, timer, timed out, spurious: what ended them;",
            "          spins: short waits without sleep that work ended, or in vain",
            "settings  placement: of tasks from outside; target, interval: time and",
            "          polls between global checks; alpha: of poll average",
            "queues    tasks in its ring, LIFO slot, batch and inbox; its budget",
            "busy, search, idle     share of time; idle: parked or waiting in the driver",
            "polls/s, queued        scaled to the largest value; latest at the right",
            "run delay              time in which the kernel ran other threads",
            "╳ no connection at that time",
        ],
        Screen::Tasks => &[
            "Enter details of the selected task, with the reason for its last poll",
            "< > sort   i reverse   / filter by name, #id, location, state or await",
            "state   waits, queued, polled; stranded: waits without a waker",
            "awaits  what it waits for, such as a notification (Notify, watch), a value",
            "        (oneshot), other tasks (at a barrier, or until a channel closes)",
            "busy    total duration of its polls; now: share of the last interval",
            "longest longest poll, with an error of at most 1/16",
            "delay   total time from wake-ups to polls",
            "woken   time since the last wake-up, and its cause",
            "wakers  live wakers, including abort handles and shields",
            "A program with very many tasks lists only those that rank highest.",
            "Tasks that were never polled and have no name are only counted.",
        ],
        Screen::Processes => &[
            "Enter details of the selected process   < > sort   i reverse",
            "/ filter by name, pid, kind, spawn location or state",
            "A process is an actor with a mailbox (volt_process).",
            "pid     slot, and number of the process in this slot",
            "state   ready, running; blocked: awaits a future; idle: no messages",
            "        complete: it has exited",
            "mailbox waiting messages; ! half full   !! full   peak  maximum so far",
            "lost    messages that its mailbox dropped or refused",
            "steps   times that a worker ran it   busy  total duration",
            "parent  process that started it",
            "A program with very many processes lists only the highest-ranked.",
        ],
        Screen::Latency => &[
            "↑ ↓ worker or all  Enter delay or poll  r since the runtime started",
            "Bars: number of polls or delays in each range of durations.",
            "Heat map: one column for each snapshot, latest at the right; darker",
            "cells have a larger share of the snapshot. ╳ no connection.",
            "schedule delay  time from a task's wake-up to its poll",
            "poll duration   time that a task occupied its worker",
        ],
        Screen::Incidents => &[
            "Enter stack of the selected incident   < > sort   i reverse   / filter",
            "An incident is a poll of 10 ms or longer (incident_after).",
            "cause   state of the thread in the kernel: cpu, sleep, lock, io …",
            "action  replaced: a spare worker took over; rescued: another worker",
            "        took the waiting tasks; capped: no spare worker available",
            "more    similar stuck polls that were counted, but not recorded",
            "suppressed  incidents without a record; evicted: overwritten records",
            "sentinel  spares: in use, of at most; preempted: polls made to yield;",
            "        pauses: times that the whole program was paused; stuck: workers",
            "        declared stuck, replaced or not; blocking: calls of",
            "        block_in_place; no thread: spare workers that did not start",
            "stacks  → suspect line   + your code   dim: libraries",
        ],
        Screen::Blame => &[
            "< > sort column   i reverse   / filter by location",
            "Each row: all tasks spawned at one line of code.",
            "caused   total delay of other tasks behind long polls of these",
            "now      tasks delayed at a time, on average, in the last interval",
            "suffered total delay of these tasks behind long polls of others",
            "stuck    stuck polls     longest  longest poll   busy  total duration",
            "stranded waiting tasks that have no waker left",
        ],
        Screen::Routes => &[
            "< > sort column   i reverse   / filter by method or path",
            "Each row: all requests with one method that one route matched.",
            "active   requests that are being handled",
            "p50, p99 time to the response, without its body, of half and 99% of",
            "         the requests since the runtime started",
            "failed   status 500 or above   abandoned  ended without a response",
            "busy     total time of their polls    longest  longest poll",
            "delay    total time in which their tasks waited for a worker, before",
            "         the handler was called and between its polls",
            "Counted by volt::axum::serve, RouteLayer, and observe::Request.",
        ],
        Screen::Doctor => &[
            "Enter stack of the poll; without one, what the tasks of the finding",
            "      wait for (waits screen)   i reverse   / filter",
            "Findings of the doctor, checked every second, worst first. Below:",
            "the evidence, the line of code, and what to change.",
            "To print the same as text: volt-console doctor",
        ],
        Screen::Waits => &[
            "↑ ↓ group   r refresh   i reverse   / filter by name, #id, line or kind",
            "Tasks that wait at the same place form a group, longest wait first.",
            "Below: the chain of awaits of the selected group. Its last line is",
            "the pending operation; the line above it is the application's.",
            "tasks    number of tasks      longest  since the last wake-up",
            "× 20     the task waits for 20 operations at this place",
            "To find the chain, the program polls each waiting task once. So it makes",
            "a dump only when the screen is opened, and when r is pressed.",
            "To print the same as text: volt-console dump",
        ],
        Screen::Events => &[
            "i reverse   / filter by kind, runtime or text",
            "stuck, unstuck  a stuck poll began; it ended",
            "stall           a stuck poll that began and ended between snapshots",
            "replaced        a spare worker replaced a stuck or blocking worker",
            "capped          a stuck worker was not replaced: no spare worker",
            "found, past     a finding of the doctor began; it ended",
            "link, lost      state of the connection; skipped snapshots",
            "runtime, panic  a runtime started or ended; a task panicked",
            "process         a process exited abnormally",
            "restart         a supervisor restarted a process",
        ],
    }
}

/// Draws the help in the middle of `area`.
pub fn draw(frame: &mut Frame<'_>, area: Rect, screen: Screen, is_replay: bool, theme: Theme) {
    let texts: Vec<&str> = text_of(screen).iter().copied().chain(keys(is_replay)).collect();
    // With a margin of one or two columns, parts of the screen below would show.
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
