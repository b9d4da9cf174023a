//! Processes one by one, state machines with mailboxes: the columns of their table, for screen and text, and `volt-console processes`, which
//! prints it.
//!
//! Invariant: *a pid is never cut*; a table leaves its node out, which is the same in most programs, and the detail and JSON have it whole.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use volt_telemetry::client::{Client, ConnectError};
use volt_telemetry::processes::{Process, ProcessList, Query, Rank, State, kind_name};

use crate::clean;
use crate::columns::Cell;
use crate::error::Error;
use crate::facts::Tone;
use crate::figures::{ABSENT, COUNT_WIDTH, DURATION_WIDTH, PERCENT_WIDTH, count, duration, left, percent, right};

/// Columns of a pid before it makes its column wider.
const PID_WIDTH: usize = 8;
/// Columns of the longest state.
const STATE_WIDTH: usize = 8;
/// How long a list is asked for again that answers somebody else's question.
const PATIENCE: Duration = Duration::from_secs(5);
/// The heading of what two looks tell.
const NOW_TITLE: &str = "now";
/// The heading of the rest of the line.
pub const NAME_TITLE: &str = "name, kind, spawned at";

/// One process in the table.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Its numbers.
    pub process: &'a Process,
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

/// Every column, from left to right; name, kind and location follow.
pub const COLUMNS: [Column; 12] = [
    ranked("pid", PID_WIDTH, Rank::Pid, |row| cell(short(&row.process.pid).into(), Tone::Plain)),
    plain("state", STATE_WIDTH, state),
    ranked("mailbox", COUNT_WIDTH + 2, Rank::Mailbox, mailbox),
    ranked("peak", COUNT_WIDTH, Rank::Peak, |row| number(row.process.mailbox_high_water)),
    extra(plain("cap", COUNT_WIDTH, |row| number(row.process.mailbox_capacity))),
    ranked("lost", COUNT_WIDTH + 1, Rank::Lost, lost),
    ranked("steps", COUNT_WIDTH, Rank::Steps, |row| number(row.process.steps)),
    ranked("busy", DURATION_WIDTH, Rank::Busy, |row| absent(row.process.busy_ns.map(duration))),
    extra(plain(NOW_TITLE, PERCENT_WIDTH, |row| absent(row.busy_ratio.map(percent)))),
    plain("parent", PID_WIDTH - 1, |row| absent(row.process.parent.as_deref().map(short).map(str::to_owned))),
    extra(plain("links", COUNT_WIDTH, |row| number(row.process.links))),
    extra(plain("task", PID_WIDTH - 1, |row| absent(row.process.task.map(|task| task.to_string())))),
];

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

fn number(number: u64) -> Cell {
    cell(count(number), if number == 0 { Tone::Quiet } else { Tone::Plain })
}

fn absent(text: Option<String>) -> Cell {
    let tone = if text.as_ref().is_none_or(|text| text == "0%") { Tone::Quiet } else { Tone::Plain };
    cell(text.unwrap_or_else(|| ABSENT.into()), tone)
}

fn mailbox(row: &Row<'_>) -> Cell {
    let tone = mailbox_tone(row.process);
    cell(format!("{}{:<2}", count(row.process.mailbox_len), tone.mark()), tone)
}

/// Half full is worth a look; full, senders wait or lose what they send.
pub fn mailbox_tone(process: &Process) -> Tone {
    match process.mailbox_len {
        0 => Tone::Quiet,
        len if len >= process.mailbox_capacity => Tone::Alarm,
        len if len.saturating_mul(2) >= process.mailbox_capacity => Tone::Warn,
        _ => Tone::Plain,
    }
}

fn lost(row: &Row<'_>) -> Cell {
    let tone = if row.process.messages_lost == 0 { Tone::Quiet } else { Tone::Warn };
    cell(format!("{}{:<1}", count(row.process.messages_lost), tone.mark()), tone)
}

fn state(row: &Row<'_>) -> Cell {
    let tone = match row.process.state {
        State::Idle => Tone::Quiet,
        State::Running => Tone::of_duration(row.process.in_poll_ns.unwrap_or(0)),
        _ => Tone::Plain,
    };
    cell(row.process.state.name().into(), tone)
}

/// `17.3` of `local:17.3`.
pub fn short(pid: &str) -> &str {
    pid.split_once(':').map_or(pid, |(_, place)| place)
}

impl Column {
    /// What it says of a process.
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
    /// Which processes.
    pub query: Query,
    /// One JSON object.
    pub as_json: bool,
}

/// Prints the processes of a program.
///
/// # Errors
/// [`Error::is_connect`]: also if the program is too old for that, or has no such runtime. [`Error::is_output_closed`].
pub fn run(client: &mut Client, options: &Options, out: &mut impl Write) -> Result<(), Error> {
    let names = match &options.runtime {
        Some(name) => vec![name.clone()],
        None => client.hello().runtimes.clone(),
    };
    let lists: Result<Vec<ProcessList>, ConnectError> =
        names.iter().map(|name| ask(client, name, &options.query).map(clean::processes)).collect();
    let lists = lists?;
    let text = if options.as_json {
        format!(
            "{}\n",
            json!({ "pid": client.hello().pid, "program": clean::text(&client.hello().program), "runtimes": lists })
        )
    } else {
        // Most programs have runtimes without any; a line each would hide those that matter.
        let shown: Vec<_> = lists.iter().filter(|list| list.alive > 0 || options.runtime.is_some()).collect();
        if shown.is_empty() {
            "no processes\n".into()
        } else {
            shown.into_iter().map(text).collect::<Vec<_>>().join("\n")
        }
    };
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::output)
}

/// The list that was asked for, or after [`PATIENCE`] the one that there is: a program with very many processes does not look through them at
/// once again for everybody who asks.
fn ask(client: &mut Client, runtime: &str, query: &Query) -> Result<ProcessList, ConnectError> {
    let began = Instant::now();
    loop {
        let list = client.processes(Some(runtime), query)?;
        let given = &list.query;
        let is_it = (given.rank, given.is_inverted) == (query.rank, query.is_inverted);
        // A filter that is too long is cut.
        if is_it && query.filter.starts_with(&given.filter) || began.elapsed() > PATIENCE {
            return Ok(list);
        }
        thread::sleep(PATIENCE / 50);
    }
}

/// What a list is of: `214 alive, 200 of 211 that match shown by mailbox`.
pub fn summary(list: &ProcessList) -> String {
    let filter = if list.query.filter.is_empty() { "" } else { " that match" };
    let (shown, order) = (count(list.rows.len() as u64), if list.query.is_inverted { "the least " } else { "" });
    let cut = if list.is_cut { ", not all were looked at" } else { "" };
    format!(
        "{} alive, {shown} of {}{filter} shown by {order}{}{cut}",
        count(list.alive),
        count(list.matching),
        list.query.rank.name()
    )
}

/// For people: a line each.
pub fn text(list: &ProcessList) -> String {
    let mut text = format!("runtime {}  processes {}\n", list.runtime, summary(list));
    // Of one look nothing is known of the time just past.
    let columns = COLUMNS.iter().filter(|column| column.title != NOW_TITLE);
    let heads = columns.clone().map(|column| column.set(column.title) + " ");
    text.push_str(&(heads.collect::<String>() + NAME_TITLE + "\n"));
    for process in &list.rows {
        let row = Row { process, busy_ratio: None };
        columns.clone().for_each(|column| text.push_str(&(column.set(&column.cell(&row).text) + " ")));
        text.push_str(&format!("{}  {}\n", name_and_kind(process), process.spawned_at));
    }
    text
}

/// `lobby  Room`.
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
    use crate::figures::width;

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
    fn no_value_is_wider_than_its_column_and_what_is_not_known_is_a_dash() {
        let blank = Process { pid: "local:1.0".into(), ..Process::default() };
        for process in [process(), blank.clone()] {
            let row = Row { process: &process, busy_ratio: Some(1.0) };
            for column in COLUMNS {
                assert!(width(&column.cell(&row).text) <= column.full_width(), "{}", column.title);
            }
        }
        let row = Row { process: &blank, busy_ratio: None };
        let absent = COLUMNS.iter().filter(|column| column.cell(&row).text.trim() == ABSENT).count();
        assert_eq!(absent, 4, "busy, now, parent, task");
    }

    #[test]
    fn a_mailbox_is_half_full_at_half_of_any_room() {
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
        let mut orders = orders();
        orders.sort_by_key(|rank| rank.name());
        let mut all = Rank::ALL.to_vec();
        all.sort_by_key(|rank| rank.name());
        assert_eq!(orders, all);
    }

    #[test]
    fn text_has_a_line_for_each_process_and_says_how_many_there_are() {
        let list = ProcessList { rows: vec![process()], alive: 12_345, matching: 40, ..ProcessList::default() };
        let text = text(&list);
        assert!(text.contains("12.3k alive, 1 of 40 shown by mailbox"), "{text}");
        assert!(text.lines().last().unwrap().ends_with("lobby  Room  src/main.rs:7:5"), "{text}");
        assert_eq!(text.lines().count(), 3);
    }
}
