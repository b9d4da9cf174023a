//! The clickable areas of the last frame, for the mouse, and what its page keys do.
//!
//! The view adds them while it draws. [`input`](crate::terminal::input) searches them when a mouse
//! button is pressed. The size of the screen limits them: one entry for each tab and each row.

use ratatui::layout::{Position, Rect};

use crate::model::Action;

/// The clickable areas of one frame, each with the action of a click.
#[derive(Clone, Debug, Default)]
pub struct Hits {
    areas: Vec<(Rect, Action)>,
    has_pages: bool,
}

impl Hits {
    /// Makes a click into `area` perform `action`. Areas that are added later are on top.
    pub fn add(&mut self, area: Rect, action: Action) {
        self.areas.push((area, action));
    }

    /// Removes all areas, for example for a screen that covers everything.
    pub fn clear(&mut self) {
        self.areas.clear();
        self.has_pages = false;
    }

    /// Makes the page keys turn the pages of the selected row's text, which does not fit.
    pub fn add_pages(&mut self) {
        self.has_pages = true;
    }

    /// Returns whether the page keys turn pages, instead of moving over ten rows.
    pub fn has_pages(&self) -> bool {
        self.has_pages
    }

    /// Returns the action for a click at this position.
    pub fn at(&self, column: u16, row: u16) -> Option<Action> {
        let here = Position { x: column, y: row };
        self.areas.iter().rev().find(|(area, _)| area.contains(here)).map(|(_, action)| *action)
    }
}
