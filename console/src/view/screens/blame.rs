//! The blame screen: the spawn locations in a sorted table, and below it the facts about the
//! selected one.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::facts::Scene;
use crate::facts::incidents::latest;
use crate::model::Model;
use crate::tables::blame::{COLUMNS, LOCATION_TITLE};
use crate::text::figures::{head, tail};
use crate::view::hits::Hits;
use crate::view::parts::grouped::{self, Table};
use crate::view::parts::layout::{self, TITLE_WIDTH};
use crate::view::theme::Theme;

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, scene: &Scene<'_>, theme: Theme, hits: &mut Hits) {
    let rows = model.blame_rows();
    let table = Table {
        rows: &rows,
        columns: &COLUMNS,
        title: LOCATION_TITLE,
        name: |blame: &volt_telemetry::Blame| blame.spawned_at.clone(),
        empty: "No task has been polled yet.",
        filtered: "No spawn location matches the filter; Esc shows all.",
    };
    let foot = |row: &crate::tables::blame::Row<'_>, columns: usize| {
        let room = columns.saturating_sub(TITLE_WIDTH + 1);
        let fact = |title: &str, text: &str| Line::from(vec![layout::title(title, theme), Span::raw(head(text, room))]);
        let spawned_at = &row.item.spawned_at;
        let incident = latest(scene.snapshot, |incident| incident.spawned_at == *spawned_at);
        let meaning = [
            "caused: delay of other tasks by polls of these   now: tasks delayed at a time",
            "suffered: delay of these by others   stuck: stuck polls   stranded: no waker",
        ];
        let meaning = meaning.map(|text| Line::styled(format!(" {text}"), theme.label()));
        [fact("tasks of", &tail(spawned_at, room)), fact("incident", &incident)].into_iter().chain(meaning).collect()
    };
    grouped::draw(frame, area, model, &table, foot, (theme, hits));
}
