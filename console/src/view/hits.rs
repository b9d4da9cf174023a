//! The clickable areas of the last frame, for the mouse.
//!
//! The view adds them while it draws. [`input`](crate::terminal::input) searches them when a mouse
//! button is pressed. The size of the screen limits them: one entry for each tab and each row.

use ratatui::layout::{Position, Rect};

use crate::model::Action;

/// The clickable areas of one frame, each with the action of a click.
#[derive(Clone, Debug, Default)]
pub struct Hits(Vec<(Rect, Action)>);

impl Hits {
    /// Makes a click into `area` perform `action`. Areas that are added later are on top.
    pub fn add(&mut self, area: Rect, action: Action) {
        self.0.push((area, action));
    }

    /// Removes all areas, for example for a screen that covers everything.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the action for a click at this position.
    pub fn at(&self, column: u16, row: u16) -> Option<Action> {
        let here = Position { x: column, y: row };
        self.0.iter().rev().find(|(area, _)| area.contains(here)).map(|(_, action)| *action)
    }
}
