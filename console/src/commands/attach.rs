//! `volt-console attach`: the live screen. This module has the loop that connects the program, the
//! keyboard, the model and the view.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Once, OnceLock};
use std::time::{Duration, Instant};

use crossterm::event::Event;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{SigId, flag};
use volt_telemetry::client::Client;
use volt_telemetry::socket::Environment;

use crate::error::{Error, Instead};
use crate::model::{DEFAULT_INTERVAL, Effect, Message, Model};
use crate::programs::again::Again;
use crate::programs::connection::Connection;
use crate::programs::requester::Requester;
use crate::programs::target::Found;
use crate::terminal::Terminal;
use crate::terminal::input::{self, Keyboard};
use crate::view;
use crate::view::hits::Hits;
use crate::view::theme::Theme;

/// How long the loop waits for a key before it checks everything else. A key press ends the wait
/// early.
const FRAME: Duration = Duration::from_millis(40);
/// How often the screen is redrawn when nothing happens, so that elapsed times stay current.
const STILL_FRAME: Duration = Duration::from_millis(500);

/// Options of the live screen.
#[derive(Clone, Debug)]
pub struct Options {
    /// The initial time between two snapshots; keys change it.
    pub interval: Duration,
    /// Ends the console when it becomes true. For programs that show themselves and may exit.
    pub stop: Arc<AtomicBool>,
    /// Whether SIGTERM, SIGHUP and SIGINT end the console with [`Ended::Signal`]. Afterwards these
    /// signals have their default action. A program that handles them itself should set this to
    /// `false` and use `stop`.
    pub takes_signals: bool,
    /// How the screen is drawn.
    pub appearance: Appearance,
}

/// The user's choices for drawing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Appearance {
    /// Draw without colours, even if `NO_COLOR` is not set.
    pub is_plain: bool,
    /// Draw only ASCII characters.
    pub is_ascii: bool,
    /// Leave the mouse to the terminal, which can then select text.
    pub leaves_mouse: bool,
}

impl Appearance {
    pub(crate) fn theme(self) -> Theme {
        let theme = if self.is_plain { Theme::new(false) } else { Theme::of_environment() };
        theme.with_ascii(self.is_ascii)
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            interval: DEFAULT_INTERVAL,
            stop: Arc::default(),
            takes_signals: true,
            appearance: Appearance::default(),
        }
    }
}

/// Why the console ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The user quit with a key.
    Quit,
    /// [`Options::stop`] became true.
    Stopped,
    /// The console received this signal.
    Signal(i32),
}

/// Shows the program whose control socket is at `path` on a live screen, until the user quits.
///
/// Blocks the calling thread. Draws on the terminal of the calling program, and restores it at the
/// end.
///
/// ```no_run
/// use std::path::Path;
/// volt_console::attach(Path::new("/run/user/1000/volt/4711-99.sock"), volt_console::Options::default())?;
/// # Ok::<(), volt_console::Error>(())
/// ```
///
/// # Errors
///
/// Returns an error if there is no terminal ([`Error::is_not_a_terminal`]), or if the program
/// cannot be reached at the start ([`Error::is_connect`]). It is not an error if the program exits
/// later: the screen reports it, and keeps the last data.
pub fn attach(path: &Path, options: Options) -> Result<Ended, Error> {
    check_terminal()?;
    let client = Client::connect(path)?;
    attach_to(Found { client, again: Again::Path(path.into()) }, options)
}

/// Checks that standard input and output are a terminal, and that it is not a dumb one.
///
/// # Errors
///
/// Fails with [`Error::is_not_a_terminal`] otherwise.
pub fn check_terminal() -> Result<(), Error> {
    check_terminal_or(Instead::OF_ATTACH)
}

/// Like [`check_terminal`], for a screen that the commands `instead` can replace.
pub(crate) fn check_terminal_or(instead: Instead) -> Result<(), Error> {
    if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        return Err(Error::not_a_terminal(instead));
    }
    // A dumb terminal would print the control sequences of the screen.
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if is_dumb { Err(Error::dumb_terminal(instead)) } else { Ok(()) }
}

/// Like [`attach`], for a program that was found before.
///
/// # Errors
///
/// Fails with [`Error::is_not_a_terminal`], or an error of the terminal.
pub fn attach_to(found: Found, options: Options) -> Result<Ended, Error> {
    check_terminal()?;
    let Found { client, again } = found;
    let locate = again.clone().locate(Environment::of_program());
    let requester = Requester::start(locate).map_err(Error::thread)?;
    let connection = Connection::keep(client, options.interval, again).map_err(Error::thread)?;
    let signals = Signals::take(options.takes_signals).map_err(Error::terminal)?;
    let mut terminal = Terminal::enter(!options.appearance.leaves_mouse).map_err(Error::terminal)?;
    run(&mut terminal, &connection, requester, &options, &signals)
}

fn run(
    terminal: &mut Terminal,
    connection: &Connection,
    mut requester: Requester,
    options: &Options,
    signals: &Signals,
) -> Result<Ended, Error> {
    let theme = options.appearance.theme();
    let mut hits = Hits::default();
    let keyboard = Keyboard::listen().map_err(Error::thread)?;
    let started = Instant::now();
    let mut model = Model::new(options.interval);
    let mut drawn_at: Option<Instant> = None;
    loop {
        if let Some(signal) = signals.received() {
            return Ok(Ended::Signal(signal));
        }
        // ORDERING: Relaxed; the flag alone is the message, no other data is published with it.
        if options.stop.load(Ordering::Relaxed) {
            return Ok(Ended::Stopped);
        }
        model.update(Message::Tick(started.elapsed()));
        let mut is_changed = take_messages(&connection.messages, &mut model)?;
        is_changed |= take_messages(&requester.messages, &mut model)?;
        if drawn_at.is_none_or(|at| at.elapsed() >= STILL_FRAME) {
            is_changed = true;
        }
        let mut wait = FRAME;
        // Handles all keys that have arrived before drawing, for example while one is held down.
        while let Some(event) = next_event(&keyboard, wait)? {
            wait = Duration::ZERO;
            is_changed |= matches!(event, Event::Resize(..));
            let Some(action) = input::action(&event, model.is_typing, &hits) else { continue };
            is_changed = true;
            match model.update(Message::Do(action)) {
                Some(Effect::Quit) => return Ok(Ended::Quit),
                Some(Effect::Subscribe(interval)) => connection.subscribe(interval),
                None => {}
            }
        }
        requester.set_needs(model.needs());
        if is_changed {
            let draw = |frame: &mut ratatui::Frame<'_>| view::draw(frame, &model, theme, &mut hits);
            terminal.draw(draw).map_err(Error::terminal)?;
            drawn_at = Some(Instant::now());
        }
    }
}

/// Returns the next event of the terminal, or `None` after `wait`.
pub(crate) fn next_event(keyboard: &Keyboard, wait: Duration) -> Result<Option<Event>, Error> {
    match keyboard.events.recv_timeout(wait) {
        Ok(event) => Ok(Some(event)),
        Err(RecvTimeoutError::Timeout) if !input::is_terminal_closed() => Ok(None),
        Err(_) => Err(Error::terminal_closed()),
    }
}

/// Passes all received messages to the model. Returns whether there were any.
fn take_messages(messages: &Receiver<Message>, model: &mut Model) -> Result<bool, Error> {
    let mut is_changed = false;
    loop {
        match messages.try_recv() {
            Ok(message) => {
                is_changed = true;
                model.update(message);
            }
            Err(TryRecvError::Empty) => return Ok(is_changed),
            Err(TryRecvError::Disconnected) => return Err(Error::connection_ended()),
        }
    }
}

/// Handles the signals that end the console, until it is dropped.
///
/// Once signal-hook has handled a signal, the system's default action for it is disabled for good.
/// After the first `Signals` is dropped, the default action is therefore emulated whenever there is
/// no console.
pub(crate) struct Signals {
    received: Arc<AtomicUsize>,
    ids: Vec<SigId>,
}

const ENDING: [i32; 3] = [SIGTERM, SIGHUP, SIGINT];

/// Whether the default action is to be emulated: a console has handled the signals, and none does
/// now. Registered once per program.
static IS_UNATTENDED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

impl Signals {
    pub(crate) fn take(is_wanted: bool) -> io::Result<Signals> {
        let mut signals = Signals { received: Arc::default(), ids: Vec::new() };
        if !is_wanted {
            return Ok(signals);
        }
        // ORDERING: Relaxed; the flag alone is the message, no other data is published with it.
        IS_UNATTENDED.get_or_init(Arc::default).store(false, Ordering::Relaxed);
        for signal in ENDING {
            signals.ids.push(flag::register_usize(signal, signals.received.clone(), signal as usize)?);
        }
        Ok(signals)
    }

    pub(crate) fn received(&self) -> Option<i32> {
        // ORDERING: Relaxed; the number alone is the message, no other data is published with it.
        let signal = self.received.load(Ordering::Relaxed);
        (signal != 0).then_some(signal as i32)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        if self.ids.is_empty() {
            return;
        }
        let is_unattended = IS_UNATTENDED.get_or_init(Arc::default);
        static IMITATE: Once = Once::new();
        IMITATE.call_once(|| {
            for signal in ENDING {
                // This fails only for signals that cannot be handled, and these can.
                let _ = flag::register_conditional_default(signal, is_unattended.clone());
            }
        });
        // ORDERING: Relaxed, as in `take`.
        is_unattended.store(true, Ordering::Relaxed);
        for id in self.ids.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}
