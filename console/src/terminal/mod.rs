//! The state of the terminal while the console uses it: raw mode, the alternate screen, no cursor,
//! and optionally the mouse. The terminal is restored in every case.
//!
//! # Protocol
//!
//! 1. [`Terminal::enter`] stores the current thread as the owner, then changes the terminal.
//! 2. The drop, or a panic of the owner's thread before its message is printed, restores the
//!    terminal once.
//! 3. A panic of another thread, such as a task in a program that shows itself, keeps the screen.
//!    Its message is held back, and printed after the terminal is restored.
//!
//! Invariant *the thread that clears the owner restores the terminal*, so that the drop and the
//! panic hook together do it only once.
//!
//! Signals are not handled here, because a signal handler must not do any of this. The loop that
//! draws checks for signals and drops the terminal.

pub mod input;

use std::io::{self, Stdout, Write};
use std::panic::PanicHookInfo;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread::ThreadId;

use crossterm::cursor::{Hide, Show};
use crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::Frame;
use ratatui::backend::CrosstermBackend;

/// The maximum number of panic messages that are held back; further ones are only counted.
const HELD_BACK_MAX: usize = 16;

static STATE: Mutex<State> = Mutex::new(State { owner: None, has_mouse: false, held_back: Vec::new(), dropped: 0 });

struct State {
    /// The thread that has entered the terminal.
    owner: Option<ThreadId>,
    /// Whether the mouse is captured too.
    has_mouse: bool,
    held_back: Vec<String>,
    dropped: usize,
}

/// The terminal, in the console's mode until this is dropped.
#[derive(Debug)]
pub struct Terminal {
    /// `Some` until the drop.
    inner: Option<ratatui::Terminal<CrosstermBackend<Stdout>>>,
}

impl Terminal {
    /// Enters the terminal, and captures the mouse if `takes_mouse`.
    ///
    /// # Errors
    ///
    /// Returns [`io::ErrorKind::ResourceBusy`] if this program has entered it already, or an error
    /// of the terminal.
    pub fn enter(takes_mouse: bool) -> io::Result<Terminal> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let former = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                if !hold_back(info) {
                    former(info);
                }
            }));
        });
        let mut state = state();
        if state.owner.is_some() {
            let message = "this program already uses its terminal";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, message));
        }
        state.owner = Some(std::thread::current().id());
        state.has_mouse = takes_mouse;
        drop(state);
        let taken = enable_raw_mode()
            .and_then(|()| execute!(io::stdout(), EnterAlternateScreen, Hide))
            .and_then(|()| if takes_mouse { execute!(io::stdout(), EnableMouseCapture) } else { Ok(()) })
            .and_then(|()| ratatui::Terminal::new(CrosstermBackend::new(io::stdout())));
        match taken {
            Ok(inner) => Ok(Terminal { inner: Some(inner) }),
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }

    /// Draws one frame.
    ///
    /// # Errors
    ///
    /// Returns an error of the terminal.
    pub fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.inner.as_mut().map_or(Ok(()), |inner| inner.draw(render).map(drop))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
        // The drop of ratatui's terminal prints to stderr when it cannot show the cursor, and
        // panics if there is no stderr either, for example when the terminal was closed. It owns
        // nothing except memory, so it can be leaked.
        if let Some(mut inner) = self.inner.take()
            && inner.show_cursor().is_err()
        {
            std::mem::forget(inner);
        }
    }
}

fn state() -> MutexGuard<'static, State> {
    // A panic leaves nothing half done in the state.
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Restores the terminal, if it has been entered.
fn restore() {
    let mut state = state();
    if state.owner.take().is_none() {
        return;
    }
    let has_mouse = std::mem::take(&mut state.has_mouse);
    let (held_back, dropped) = (std::mem::take(&mut state.held_back), std::mem::take(&mut state.dropped));
    drop(state);
    // A closed terminal cannot be restored, and no user can see a message.
    if has_mouse {
        let _ = execute!(io::stdout(), DisableMouseCapture);
    }
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
    let mut stderr = io::stderr().lock();
    for message in held_back {
        let _ = writeln!(stderr, "{message}");
    }
    if dropped > 0 {
        let _ = writeln!(stderr, "{dropped} more panics");
    }
}

/// Handles a panic. Returns `true` if its message must not be printed now.
fn hold_back(info: &PanicHookInfo<'_>) -> bool {
    let mut state = state();
    match state.owner {
        None => false,
        // If panics abort, no drop restores the terminal later.
        Some(owner) if owner == std::thread::current().id() || cfg!(panic = "abort") => {
            drop(state);
            restore();
            false
        }
        Some(_) => {
            if state.held_back.len() < HELD_BACK_MAX {
                let thread = std::thread::current();
                let name = thread.name().unwrap_or("<unnamed>");
                state.held_back.push(format!("thread '{name}' {info}"));
            } else {
                state.dropped += 1;
            }
            true
        }
    }
}
