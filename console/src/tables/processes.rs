//! The table of processes (actors with mailboxes), for screen and text.
//!
//! The table omits the node of a pid, which is the same in most programs. The detail and JSON have
//! the whole pid.

use volt_telemetry::processes::{Process, ProcessList, Query, Rank, State, kind_name};

use crate::facts::Tone;
use crate::tables::cell::Cell;
use crate::tables::listing::{self, Column, NOW_TITLE, Row, absent, extra, plain, ranked, words};
use crate::text::figures::{COUNT_WIDTH, DURATION_WIDTH, PERCENT_WIDTH, count, duration, percent};

/// The width of the pid column, unless a pid is longer.
const PID_WIDTH: usize = 8;
/// The width of the longest state.
const STATE_WIDTH: usize = 8;
/// The title of the rest of the line.
pub const NAME_TITLE: &str = "name, kind, spawned at";

/// Every column, from left to right; name, kind and location follow.
pub const COLUMNS: [Column<Process, Rank>; 12] = [
    ranked("pid", PID_WIDTH, Rank::Pid, |row| Cell::new(short(&row.item.pid))),
    words("state", STATE_WIDTH, state),
    ranked("mailbox", COUNT_WIDTH + 2, Rank::Mailbox, mailbox),
    ranked("peak", COUNT_WIDTH, Rank::Peak, |row| number(row.item.mailbox_high_water)),
    extra(plain("capacity", COUNT_WIDTH, |row| number(row.item.mailbox_capacity))),
    ranked("lost", COUNT_WIDTH + 1, Rank::Lost, lost),
    ranked("steps", COUNT_WIDTH, Rank::Steps, |row| number(row.item.steps)),
    ranked("busy", DURATION_WIDTH, Rank::Busy, |row| absent(row.item.busy_ns.map(duration))),
    extra(plain(NOW_TITLE, PERCENT_WIDTH, |row| absent(row.busy_ratio.map(percent)))),
    plain("parent", PID_WIDTH - 1, |row| absent(row.item.parent.as_deref().map(short).map(str::to_owned))),
    extra(plain("links", COUNT_WIDTH, |row| number(row.item.links))),
    extra(plain("task", PID_WIDTH - 1, |row| absent(row.item.task.map(|task| task.to_string())))),
];

fn number(number: u64) -> Cell {
    Cell::new(count(number))
}

fn mailbox(row: &Row<'_, Process>) -> Cell {
    let tone = mailbox_tone(row.item);
    Cell { text: format!("{}{:<2}", count(row.item.mailbox_len), tone.mark()), tone }
}

/// A mailbox that is half full is a warning. When it is full, senders wait or lose messages.
pub fn mailbox_tone(process: &Process) -> Tone {
    match process.mailbox_len {
        0 => Tone::Quiet,
        len if len >= process.mailbox_capacity => Tone::Alarm,
        len if len.saturating_mul(2) >= process.mailbox_capacity => Tone::Warn,
        _ => Tone::Plain,
    }
}

fn lost(row: &Row<'_, Process>) -> Cell {
    let tone = if row.item.messages_lost == 0 { Tone::Quiet } else { Tone::Warn };
    Cell { text: format!("{}{:<1}", count(row.item.messages_lost), tone.mark()), tone }
}

fn state(row: &Row<'_, Process>) -> Cell {
    let tone = match row.item.state {
        State::Idle => Tone::Quiet,
        State::Running => Tone::of_duration(row.item.in_poll_ns.unwrap_or(0)),
        _ => Tone::Plain,
    };
    Cell { text: row.item.state.name().into(), tone }
}

/// Returns `17.3` of `local:17.3`.
pub fn short(pid: &str) -> &str {
    pid.split_once(':').map_or(pid, |(_, place)| place)
}

/// Formats the size of a list as `214 alive, 200 of 211 matching shown, by mailbox`.
pub fn summary(list: &ProcessList) -> String {
    let Query { rank, is_inverted, filter, .. } = &list.query;
    let shown = listing::shown(list.rows.len(), list.matching, filter, *is_inverted, rank.name());
    let cut = if list.is_cut { ", search incomplete" } else { "" };
    format!("{} alive, {shown}{cut}", count(list.alive))
}

/// Returns the list as text, with a line for each process.
pub fn text(list: &ProcessList) -> String {
    let rest = |process: &Process| format!("{}  {}", name_and_kind(process), process.spawned_at);
    let rows = listing::text(&COLUMNS, &list.rows, NAME_TITLE, rest);
    format!("runtime {}  processes {}\n{rows}", list.runtime, summary(list))
}

/// Returns the name and kind, such as `lobby  Room`.
pub fn name_and_kind(process: &Process) -> String {
    let kind = kind_name(&process.kind);
    match &process.name {
        Some(name) => format!("{name}  {kind}"),
        None => kind.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::figures::ABSENT;

    fn process() -> Process {
        let many = u64::MAX / 2;
        Process {
            pid: "local:123456.7".into(),
            name: Some("lobby".into()),
            kind: "chat::rooms::Room<u64>".into(),
            spawned_at: "src/main.rs:7:5".into(),
            state: State::Running,
            mailbox_len: many,
            mailbox_high_water: many,
            mailbox_capacity: many,
            messages_lost: many,
            steps: many,
            busy_ns: Some(many),
            in_poll_ns: Some(many),
            parent: Some("local:12345.0".into()),
            links: many,
            monitors: many,
            task: Some(1_234_567),
            ..Process::default()
        }
    }

    #[test]
    fn no_figure_is_truncated_and_an_unknown_one_is_a_dash() {
        let (pid, parent, task) = ("local:17.1234567".into(), Some("local:123456.78".into()), Some(u64::MAX));
        let many = Process { pid, parent, task, ..process() };
        let text = text(&ProcessList { rows: vec![many], ..ProcessList::default() });
        assert!(["17.1234567 ", "123456.78 ", "18446744073709551615 "].iter().all(|id| text.contains(id)), "{text}");
        assert!(!text.contains('…'), "{text}");
        let blank = Process { pid: "local:1.0".into(), ..Process::default() };
        let row = Row { item: &blank, busy_ratio: None };
        let absent = COLUMNS.iter().filter(|column| column.cell(&row).text.trim() == ABSENT).count();
        assert_eq!(absent, 4, "busy, now, parent, task");
    }

    #[test]
    fn a_mailbox_is_half_full_at_half_of_any_capacity() {
        let tone = |mailbox_len, mailbox_capacity| {
            mailbox_tone(&Process { mailbox_len, mailbox_capacity, ..Process::default() })
        };
        assert_eq!(
            [tone(0, 8), tone(3, 8), tone(4, 8), tone(8, 8)],
            [Tone::Quiet, Tone::Plain, Tone::Warn, Tone::Alarm]
        );
        assert_eq!(tone(u64::MAX - 1, u64::MAX), Tone::Warn);
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
    fn text_has_a_line_for_each_process_and_their_number() {
        let list = ProcessList { rows: vec![process()], alive: 12_345, matching: 40, ..ProcessList::default() };
        let text = text(&list);
        assert!(text.contains("12.3k alive, 1 of 40 shown, by mailbox"), "{text}");
        assert!(text.lines().last().unwrap().ends_with("lobby  Room  src/main.rs:7:5"), "{text}");
        assert_eq!(text.lines().count(), 3);
    }
}
