//! What lies where on the screen that was drawn last, for the mouse.
//!
//! The view writes it while it draws; [`input`](crate::terminal::input) reads it when a mouse
//! button goes down. Bounded by the screen: one entry for each tab and each row.

use ratatui::layout::{Position, Rect};

use crate::model::Action;

/// See the header of this file.
#[derive(Clone, Debug, Default)]
pub struct Hits(Vec<(Rect, Action)>);

impl Hits {
    /// `action` is what a click into `area` asks for; what is added later lies on top.
    pub fn add(&mut self, area: Rect, action: Action) {
        self.0.push((area, action));
    }

    /// A screen that covers everything.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// What a click there asks for.
    pub fn at(&self, column: u16, row: u16) -> Option<Action> {
        let here = Position { x: column, y: row };
        self.0.iter().rev().find(|(area, _)| area.contains(here)).map(|(_, action)| *action)
    }
}
