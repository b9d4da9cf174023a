//! The table of tasks, for screen and text.
//!
//! Invariant *an unknown number is shown as absent*: for a task in its first poll, only what its
//! worker publishes is known.

use volt_telemetry::dump::{DUMP_PLACE, is_of_dump};
use volt_telemetry::tasks::{LONGEST_FROM_NS, Query, Rank, State, Task, TaskList};
use volt_telemetry::waits::{holder, permit_holders};

use crate::facts::Tone;
use crate::tables::cell::Cell;
use crate::tables::listing::{self, Column, NOW_TITLE, Row, absent, extra, plain, ranked, words};
use crate::text::awaits::{awaited, awaited_briefly};
use crate::text::figures::{ABSENT, COUNT_WIDTH, DURATION_WIDTH, PERCENT_WIDTH, count, duration, percent};

/// The width of the id column, unless an id is longer.
const ID_WIDTH: usize = 6;
/// The width of the longest state.
const STATE_WIDTH: usize = 8;
/// The width of the longest waker name.
const BY_WIDTH: usize = 8;
/// The width of the longest description of what a task awaits.
const AWAITS_WIDTH: usize = 17;

/// Every column, from left to right; name and location follow.
pub const COLUMNS: [Column<Task, Rank>; 13] = [
    ranked("id", ID_WIDTH, Rank::Id, |row| absent(Some(row.item.id.to_string()))),
    words("state", STATE_WIDTH, state),
    extra(words("awaits", AWAITS_WIDTH, |row| absent(awaits_briefly(row.item)))),
    ranked("busy", DURATION_WIDTH, Rank::Busy, |row| time(row.item.busy_ns)),
    plain(NOW_TITLE, PERCENT_WIDTH, |row| absent(row.busy_ratio.map(percent))),
    ranked("longest", DURATION_WIDTH + 2, Rank::Longest, |row| length(row.item.longest_ns.or(row.item.in_poll_ns))),
    ranked("polls", COUNT_WIDTH, Rank::Polls, |row| absent(row.item.polls.map(count))),
    ranked("delay", DURATION_WIDTH, Rank::Delay, |row| time(row.item.delay_ns)),
    ranked("woken", DURATION_WIDTH, Rank::Woken, |row| time(row.item.woken_ago_ns)),
    extra(words("by", BY_WIDTH, |row| absent(row.item.woken_by.clone()))),
    extra(ranked("wakers", COUNT_WIDTH, Rank::Wakers, |row| absent(row.item.wakers.map(count)))),
    extra(ranked("age", DURATION_WIDTH, Rank::Age, |row| time(row.item.age_ns))),
    extra(plain("worker", 4, |row| absent(row.item.worker.map(|worker| worker.to_string())))),
];

/// The title of the rest of the line.
pub const NAME_TITLE: &str = "name, spawned at";

/// The text in place of the rows if there are none because of a filter.
pub const NO_MATCH: &str = "No task matches the filter.";

/// The note below the tables of a program.
const UNKNOWN_AWAITS: &str = "\
awaits -: not recorded, because the task awaits a timer, a socket or a future of
another crate. `volt-console dump` polls each waiting task to find the line.";

fn time(ns: Option<u64>) -> Cell {
    absent(ns.map(duration))
}

fn length(ns: Option<u64>) -> Cell {
    let tone = ns.map_or(Tone::Quiet, Tone::of_duration);
    let text = match ns {
        None => ABSENT.into(),
        Some(0) => format!("<{}", duration(LONGEST_FROM_NS)),
        Some(ns) => duration(ns),
    };
    Cell { text: format!("{text}{:<2}", tone.mark()), tone }
}

fn state(row: &Row<'_, Task>) -> Cell {
    let tone = match row.item.state {
        State::Stranded => Tone::Warn,
        State::Polled if row.item.in_poll_ns.is_some() => Tone::of_duration(row.item.in_poll_ns.unwrap_or(0)),
        State::Waits => Tone::Quiet,
        _ => Tone::Plain,
    };
    Cell { text: row.item.state.name().into(), tone }
}

/// Returns what a task awaits, and where in the code.
pub fn awaits(task: &Task) -> Option<(String, Option<&str>)> {
    Some((awaited(task.awaits.as_deref()?, task.awaited_task), task.awaits_at.as_deref()))
}

/// Returns what a task awaits, as short as the column shows it.
pub fn awaits_briefly(task: &Task) -> Option<String> {
    Some(awaited_briefly(task.awaits.as_deref()?, task.awaited_task))
}

/// Returns which task holds the lock that a task awaits, and where and when it was acquired:
/// `task 7 for 14 min, acquired at src/settle.rs:31:20`.
pub fn held_by(task: &Task) -> Option<String> {
    Some(holder(task.held_by, None, task.held_at.as_deref()?, task.held_ns.map(duration)))
}

/// Returns who acquired the permits of the semaphore that a task awaits, one per line.
pub fn permits_of(task: &Task) -> Vec<String> {
    permit_holders(&task.permit_holders, task.permit_holders_left_out, duration)
}

/// Returns the position of a task among those that wait for the same lock or semaphore: `3 of 43`.
pub fn position(task: &Task) -> Option<String> {
    let position = count(task.waiter_index? + 1);
    Some(task.waiters_len.map_or_else(|| position.clone(), |waiters| format!("{position} of {}", count(waiters))))
}

/// Formats the size of a list as `214 alive, 200 of 211 shown, by busy, 3 not polled yet`.
pub fn summary(list: &TaskList) -> String {
    let more = match list.unseen() {
        0 => String::new(),
        n => format!(", {} not polled yet", count(n)),
    };
    let Query { rank, is_inverted, filter, .. } = &list.query;
    let shown = listing::shown(list.rows.len(), list.matching, filter, *is_inverted, rank.name());
    let cut = if list.is_cut { ", search incomplete" } else { "" };
    // Tasks can complete while the list is made; those in it were alive.
    let alive = count(list.alive.max(list.matching));
    format!("{alive} alive, {shown}{more}{cut}")
}

/// Returns the list as text, with a line for each task.
pub fn text(list: &TaskList) -> String {
    let rows = match list.rows[..] {
        [] if !list.query.filter.is_empty() => format!("{NO_MATCH}\n"),
        _ => listing::text(&COLUMNS, &list.rows, NAME_TITLE, name_and_place),
    };
    format!("runtime {}  tasks {}\n{rows}", list.runtime, summary(list))
}

/// Explains why it is unknown what some of these tasks await, and how to find it.
pub fn note(list: &TaskList) -> Option<&'static str> {
    list.rows.iter().any(is_await_unknown).then_some(UNKNOWN_AWAITS)
}

/// Returns whether the task waits, and has not recorded for what.
pub fn is_await_unknown(task: &Task) -> bool {
    task.awaits.is_none() && matches!(task.state, State::Waits | State::Stranded)
}

/// Returns the spawn location as it is shown.
pub fn place(task: &Task) -> &str {
    if is_of_dump(&task.spawned_at) { DUMP_PLACE } else { &task.spawned_at }
}

/// Returns the name and location, such as `GET /checkout  examples/src/handlers.rs:118:21`.
pub fn name_and_place(task: &Task) -> String {
    match &task.name {
        Some(name) => format!("{name}  {}", task.spawned_at),
        None => place(task).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> Task {
        let many = Some(u64::MAX / 2);
        Task {
            id: 123_456,
            name: Some("feed".into()),
            spawned_at: "src/main.rs:7:5".into(),
            state: State::Stranded,
            worker: Some(1023),
            in_poll_ns: many,
            polls: many,
            busy_ns: many,
            longest_ns: many,
            delay_ns: many,
            age_ns: many,
            woken_ago_ns: many,
            woken_by: Some("blocking".into()),
            awaits: Some("permits".into()),
            awaits_at: None,
            awaited_task: None,
            waiting_ns: None,
            held_by: None,
            held_at: None,
            held_ns: None,
            permit_holders: Vec::new(),
            permit_holders_left_out: 0,
            waiter_index: None,
            waiters_len: None,
            waker_task: None,
            wakers: many,
        }
    }

    #[test]
    fn no_figure_is_truncated_and_an_unknown_one_is_a_dash() {
        let many = Task { id: u64::MAX, polls: Some(u64::MAX), age_ns: Some(u64::MAX), ..task() };
        let text = text(&TaskList { rows: vec![many.clone(), task()], ..TaskList::default() });
        assert!(text.contains("18446744073709551615 stranded") && !text.contains('…'), "{text}");
        let column = |line: &str| line.find("stranded");
        let lines: Vec<_> = text.lines().skip(2).map(column).collect();
        assert_eq!(lines[0], lines[1], "{text}");
        let first_poll = Task { id: 1, state: State::Polled, in_poll_ns: Some(9), ..Task::default() };
        let row = Row { item: &first_poll, busy_ratio: None };
        let absent = COLUMNS.iter().filter(|column| column.cell(&row).text.trim() == ABSENT).count();
        assert_eq!(absent, 10, "all but id, state and the poll that it is in");
    }

    #[test]
    fn the_column_describes_what_a_task_awaits() {
        for (awaits, awaited_task, expected) in [
            ("permits", None, "semaphore permits"),
            ("notice", None, "a notification"),
            ("room", None, "room in a channel"),
            ("others", None, "other tasks"),
            ("others", Some(42), "task 42"),
        ] {
            let list = TaskList {
                rows: vec![Task { awaits: Some(awaits.into()), awaited_task, ..task() }],
                ..TaskList::default()
            };
            let text = text(&list);
            assert!(text.contains(&format!("stranded {expected:<AWAITS_WIDTH$} ")), "{text}");
        }
    }

    #[test]
    fn every_rank_has_a_column() {
        let mut orders = listing::orders(&COLUMNS);
        orders.sort_by_key(|rank| rank.name());
        let mut all = Rank::ALL.to_vec();
        all.sort_by_key(|rank| rank.name());
        assert_eq!(orders, all);
    }

    #[test]
    fn text_has_a_line_for_each_task_and_counts_the_others() {
        let list = TaskList { rows: vec![task()], alive: 12_345, seen: 12_000, matching: 40, ..TaskList::default() };
        let text = text(&list);
        assert!(text.contains("12.3k alive, 1 of 40 shown, by busy, 345 not polled yet"), "{text}");
        assert!(text.lines().last().unwrap().ends_with("feed  src/main.rs:7:5"), "{text}");
        assert_eq!(text.lines().count(), 3);
    }

    #[test]
    fn a_note_explains_why_an_await_is_unknown() {
        let waiting = Task { state: State::Waits, awaits: None, ..task() };
        let of = |task: Task| note(&TaskList { rows: vec![task], ..TaskList::default() });
        assert!(of(waiting.clone()).unwrap().contains("volt-console dump"));
        assert_eq!(of(Task { awaits: Some("lock".into()), ..waiting.clone() }), None);
        assert_eq!(of(Task { state: State::Polled, ..waiting }), None, "it does not wait");
    }

    #[test]
    fn no_more_tasks_are_listed_than_are_alive() {
        let list = TaskList { alive: 51, matching: 55, ..TaskList::default() };
        assert!(summary(&list).starts_with("55 alive, 0 of 55 shown"), "{}", summary(&list));
    }
}
