//! The manual page: one, with every command on it, made from the same description as the help.
//!
//! clap_mangen makes a page a command, and refers from the first to the others, which would be a dozen files to install. Here
//! its sections are put together: of the main command the title and the texts, of each other one, under its name, the synopsis,
//! what it does and its options.

use std::io;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::arguments::CHAPTERS;

/// The page of `command`, as roff.
pub(crate) fn page(mut command: Command) -> String {
    command.build();
    let verbs: Vec<Command> = command.get_subcommands().cloned().collect();
    let man = Man::new(command).manual("Volt");
    // The title comes with what roff needs to know once.
    let mut page = rendered(|to| man.render_title(to));
    page += &rest(&rendered(|to| man.render_name_section(to)));
    page += &rest(&rendered(|to| man.render_synopsis_section(to)));
    page += &rest(&rendered(|to| man.render_description_section(to)));
    page += ".SH COMMANDS\n";
    verbs.into_iter().for_each(|verb| page += &of_verb(verb));
    for (title, text) in CHAPTERS {
        page += &format!(".SH {}\n", title.to_uppercase().replace(' ', "\\ "));
        page += &rest(&Roff::new().text([roman(text)]).render());
    }
    page
}

fn of_verb(verb: Command) -> String {
    let heading = format!(".SS {}\n", verb.get_name());
    let man = Man::new(verb);
    let parts = [
        rendered(|to| man.render_synopsis_section(to)),
        ".PP\n".into(),
        rendered(|to| man.render_description_section(to)),
        rendered(|to| man.render_options_section(to)),
    ];
    let body = parts.iter().map(|part| rest(part)).collect::<String>();
    // All of it stands under the one heading.
    let lines = body.lines().filter(|line| !line.starts_with(".SH "));
    heading + &lines.map(|line| format!("{line}\n")).collect::<String>()
}

fn rendered(render: impl FnOnce(&mut dyn io::Write) -> io::Result<()>) -> String {
    let mut text = Vec::new();
    render(&mut text).expect("text can be written to memory");
    String::from_utf8_lossy(&text).into_owned()
}

/// `text` without the lines that define the apostrophe, which begin whatever is rendered.
fn rest(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with(".ie ") && !line.starts_with(".el "));
    lines.map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::arguments::Arguments;

    #[test]
    fn every_command_and_option_is_on_the_page() {
        let page = page(Arguments::command());
        let plain = page.replace("\\-", "-");
        let command = Arguments::command();
        for verb in command.get_subcommands() {
            assert_eq!(plain.matches(&format!("\n.SS {}\n", verb.get_name())).count(), 1, "{}", verb.get_name());
            let (_, of_verb) = plain.split_once(&format!(".SS {}\n", verb.get_name())).unwrap();
            let of_verb = of_verb.split(".SS ").next().unwrap();
            for long in verb.get_arguments().filter_map(|argument| argument.get_long()) {
                assert!(of_verb.contains(&format!("--{long}")), "--{long} of {}", verb.get_name());
            }
        }
        for (title, _) in CHAPTERS {
            assert!(page.contains(&format!(".SH {}\n", title.to_uppercase().replace(' ', "\\ "))), "{title}");
        }
        assert!(page.starts_with(".ie ") && page.matches(".ie ").count() == 1 && page.contains(".TH volt"));
    }
}
