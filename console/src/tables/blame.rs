//! The blame table: how the tasks of each spawn location have delayed others.
//!
//! Independent of the terminal. Used by [`view`](crate::view) and [`top`](crate::commands::top).
//!
//! Invariants. *A figure is never cut*: a column is as wide as its widest value, and as its title
//! with the arrow of the order. *Equal rows keep one order*, by name, so that rows do not jump.

use std::cmp::Ordering;

use volt_diagnosis::rates::LocationRates;
use volt_telemetry::incident::Blame;

use crate::facts::{Scene, Tone};
use crate::tables::cell::Cell;
use crate::text::figures::{ABSENT, COUNT_WIDTH, DURATION_WIDTH, count, duration, rate};

/// One spawn location.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The counts since the runtime started.
    pub blame: &'a Blame,
    /// The rates between the last two snapshots; `None` after the first.
    pub rates: Option<&'a LocationRates>,
}

/// One column. The table can be sorted by each.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The title.
    pub title: &'static str,
    /// The largest width of its values.
    pub width: usize,
    /// Whether only a wide screen shows it.
    pub is_extra: bool,
    content: Content,
    meaning: Meaning,
}

#[derive(Clone, Copy, Debug)]
enum Content {
    Time(fn(&Blame) -> u64),
    Count(fn(&Blame) -> u64),
    Known(fn(&Blame) -> Option<u64>),
    Now(fn(&LocationRates) -> f64),
}

/// The meaning of a value above 0.
#[derive(Clone, Copy, Debug)]
enum Meaning {
    Nothing,
    Fault,
    Length,
}

/// Every column, from left to right; the location follows.
pub const COLUMNS: [Column; 9] = [
    column("caused", DURATION_WIDTH, Content::Time(|blame| blame.delay_caused_ns)),
    column("now", COUNT_WIDTH, Content::Now(|rates| rates.delayed_by_it)),
    column("suffered", DURATION_WIDTH, Content::Time(|blame| blame.delay_suffered_ns)),
    Column { meaning: Meaning::Fault, ..column("stuck", COUNT_WIDTH, Content::Count(|blame| blame.stalls)) },
    Column {
        meaning: Meaning::Length,
        ..column("longest", DURATION_WIDTH, Content::Time(|blame| blame.longest_poll_ns))
    },
    column("busy", DURATION_WIDTH, Content::Time(|blame| blame.busy_ns)),
    column("polls", COUNT_WIDTH, Content::Count(|blame| blame.polls)),
    Column { is_extra: true, ..column("alive", COUNT_WIDTH, Content::Known(|blame| blame.alive)) },
    Column {
        is_extra: true,
        meaning: Meaning::Fault,
        ..column("stranded", COUNT_WIDTH, Content::Known(|blame| blame.stranded))
    },
];

const fn column(title: &'static str, width: usize, content: Content) -> Column {
    Column { title, width, is_extra: false, content, meaning: Meaning::Nothing }
}

/// The title of the location, by which rows can be sorted too.
pub const LOCATION_TITLE: &str = "spawned at";
/// The number of sort orders: the columns, and the location.
pub const ORDERS: usize = COLUMNS.len() + 1;

/// Returns the rows of `scene` sorted by column `order`, the largest first, or by location if
/// `order` is past the last column. `is_inverted` reverses the order.
pub fn rows<'a>(scene: &Scene<'a>, order: usize, is_inverted: bool) -> Vec<Row<'a>> {
    let rates = scene.rates.map_or(&[][..], |rates| &rates.locations);
    let row = |(index, blame): (usize, &'a Blame)| Row { blame, rates: rates.get(index) };
    let mut rows: Vec<Row<'a>> = scene.snapshot.blame.iter().enumerate().map(row).collect();
    rows.sort_by(|a, b| {
        let by_name = a.blame.spawned_at.cmp(&b.blame.spawned_at);
        let first = match COLUMNS.get(order) {
            Some(column) => Weight(column.weight(b).unwrap_or(-1.0)).cmp(&Weight(column.weight(a).unwrap_or(-1.0))),
            None => by_name,
        };
        let first = if is_inverted { first.reverse() } else { first };
        first.then(by_name)
    });
    rows
}

impl Column {
    /// Returns the cell of a location.
    pub fn cell(&self, row: &Row<'_>) -> Cell {
        let weight = self.weight(row);
        let text = match (self.content, weight) {
            (_, None) => ABSENT.into(),
            (Content::Time(of), _) => duration(of(row.blame)),
            (Content::Count(of), _) => count(of(row.blame)),
            (Content::Known(_), Some(n)) => count(n as u64),
            (Content::Now(_), Some(tasks)) => rate(tasks),
        };
        let tone = match (self.meaning, weight.unwrap_or(0.0)) {
            (_, nothing) if nothing <= 0.0 => Tone::Quiet,
            (Meaning::Nothing, _) => Tone::Plain,
            (Meaning::Fault, _) => Tone::Warn,
            (Meaning::Length, ns) => Tone::of_duration(ns as u64),
        };
        Cell { text: format!("{text}{}", tone.mark()), tone }
    }

    /// Returns its width on a terminal: its values with their marks, and its title with the arrow
    /// of the order.
    pub fn full_width(&self) -> usize {
        let mark = match self.meaning {
            Meaning::Nothing => 0,
            Meaning::Fault => 1,
            Meaning::Length => 2,
        };
        (self.width + mark).max(self.title.len() + 1)
    }

    /// Returns the number to sort by; `None` if there is none.
    fn weight(&self, row: &Row<'_>) -> Option<f64> {
        match self.content {
            Content::Time(of) | Content::Count(of) => Some(of(row.blame) as f64),
            Content::Known(of) => of(row.blame).map(|n| n as f64),
            Content::Now(of) => row.rates.map(of),
        }
    }
}

/// A number with a total order.
#[derive(PartialEq)]
struct Weight(f64);

impl Eq for Weight {}

impl PartialOrd for Weight {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Weight {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

#[cfg(test)]
mod tests {
    use volt_diagnosis::rates::Rates;
    use volt_telemetry::snapshot::Snapshot;

    use super::*;
    use crate::text::figures::width;

    fn blame(at: &str, caused_ns: u64, polls: u64) -> Blame {
        Blame { spawned_at: at.into(), delay_caused_ns: caused_ns, polls, ..Blame::default() }
    }

    fn order(snapshot: &Snapshot, rates: Option<&Rates>, order: usize, is_inverted: bool) -> Vec<String> {
        let scene = Scene { snapshot, rates };
        rows(&scene, order, is_inverted).iter().map(|row| row.blame.spawned_at.clone()).collect()
    }

    fn column_of(title: &str) -> usize {
        COLUMNS.iter().position(|column| column.title == title).unwrap()
    }

    #[test]
    fn rows_are_sorted_by_any_column_and_equals_by_name() {
        let table = vec![blame("b", 5, 1), blame("c", 7, 9), blame("a", 5, 2)];
        let snapshot = Snapshot { blame: table, ..Snapshot::default() };
        assert_eq!(order(&snapshot, None, 0, false), ["c", "a", "b"]);
        assert_eq!(order(&snapshot, None, 0, true), ["a", "b", "c"], "equals keep their order");
        assert_eq!(order(&snapshot, None, column_of("polls"), false), ["c", "a", "b"]);
        assert_eq!(order(&snapshot, None, column_of("alive"), false), ["a", "b", "c"], "nobody counts them");
        assert_eq!(order(&snapshot, None, COLUMNS.len(), false), ["a", "b", "c"]);
        assert_eq!(order(&snapshot, None, COLUMNS.len(), true), ["c", "b", "a"]);
    }

    #[test]
    fn two_snapshots_show_which_tasks_delay_others_now() {
        let earlier = Snapshot { blame: vec![blame("old", 9_000, 1), blame("new", 0, 1)], ..Snapshot::default() };
        let table = vec![blame("old", 9_000, 1), blame("new", 2_000, 1)];
        let later = Snapshot { at_ns: 1_000, blame: table, ..Snapshot::default() };
        let rates = Rates::between(&earlier, &later);
        assert_eq!(order(&later, rates.as_ref(), column_of("caused"), false), ["old", "new"]);
        assert_eq!(order(&later, rates.as_ref(), column_of("now"), false), ["new", "old"]);
        let scene = Scene { snapshot: &later, rates: rates.as_ref() };
        let row = &rows(&scene, column_of("now"), false)[0];
        assert_eq!(COLUMNS[column_of("now")].cell(row).text, "2.0", "two tasks at a time");
        assert_eq!(COLUMNS[column_of("now")].cell(&Row { rates: None, ..*row }).text, "-");
    }

    #[test]
    fn values_fit_their_column_and_problems_are_marked() {
        let many = u64::MAX / 2;
        let (known, caused) = (Some(many), many);
        let blame =
            Blame { stalls: many, longest_poll_ns: many, alive: known, stranded: known, ..blame("a", caused, many) };
        let rates = LocationRates { delayed_by_it: 1e18, ..LocationRates::default() };
        let row = Row { blame: &blame, rates: Some(&rates) };
        for column in COLUMNS {
            let cell = column.cell(&row);
            assert!(width(&cell.text) <= column.full_width(), "{}: {}", column.title, cell.text);
            let is_marked = matches!(column.meaning, Meaning::Fault | Meaning::Length);
            assert_eq!(cell.text.ends_with('!'), is_marked, "{}", column.title);
        }
    }
}
