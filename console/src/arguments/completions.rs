//! What makes a shell complete the commands and options: clap_complete's script, mended where it needs it.

use clap::Command;
use clap_complete::Shell;

/// The script for `shell`.
///
/// In bash that of clap_complete 4.6 completes nothing behind a command of a program whose name has a hyphen: it looks for
/// `volt__console__subcmd__list` among names in which the hyphen has become `__subcmd__` too
/// (<https://github.com/clap-rs/clap/issues/6421>). No command of ours has one, so that it is only the program's to be put right.
pub(crate) fn script(shell: Shell, mut command: Command) -> String {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, &name, &mut script);
    let script = String::from_utf8_lossy(&script);
    match shell {
        Shell::Bash => script.replace(&name.replace('-', "__subcmd__"), &name.replace('-', "__")),
        _ => script.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::arguments::Arguments;

    #[test]
    fn the_names_that_bash_is_led_to_are_there() {
        let script = script(Shell::Bash, Arguments::command());
        let led_to: Vec<_> =
            script.lines().filter_map(|line| line.trim().strip_prefix("cmd=\"volt")?.strip_suffix('"')).collect();
        assert!(led_to.len() > 10, "{script}");
        for name in led_to {
            assert!(script.lines().any(|line| line.trim() == format!("volt{name})")), "volt{name} is nowhere");
        }
    }
}
