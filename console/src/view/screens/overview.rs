//! The overview: the runtime as a whole, its workers, and one of them in full.
//!
//! From top to bottom: the runtime; the longest poll, and the stuck polls if there were any; the
//! table of workers; the selected worker in full. On a narrow screen, the runtime has a line for
//! each group of facts; on a wide and high one, a row of panels. The remaining lines go to the
//! workers first, then to the distributions of times if there are panels, then to the curve of
//! polls. What is left stays blank below the selected worker. If there is too little room, the
//! longest poll is left out if the line of the stuck polls has it, and then the last lines of the
//! selected worker.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};

use crate::facts::Scene;
use crate::model::Model;
use crate::view::hits::Hits;
use crate::view::parts::detail;
use crate::view::parts::layout::rows;
use crate::view::parts::lines;
use crate::view::parts::panels;
use crate::view::parts::workers;
use crate::view::screens::incidents;
use crate::view::theme::Theme;

/// The smallest size at which the runtime is shown in panels.
const PANELS_FROM: (u16, u16) = (176, 36);

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, scene: &Scene<'_>, theme: Theme, hits: &mut Hits) {
    let has_panels = area.width >= PANELS_FROM.0 && frame.area().height >= PANELS_FROM.1;
    let (detail_min, detail_max) = match model.is_detail_open {
        true => detail::heights(scene, model.selected_worker, frame.area().height),
        false => (0, 0),
    };
    let least = if has_panels { panels::HEIGHT } else { lines::min_height(scene, area.width) };
    let table_wants = workers::wanted_height(model, area.width);
    let stalls = incidents::summary(scene, usize::from(area.width) - 1, theme);
    let stuck = u16::from(stalls.is_some());
    let is_full = least + 1 + stuck + detail_max + table_wants > area.height;
    let longest = u16::from(!is_full || !incidents::has_longest(scene));
    let lines = longest + stuck;
    let detail = area.height.saturating_sub(least + lines + table_wants).clamp(detail_min, detail_max);
    let spare = area.height.saturating_sub(least + lines + detail + table_wants);
    let fitting = panels::SPREAD_HEIGHTS.into_iter().find(|height| has_panels && *height <= spare);
    let spread = fitting.unwrap_or(0);
    let growth = if has_panels { panels::MAX_HEIGHT - panels::HEIGHT } else { lines::CURVE_MAX_HEIGHT - 1 };
    let summary = least + growth.min(spare - spread);
    let table = table_wants.min(area.height.saturating_sub(summary + spread + lines + detail));
    let [summary, middle, longest, stuck, table, detail] =
        [summary, spread, longest, stuck, table, detail].map(Constraint::Length);
    let [summary, middle, longest, stuck, table, detail, _] =
        rows(area, [summary, middle, longest, stuck, table, detail, Constraint::Fill(1)]);
    if has_panels {
        panels::draw(frame, summary, model, scene, theme);
        if spread > 0 {
            panels::draw_spread(frame, middle, scene, theme);
        }
    } else {
        lines::draw(frame, summary, model, scene, theme);
    }
    frame.render_widget(detail::longest_poll(scene, usize::from(area.width) - 1, theme), longest);
    frame.render_widget(stalls.unwrap_or_default(), stuck);
    workers::draw(frame, table, model, scene, theme, hits);
    if model.is_detail_open {
        detail::draw(frame, detail, model, scene, theme);
    }
}
