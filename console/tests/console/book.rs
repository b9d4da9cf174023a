//! Tests of the book in `docs`: the commands of `volt-console` that the documents show, and the
//! pages that are made from its help and from its recorded screens.

use std::fs;
use std::path::Path;
use std::process::Command;

use volt_console::model::Screen;
use volt_console::model::help::{self, Section};

use crate::documents::{commands, root};

/// The recordings of each screen, each with its title.
fn recordings(screen: Screen) -> &'static [(&'static str, &'static str)] {
    match screen {
        Screen::Overview => {
            &[("2-workers", "Example"), ("64-workers", "With 64 workers"), ("stalled", "While a worker is stuck")]
        }
        Screen::Workers => &[("workers", "Example")],
        Screen::Tasks => &[("tasks", "Example"), ("task", "With Enter: one task")],
        Screen::Latency => &[("latency", "Example")],
        Screen::Incidents => &[("incidents", "Example"), ("stack", "With Enter: the stack")],
        Screen::Blame => &[("blame", "Example")],
        Screen::Doctor => &[("doctor", "Example")],
        Screen::Events => &[("events", "Example")],
        Screen::Processes => &[("processes", "Example"), ("process", "With Enter: one process")],
        Screen::Waits => &[("waits", "Example")],
        Screen::Routes => &[("routes", "Example")],
    }
}

/// How the pages are written.
const WRITE: &str = "VOLT_WRITE_DOCS=1 cargo test -p volt-console --test console book";

/// Returns what `volt-console` prints.
fn output(arguments: &[&str]) -> String {
    let run = Command::new(env!("CARGO_BIN_EXE_volt-console")).args(arguments).output().unwrap();
    assert!(run.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8(run.stdout).unwrap()
}

/// Compares a page with `text`, or writes it.
fn assert_page(name: &str, text: &str) {
    let path = root().join("docs/reference").join(name);
    if std::env::var_os("VOLT_WRITE_DOCS").is_some() {
        fs::write(path, text).expect("it can be written");
    } else {
        assert!(fs::read_to_string(path).unwrap() == text, "docs/reference/{name} is stale: {WRITE}");
    }
}

fn block(text: &str) -> String {
    let lines: Vec<_> = text.trim_end().lines().map(str::trim_end).collect();
    format!("```text\n{}\n```\n", lines.join("\n"))
}

#[test]
fn the_console_accepts_each_command_of_the_documents() {
    let mut checked = 0;
    for command in commands() {
        let Some(arguments) = command.arguments_of("volt-console") else { continue };
        let mut run = Command::new(env!("CARGO_BIN_EXE_volt-console"));
        // The arguments before `--help` are checked, and nothing is run.
        let run = run.args(arguments).arg("--help").output().unwrap();
        assert!(run.status.success(), "{}: {command:?}\n{}", command.place, String::from_utf8_lossy(&run.stderr));
        checked += 1;
    }
    assert!(checked > 40, "the documents still show commands: only {checked} were found");
}

#[test]
fn the_pages_of_commands_are_the_help_of_the_console() {
    let help = output(&["--help"]);
    let listed = help.split_once("Commands:\n").unwrap().1.split("\n\n").next().unwrap();
    let indented = |line: &str| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')).map(str::to_owned);
    let names: Vec<_> = listed.lines().filter_map(indented).collect();
    let names: Vec<_> = names.iter().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.contains(&"doctor") && names.contains(&"man"), "{names:?}");
    let made = format!("The page is generated:\n`{WRITE}`.\n");
    let mut index = format!(
        "# Commands of the console\n\n\
         These pages have the output of `--help`: the commands, their options, examples and exit codes.\n\
         `volt-console man` prints the same as a manual page.\n\
         {made}\n| command | it does |\n|---|---|\n"
    );
    for name in names {
        let text = output(&[name, "--help"]);
        let first = text.lines().next().unwrap().replace("ui.perfetto.dev", "`ui.perfetto.dev`");
        index += &format!("| [`{name}`]({name}.md) | {first} |\n");
        let page = format!("# volt-console {name}\n\n{made}\n{}", block(&text));
        assert_page(&format!("commands/{name}.md"), &page);
    }
    index += &format!("\n## volt-console\n\n{}", block(&help));
    assert_page("commands/README.md", &index);
}

/// Formats a section of the help as a table.
fn table(section: &Section) -> String {
    let cell = |text: &str| text.replace('|', "\\|");
    let rows = section.entries.iter().map(|(label, phrase)| format!("| `{}` | {} |\n", cell(label), cell(phrase)));
    format!("\n## {}\n\n| shown | meaning |\n|---|---|\n{}", section.title, rows.collect::<String>())
}

#[test]
fn each_screen_has_a_page_with_its_recordings_and_its_help() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/view/tests/recorded");
    let made = format!("The page is generated:\n`{WRITE}`.\n");
    let mut index = format!(
        "# Screens of the console\n\n\
         `volt-console attach` has a screen for each of the keys `1` to `9`, `0` and `u`. Each page has an\n\
         example and explains every line and column, as `?` does on the screen. [Terms](../../guide/terms.md)\n\
         explains the words.\n\
         {made}\n| key | screen | it shows |\n|---|---|---|\n"
    );
    for screen in Screen::ALL {
        let (key, name, purpose) = (screen.key(), screen.name(), help::purpose(screen));
        index += &format!("| `{key}` | [{name}]({name}.md) | {} |\n", purpose.trim_end_matches('.'));
        let mut page = format!(
            "# Screen {key}: {name}\n\n{purpose}\n\n\
             [Screens](README.md) has the keys of every screen.\n\
             The examples are recordings of the console's tests, in a terminal of 80 columns and 24 lines. They\n\
             show invented programs, so their numbers do not fit together.\n\
             {made}"
        );
        for (recording, title) in recordings(screen) {
            let text = fs::read_to_string(folder.join(recording).join("80x24.txt")).unwrap();
            page += &format!("\n## {title}\n\n{}", block(&text));
        }
        page.extend(help::sections(screen).iter().map(table));
        assert_page(&format!("screens/{name}.md"), &page);
    }
    index += &table(&help::KEYS);
    index += &table(&help::REPLAY_KEYS);
    let text = fs::read_to_string(folder.join("help/80x24.txt")).unwrap();
    index += &format!("\n## The first page of the help\n\n{}", block(&text));
    assert_page("screens/README.md", &index);
}
