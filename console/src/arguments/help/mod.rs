//! The sections below the options in `--help`: examples, exit codes and tables of values.
//!
//! The manual page prints the same sections. Lines are at most 78 columns wide, so that a section
//! fits a terminal of 80 columns.

mod files;
mod programs;

use clap::builder::{StyledStr, Styles};

pub(super) use self::files::*;
pub(super) use self::programs::*;

/// The largest width of the help, also on a wider terminal and in a file.
pub(super) const COLUMNS: usize = 80;

/// The title and the lines of a section.
pub(super) type Chapter = (&'static str, &'static str);

/// The end of the short help.
pub(super) const SHORT: &str = "\
Run `volt-console COMMAND --help` for the options and examples of a command,
and `volt-console --help` for exit codes, files and environment.";

/// The end of the long help, and sections of the manual page.
pub(super) const CHAPTERS: [Chapter; 4] = [
    (
        "Examples",
        "\
# List the running programs
volt-console list

# Show the program named shop on a live screen
volt-console attach shop

# Print what is wrong with shop, and at which line
volt-console doctor shop

# Record the events around the next schedule delay of at least 20 ms
volt-console record shop --trigger delay=20ms",
    ),
    (
        "Exit codes",
        "\
0  Success, also if standard output was closed early (`... | head`); `doctor`
   and `check` exit with their verdict in that case
1  Failure, with the reason on standard error; for `doctor` and `check`, a
   problem was found
2  Invalid arguments; for `doctor` and `check`, also if the program could not
   be checked

On SIGINT, SIGTERM or SIGHUP, `record` finishes its file and exits with 0. The
other commands terminate with the signal.",
    ),
    (
        "Files",
        "\
A program creates its control socket in the first of these directories:
  $VOLT_SOCKET_DIR          if VOLT_SOCKET_DIR is set
  $XDG_RUNTIME_DIR/volt     if XDG_RUNTIME_DIR is set
  /tmp/volt-UID             otherwise
The console searches $VOLT_SOCKET_DIR or, if that is not set, all of
$XDG_RUNTIME_DIR/volt, /run/user/UID/volt and /tmp/volt-UID: the environment
of a service may differ from that of a shell.
The name of the socket is PID-STARTTIME.sock. Only the program's user and root
can connect. A client cannot change what the program does, except that it can
switch the flight recorder on and off, and request a dump, which polls each
waiting task once.

Recordings have the extension .voltrec.",
    ),
    (
        "Environment",
        "\
VOLT_SOCKET_DIR  Search for sockets only in this directory
NO_COLOR         If set and not empty, disable colours; each colour also has
                 a word or a symbol",
    ),
];

/// Returns the sections as text, with titles in the style of clap's own.
pub(super) fn chapters(chapters: &[Chapter]) -> StyledStr {
    let styles = Styles::styled();
    let style = styles.get_header();
    let section = |(title, text): &Chapter| {
        let lines = text.lines().map(|line| if line.is_empty() { "\n".into() } else { format!("  {line}\n") });
        format!("{style}{title}:{style:#}\n{}", lines.collect::<String>())
    };
    let sections: Vec<_> = chapters.iter().map(section).collect();
    sections.join("\n").trim_end().to_owned().into()
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    use crate::arguments::Arguments;

    /// Checks the short and the long help of a command.
    fn assert_readable(command: &mut Command) {
        let name = command.get_name().to_owned();
        let (short, long) = (command.render_help().to_string(), command.render_long_help().to_string());
        for line in short.lines().chain(long.lines()) {
            assert!(line.chars().count() <= super::COLUMNS, "{name}: {line:?} is too wide");
        }
        assert!(long.contains("\nExamples:\n  #"), "{name} has no example:\n{long}");
        assert!(long.contains(&format!("\n  volt-console {}", if name == "volt-console" { "" } else { &name })));
    }

    #[test]
    fn each_help_fits_80_columns_and_has_an_example() {
        let mut command = Arguments::command();
        command.build();
        assert_readable(&mut command);
        command.get_subcommands_mut().for_each(assert_readable);
    }

    #[test]
    fn every_command_lists_its_exit_codes() {
        let mut command = Arguments::command();
        command.build();
        for command in command.get_subcommands_mut() {
            let name = command.get_name().to_owned();
            let help = command.render_long_help().to_string();
            let codes = help.split_once("\nExit codes:\n").map_or("", |(_, codes)| codes);
            assert!([0, 1, 2].iter().all(|code| codes.contains(&format!("  {code}  "))), "{name}:\n{help}");
        }
    }
}
