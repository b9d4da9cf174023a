//! The manual page: one page with every command, made from the same description as the help.
//!
//! clap_mangen makes one page for each command, which would be a dozen files to install. This
//! module joins their sections: the title and the texts of the main command, then for each command
//! its synopsis, description, options, examples and tables.

use std::io;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::arguments::help::CHAPTERS;

/// Returns the manual page of `command`, as roff.
pub fn page(mut command: Command) -> String {
    command.build();
    let verbs: Vec<Command> = command.get_subcommands().cloned().collect();
    let man = Man::new(command).manual("Volt");
    // The title includes the definitions that the page needs once.
    let mut page = rendered(|to| man.render_title(to));
    page += &rest(&rendered(|to| man.render_name_section(to)));
    page += &rest(&rendered(|to| man.render_synopsis_section(to)));
    page += &rest(&rendered(|to| man.render_description_section(to)));
    page += ".SH COMMANDS\n";
    verbs.into_iter().for_each(|verb| page += &of_verb(verb));
    for (title, text) in CHAPTERS {
        page += &format!(".SH {}\n", title.to_uppercase().replace(' ', "\\ "));
        page += &preformatted(text);
    }
    page
}

fn of_verb(verb: Command) -> String {
    let heading = format!(".SS {}\n", verb.get_name());
    let sections = verb.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let man = Man::new(verb);
    let parts = [
        rendered(|to| man.render_synopsis_section(to)),
        ".PP\n".into(),
        rendered(|to| man.render_description_section(to)),
        rendered(|to| man.render_options_section(to)),
    ];
    let body = parts.iter().map(|part| rest(part)).collect::<String>();
    // The whole body goes under one heading.
    let lines = body.lines().filter(|line| !line.starts_with(".SH "));
    let body: String = lines.map(|line| format!("{line}\n")).collect();
    let sections = sections.split("\n\n").fold(String::new(), |page, part| page + &section(part));
    heading + &body + &sections
}

/// Formats a part of a command's sections: a title in bold, if it begins with one, and the lines
/// below it.
fn section(part: &str) -> String {
    match part.split_once(":\n").filter(|(title, _)| !title.starts_with(' ')) {
        Some((title, lines)) => {
            ".PP\n".to_owned() + &rest(&Roff::new().text([bold(title)]).render()) + &preformatted(lines)
        }
        None => preformatted(part),
    }
}

/// Formats lines that keep their breaks and their indentation.
fn preformatted(text: &str) -> String {
    let mut roff = Roff::new();
    roff.control("PP", []).control("nf", []);
    text.lines().for_each(|line| _ = roff.text([roman(line)]));
    rest(&roff.control("fi", []).render())
}

fn rendered(render: impl FnOnce(&mut dyn io::Write) -> io::Result<()>) -> String {
    let mut text = Vec::new();
    render(&mut text).expect("text can be written to memory");
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns `text` without the definition of the apostrophe, which begins each rendered part.
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
            assert!(of_verb.contains("fBExamples"), "{of_verb}");
        }
        for (title, _) in CHAPTERS {
            assert!(page.contains(&format!(".SH {}\n", title.to_uppercase().replace(' ', "\\ "))), "{title}");
        }
        assert!(page.starts_with(".ie ") && page.matches(".ie ").count() == 1 && page.contains(".TH volt"));
    }
}
