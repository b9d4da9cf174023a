//! Draws a page of the help, which explains the current screen and its keys.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Clear};

use crate::model::Model;
use crate::model::help::{LINE_WIDTH, PAGE_LINES, pages};
use crate::view::theme::Theme;

/// The width of the frame and of the space inside it.
const FRAME_WIDTH: u16 = 4;

/// Draws page `page` of the help in the middle of `area`.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, page: usize, theme: Theme) {
    let pages = pages(model.screen, model.played.is_some());
    let page = page.min(pages.len() - 1);
    // With a margin of a few columns, parts of the screen below would show.
    let columns = if area.width < 90 { area.width } else { LINE_WIDTH as u16 + FRAME_WIDTH };
    // All pages have the same height, so that the frame stays where it is.
    let lines = (PAGE_LINES as u16 + 2).min(area.height);
    let x = area.x + (area.width - columns) / 2;
    let y = area.y + (area.height - lines) / 2;
    let area = Rect { x, y, width: columns, height: lines };
    frame.render_widget(Clear, area);
    let title = format!(" help: {}, page {} of {} ", model.screen.name(), page + 1, pages.len());
    let next = if page + 1 < pages.len() { " ? next page  Esc close " } else { " ? close " };
    let block = Block::bordered()
        .border_type(BorderType::Rounded)
        .title(Line::styled(title, theme.title()))
        .title(Line::styled(next, theme.title()).right_aligned());
    let inner = block.inner(area);
    frame.render_widget(block, area);
    for (row, text) in (inner.y..inner.bottom()).zip(&pages[page]) {
        // Titles of sections are not indented.
        let style = if text.starts_with(' ') { Style::default() } else { theme.title() };
        let line = Line::from(vec![Span::raw(" "), Span::styled(text.clone(), style)]);
        frame.render_widget(line, Rect { y: row, height: 1, ..inner });
    }
}
