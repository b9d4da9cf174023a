//! Why the console could not do what it was asked.

use std::io;

use volt_telemetry::client::ConnectError;

/// Why the console ended or did not begin; the text says what to do.
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
    OutputClosed,
    Io,
}

impl Error {
    fn new(kind: Kind, message: String) -> Error {
        Error { kind, message }
    }

    pub(crate) fn not_a_terminal() -> Error {
        let remedy = "for text use `volt-console top`, for a script `volt-console top --once --json`";
        Error::new(Kind::NotATerminal, format!("standard input and output must be a terminal for `attach`: {remedy}"))
    }

    pub(crate) fn no_program(looked_in: &str, refused: &[String]) -> Error {
        let mut message = format!("no Volt program is running (looked in {looked_in})");
        for reason in refused {
            message.push_str(&format!("; {reason}"));
        }
        message.push_str(
            ". Start one, or give its socket's path; another user's programs are seen by that user and by root",
        );
        Error::new(Kind::NoProgram, message)
    }

    pub(crate) fn several_programs(programs: &str) -> Error {
        let message = format!("several Volt programs are running, give the pid or the name of one:\n{programs}");
        Error::new(Kind::SeveralPrograms, message)
    }

    pub(crate) fn terminal(error: io::Error) -> Error {
        Error::new(Kind::Io, format!("the terminal failed: {error}"))
    }

    pub(crate) fn terminal_gone() -> Error {
        Error::new(Kind::Io, "the terminal was closed".into())
    }

    pub(crate) fn output(error: io::Error) -> Error {
        let is_closed = error.kind() == io::ErrorKind::BrokenPipe;
        let kind = if is_closed { Kind::OutputClosed } else { Kind::Io };
        Error::new(kind, format!("writing to standard output failed: {error}"))
    }

    pub(crate) fn thread(error: io::Error) -> Error {
        Error::new(Kind::Io, format!("a thread could not be started: {error}"))
    }

    pub(crate) fn connection_ended() -> Error {
        Error::new(Kind::Io, "the thread of the connection ended unexpectedly".into())
    }

    /// The program could not be reached: no such socket, stale, foreign, another version, something else than Volt's protocol.
    pub fn is_connect(&self) -> bool {
        self.kind == Kind::Connect
    }

    /// There is no terminal to draw on.
    pub fn is_not_a_terminal(&self) -> bool {
        self.kind == Kind::NotATerminal
    }

    /// No program runs that could be meant.
    pub fn is_no_program(&self) -> bool {
        self.kind == Kind::NoProgram
    }

    /// Several programs run and none was named.
    pub fn is_several_programs(&self) -> bool {
        self.kind == Kind::SeveralPrograms
    }

    /// Whoever read the output has gone, as `head` does when it has enough: no reason to complain.
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

impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Error {
        let remedy = if error.is_missing() || error.is_stale() || error.is_not_a_socket() || error.is_not_volt() {
            ": `volt-console list` shows what can be attached to"
        } else {
            ""
        };
        Error::new(Kind::Connect, format!("{error}{remedy}"))
    }
}
