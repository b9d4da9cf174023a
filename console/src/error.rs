//! The error of the console.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use volt_recording::error::RecordingError;
use volt_telemetry::client::ConnectError;

use crate::text::clean;
use crate::text::figures::span;

/// Why the console failed or could not start. Its message suggests a remedy if there is one.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Connect,
    NotATerminal,
    NoProgram,
    SeveralPrograms,
    NotChecked,
    OutputClosed,
    Recording,
    Io,
}

/// The commands to suggest if there is no terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instead {
    for_text: &'static str,
    for_script: &'static str,
}

impl Instead {
    /// Replacements of the live screen.
    pub(crate) const OF_ATTACH: Instead =
        Instead { for_text: "volt-console top", for_script: "volt-console top --once --json" };
    /// Replacements of the replay screen.
    pub(crate) const OF_REPLAY: Instead =
        Instead { for_text: "volt-console replay --once FILE", for_script: "volt-console replay --json FILE" };
}

impl Error {
    fn new(kind: Kind, message: String) -> Error {
        Error { kind, message }
    }

    pub(crate) fn not_a_terminal(instead: Instead) -> Error {
        let remedy = format!("use `{}` for text, or `{}` for a script", instead.for_text, instead.for_script);
        Error::new(Kind::NotATerminal, format!("a live screen needs a terminal as standard input and output: {remedy}"))
    }

    /// Adds a hint: the argument may be a mistyped command.
    pub fn or_command(mut self) -> Error {
        self.message += "; for a list of commands, run `volt-console --help`";
        self
    }

    /// The first argument of `why` is a program. `line` is the corrected command line.
    pub(crate) fn wrong_order(program: &str, line: &str) -> Error {
        let message = format!("{program:?} is a program, and the order is `why TASK PROGRAM`: run `{line}`");
        Error::new(Kind::Connect, clean::text(&message))
    }

    /// Adds a hint: the arguments of `why` may be in the wrong order.
    pub(crate) fn or_wrong_order(mut self, line: &str) -> Error {
        self.message += &clean::text(&format!(". The order is `why TASK PROGRAM`; did you mean `{line}`?"));
        self
    }

    pub(crate) fn dumb_terminal(instead: Instead) -> Error {
        let remedy = format!("use `{}` for text, or set TERM, for example to xterm", instead.for_text);
        Error::new(Kind::NotATerminal, format!("TERM is `dumb`, and such a terminal cannot show a screen: {remedy}"))
    }

    pub(crate) fn no_program(searched: &str, refused: &[String]) -> Error {
        let mut message = format!("no Volt program is running (searched {searched})");
        for reason in refused {
            message.push_str(&format!(". Not usable: {reason}"));
        }
        message.push_str(
            ". Start one, or give the path of its socket; root can also give the pid of another user's program",
        );
        Error::new(Kind::NoProgram, message)
    }

    pub(crate) fn several_programs(programs: &str) -> Error {
        let message = format!("several Volt programs are running; give the pid or the name of one:\n{programs}");
        Error::new(Kind::SeveralPrograms, message)
    }

    /// The program was to be watched for `wanted`, but was only watched for `watched`.
    pub(crate) fn not_watched(why: &ConnectError, watched: Duration, wanted: Duration) -> Error {
        let (watched, wanted) = (span(watched), span(wanted));
        let message = format!("check incomplete: {why}; watched {watched} of {wanted}, within the limits so far");
        Error::new(Kind::Connect, clean::text(&message))
    }

    /// There was nothing to compare with the limits.
    pub(crate) fn not_checked(why: &str) -> Error {
        Error::new(Kind::NotChecked, format!("check failed: {why}"))
    }

    pub(crate) fn terminal(error: io::Error) -> Error {
        Error::new(Kind::Io, format!("terminal error: {error}"))
    }

    pub(crate) fn terminal_closed() -> Error {
        Error::new(Kind::Io, "the terminal was closed".into())
    }

    /// Wraps an error of writing to standard output.
    pub fn output(error: io::Error) -> Error {
        let is_closed = error.kind() == io::ErrorKind::BrokenPipe;
        let kind = if is_closed { Kind::OutputClosed } else { Kind::Io };
        Error::new(kind, format!("cannot write to standard output: {error}"))
    }

    pub(crate) fn no_such_task(task: &str) -> Error {
        let message = format!(
            "no waiting or running task has the id or name {task:?}: it may have completed, or be in a queue; list \
             the tasks with `volt-console tasks`"
        );
        Error::new(Kind::Connect, clean::text(&message))
    }

    pub(crate) fn thread(error: io::Error) -> Error {
        Error::new(Kind::Io, format!("cannot start a thread: {error}"))
    }

    pub(crate) fn connection_ended() -> Error {
        Error::new(Kind::Io, "the connection thread ended unexpectedly".into())
    }

    pub(crate) fn signals(error: io::Error) -> Error {
        Error::new(Kind::Io, format!("cannot install signal handlers: {error}"))
    }

    /// Wraps an error of creating or writing a file.
    pub(crate) fn file(path: &Path, error: &io::Error) -> Error {
        let shown = path.display();
        let remedy = match error.kind() {
            io::ErrorKind::AlreadyExists => {
                let message = format!("{shown} already exists: choose another name, or delete it");
                return Error::new(Kind::Recording, message);
            }
            io::ErrorKind::NotFound => {
                let message =
                    format!("{shown} cannot be created: its directory does not exist: create it, or choose another");
                return Error::new(Kind::Recording, message);
            }
            io::ErrorKind::PermissionDenied => ": choose a directory that this user can write to",
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ": free some space",
            _ => "",
        };
        Error::new(Kind::Recording, format!("{shown}: {error}{remedy}"))
    }

    /// The recording has nothing to show.
    pub(crate) fn broken(why: &str) -> Error {
        Error::new(Kind::Recording, why.to_owned())
    }

    /// Several black boxes were to be written to one recording.
    pub(crate) fn several_black_boxes(output: &Path, files: &[PathBuf]) -> Error {
        let files: Vec<_> = files.iter().map(|file| format!("\n  {}", file.display())).collect();
        let message = format!(
            "the run has several black boxes, and {} can contain only one: give one of these as PATH:{}",
            output.display(),
            files.concat()
        );
        Error::new(Kind::Recording, message)
    }

    pub(crate) fn no_snapshot(path: &Path) -> Error {
        let message = format!("{} has no snapshot to show: use `volt-console export` for its events", path.display());
        Error::new(Kind::Recording, message)
    }

    /// Returns whether a recording, its trace, or a black box could not be read or written.
    pub fn is_recording(&self) -> bool {
        self.kind == Kind::Recording
    }

    /// Returns whether the program could not be reached, exited too early, or did not do what was
    /// requested: there is no such socket, it is stale or belongs to another user; the program has
    /// another version or does not use Volt's protocol; or it has no such runtime or task.
    pub fn is_connect(&self) -> bool {
        self.kind == Kind::Connect
    }

    /// Returns whether there is no terminal to draw on.
    pub fn is_not_a_terminal(&self) -> bool {
        self.kind == Kind::NotATerminal
    }

    /// Returns whether no program was named, and none is running that replies.
    pub fn is_no_program(&self) -> bool {
        self.kind == Kind::NoProgram
    }

    /// Returns whether several programs are running and none was named.
    pub fn is_several_programs(&self) -> bool {
        self.kind == Kind::SeveralPrograms
    }

    /// Returns whether there was nothing to check.
    pub fn is_not_checked(&self) -> bool {
        self.kind == Kind::NotChecked
    }

    /// Returns whether the reader of the output has closed it, as `head` does. The console then
    /// exits without a message.
    pub fn is_output_closed(&self) -> bool {
        self.kind == Kind::OutputClosed
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<RecordingError> for Error {
    fn from(error: RecordingError) -> Error {
        let kind = if error.is_broken_pipe() { Kind::OutputClosed } else { Kind::Recording };
        Error::new(kind, error.to_string())
    }
}

impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Error {
        let remedy = if error.is_missing() || error.is_stale() || error.is_not_a_socket() || error.is_not_volt() {
            ". Run `volt-console list` for the running programs"
        } else {
            ""
        };
        // The message may contain text from the program.
        Error::new(Kind::Connect, format!("{}{remedy}", clean::text(&error.to_string())))
    }
}
