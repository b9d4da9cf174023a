//! `volt-console replay`: shows a recording on the screens of `attach`, one snapshot after the
//! other, or prints one moment as text or JSON.
//!
//! # Shape
//!
//! The times of the recording's snapshots are read once; the snapshots themselves are read from the
//! file when they are shown. The model is the same as in `attach`, but a position in the recording
//! drives it instead of a connection. The left and right arrow keys step through the snapshots, and
//! space plays and stops.
//!
//! Invariants. *Complete events are shown*: a recording that ends in the middle is shown up to
//! there, and one of several files that cannot be opened is left out. A message reports it. *The
//! history continues*: it begins anew only with a snapshot that is not the next one.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use crossterm::event::{Event, KeyCode, KeyEventKind};
use volt_recording::error::RecordingError;
use volt_recording::files::parts_of;
use volt_recording::reader::Reader;
use volt_telemetry::recording::flush::Head;
use volt_telemetry::snapshot::{Program, Snapshot};
use volt_telemetry::wire::Hello;

use crate::commands::attach::{Appearance, Ended, Signals, check_terminal_or};
use crate::commands::progress::Progress;
use crate::commands::top;
use crate::error::{Error, Instead};
use crate::model::{Action, DEFAULT_INTERVAL, Effect, Message, Model, Played};
use crate::terminal::Terminal;
use crate::terminal::input::{self, Keyboard};
use crate::text::clean;
use crate::view;
use crate::view::hits::Hits;

/// How long the loop waits for a key before it checks whether the next snapshot is due.
const FRAME: Duration = Duration::from_millis(40);

/// The snapshots of a recording.
struct Snapshots {
    readers: Vec<Reader>,
    /// The snapshots in order of time: the index of the reader, and the time.
    places: Vec<(usize, u64)>,
    /// Why the recording is not shown as a whole, if it is not.
    broke: Option<String>,
    path: PathBuf,
}

impl Snapshots {
    fn open(path: &Path) -> Result<Snapshots, Error> {
        let parts = parts_of(path);
        let parts = if parts.is_empty() { vec![path.to_path_buf()] } else { parts };
        let mut snapshots =
            Snapshots { readers: Vec::new(), places: Vec::new(), broke: None, path: path.to_path_buf() };
        let mut progress = Progress::begin();
        let mut broke = None;
        let count = parts.len();
        for (index, part) in parts.iter().enumerate() {
            let read = snapshots.read(part, |ratio| progress.show("reading", (index as f64 + ratio) / count as f64));
            broke = broke.or(read.err());
        }
        if snapshots.places.is_empty() {
            return Err(broke.map_or_else(|| Error::no_snapshot(path), Error::from));
        }
        snapshots.broke = broke.map(|error| error.to_string());
        Ok(snapshots)
    }

    /// Reads the times of the snapshots of one file. After an error, those before it remain.
    fn read(&mut self, part: &Path, mut show: impl FnMut(f64)) -> Result<(), RecordingError> {
        let mut reader = Reader::open(part)?;
        let number = self.readers.len();
        let read = loop {
            show(reader.progress_ratio());
            match reader.next_flush() {
                Ok(Some(flush)) => self.places.extend(flush.snapshot.map(|snapshot| (number, snapshot.at_ns))),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.readers.push(reader);
        read
    }

    fn head(&self) -> &Head {
        self.readers[0].head()
    }

    /// Returns the state of the program at the snapshot with this index.
    fn program(&mut self, index: usize) -> Result<Program, Error> {
        let (reader, at_ns) = self.places[index];
        let reader = &mut self.readers[reader];
        let head = reader.head();
        let (pid, name) = (head.pid, head.program.clone());
        let snapshot: Snapshot = reader.snapshot_at(at_ns)?.ok_or_else(|| Error::no_snapshot(&self.path))?;
        Ok(clean::program(Program { pid, name, at_ns: snapshot.at_ns, observer: None, runtimes: vec![snapshot] }))
    }

    /// Returns the time from the first snapshot to the one with this index.
    fn since_begin(&self, index: usize) -> Duration {
        Duration::from_nanos(self.places[index].1.saturating_sub(self.places[0].1))
    }

    /// Returns the index of the last snapshot that is not later than `at`, counted from the first.
    fn index_at(&self, at: Duration) -> usize {
        (0..self.places.len()).rev().find(|index| self.since_begin(*index) <= at).unwrap_or(0)
    }

    fn last(&self) -> usize {
        self.places.len() - 1
    }
}

/// Prints the moment `at`, or the last one: its state, and the rates since the previous snapshot.
/// If `is_ascii`, the text has only ASCII characters.
///
/// # Errors
///
/// Fails with [`Error::is_recording`] and [`Error::is_output_closed`].
pub fn print(
    path: &Path,
    as_json: bool,
    is_ascii: bool,
    at: Option<Duration>,
    out: &mut impl Write,
) -> Result<(), Error> {
    let mut snapshots = Snapshots::open(path)?;
    let index = at.map_or(snapshots.last(), |at| snapshots.index_at(at));
    let (earlier, later) = (snapshots.program(index.saturating_sub(1))?, snapshots.program(index)?);
    let text = match top::text(&earlier, &later) {
        _ if as_json => format!("{}\n", top::json(&earlier, &later)),
        text if is_ascii => view::ascii::text(&text),
        text => text,
    };
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::output)?;
    if let Some(broke) = &snapshots.broke {
        let _ = writeln!(std::io::stderr(), "{}", clean::lines(broke));
    }
    Ok(())
}

/// Shows the recording on the terminal, starting at `at`, until the user quits.
///
/// # Errors
///
/// Fails with [`Error::is_not_a_terminal`], [`Error::is_recording`], or an error of the terminal.
pub fn run(path: &Path, at: Option<Duration>, appearance: Appearance) -> Result<Ended, Error> {
    // Errors of the file come first, even if there is no terminal.
    let mut snapshots = Snapshots::open(path)?;
    check_terminal_or(Instead::OF_REPLAY)?;
    let signals = Signals::take(true).map_err(Error::terminal)?;
    let mut terminal = Terminal::enter(!appearance.leaves_mouse).map_err(Error::terminal)?;
    let keyboard = Keyboard::listen().map_err(Error::thread)?;
    let (theme, mut hits) = (appearance.theme(), Hits::default());
    let mut player = Player::new(&snapshots, at);
    player.go_to(&mut snapshots, player.index)?;
    let mut is_changed = true;
    loop {
        if let Some(signal) = signals.received() {
            return Ok(Ended::Signal(signal));
        }
        if player.is_due() {
            player.go_to(&mut snapshots, player.index + 1)?;
            is_changed = true;
        }
        if is_changed {
            terminal.draw(|frame| view::draw(frame, &player.model, theme, &mut hits)).map_err(Error::terminal)?;
        }
        is_changed = match keyboard.events.recv_timeout(FRAME) {
            Ok(event) => {
                if player.take(&event, &mut snapshots, &hits)? == Some(Effect::Quit) {
                    return Ok(Ended::Quit);
                }
                true
            }
            Err(RecvTimeoutError::Timeout) if !input::is_terminal_closed() => false,
            Err(_) => return Err(Error::terminal_closed()),
        };
    }
}

/// The model and the position in the recording.
struct Player {
    model: Model,
    index: usize,
    last: usize,
    /// When the current snapshot was shown, if the recording is playing.
    playing_since: Option<Instant>,
}

impl Player {
    fn new(snapshots: &Snapshots, at: Option<Duration>) -> Player {
        let mut model = Model::new(DEFAULT_INTERVAL);
        let head = snapshots.head().clone();
        let hello = Hello { pid: head.pid, program: head.program, volt: head.volt, ..Hello::default() };
        model.update(Message::Connected(hello));
        // Starts at the second snapshot, because rates need two.
        let index = at.map_or(snapshots.last().min(1), |at| snapshots.index_at(at));
        Player { model, index, last: snapshots.last(), playing_since: None }
    }

    /// Returns whether the next snapshot is due.
    fn is_due(&self) -> bool {
        self.index < self.last && self.playing_since.is_some_and(|since| since.elapsed() >= self.model.interval)
    }

    /// Shows the snapshot with this index, with the rates since the previous one. If it is shown
    /// already, updates only the state of the player.
    fn go_to(&mut self, snapshots: &mut Snapshots, index: usize) -> Result<(), Error> {
        let index = index.min(self.last);
        let former = std::mem::replace(&mut self.index, index);
        let (at, whole) = (snapshots.since_begin(index), snapshots.since_begin(self.last));
        if self.playing_since.is_some() {
            self.playing_since = (index < self.last).then(Instant::now);
        }
        let is_playing = self.playing_since.is_some();
        let broke = snapshots.broke.as_deref().map(clean::text);
        let played = Played { at, whole, is_playing, broke };
        if index == former && self.model.played.is_some() {
            self.model.played = Some(played);
            return Ok(());
        }
        let is_next = index == former + 1;
        let earlier = if is_next { None } else { Some(snapshots.program(index.saturating_sub(1))?) };
        self.model.play(played, earlier, snapshots.program(index)?);
        Ok(())
    }

    fn take(&mut self, event: &Event, snapshots: &mut Snapshots, hits: &Hits) -> Result<Option<Effect>, Error> {
        let step = |code: KeyCode| match code {
            KeyCode::Right => Some(1),
            KeyCode::Left => Some(-1),
            _ => None,
        };
        if let Event::Key(key) = event
            && key.kind != KeyEventKind::Release
            && !self.model.is_typing
            && let Some(step) = step(key.code)
        {
            self.playing_since = None;
            self.go_to(snapshots, self.index.saturating_add_signed(step))?;
            return Ok(None);
        }
        match input::action(event, self.model.is_typing, hits) {
            Some(Action::TogglePause) => {
                self.playing_since = if self.playing_since.is_some() { None } else { Some(Instant::now()) };
                let index = if self.index == self.last && self.playing_since.is_some() { 0 } else { self.index };
                self.go_to(snapshots, index)?;
                Ok(None)
            }
            Some(action) => Ok(self.model.update(Message::Do(action))),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use crossterm::event::{KeyEvent, KeyModifiers};
    use volt_recording::writer::{MIN_FILE_BYTES, Settings, Writer};
    use volt_telemetry::recording::flush::Flush;

    use super::*;

    const MS: u64 = 1_000_000;

    /// A recording of five snapshots, a quarter of a second apart, in this many files. Removed with
    /// the test.
    struct Recorded(PathBuf);

    impl Recorded {
        fn new(name: &str, files: u32) -> Recorded {
            let path = std::env::temp_dir().join(format!("volt-film-{}-{name}.voltrec", std::process::id()));
            let settings = Settings { path: path.clone(), max_file_bytes: MIN_FILE_BYTES, max_files: files };
            let head = Head { pid: 7, program: "shop".into(), ..Head::default() };
            let mut writer = Writer::create(settings, head).unwrap();
            for number in 0..5 {
                let at_ns = number * 250 * MS;
                let snapshot = Snapshot { runtime: "main".into(), at_ns, ..Snapshot::default() };
                writer.write(&Flush { at_ns, snapshot: Some(Box::new(snapshot)), ..Flush::default() }).unwrap();
                if files > 1 {
                    writer.end_file().unwrap();
                }
            }
            writer.finish().unwrap();
            Recorded(path)
        }
    }

    impl Drop for Recorded {
        fn drop(&mut self) {
            parts_of(&self.0).into_iter().for_each(|part| _ = std::fs::remove_file(part));
        }
    }

    fn press(player: &mut Player, snapshots: &mut Snapshots, code: KeyCode) -> u128 {
        let key = Event::Key(KeyEvent::new(code, KeyModifiers::NONE));
        assert_eq!(player.take(&key, snapshots, &Hits::default()).unwrap(), None);
        let shown = player.model.runtimes()[0].at_ns / MS;
        let at = player.model.played.as_ref().unwrap().at.as_millis();
        assert_eq!(u128::from(shown), at, "the state is of the time that is shown");
        at
    }

    #[test]
    fn the_arrows_go_back_and_forth_and_stop_at_the_ends() {
        for files in [1, 9] {
            let recorded = Recorded::new(&format!("arrows-{files}"), files);
            let mut snapshots = Snapshots::open(&recorded.0).unwrap();
            let mut player = Player::new(&snapshots, Some(Duration::from_millis(600)));
            player.go_to(&mut snapshots, player.index).unwrap();
            let mut at = |code| press(&mut player, &mut snapshots, code);
            let right = [at(KeyCode::Right), at(KeyCode::Right), at(KeyCode::Right)];
            let left = [0; 6].map(|_| at(KeyCode::Left));
            assert_eq!((right, left), ([750, 1000, 1000], [750, 500, 250, 0, 0, 0]), "{files} files");
            assert_eq!(player.model.hello.program, "shop");
        }
    }

    #[test]
    fn space_plays_to_the_end_and_once_more_from_the_begin() {
        let recorded = Recorded::new("plays", 1);
        let mut snapshots = Snapshots::open(&recorded.0).unwrap();
        let mut player = Player::new(&snapshots, None);
        player.go_to(&mut snapshots, player.index).unwrap();
        let is_playing = |player: &Player| player.model.played.as_ref().unwrap().is_playing;
        assert!(!player.is_due() && !is_playing(&player));
        player.model.interval = Duration::ZERO;
        assert_eq!(press(&mut player, &mut snapshots, KeyCode::Char(' ')), 250);
        while player.is_due() {
            assert!(is_playing(&player));
            player.go_to(&mut snapshots, player.index + 1).unwrap();
        }
        assert_eq!((player.index, is_playing(&player)), (4, false));
        assert_eq!(press(&mut player, &mut snapshots, KeyCode::Char(' ')), 0);
        assert!(is_playing(&player));
        assert_eq!(press(&mut player, &mut snapshots, KeyCode::Char(' ')), 0);
        assert!(!is_playing(&player) && !player.is_due());
    }

    #[test]
    fn the_history_remains_after_a_stop_and_at_the_end() {
        let recorded = Recorded::new("history", 1);
        let mut snapshots = Snapshots::open(&recorded.0).unwrap();
        let mut player = Player::new(&snapshots, None);
        player.go_to(&mut snapshots, player.index).unwrap();
        press(&mut player, &mut snapshots, KeyCode::Char(' '));
        player.go_to(&mut snapshots, player.index + 1).unwrap();
        press(&mut player, &mut snapshots, KeyCode::Char(' '));
        assert_eq!(player.model.history().count(), 2, "stopped at the third snapshot");
        for _ in 0..4 {
            press(&mut player, &mut snapshots, KeyCode::Right);
        }
        assert_eq!(player.model.history().count(), 4, "the last snapshot is shown once");
        press(&mut player, &mut snapshots, KeyCode::Left);
        assert_eq!(player.model.history().count(), 1, "an earlier snapshot begins it anew");
    }

    #[test]
    fn a_file_that_cannot_be_opened_does_not_hide_the_others() {
        let recorded = Recorded::new("empty", 9);
        let parts = parts_of(&recorded.0);
        std::fs::write(&parts[parts.len() - 1], "").unwrap();
        let snapshots = Snapshots::open(&recorded.0).unwrap();
        assert_eq!((parts.len(), snapshots.places.len()), (5, 4));
        assert!(snapshots.broke.is_some_and(|broke| broke.contains(".0005.")));
        parts.iter().for_each(|part| std::fs::write(part, "").unwrap());
        assert!(Snapshots::open(&recorded.0).is_err_and(|error| error.is_recording()));
    }

    #[test]
    fn a_truncated_recording_opens_up_to_its_last_complete_part() {
        let recorded = Recorded::new("cut", 1);
        let bytes = std::fs::read(&recorded.0).unwrap();
        std::fs::write(&recorded.0, &bytes[..bytes.len() * 3 / 4]).unwrap();
        let snapshots = Snapshots::open(&recorded.0).unwrap();
        assert!((2..5).contains(&snapshots.places.len()), "{}", snapshots.places.len());
        assert!(snapshots.broke.as_ref().is_some_and(|broke| broke.contains("is truncated")));
        std::fs::write(&recorded.0, &bytes[..bytes.len() / 20]).unwrap();
        assert!(Snapshots::open(&recorded.0).is_err_and(|error| error.is_recording()));
    }
}
