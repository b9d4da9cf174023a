//! `volt-console` without arguments, if several programs are running: a screen on which the user
//! selects one of them.
//!
//! # Protocol
//!
//! 1. A thread finds the programs and requests the state of each, at intervals. A stopped program
//!    takes seconds to time out, so the screen does not wait for it.
//! 2. The screen shows the last list. The selection follows its program, by the socket's path.
//! 3. Enter, or the digit of a row, attaches. If that fails, the reason is shown, and the list
//!    stays.
//!
//! Bound: one list at a time waits for the screen.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TrySendError, sync_channel};
use std::time::Duration;

use crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::{Line, Span};
use volt_telemetry::socket::Environment;

use crate::commands::attach::{Appearance, Ended, Signals, next_event};
use crate::error::Error;
use crate::programs::list::{self, Listing};
use crate::programs::target::{self, Found};
use crate::terminal::Terminal;
use crate::terminal::input::Keyboard;
use crate::text::clean;
use crate::text::figures::head;
use crate::view::ascii;
use crate::view::parts::layout::{draw_lines, rows, window};
use crate::view::theme::Theme;

/// The time between two lists.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long the loop waits for a key before it checks everything else.
const FRAME: Duration = Duration::from_millis(100);

/// The result of the screen.
#[derive(Debug)]
pub enum Picked {
    /// The program that the user selected.
    Program(Box<Found>),
    /// The user or a signal closed the screen.
    Left(Ended),
}

/// The action of a key.
#[derive(Debug, PartialEq, Eq)]
enum Choice {
    Nothing,
    Quit,
    /// Attach to the program in this row.
    Row(usize),
}

/// The state of the screen.
#[derive(Debug, Default)]
struct Picker {
    listing: Listing,
    /// The socket of the selected program; `None` means the first row.
    chosen: Option<PathBuf>,
    /// Why the last choice failed.
    error: Option<String>,
}

/// Shows the programs until the user selects one.
///
/// # Errors
///
/// Fails with an error of the terminal, or if no thread can be started.
pub fn choose(environment: &Environment) -> Result<Picked, Error> {
    let lists = lists(environment.clone())?;
    let signals = Signals::take(true).map_err(Error::terminal)?;
    let mut terminal = Terminal::enter(false).map_err(Error::terminal)?;
    let keyboard = Keyboard::listen().map_err(Error::thread)?;
    let theme = Appearance::default().theme();
    let mut picker = Picker::default();
    let mut is_changed = true;
    loop {
        if let Some(signal) = signals.received() {
            return Ok(Picked::Left(Ended::Signal(signal)));
        }
        while let Ok(listing) = lists.try_recv() {
            (picker.listing, is_changed) = (listing, true);
        }
        if std::mem::take(&mut is_changed) {
            terminal.draw(|frame| picker.draw(frame, theme)).map_err(Error::terminal)?;
        }
        let Some(event) = next_event(&keyboard, FRAME)? else { continue };
        is_changed = true;
        match picker.take(&event) {
            Choice::Nothing => {}
            Choice::Quit => return Ok(Picked::Left(Ended::Quit)),
            Choice::Row(row) => {
                let pid = picker.listing.entries[row].pid.to_string();
                match target::find(Some(&pid), environment) {
                    Ok(found) => return Ok(Picked::Program(Box::new(found))),
                    Err(error) => picker.error = Some(clean::text(&error.to_string())),
                }
            }
        }
    }
}

/// Starts the thread of (1). It ends soon after the receiver is dropped.
fn lists(environment: Environment) -> Result<Receiver<Listing>, Error> {
    let (sender, lists) = sync_channel(1);
    let find = move || {
        let mut listing = list::scan_with_health(&environment);
        // The console cannot attach to the socket of a program that has exited.
        listing.entries.retain(|entry| !entry.is_stale());
        !matches!(sender.try_send(listing), Err(TrySendError::Disconnected(_)))
    };
    let work = move || {
        while find() {
            std::thread::sleep(INTERVAL);
        }
    };
    std::thread::Builder::new().name("volt-console-list".into()).spawn(work).map_err(Error::thread)?;
    Ok(lists)
}

impl Picker {
    fn position(&self) -> usize {
        self.listing.entries.iter().position(|entry| Some(&entry.path) == self.chosen.as_ref()).unwrap_or(0)
    }

    /// Applies a key.
    fn take(&mut self, event: &Event) -> Choice {
        let Event::Key(key) = event else { return Choice::Nothing };
        if key.kind == KeyEventKind::Release {
            return Choice::Nothing;
        }
        let (place, last) = (self.position(), self.listing.entries.len().saturating_sub(1));
        let row = |row: usize| if row < self.listing.entries.len() { Choice::Row(row) } else { Choice::Nothing };
        let to = match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Choice::Quit,
            _ if key.modifiers.contains(KeyModifiers::CONTROL) => return Choice::Nothing,
            KeyCode::Char('q') | KeyCode::Esc => return Choice::Quit,
            KeyCode::Enter => return row(place),
            KeyCode::Char(digit @ '1'..='9') => return row(digit as usize - '1' as usize),
            KeyCode::Up | KeyCode::Char('k') => place.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => place + 1,
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => last,
            _ => return Choice::Nothing,
        };
        self.error = None;
        self.chosen = self.listing.entries.get(to.min(last)).map(|entry| entry.path.clone());
        Choice::Nothing
    }

    fn draw(&self, frame: &mut Frame<'_>, theme: Theme) {
        let [top, body, error, bottom] = rows(
            frame.area(),
            [Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1), Constraint::Length(1)],
        );
        frame.render_widget(Line::styled(" Several Volt programs are running. Select one:", theme.title()), top);
        self.draw_programs(frame, body, theme);
        let reason = self.error.as_deref().unwrap_or_default();
        frame.render_widget(Line::styled(format!(" {reason}"), theme.tone(crate::facts::Tone::Alarm)), error);
        let keys = [("↑↓", "program"), ("Enter", "attach"), ("1-9", "row"), ("q", "quit")];
        let spans = keys.iter().flat_map(|(key, what)| {
            [Span::styled(format!(" {key} "), theme.selected()), Span::styled(format!("{what} "), theme.label())]
        });
        frame.render_widget(Line::from_iter(spans), bottom);
        if theme.is_ascii() {
            ascii::replace(frame.buffer_mut());
        }
    }

    /// Draws the table of programs; its first line has the names of the columns.
    fn draw_programs(&self, frame: &mut Frame<'_>, area: Rect, theme: Theme) {
        let (table, columns, selected) = (self.listing.table(), usize::from(area.width), self.position());
        let programs = self.listing.entries.len();
        let shown = window(programs, selected, usize::from(area.height).saturating_sub(1));
        let line = |(index, line): (usize, &str)| match index.checked_sub(1) {
            None => Line::styled(head(&format!("    {line}"), columns), theme.label()),
            Some(row) if row < programs => {
                let mark = if row == selected { "▸" } else { " " };
                let number = if row < 9 { (row + 1).to_string() } else { " ".into() };
                let style = if row == selected { theme.strong() } else { theme.label() };
                Line::styled(head(&format!("{mark}{number}  {line}"), columns), style)
            }
            Some(_) => Line::styled(head(&format!(" {line}"), columns), theme.label()),
        };
        let is_shown = |index: &usize| index.checked_sub(1).is_none_or(|row| row >= programs || shown.contains(&row));
        draw_lines(frame, area, table.lines().enumerate().filter(|(index, _)| is_shown(index)).map(line));
    }
}

#[cfg(test)]
mod tests {
    use crossterm::event::KeyEvent;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::programs::list::Entry;

    fn listing(pids: impl IntoIterator<Item = u32>) -> Listing {
        let entry = |pid: u32| {
            let path = format!("/run/volt/{pid}-7.sock").into();
            Entry { pid, path, start_time: 7, hello: None, condition: None, error: None }
        };
        Listing { entries: pids.into_iter().map(entry).collect(), refused: Vec::new() }
    }

    fn press(picker: &mut Picker, code: KeyCode) -> Choice {
        picker.take(&Event::Key(KeyEvent::new(code, KeyModifiers::NONE)))
    }

    #[test]
    fn arrows_select_a_program_and_enter_attaches() {
        let mut picker = Picker { listing: listing([7, 8, 9]), ..Picker::default() };
        assert_eq!(press(&mut picker, KeyCode::Enter), Choice::Row(0));
        for (key, place) in [(KeyCode::Down, 1), (KeyCode::Down, 2), (KeyCode::Down, 2), (KeyCode::Up, 1)] {
            assert_eq!((press(&mut picker, key), picker.position()), (Choice::Nothing, place));
        }
        picker.listing = listing([5, 7, 8, 9]);
        assert_eq!(press(&mut picker, KeyCode::Enter), Choice::Row(2), "the selection follows its program");
        picker.listing = listing([5]);
        assert_eq!(press(&mut picker, KeyCode::Enter), Choice::Row(0));
        assert_eq!(
            [KeyCode::Char('1'), KeyCode::Char('2')].map(|key| press(&mut picker, key)),
            [Choice::Row(0), Choice::Nothing]
        );
        assert_eq!([KeyCode::Esc, KeyCode::Char('q')].map(|key| press(&mut picker, key)), [Choice::Quit, Choice::Quit]);
        picker.listing = listing([]);
        assert_eq!(press(&mut picker, KeyCode::Down), Choice::Nothing);
        assert_eq!(press(&mut picker, KeyCode::Enter), Choice::Nothing, "no program is left");
    }

    #[test]
    fn the_selected_program_is_in_sight_on_a_low_screen() {
        let mut picker = Picker { listing: listing(100..140), ..Picker::default() };
        (0..25).for_each(|_| _ = press(&mut picker, KeyCode::Down));
        let mut terminal = Terminal::new(TestBackend::new(60, 9)).unwrap();
        terminal.draw(|frame| picker.draw(frame, Theme::new(false))).unwrap();
        let text: String = terminal.backend().buffer().content.iter().map(|cell| cell.symbol()).collect();
        assert!(text.contains("▸   125") && text.contains("PID") && text.contains("quit"), "{text}");
    }
}
