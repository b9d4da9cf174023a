//! The keyboard and the mouse: the thread that reads their events, and the actions that they stand
//! for.
//!
//! The thread exists because crossterm's `event::poll` never returns once the terminal has been
//! closed: it reads nothing again and again
//! (<https://github.com/crossterm-rs/crossterm/issues/793>). This module calls it only while the
//! terminal is open. If the terminal is closed between the check and the call, only this thread is
//! stuck, and the loop that draws detects the closed terminal itself.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crossterm::event::{
    self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::model::{Action, Screen};
use crate::view::hits::Hits;

/// How long the thread waits for a key before it checks everything else.
const SLICE: Timespec = Timespec { tv_sec: 0, tv_nsec: 40_000_000 };
/// The maximum number of events that wait to be received: more than a user types between two
/// frames.
const INBOX_MAX: usize = 64;

/// The number of rows that a page key moves.
const PAGE: isize = 10;
/// The number of rows that one step of the mouse wheel moves.
const NOTCH: isize = 3;

/// Reads the terminal's events until it is dropped.
#[derive(Debug)]
pub struct Keyboard {
    /// The events; disconnected when the terminal cannot be read any more.
    pub events: Receiver<Event>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Keyboard {
    /// Starts reading the terminal.
    ///
    /// # Errors
    ///
    /// Returns an error if the system cannot start a thread.
    pub fn listen() -> io::Result<Keyboard> {
        let (sender, events) = sync_channel(INBOX_MAX);
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let listen = move || {
            // An error ends the thread and closes the channel, which the loop detects.
            let _ = forward(&sender, &over);
        };
        let thread = std::thread::Builder::new().name("volt-console-input".into()).spawn(listen)?;
        Ok(Keyboard { events, is_over, thread: Some(thread) })
    }
}

impl Drop for Keyboard {
    /// Waits for the thread, so that it takes no input from the next reader of the terminal.
    fn drop(&mut self) {
        // ORDERING: Relaxed; the flag alone is the message, no other data is published with it.
        self.is_over.store(true, Ordering::Relaxed);
        // A thread that waits for room to send stops when the receiver is dropped.
        self.events = sync_channel(0).1;
        if !is_terminal_closed()
            && let Some(thread) = self.thread.take()
        {
            // The panic hook has printed its panic.
            let _ = thread.join();
        }
    }
}

/// Returns whether the input terminal has been closed.
pub fn is_terminal_closed() -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    wait(&at_once).is_ok_and(|flags| flags.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL))
}

/// Returns whether the reader of standard output has closed it, as `| head` does.
pub fn is_output_closed() -> bool {
    let stdout = io::stdout();
    let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&at_once))
        .is_ok_and(|_| fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL))
}

fn wait(at_most: &Timespec) -> io::Result<PollFlags> {
    let stdin = io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    match poll(&mut fds, Some(at_most)) {
        Ok(_) => Ok(fds[0].revents()),
        Err(rustix::io::Errno::INTR) => Ok(PollFlags::empty()),
        Err(error) => Err(error.into()),
    }
}

fn forward(sender: &SyncSender<Event>, is_over: &AtomicBool) -> io::Result<()> {
    // ORDERING: Relaxed, as in `drop`.
    while !is_over.load(Ordering::Relaxed) {
        let flags = wait(&SLICE)?;
        if flags.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // Also without a key: a change of size arrives as a signal.
        while event::poll(Duration::ZERO)? {
            if sender.send(event::read()?).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Returns the action for a terminal event; `None` if there is none. While the user types a filter,
/// characters are text. For a click, the action is that of the clicked area.
pub fn action(event: &Event, is_typing: bool, hits: &Hits) -> Option<Action> {
    match event {
        Event::Key(key) if key.kind == KeyEventKind::Release => None,
        Event::Key(key) if is_typing => of_typed(key),
        Event::Key(key) => of_key(key, hits),
        Event::Mouse(mouse) => of_mouse(mouse, hits),
        _ => None,
    }
}

fn of_typed(key: &KeyEvent) -> Option<Action> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return (key.code == KeyCode::Char('c')).then_some(Action::Quit);
    }
    Some(match key.code {
        // Control characters are not text.
        KeyCode::Char(c) if !c.is_control() => Action::Type(c),
        KeyCode::Backspace => Action::Erase,
        KeyCode::Enter => Action::Accept,
        KeyCode::Esc => Action::Back,
        KeyCode::Up => Action::Move(-1),
        KeyCode::Down => Action::Move(1),
        _ => return None,
    })
}

fn of_mouse(mouse: &MouseEvent, hits: &Hits) -> Option<Action> {
    match mouse.kind {
        MouseEventKind::Down(MouseButton::Left) => hits.at(mouse.column, mouse.row),
        MouseEventKind::ScrollUp => Some(Action::Move(-NOTCH)),
        MouseEventKind::ScrollDown => Some(Action::Move(NOTCH)),
        _ => None,
    }
}

fn of_key(key: &KeyEvent, hits: &Hits) -> Option<Action> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return (key.code == KeyCode::Char('c')).then_some(Action::Quit);
    }
    Some(match key.code {
        KeyCode::Char('q') => Action::Quit,
        KeyCode::Esc => Action::Back,
        KeyCode::Char(' ') => Action::TogglePause,
        KeyCode::Char('?' | 'h') | KeyCode::F(1) => Action::NextHelp,
        KeyCode::Enter => Action::ToggleDetail,
        KeyCode::Char('r') => Action::ToggleTotals,
        KeyCode::Char('/') => Action::Filter,
        KeyCode::Char('t') => Action::Show(Screen::Tasks),
        KeyCode::Char('p') => Action::Show(Screen::Processes),
        KeyCode::Char('w') => Action::Show(Screen::Waits),
        KeyCode::Char(key @ ('0'..='9' | 'u')) => {
            Action::Show(Screen::ALL.into_iter().find(|screen| screen.key() == key)?)
        }
        KeyCode::Char('<' | ',') => Action::SortBy(-1),
        KeyCode::Char('>' | '.') => Action::SortBy(1),
        KeyCode::Char('i') => Action::InvertSort,
        KeyCode::Tab | KeyCode::Right => Action::NextRuntime,
        KeyCode::BackTab | KeyCode::Left => Action::PreviousRuntime,
        KeyCode::Char('+' | '=') => Action::Slower,
        KeyCode::Char('-' | '_') => Action::Faster,
        KeyCode::Up | KeyCode::Char('k') => Action::Move(-1),
        KeyCode::Down | KeyCode::Char('j') => Action::Move(1),
        KeyCode::PageUp if hits.has_pages() => Action::TurnPage(-1),
        KeyCode::PageDown if hits.has_pages() => Action::TurnPage(1),
        KeyCode::PageUp => Action::Move(-PAGE),
        KeyCode::PageDown => Action::Move(PAGE),
        KeyCode::Home | KeyCode::Char('g') => Action::First,
        KeyCode::End | KeyCode::Char('G') => Action::Last,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(code: KeyCode, modifiers: KeyModifiers) -> Option<Action> {
        action(&Event::Key(KeyEvent::new(code, modifiers)), false, &Hits::default())
    }

    #[test]
    fn control_c_quits_and_a_plain_c_does_nothing() {
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Action::Quit));
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(press(KeyCode::Char('q'), KeyModifiers::CONTROL), None);
    }

    #[test]
    fn plus_is_found_with_and_without_shift() {
        assert_eq!(press(KeyCode::Char('+'), KeyModifiers::SHIFT), Some(Action::Slower));
        assert_eq!(press(KeyCode::Char('='), KeyModifiers::NONE), Some(Action::Slower));
        assert_eq!(press(KeyCode::Char('-'), KeyModifiers::NONE), Some(Action::Faster));
    }

    #[test]
    fn each_screen_has_a_key() {
        for (digit, screen) in ('1'..='9').chain(['0', 'u']).zip(Screen::ALL) {
            assert_eq!(press(KeyCode::Char(digit), KeyModifiers::NONE), Some(Action::Show(screen)));
        }
        assert_eq!(press(KeyCode::Char('w'), KeyModifiers::NONE), Some(Action::Show(Screen::Waits)));
        assert_eq!(press(KeyCode::Char('p'), KeyModifiers::NONE), Some(Action::Show(Screen::Processes)));
    }

    #[test]
    fn a_key_counts_when_it_goes_down_and_not_again_when_it_goes_up() {
        let release = KeyEvent::new_with_kind(KeyCode::Char(' '), KeyModifiers::NONE, KeyEventKind::Release);
        assert_eq!(action(&Event::Key(release), false, &Hits::default()), None);
        assert_eq!(action(&Event::FocusGained, false, &Hits::default()), None);
    }

    #[test]
    fn while_a_filter_is_typed_characters_are_text() {
        let typed = |code| {
            let key = KeyEvent::new(code, KeyModifiers::NONE);
            action(&Event::Key(key), true, &Hits::default())
        };
        let keys = [KeyCode::Char('q'), KeyCode::Char(' '), KeyCode::Backspace, KeyCode::Enter, KeyCode::Esc];
        let wanted = [Action::Type('q'), Action::Type(' '), Action::Erase, Action::Accept, Action::Back];
        assert_eq!(keys.map(typed), wanted.map(Some));
        assert_eq!(typed(KeyCode::F(1)), None);
        assert_eq!(typed(KeyCode::Char('\u{7}')), None);
        let quit = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(action(&Event::Key(quit), true, &Hits::default()), Some(Action::Quit));
    }

    #[test]
    fn a_click_hits_the_topmost_area_and_the_wheel_scrolls() {
        let mut hits = Hits::default();
        hits.add(ratatui::layout::Rect::new(0, 0, 10, 10), Action::Pick(1));
        hits.add(ratatui::layout::Rect::new(0, 5, 10, 1), Action::Pick(2));
        let mouse = |kind, column, row| {
            let event = MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE };
            action(&Event::Mouse(event), false, &hits)
        };
        let down = MouseEventKind::Down(MouseButton::Left);
        assert_eq!([mouse(down, 9, 5), mouse(down, 0, 0)], [Some(Action::Pick(2)), Some(Action::Pick(1))]);
        assert_eq!([mouse(down, 10, 5), mouse(MouseEventKind::Moved, 0, 0)], [None, None]);
        assert_eq!(mouse(MouseEventKind::ScrollDown, 99, 99), Some(Action::Move(NOTCH)));
    }
}
