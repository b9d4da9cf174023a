//! `volt-console replay`: a recording on the screens of `attach`, moment by moment, or one moment as text or JSON.
//!
//! Shape: the times of the recording's snapshots, read once; the snapshots themselves are read from the file when they
//! are shown. The model is the one of `attach`; what moves it here is not a connection but a place in the recording:
//! left and right go a snapshot back and forth, space plays and stops.
//!
//! Invariant: *what is whole is shown*: a recording that breaks off is shown up to there, and that is said.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use crossterm::event::{Event, KeyCode, KeyEventKind};
use volt_telemetry::recording::files::parts_of;
use volt_telemetry::recording::flush::Head;
use volt_telemetry::recording::reader::Reader;
use volt_telemetry::snapshot::{Process, Snapshot};
use volt_telemetry::wire::Hello;

use crate::attach::{Ended, Signals, check_terminal};
use crate::clean;
use crate::error::Error;
use crate::input::{self, Keyboard};
use crate::model::{Action, DEFAULT_INTERVAL, Effect, Message, Model, Played};
use crate::terminal::Terminal;
use crate::top;
use crate::view::{self, theme::Theme};

/// How long the loop waits for a key before it looks whether the next snapshot is due.
const FRAME: Duration = Duration::from_millis(40);

/// The snapshots of a recording.
struct Film {
    readers: Vec<Reader>,
    /// By time: which reader, and when.
    places: Vec<(usize, u64)>,
    /// What is wrong with the recording.
    broke: Option<String>,
    path: PathBuf,
}

impl Film {
    fn open(path: &Path) -> Result<Film, Error> {
        let parts = parts_of(path);
        let parts = if parts.is_empty() { vec![path.to_path_buf()] } else { parts };
        let mut film = Film { readers: Vec::new(), places: Vec::new(), broke: None, path: path.to_path_buf() };
        for part in parts {
            let mut reader = Reader::open(&part)?;
            loop {
                match reader.next_flush() {
                    Ok(Some(flush)) => {
                        let number = film.readers.len();
                        film.places.extend(flush.snapshot.map(|snapshot| (number, snapshot.at_ns)));
                    }
                    Ok(None) => break,
                    Err(error) => {
                        film.broke = Some(error.to_string());
                        break;
                    }
                }
            }
            film.readers.push(reader);
        }
        if film.places.is_empty() {
            return Err(match film.broke {
                Some(broke) => Error::broken(&broke),
                None => Error::no_snapshot(path),
            });
        }
        Ok(film)
    }

    fn head(&self) -> &Head {
        self.readers[0].head()
    }

    /// How the program looked at the place of that index.
    fn process(&mut self, index: usize) -> Result<Process, Error> {
        let (reader, at_ns) = self.places[index];
        let reader = &mut self.readers[reader];
        let head = reader.head();
        let (pid, program) = (head.pid, head.program.clone());
        let snapshot: Snapshot = reader.snapshot_at(at_ns)?.ok_or_else(|| Error::no_snapshot(&self.path))?;
        Ok(clean::process(Process { pid, program, at_ns: snapshot.at_ns, runtimes: vec![snapshot] }))
    }

    /// The time from the first snapshot to the one of that index.
    fn since_begin(&self, index: usize) -> Duration {
        Duration::from_nanos(self.places[index].1.saturating_sub(self.places[0].1))
    }

    /// The last snapshot that is not later than `at`, from the first.
    fn index_at(&self, at: Duration) -> usize {
        (0..self.places.len()).rev().find(|index| self.since_begin(*index) <= at).unwrap_or(0)
    }

    fn last(&self) -> usize {
        self.places.len() - 1
    }
}

/// Prints the moment `at`, or the last: what happened since the snapshot before it.
///
/// # Errors
/// [`Error::is_recording`], [`Error::is_output_closed`].
pub fn print(path: &Path, as_json: bool, at: Option<Duration>, out: &mut impl Write) -> Result<(), Error> {
    let mut film = Film::open(path)?;
    let index = at.map_or(film.last(), |at| film.index_at(at));
    let (earlier, later) = (film.process(index.saturating_sub(1))?, film.process(index)?);
    let text = if as_json { format!("{}\n", top::json(&earlier, &later)) } else { top::text(&earlier, &later) };
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::output)?;
    if let Some(broke) = &film.broke {
        let _ = writeln!(std::io::stderr(), "{}", clean::lines(broke));
    }
    Ok(())
}

/// Shows the recording on this process's terminal, from `at` on, until somebody quits.
///
/// # Errors
/// [`Error::is_not_a_terminal`], [`Error::is_recording`], and those of the terminal.
pub fn run(path: &Path, at: Option<Duration>) -> Result<Ended, Error> {
    check_terminal()?;
    let mut film = Film::open(path)?;
    let signals = Signals::take(true).map_err(Error::terminal)?;
    let mut terminal = Terminal::enter().map_err(Error::terminal)?;
    let keyboard = Keyboard::listen().map_err(Error::thread)?;
    let theme = Theme::of_environment();
    let mut player = Player::new(&film, at);
    player.go_to(&mut film, player.index)?;
    let mut is_changed = true;
    loop {
        if let Some(signal) = signals.received() {
            return Ok(Ended::Signal(signal));
        }
        if player.is_due() {
            player.go_to(&mut film, player.index + 1)?;
            is_changed = true;
        }
        if is_changed {
            terminal.draw(|frame| view::draw(frame, &player.model, theme)).map_err(Error::terminal)?;
        }
        is_changed = match keyboard.events.recv_timeout(FRAME) {
            Ok(event) => {
                if player.take(&event, &mut film)? == Some(Effect::Quit) {
                    return Ok(Ended::Quit);
                }
                true
            }
            Err(RecvTimeoutError::Timeout) if !input::is_terminal_gone() => false,
            Err(_) => return Err(Error::terminal_gone()),
        };
    }
}

/// The model, and where in the recording it is.
struct Player {
    model: Model,
    index: usize,
    last: usize,
    /// When the snapshot came that is shown, if it plays.
    playing_since: Option<Instant>,
}

impl Player {
    fn new(film: &Film, at: Option<Duration>) -> Player {
        let mut model = Model::new(DEFAULT_INTERVAL);
        let head = film.head().clone();
        let hello = Hello { pid: head.pid, program: head.program, volt: head.volt, ..Hello::default() };
        model.update(Message::Connected(hello));
        let index = at.map_or(0, |at| film.index_at(at));
        Player { model, index, last: film.last(), playing_since: None }
    }

    /// Whether the next snapshot is to be shown.
    fn is_due(&self) -> bool {
        self.index < self.last && self.playing_since.is_some_and(|since| since.elapsed() >= self.model.interval)
    }

    /// Shows the snapshot of that index, and what has happened since the one before.
    fn go_to(&mut self, film: &mut Film, index: usize) -> Result<(), Error> {
        let index = index.min(self.last);
        let is_next = index == self.index + 1;
        let earlier = if is_next { None } else { Some(film.process(index.saturating_sub(1))?) };
        let (at, whole) = (film.since_begin(index), film.since_begin(self.last));
        self.index = index;
        if self.playing_since.is_some() {
            self.playing_since = (index < self.last).then(Instant::now);
        }
        let is_playing = self.playing_since.is_some();
        let broke = film.broke.as_deref().map(clean::text);
        let played = Played { at, whole, is_playing, broke };
        self.model.play(played, earlier, film.process(index)?);
        Ok(())
    }

    fn take(&mut self, event: &Event, film: &mut Film) -> Result<Option<Effect>, Error> {
        let step = |code: KeyCode| match code {
            KeyCode::Right => Some(1),
            KeyCode::Left => Some(-1),
            _ => None,
        };
        if let Event::Key(key) = event
            && key.kind != KeyEventKind::Release
            && let Some(step) = step(key.code)
        {
            self.playing_since = None;
            self.go_to(film, self.index.saturating_add_signed(step))?;
            return Ok(None);
        }
        match input::action(event) {
            Some(Action::TogglePause) => {
                self.playing_since = if self.playing_since.is_some() { None } else { Some(Instant::now()) };
                let index = if self.index == self.last && self.playing_since.is_some() { 0 } else { self.index };
                self.go_to(film, index)?;
                Ok(None)
            }
            Some(action) => Ok(self.model.update(Message::Do(action))),
            None => Ok(None),
        }
    }
}
