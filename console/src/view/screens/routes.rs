//! The routes screen: the HTTP routes in a sorted table, and below it the facts about the selected
//! one.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;

use crate::facts::Scene;
use crate::facts::incidents::latest;
use crate::model::Model;
use crate::tables::routes::{COLUMNS, ROUTE_TITLE};
use crate::text::figures::{count, duration, tail};
use crate::view::hits::Hits;
use crate::view::parts::grouped::{self, Table};
use crate::view::parts::layout::{TITLE_WIDTH, fact_lines};
use crate::view::theme::Theme;

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, scene: &Scene<'_>, theme: Theme, hits: &mut Hits) {
    let rows = model.route_rows();
    let table = Table {
        rows: &rows,
        columns: &COLUMNS,
        title: ROUTE_TITLE,
        name: volt_telemetry::routes::Route::name,
        empty: "No request has been counted. volt::axum::serve counts those of a Router.",
        filtered: "No route matches the filter; Esc shows all.",
    };
    let foot = |row: &crate::tables::routes::Row<'_>, columns: usize| {
        let room = columns.saturating_sub(TITLE_WIDTH + 1);
        let fact = |title: &str, text: &str| fact_lines(title, text, room, Style::default(), theme);
        let route = row.item;
        let mean = |ns: u64, requests: u64| ns.checked_div(requests).map_or("-".into(), duration);
        let begun = route.ended().saturating_add(route.active);
        let requests = format!(
            "{} succeeded, {} failed, {} abandoned",
            count(route.succeeded),
            count(route.failed),
            count(route.abandoned)
        );
        let each = format!(
            "{} to the response, {} in polls, {} delay",
            mean(route.duration.sum_ns(), route.duration.count()),
            mean(route.busy_ns, begun),
            mean(route.delay_ns, begun)
        );
        let name = route.name();
        let incident = latest(scene.snapshot, |incident| incident.route.as_ref() == Some(&name));
        let meaning = [
            "p50, p99: time to the response, without its body, since the runtime started",
            "failed: status 500 or above   busy: total time in polls   longest: longest poll",
        ];
        let meaning = meaning.map(|text| Line::styled(format!(" {text}"), theme.label()));
        let facts = [
            fact("route", &tail(&name, room)),
            fact("requests", &requests),
            fact("mean", &each),
            fact("incident", &incident),
        ];
        facts.into_iter().flatten().chain(meaning).collect()
    };
    grouped::draw(frame, area, model, &table, foot, (theme, hits));
}
