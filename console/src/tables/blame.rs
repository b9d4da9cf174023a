//! The blame table: how the tasks of each spawn location have delayed others.

use volt_diagnosis::rates::LocationRates;
use volt_telemetry::dump::{DUMP_PLACE, is_of_dump};
use volt_telemetry::incident::Blame;

use crate::facts::Scene;
use crate::tables::grouped::{self, Content, Meaning, column};
use crate::text::figures::{COUNT_WIDTH, DURATION_WIDTH};

/// One spawn location.
pub type Row<'a> = grouped::Row<'a, Blame, LocationRates>;
type Column = grouped::Column<Blame, LocationRates>;

/// Every column, from left to right; the location follows.
pub static COLUMNS: [Column; 9] = [
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

/// The title of the location, by which rows can be sorted too.
pub const LOCATION_TITLE: &str = "spawned at";
/// The number of sort orders: the columns, and the location.
pub const ORDERS: usize = COLUMNS.len() + 1;

/// Returns the location as it is shown.
pub fn place(blame: &Blame) -> &str {
    if is_of_dump(&blame.spawned_at) { DUMP_PLACE } else { &blame.spawned_at }
}

/// Returns the rows of `scene` sorted by column `order`, the largest first, or by location if
/// `order` is past the last column. `is_inverted` reverses the order.
pub fn rows<'a>(scene: &Scene<'a>, order: usize, is_inverted: bool) -> Vec<Row<'a>> {
    let rates = scene.rates.map_or(&[][..], |rates| &rates.locations);
    grouped::rows(&scene.snapshot.blame, rates, &COLUMNS, |blame| (&blame.spawned_at, ""), (order, is_inverted))
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
        rows(&scene, order, is_inverted).iter().map(|row| row.item.spawned_at.clone()).collect()
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
    fn the_tasks_of_a_dump_are_named() {
        assert_eq!(place(&blame("runtime/core/src/task/details/dump.rs:12:60", 0, 1)), DUMP_PLACE);
        assert_eq!(place(&blame("src/main.rs:7:5", 0, 1)), "src/main.rs:7:5");
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
        let row = Row { item: &blame, rates: Some(&rates) };
        for column in &COLUMNS {
            let cell = column.cell(&row);
            assert!(width(&cell.text) <= column.full_width(), "{}: {}", column.title, cell.text);
            let is_marked = matches!(column.meaning, Meaning::Fault | Meaning::Length);
            assert_eq!(cell.text.ends_with('!'), is_marked, "{}", column.title);
        }
    }
}
