//! The blame screen: the spawn locations in a sorted table, and below it the facts about the
//! selected one.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;
use volt_telemetry::incident::MainAwait;

use crate::facts::Scene;
use crate::facts::incidents::latest;
use crate::model::Model;
use crate::tables::blame::{COLUMNS, LOCATION_TITLE, place};
use crate::text::awaits::awaited;
use crate::text::figures::tail;
use crate::view::hits::Hits;
use crate::view::parts::grouped::{self, Table};
use crate::view::parts::layout::{TITLE_WIDTH, fact_lines};
use crate::view::theme::Theme;

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, scene: &Scene<'_>, theme: Theme, hits: &mut Hits) {
    let rows = model.blame_rows();
    let table = Table {
        rows: &rows,
        columns: &COLUMNS,
        title: LOCATION_TITLE,
        name: |blame: &volt_telemetry::Blame| place(blame).to_owned(),
        empty: "No task has been polled yet.",
        filtered: "No spawn location matches the filter; Esc shows all.",
    };
    let foot = |row: &crate::tables::blame::Row<'_>, columns: usize| {
        let room = columns.saturating_sub(TITLE_WIDTH + 1);
        let fact = |title: &str, text: &str| fact_lines(title, text, room, Style::default(), theme);
        let spawned_at = &row.item.spawned_at;
        let incident = latest(scene.snapshot, |incident| incident.spawned_at == *spawned_at);
        let meaning = [
            "caused: delay of other tasks by polls of these   now: tasks delayed on average",
            "suffered: delay of these by others   stuck: stuck polls   stranded: no waker",
        ];
        let meaning = meaning.map(|text| Line::styled(format!(" {text}"), theme.label()));
        let awaits = row.item.main_await.as_ref().map(|main| {
            let MainAwait { awaits, awaits_at, tasks } = main;
            let alive = row.item.alive.unwrap_or(*tasks);
            // Of a task, the location is that of its spawn.
            let at = if awaits == "others" { format!(", spawned at {awaits_at}") } else { format!(" at {awaits_at}") };
            format!("{tasks} of {alive} tasks: {}{at}", awaited(awaits, None))
        });
        let awaits = awaits.map(|text| fact("await", &text));
        let facts = [fact("tasks of", &tail(spawned_at, room))].into_iter().chain(awaits);
        facts.chain([fact("incident", &incident)]).flatten().chain(meaning).collect()
    };
    grouped::draw(frame, area, model, &table, foot, (theme, hits));
}
