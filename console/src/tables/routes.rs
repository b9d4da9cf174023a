//! The table of HTTP routes: how many requests each has, how long they take, and what they cost.

use volt_diagnosis::rates::RouteRates;
use volt_telemetry::routes::Route;

use crate::facts::Scene;
use crate::tables::grouped::{self, Content, Meaning, column};
use crate::text::figures::{COUNT_WIDTH, DURATION_WIDTH};

/// One route.
pub type Row<'a> = grouped::Row<'a, Route, RouteRates>;
type Column = grouped::Column<Route, RouteRates>;

/// Every column, from left to right; the route follows.
pub static COLUMNS: [Column; 9] = [
    column("req/s", COUNT_WIDTH, Content::Now(|rates| rates.requests_per_second)),
    column("active", COUNT_WIDTH, Content::Count(|route| route.active)),
    column("p50", DURATION_WIDTH, Content::KnownTime(|route| route.duration.quantile_ns(0.5))),
    column("p99", DURATION_WIDTH, Content::KnownTime(|route| route.duration.quantile_ns(0.99))),
    Column { meaning: Meaning::Fault, ..column("failed", COUNT_WIDTH, Content::Count(|route| route.failed)) },
    column("busy", DURATION_WIDTH, Content::Time(|route| route.busy_ns)),
    Column {
        meaning: Meaning::Length,
        ..column("longest", DURATION_WIDTH, Content::Time(|route| route.longest_poll_ns))
    },
    Column { is_extra: true, ..column("delay", DURATION_WIDTH, Content::Time(|route| route.delay_ns)) },
    Column { is_extra: true, ..column("abandoned", COUNT_WIDTH, Content::Count(|route| route.abandoned)) },
];

/// The title of the route, by which rows can be sorted too.
pub const ROUTE_TITLE: &str = "route";

/// Returns the rows of `scene` sorted by column `order`, the largest first, or by route if `order`
/// is past the last column. `is_inverted` reverses the order.
pub fn rows<'a>(scene: &Scene<'a>, order: usize, is_inverted: bool) -> Vec<Row<'a>> {
    let rates = scene.rates.map_or(&[][..], |rates| &rates.routes);
    let by_name = |route: &'a Route| (&*route.path, &*route.method);
    grouped::rows(&scene.snapshot.routes, rates, &COLUMNS, by_name, (order, is_inverted))
}

#[cfg(test)]
mod tests {
    use volt_telemetry::Histogram;

    use super::*;
    use crate::text::figures::width;

    #[test]
    fn values_fit_their_column_and_problems_are_marked() {
        let many = u64::MAX / 2;
        let mut duration = Histogram::default();
        duration.record(many);
        let route = Route {
            duration,
            active: many,
            failed: many,
            abandoned: many,
            busy_ns: many,
            delay_ns: many,
            longest_poll_ns: many,
            ..Route::default()
        };
        let rates = RouteRates { requests_per_second: 1e18, ..RouteRates::default() };
        for (rates, route) in [(Some(&rates), &route), (None, &Route::default())] {
            for column in &COLUMNS {
                let cell = column.cell(&Row { item: route, rates });
                assert!(width(&cell.text) <= column.full_width(), "{}: {}", column.title, cell.text);
                let is_marked = route.failed > 0 && matches!(column.title, "failed" | "longest");
                assert_eq!(cell.text.ends_with('!'), is_marked, "{}", column.title);
            }
        }
    }
}
