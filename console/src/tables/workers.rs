//! The table of workers: its columns and cells, and which columns fit.
//!
//! Screen and text output use the same columns. Independent of the terminal.
//!
//! Invariants. *A figure is never cut*: a column is as wide as its widest value. *Columns of one
//! rank appear and disappear together*: half of the wake-up reasons would mislead. *The poll in
//! flight gets the rest of the line.*

use volt_diagnosis::rates::WorkerRates;
use volt_telemetry::snapshot::{Config, Duty, InFlight, Worker};

use crate::facts::{Scene, Tone, global_check, state_word};
use crate::tables::cell::{Align, Cell};
use crate::text::figures::{
    ABSENT, COUNT_WIDTH, DURATION_WIDTH, PERCENT_WIDTH, bar, count, duration, head, percent, rate, short_place, tail,
    width,
};

/// A set bit of the parked bitmap: the worker is parked and no waker has claimed it.
pub const LAMP_PARKED: char = '○';
/// A clear bit of the parked bitmap.
pub const LAMP_AWAKE: char = '●';
/// [`LAMP_PARKED`] for a spare worker.
pub const SPARE_PARKED: char = '◇';
/// [`LAMP_AWAKE`] for a spare worker.
pub const SPARE_AWAKE: char = '◆';
/// The widths of a bar and of the figure next to it: a ring of 256 and a budget of 128.
const BAR_WIDTH: usize = 6;
const FIGURE_WIDTH: usize = 3;
/// The smallest width of the column of the workers' numbers.
const INDEX_WIDTH: usize = 3;
/// The width of a worker's lamp and state.
const STATE_WIDTH: usize = 1 + "maintenance".len();
/// The unit of a rate.
const PER_SECOND: &str = "/s";

/// One worker in the table.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Its numbers.
    pub worker: &'a Worker,
    /// The rates between the last two snapshots.
    pub rates: Option<&'a WorkerRates>,
    /// The limits for the numbers.
    pub config: &'a Config,
    /// Its bit in the parked bitmap.
    pub is_parked: bool,
    /// Whether counters show totals since the runtime started instead of rates per second.
    pub shows_totals: bool,
}

impl<'a> Row<'a> {
    /// Returns the row of worker `index`.
    pub fn of(scene: &Scene<'a>, index: usize, shows_totals: bool) -> Option<Row<'a>> {
        let worker = scene.snapshot.workers.get(index)?;
        Some(Row {
            worker,
            rates: scene.worker_rates(index),
            config: &scene.snapshot.config,
            is_parked: scene.snapshot.is_parked(index),
            shows_totals,
        })
    }
}

/// One column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The title that it shares with its neighbours; empty if there is none.
    pub group: &'static str,
    /// The largest width of its values.
    pub width: usize,
    /// The alignment of its values.
    pub align: Align,
    /// The order in which columns are added: lower ranks first, and columns of one rank together.
    pub rank: u8,
    title: Title,
    content: Content,
}

#[derive(Clone, Copy, Debug)]
enum Title {
    Fixed(&'static str),
    /// The title of a counter without a group; ends in `/s` if the column shows rates.
    Counter(&'static str),
    /// A title with the limit that applies to the column's figures.
    Of(fn(&Config) -> String),
}

/// The content of a column.
#[derive(Clone, Copy, Debug)]
enum Content {
    Cell(fn(&Row<'_>) -> Cell),
    State,
    Share(fn(&WorkerRates) -> f64),
    /// The total since the runtime started, and the rate per second.
    Counter(fn(&Worker) -> u64, fn(&WorkerRates) -> f64),
}

/// Columns from this rank on are shown only if the poll in flight has ample room.
const RANK_OF_EXTRAS: u8 = 4;

/// Every column, from left to right. That of the number may be too narrow: see [`columns`].
pub const COLUMNS: &[Column] = &[
    figure("", "#", INDEX_WIDTH, 0, index),
    Column { align: Align::Left, content: Content::State, ..figure("", "state", STATE_WIDTH, 0, |_| Cell::new("")) },
    figure("", "since", DURATION_WIDTH, 7, |row| Cell::new(duration(row.worker.phase_for_ns))),
    share("", "busy", 0, |rates| rates.shares.busy_ratio),
    share("time", "search", 8, |rates| rates.shares.searching_ratio),
    share("time", "parked", 8, |rates| rates.shares.parked_ratio),
    share("time", "driver", 8, |rates| rates.shares.driver_ratio),
    share("time", "maintenance", 8, |rates| rates.shares.maintenance_ratio),
    figure("queue", "lifo", 4, 1, |row| Cell::new(u8::from(row.worker.is_lifo_filled).to_string())),
    figure("queue", "batch", COUNT_WIDTH, 0, |row| Cell::new(count(row.worker.batch_len.into()))),
    gauge("queue", |config| format!("ring/{}", config.local_queue_capacity), ring),
    gauge("budget", |config| format!("budget/{}", config.budget_per_tick), budget),
    counter("budget", "yields", 6, |worker| worker.coop_yields, |rates| rates.coop_yields_per_second),
    figure("", "avg poll", DURATION_WIDTH, 0, |row| Cell::new(duration(row.worker.avg_poll_ns))),
    figure("", "global check", "every 255 polls".len(), 6, |row| Cell::new(global_check(row.worker))),
    counter("", "polls", 2, |worker| worker.polls, |rates| rates.polls_per_second),
    counter("lifo slot", "hits", 5, |worker| worker.lifo_hits, |rates| rates.lifo_hits_per_second),
    counter("lifo slot", "evicted", 5, |worker| worker.lifo_evictions, |rates| rates.lifo_evictions_per_second),
    counter("lifo slot", "flushed", 6, |worker| worker.lifo_cap_flushes, |rates| rates.lifo_cap_flushes_per_second),
    counter("steals", "tries", 3, |worker| worker.steal_attempts, |rates| rates.steal_attempts_per_second),
    counter("steals", "ok", 3, |worker| worker.steals, |rates| rates.steals_per_second),
    counter("steals", "races lost", 6, |worker| worker.steal_races_lost, |rates| rates.steal_races_lost_per_second),
    counter("tasks", "stolen", 3, |worker| worker.tasks_stolen, |rates| rates.tasks_stolen_per_second),
    counter("tasks", "given", 3, |worker| worker.tasks_given, |rates| rates.tasks_given_per_second),
    counter("", "parks", 4, |worker| worker.parks, |rates| rates.parks_per_second),
    counter("unparks", "notified", 4, |worker| worker.unparks.notified, |rates| rates.unparks_per_second.notified),
    counter("unparks", "io", 4, |worker| worker.unparks.io, |rates| rates.unparks_per_second.io),
    counter("unparks", "timer", 4, |worker| worker.unparks.timer, |rates| rates.unparks_per_second.timer),
    counter("unparks", "timed out", 4, |worker| worker.unparks.timeout, |rates| rates.unparks_per_second.timeout),
    counter("unparks", "spurious", 4, |worker| worker.unparks.spurious, |rates| rates.unparks_per_second.spurious),
];

const fn figure(
    group: &'static str,
    title: &'static str,
    width: usize,
    rank: u8,
    cell: fn(&Row<'_>) -> Cell,
) -> Column {
    let width = widest(title, width);
    Column { group, width, align: Align::Right, rank, title: Title::Fixed(title), content: Content::Cell(cell) }
}

/// Returns the width of a column with this title, whose values have at most `width` columns.
const fn widest(title: &str, width: usize) -> usize {
    if title.len() > width { title.len() } else { width }
}

const fn share(group: &'static str, title: &'static str, rank: u8, of: fn(&WorkerRates) -> f64) -> Column {
    let (width, title) = (widest(title, PERCENT_WIDTH), Title::Fixed(title));
    Column { group, width, align: Align::Right, rank, title, content: Content::Share(of) }
}

const fn gauge(group: &'static str, title: fn(&Config) -> String, cell: fn(&Row<'_>) -> Cell) -> Column {
    let width = BAR_WIDTH + 1 + FIGURE_WIDTH;
    Column { group, width, align: Align::Left, rank: 0, title: Title::Of(title), content: Content::Cell(cell) }
}

const fn counter(
    group: &'static str,
    title: &'static str,
    rank: u8,
    total: fn(&Worker) -> u64,
    per_second: fn(&WorkerRates) -> f64,
) -> Column {
    let width = widest(title, COUNT_WIDTH);
    let (width, title) =
        if group.is_empty() { (width + PER_SECOND.len(), Title::Counter(title)) } else { (width, Title::Fixed(title)) };
    Column { group, width, align: Align::Right, rank, title, content: Content::Counter(total, per_second) }
}

/// The title of the rest of the line.
pub const IN_FLIGHT_TITLE: &str = "in flight";
/// The smallest width for the rest of the line.
const IN_FLIGHT_MIN: usize = 17;
/// The width that the rest of the line needs before extra columns are added.
const IN_FLIGHT_COMFORT: usize = 36;

/// Returns every column of a table of these workers: that of the number is as wide as the widest.
pub fn columns(workers: &[Worker]) -> Vec<Column> {
    let mut columns = COLUMNS.to_vec();
    let widest = workers.iter().map(|worker| width(&number(worker))).max().unwrap_or(0);
    columns[0].width = widest.max(INDEX_WIDTH);
    columns
}

/// Returns those of `all` columns for a line of `line_width`, and the width left for the poll in
/// flight.
///
/// One space separates two columns.
pub fn fitting(all: &[Column], line_width: usize) -> (Vec<&Column>, usize) {
    let mut chosen = vec![false; all.len()];
    let mut used = 0;
    for rank in 0..=u8::MAX {
        let of_rank = || all.iter().enumerate().filter(|(_, column)| column.rank == rank);
        let needed: usize = of_rank().map(|(_, column)| column.width + 1).sum();
        let rest = if rank < RANK_OF_EXTRAS { IN_FLIGHT_MIN } else { IN_FLIGHT_COMFORT };
        if rank == 0 || used + needed + rest <= line_width {
            used += needed;
            of_rank().for_each(|(index, _)| chosen[index] = true);
        }
    }
    let columns = all.iter().zip(chosen).filter_map(|(column, is_chosen)| is_chosen.then_some(column)).collect();
    (columns, line_width.saturating_sub(used))
}

/// Formats the titles that neighbouring columns share, each above its columns.
pub fn group_titles(columns: &[&Column]) -> String {
    let mut text = String::new();
    for group in columns.chunk_by(|a, b| a.group == b.group) {
        let columns = group.iter().map(|column| column.width + 1).sum::<usize>() - 1;
        let name = group[0].group;
        let rule = if name.is_empty() { " ".repeat(columns) } else { format!("{name} {}", "─".repeat(columns)) };
        text.extend(rule.chars().take(columns).chain([' ']));
    }
    text
}

impl Column {
    /// Returns the column's title. Counters without a group have the unit of rates unless
    /// `shows_totals`.
    pub fn title(&self, config: &Config, shows_totals: bool) -> String {
        match self.title {
            Title::Counter(title) if !shows_totals => format!("{title}{PER_SECOND}"),
            Title::Fixed(title) | Title::Counter(title) => title.into(),
            Title::Of(title) => title(config),
        }
    }

    /// Returns the cell of a worker.
    pub fn cell(&self, row: &Row<'_>) -> Cell {
        let of_rates = |figure: fn(f64) -> String, of: fn(&WorkerRates) -> f64| {
            Cell::new(row.rates.map_or_else(|| ABSENT.into(), |rates| figure(of(rates))))
        };
        match self.content {
            Content::Cell(cell) => cell(row),
            Content::State => state(row),
            Content::Share(of) => of_rates(percent, of),
            Content::Counter(total, _) if row.shows_totals => Cell::new(count(total(row.worker))),
            Content::Counter(_, per_second) => of_rates(rate, per_second),
        }
    }

    /// Returns whether it shows the worker's phase, whose colour it then has.
    pub fn shows_phase(&self) -> bool {
        matches!(self.content, Content::State)
    }

    /// Returns whether it is a counter, with a total and a rate.
    pub fn is_counter(&self) -> bool {
        matches!(self.content, Content::Counter(..))
    }

    /// Aligns `text` in this column.
    pub fn set(&self, text: &str) -> String {
        self.align.set(text, self.width)
    }
}

/// Returns the lamp of a worker, from its bit in the parked bitmap and whether it is a spare.
pub fn lamp(worker: &Worker, is_parked: bool) -> char {
    match (worker.is_spare, is_parked) {
        (false, true) => LAMP_PARKED,
        (false, false) => LAMP_AWAKE,
        (true, true) => SPARE_PARKED,
        (true, false) => SPARE_AWAKE,
    }
}

fn state(row: &Row<'_>) -> Cell {
    let cell = Cell::new(format!("{}{}", lamp(row.worker, row.is_parked), state_word(row.worker)));
    match row.worker.duty {
        // The word itself is the mark.
        Duty::Stuck => Cell { tone: Tone::Alarm, ..cell },
        _ => cell.quiet_if(row.is_parked),
    }
}

fn index(row: &Row<'_>) -> Cell {
    Cell::new(number(row.worker)).plain()
}

/// Returns the worker's number, with an `s` for a spare.
fn number(worker: &Worker) -> String {
    format!("{}{}", if worker.is_spare { "s" } else { "" }, worker.index)
}

fn ring(row: &Row<'_>) -> Cell {
    let len = row.worker.ring_len;
    bar_and_figure(len, row.config.local_queue_capacity).quiet_if(len == 0)
}

fn budget(row: &Row<'_>) -> Cell {
    bar_and_figure(row.worker.budget_left, row.config.budget_per_tick)
}

fn bar_and_figure(part: u32, whole: u32) -> Cell {
    let ratio = if whole == 0 { 0.0 } else { f64::from(part) / f64::from(whole) };
    let figure = count(part.into());
    // A ring may have 32,768 entries: a wider figure shortens the bar.
    let bar = bar(ratio, BAR_WIDTH - width(&figure).saturating_sub(FIGURE_WIDTH));
    Cell::new(format!("{bar} {figure:>FIGURE_WIDTH$}"))
}

/// Formats the poll in flight in at most `columns`: its duration, task and location.
pub fn in_flight(poll: Option<&InFlight>, columns: usize) -> Cell {
    let Some(poll) = poll else { return Cell::new(ABSENT) };
    let tone = Tone::of_duration(poll.for_ns);
    let how_long = format!("{:>DURATION_WIDTH$}{:<2} ", duration(poll.for_ns), tone.mark());
    let rest = columns.saturating_sub(width(&how_long));
    let id = format!("#{}", poll.task_id);
    let task = match poll.name() {
        Some(name) if width(name) + 1 + width(&id) <= rest / 2 => format!("{name} {id}"),
        Some(name) => {
            let place = width(short_place(&poll.spawned_at)) + 1;
            let beside_place = rest.saturating_sub(place);
            // Half of the name with the location is better than the whole name without it.
            head(name, if beside_place * 2 >= width(name) { beside_place } else { rest })
        }
        None => id,
    };
    let rest = rest.saturating_sub(width(&task) + 1);
    let place = match rest {
        0..8 => String::new(),
        _ if width(&poll.spawned_at) <= rest => format!(" {}", poll.spawned_at),
        _ => format!(" {}", tail(short_place(&poll.spawned_at), rest)),
    };
    Cell { text: format!("{how_long}{task}{place}"), tone }
}

#[cfg(test)]
mod tests {
    use volt_telemetry::snapshot::Phase;

    use super::*;

    fn row<'a>(worker: &'a Worker, config: &'a Config) -> Row<'a> {
        Row { worker, rates: None, config, is_parked: false, shows_totals: true }
    }

    #[test]
    fn the_narrowest_screen_shows_rank_zero_and_the_task_in_flight() {
        let workers = [false, true].map(|is_spare| Worker { index: 1023, is_spare, ..Worker::default() });
        let all = columns(&workers);
        let (columns, rest) = fitting(&all, 79);
        let config = Config { budget_per_tick: 128, local_queue_capacity: 256, ..Config::default() };
        let titles: Vec<_> = columns.iter().map(|column| column.title(&config, false)).collect();
        assert_eq!(titles, ["#", "state", "busy", "batch", "ring/256", "budget/128", "avg poll"]);
        assert!(rest >= IN_FLIGHT_MIN, "{rest}");
    }

    #[test]
    fn every_state_is_a_whole_word_in_its_column() {
        let (config, column) = (Config::default(), &COLUMNS[1]);
        let phases = [Phase::Stopped, Phase::Busy, Phase::Searching, Phase::Parked, Phase::Driver, Phase::Maintenance];
        let workers = phases.map(|phase| Worker { phase, ..Worker::default() });
        let duties = [Duty::Stuck, Duty::Blocking].map(|duty| Worker { duty, ..Worker::default() });
        let states: Vec<String> = workers
            .iter()
            .chain(&duties)
            .map(|worker| {
                let cell = column.cell(&row(worker, &config));
                assert_eq!(column.set(&cell.text).trim_end(), cell.text, "it is not cut");
                cell.text.trim_start_matches(LAMP_AWAKE).to_owned()
            })
            .collect();
        let words = ["stopped", "busy", "search", "parked", "driver", "maintenance", "stuck", "blocking"];
        assert_eq!(states, words);
    }

    #[test]
    fn the_wide_screen_shows_counters_and_spawn_locations() {
        let (columns, rest) = fitting(COLUMNS, 198);
        let shown = |group| columns.iter().filter(|column| column.group == group && column.is_counter()).count();
        assert_eq!([shown("steals"), shown("tasks"), shown("unparks"), shown("lifo slot")], [2, 2, 5, 2]);
        assert!(rest >= IN_FLIGHT_COMFORT, "{rest}");
    }

    #[test]
    fn titles_are_words_and_fit_their_columns() {
        let config = Config { budget_per_tick: 128, local_queue_capacity: 256, ..Config::default() };
        for column in COLUMNS {
            for title in [column.title(&config, false), column.title(&config, true)] {
                assert!(width(&title) <= column.width, "{title}");
                let short = ["#", "state", "since", "busy", "lifo", "ok", "io", "hits"];
                let is_word = title.chars().filter(|c| c.is_alphabetic()).count() >= 5;
                assert!(short.contains(&title.as_str()) || is_word || title.contains('/'), "{title}");
                assert!(!title.contains('.'), "no abbreviation: {title}");
            }
        }
        let parks = COLUMNS.iter().find(|column| column.title(&config, true) == "parks").unwrap();
        assert_eq!(parks.title(&config, false), "parks/s");
    }

    #[test]
    fn columns_of_one_rank_appear_and_disappear_together() {
        for line_width in 70..260 {
            let (columns, _) = fitting(COLUMNS, line_width);
            for rank in 0..10 {
                let shown = columns.iter().filter(|column| column.rank == rank).count();
                let all = COLUMNS.iter().filter(|column| column.rank == rank).count();
                assert!(shown == 0 || shown == all, "rank {rank} at {line_width}");
            }
        }
    }

    #[test]
    fn no_value_is_wider_than_its_column() {
        let many = u64::MAX / 2;
        let worker = Worker {
            index: 1023,
            is_spare: true,
            phase_for_ns: many,
            polls: many,
            coop_yields: many,
            lifo_hits: many,
            steal_attempts: many,
            parks: many,
            avg_poll_ns: many,
            global_queue_interval: 255,
            batch_len: 32,
            ring_len: 32_768,
            budget_left: 10_000,
            is_lifo_filled: true,
            ..Worker::default()
        };
        let config = Config { budget_per_tick: 10_000, local_queue_capacity: 32_768, ..Config::default() };
        for column in columns(std::slice::from_ref(&worker)) {
            let cell = column.cell(&row(&worker, &config));
            assert!(width(&cell.text) <= column.width, "{}: {}", column.title(&config, false), cell.text);
        }
    }

    #[test]
    fn a_lamp_shows_the_bit_and_the_word_shows_the_phase() {
        let (worker, config) = (Worker { phase: Phase::Parked, ..Worker::default() }, Config::default());
        let claimed = row(&worker, &config);
        assert_eq!(state(&claimed).text, "●parked", "claimed, and not yet awake");
        assert_eq!(state(&Row { is_parked: true, ..claimed }).text, "○parked");
    }

    #[test]
    fn spares_and_absent_workers_are_marked_in_the_worker_table() {
        let config = Config::default();
        let worker = |duty, is_spare| Worker { index: 7, phase: Phase::Busy, duty, is_spare, ..Worker::default() };
        let text = |worker: &Worker| {
            let row = row(worker, &config);
            format!("{} {}", index(&row).text, state(&row).text)
        };
        assert_eq!(text(&worker(Duty::Present, false)), "7 ●busy");
        assert_eq!(text(&worker(Duty::Stuck, false)), "7 ●stuck");
        assert_eq!(text(&worker(Duty::Blocking, false)), "7 ●blocking");
        assert_eq!(text(&worker(Duty::Present, true)), "s7 ◆busy");
        let many = Worker { index: 1023, ..worker(Duty::Present, true) };
        assert_eq!(text(&many), "s1023 ◆busy");
        let widths = [&[][..], &[worker(Duty::Present, true)], &[many]].map(|workers| columns(workers)[0].width);
        assert_eq!(widths, [3, 3, 5], "the column grows with the numbers");
    }

    #[test]
    fn the_in_flight_column_fits_its_fields_to_the_width() {
        let poll = InFlight {
            task_id: 1234,
            task_name: Some("slow-handler".into()),
            spawned_at: "examples/src/bin/demo.rs:12:5".into(),
            for_ns: 250_000_000,
            ..InFlight::default()
        };
        assert_eq!(in_flight(Some(&poll), 21).text, " 250ms!! slow-handler");
        assert_eq!(in_flight(Some(&poll), 60).text, " 250ms!! slow-handler #1234 examples/src/bin/demo.rs:12:5");
        let unnamed = InFlight { task_name: None, for_ns: 1_500, ..poll.clone() };
        assert_eq!(in_flight(Some(&unnamed), 26).text, " 1.5µs   #1234 demo.rs:12");
        let handled = InFlight { route: Some("GET /users/{id}".into()), ..poll };
        assert_eq!(in_flight(Some(&handled), 44).text, " 250ms!! GET /users/{id} demo.rs:12");
        assert_eq!(in_flight(None, 20).text, "-");
        for columns in 0..80 {
            assert!(width(&in_flight(Some(&unnamed), columns).text) <= columns.max(15), "{columns}");
        }
    }
}
