//! The terminal while the console has it: raw, on the alternate screen, without a cursor, its mouse
//! taken if that is wanted; and given back whatever happens.
//!
//! Protocol. (1) [`Terminal::enter`] notes its thread as the owner, then changes the terminal. (2)
//! The drop, or a panic of the owner's thread before its message is printed, takes the terminal
//! back, once. (3) A panic of another thread, as of a task in a program that shows itself, keeps
//! the screen; its message is held back until the terminal is given back, and printed then.
//!
//! Invariant: *the one who clears the owner restores*, so that drop and panic hook do it once
//! between them.
//!
//! Signals are not handled here: a handler may not do any of this. The loop that draws asks for
//! them and drops the terminal.

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

/// Messages of panics that are held back; further ones are counted.
const HELD_BACK_MAX: usize = 16;

static STATE: Mutex<State> = Mutex::new(State { owner: None, has_mouse: false, held_back: Vec::new(), dropped: 0 });

struct State {
    /// The thread that has the terminal.
    owner: Option<ThreadId>,
    /// Whether the mouse was taken too.
    has_mouse: bool,
    held_back: Vec<String>,
    dropped: usize,
}

/// The terminal, changed for as long as this lives.
#[derive(Debug)]
pub struct Terminal {
    /// There until the drop.
    inner: Option<ratatui::Terminal<CrosstermBackend<Stdout>>>,
}

impl Terminal {
    /// Takes the terminal, and its mouse if that is wanted.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`] when this process has it taken already; those of the
    /// terminal.
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
            let message = "this process has its terminal in use already";
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

    /// Draws one screen.
    ///
    /// # Errors
    /// Those of the terminal.
    pub fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.inner.as_mut().map_or(Ok(()), |inner| inner.draw(render).map(drop))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
        // Its own drop prints to stderr when it cannot show the cursor, and panics when there is no
        // stderr either, as when the terminal was closed. It owns nothing but memory.
        if let Some(mut inner) = self.inner.take()
            && inner.show_cursor().is_err()
        {
            std::mem::forget(inner);
        }
    }
}

fn state() -> MutexGuard<'static, State> {
    // Nothing in here is left half done by a panic.
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives the terminal back, if it is taken.
fn restore() {
    let mut state = state();
    if state.owner.take().is_none() {
        return;
    }
    let has_mouse = std::mem::take(&mut state.has_mouse);
    let (held_back, dropped) = (std::mem::take(&mut state.held_back), std::mem::take(&mut state.dropped));
    drop(state);
    // A terminal that is gone cannot be restored, and there is nobody left to tell.
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

/// Deals with a panic; `true` when its message is not to be printed now.
fn hold_back(info: &PanicHookInfo<'_>) -> bool {
    let mut state = state();
    match state.owner {
        None => false,
        // After an abort nobody would restore.
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
