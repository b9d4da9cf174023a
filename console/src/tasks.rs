//! Tasks one by one: the columns of their table, for screen and text, and `volt-console tasks`, which prints it.
//!
//! Invariants. *A figure is never cut*: a column is as wide as its widest value and its title with the arrow of the order. *A row that has no
//! number says so*: of a task in its first poll only what its worker shows is known.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use volt_telemetry::client::{Client, ConnectError};
use volt_telemetry::tasks::{LONGEST_FROM_NS, Query, Rank, State, Task, TaskList};

use crate::clean;
use crate::columns::Cell;
use crate::error::Error;
use crate::facts::Tone;
use crate::figures::{ABSENT, COUNT_WIDTH, DURATION_WIDTH, PERCENT_WIDTH, count, duration, left, percent, right};

/// Columns of an id before it makes its column wider.
const ID_WIDTH: usize = 6;
/// Columns of the longest state.
const STATE_WIDTH: usize = 8;
/// How long a list is asked for again that answers somebody else's question.
const PATIENCE: Duration = Duration::from_secs(5);
/// Columns of the longest waker's name.
const BY_WIDTH: usize = 8;
/// Columns of the longest name of what a task awaits.
const AWAITS_WIDTH: usize = 8;

/// One task in the table.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Its numbers.
    pub task: &'a Task,
    /// How much of the time since the list before it was polled; `None` when that is not known.
    pub busy_ratio: Option<f64>,
}

/// One column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its heading.
    pub title: &'static str,
    /// What the table is ranked by for it, if it can be.
    pub rank: Option<Rank>,
    /// Whether only a wide screen has it.
    pub is_extra: bool,
    width: usize,
    content: fn(&Row<'_>) -> Cell,
}

/// Every column, from left to right; name and location follow.
pub const COLUMNS: [Column; 13] = [
    ranked("id", ID_WIDTH, Rank::Id, |row| cell(row.task.id.to_string(), Tone::Plain)),
    plain("state", STATE_WIDTH, state),
    extra(plain("for", AWAITS_WIDTH, |row| absent(row.task.awaits.clone()))),
    ranked("busy", DURATION_WIDTH, Rank::Busy, |row| time(row.task.busy_ns)),
    plain(NOW_TITLE, PERCENT_WIDTH, |row| absent(row.busy_ratio.map(percent))),
    ranked("longest", DURATION_WIDTH + 2, Rank::Longest, |row| length(row.task.longest_ns.or(row.task.in_poll_ns))),
    ranked("polls", COUNT_WIDTH, Rank::Polls, |row| absent(row.task.polls.map(count))),
    ranked("delay", DURATION_WIDTH, Rank::Delay, |row| time(row.task.delay_ns)),
    ranked("woken", DURATION_WIDTH, Rank::Woken, |row| time(row.task.woken_ago_ns)),
    extra(plain("by", BY_WIDTH, |row| absent(row.task.woken_by.clone()))),
    extra(ranked("wakers", COUNT_WIDTH, Rank::Wakers, |row| absent(row.task.wakers.map(count)))),
    extra(ranked("age", DURATION_WIDTH, Rank::Age, |row| time(row.task.age_ns))),
    extra(plain("wrkr", 4, |row| absent(row.task.worker.map(|worker| worker.to_string())))),
];

/// The heading of what two looks tell.
const NOW_TITLE: &str = "now";
/// The heading of the rest of the line.
pub const NAME_TITLE: &str = "name, spawned at";

const fn plain(title: &'static str, width: usize, content: fn(&Row<'_>) -> Cell) -> Column {
    Column { title, rank: None, is_extra: false, width, content }
}

const fn ranked(title: &'static str, width: usize, rank: Rank, content: fn(&Row<'_>) -> Cell) -> Column {
    Column { rank: Some(rank), ..plain(title, width, content) }
}

const fn extra(column: Column) -> Column {
    Column { is_extra: true, ..column }
}

fn cell(text: String, tone: Tone) -> Cell {
    Cell { text, tone }
}

fn absent(text: Option<String>) -> Cell {
    let tone = if text.as_ref().is_none_or(|text| text == "0" || text == "0%") { Tone::Quiet } else { Tone::Plain };
    cell(text.unwrap_or_else(|| ABSENT.into()), tone)
}

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
    cell(format!("{text}{:<2}", tone.mark()), tone)
}

fn state(row: &Row<'_>) -> Cell {
    let tone = match row.task.state {
        State::Stranded => Tone::Warn,
        State::Polled if row.task.in_poll_ns.is_some() => Tone::of_duration(row.task.in_poll_ns.unwrap_or(0)),
        State::Waits => Tone::Quiet,
        _ => Tone::Plain,
    };
    cell(row.task.state.name().into(), tone)
}

/// What a task awaits, in words, and where in the code.
pub fn awaits(task: &Task) -> Option<(&str, Option<&str>)> {
    let words = match task.awaits.as_deref()? {
        "lock" => "a lock",
        "permits" => "permits of a semaphore",
        "notice" => "a notice",
        "message" => "a message",
        "room" => "room in a channel",
        "value" => "a value",
        "others" => "others, to come or to go",
        newer => newer,
    };
    Some((words, task.awaits_at.as_deref()))
}

impl Column {
    /// What it says of a task.
    pub fn cell(&self, row: &Row<'_>) -> Cell {
        (self.content)(row)
    }

    /// How many columns of a terminal it takes, its title with the arrow of the order included.
    pub fn full_width(&self) -> usize {
        self.width.max(self.title.len() + usize::from(self.rank.is_some()))
    }

    /// `text` set into this column.
    pub fn set(&self, text: &str) -> String {
        let is_text = self.rank.is_none() && self.width >= STATE_WIDTH;
        if is_text { left(text, self.full_width()) } else { right(text, self.full_width()) }
    }
}

/// Ranks in the order of their columns.
pub fn orders() -> Vec<Rank> {
    COLUMNS.iter().filter_map(|column| column.rank).collect()
}

/// What to print.
#[derive(Clone, Debug)]
pub struct Options {
    /// The runtime, of a program that has several; each if left out.
    pub runtime: Option<String>,
    /// Which tasks.
    pub query: Query,
    /// One JSON object.
    pub as_json: bool,
}

/// Prints the tasks of a program.
///
/// # Errors
/// [`Error::is_connect`]: also if the program is too old for that, or has no such runtime. [`Error::is_output_closed`].
pub fn run(client: &mut Client, options: &Options, out: &mut impl Write) -> Result<(), Error> {
    let names = match &options.runtime {
        Some(name) => vec![name.clone()],
        None => client.hello().runtimes.clone(),
    };
    let lists: Result<Vec<TaskList>, ConnectError> =
        names.iter().map(|name| ask(client, name, &options.query).map(clean::tasks)).collect();
    let lists = lists?;
    let text = if options.as_json {
        format!(
            "{}\n",
            json!({ "pid": client.hello().pid, "program": clean::text(&client.hello().program), "runtimes": lists })
        )
    } else {
        lists.iter().map(text).collect::<Vec<_>>().join("\n")
    };
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::output)
}

/// The list that was asked for, or after [`PATIENCE`] the one that there is: a program with very many tasks does not look through them at once again
/// for everybody who asks.
fn ask(client: &mut Client, runtime: &str, query: &Query) -> Result<TaskList, ConnectError> {
    let began = Instant::now();
    loop {
        let list = client.tasks(Some(runtime), query)?;
        let given = &list.query;
        let is_it = (given.rank, given.is_inverted) == (query.rank, query.is_inverted);
        // A filter that is too long is cut.
        if is_it && query.filter.starts_with(&given.filter) || began.elapsed() > PATIENCE {
            return Ok(list);
        }
        thread::sleep(PATIENCE / 50);
    }
}

/// What a list is of: `214 alive, 200 of 211 shown by busy, 3 more not polled yet`.
pub fn summary(list: &TaskList) -> String {
    let more = match list.unseen() {
        0 => String::new(),
        n => format!(", {} more not polled yet", count(n)),
    };
    let filter = if list.query.filter.is_empty() { "" } else { " that match" };
    let (shown, order) = (count(list.rows.len() as u64), if list.query.is_inverted { "the least " } else { "" });
    let cut = if list.is_cut { ", not all were looked at" } else { "" };
    format!(
        "{} alive, {shown} of {}{filter} shown by {order}{}{more}{cut}",
        count(list.alive),
        count(list.matching),
        list.query.rank.name()
    )
}

/// For people: a line each.
pub fn text(list: &TaskList) -> String {
    let mut text = format!("runtime {}  tasks {}\n", list.runtime, summary(list));
    // Of one look nothing is known of the time just past.
    let columns = COLUMNS.iter().filter(|column| column.title != NOW_TITLE);
    let heads = columns.clone().map(|column| column.set(column.title) + " ");
    text.push_str(&(heads.collect::<String>() + NAME_TITLE + "\n"));
    for task in &list.rows {
        let row = Row { task, busy_ratio: None };
        columns.clone().for_each(|column| text.push_str(&(column.set(&column.cell(&row).text) + " ")));
        text.push_str(&format!("{}\n", name_and_place(task)));
    }
    text
}

/// `GET /checkout  examples/src/handlers.rs:118:21`.
pub fn name_and_place(task: &Task) -> String {
    match &task.name {
        Some(name) => format!("{name}  {}", task.spawned_at),
        None => task.spawned_at.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::width;

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
            waker_task: None,
            wakers: many,
        }
    }

    #[test]
    fn no_value_is_wider_than_its_column_and_what_is_not_known_is_a_dash() {
        let first_poll = Task { id: 1, state: State::Polled, in_poll_ns: Some(9), ..Task::default() };
        for task in [task(), first_poll.clone()] {
            let row = Row { task: &task, busy_ratio: Some(1.0) };
            for column in COLUMNS {
                assert!(width(&column.cell(&row).text) <= column.full_width(), "{}", column.title);
            }
        }
        let row = Row { task: &first_poll, busy_ratio: None };
        let absent = COLUMNS.iter().filter(|column| column.cell(&row).text.trim() == ABSENT).count();
        assert_eq!(absent, 10, "all but id, state and the poll that it is in");
    }

    #[test]
    fn every_rank_has_a_column() {
        let mut orders = orders();
        orders.sort_by_key(|rank| rank.name());
        let mut all = Rank::ALL.to_vec();
        all.sort_by_key(|rank| rank.name());
        assert_eq!(orders, all);
    }

    #[test]
    fn text_has_a_line_for_each_task_and_says_what_it_leaves_out() {
        let list = TaskList { rows: vec![task()], alive: 12_345, seen: 12_000, matching: 40, ..TaskList::default() };
        let text = text(&list);
        assert!(text.contains("12.3k alive, 1 of 40 shown by busy, 345 more not polled yet"), "{text}");
        assert!(text.lines().last().unwrap().ends_with("feed  src/main.rs:7:5"), "{text}");
        assert_eq!(text.lines().count(), 3);
    }
}
