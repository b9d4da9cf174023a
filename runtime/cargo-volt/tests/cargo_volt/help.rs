//! Tests of the page of the book that has the help of `cargo volt`.

use std::fs;

use crate::fixture::Folder;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cargo-volt.md");
/// How the page is written.
const WRITE: &str = "VOLT_WRITE_DOCS=1 cargo test -p cargo-volt help";

fn block(text: &str) -> String {
    let lines: Vec<_> = text.trim_end().lines().map(str::trim_end).collect();
    format!("```text\n{}\n```\n", lines.join("\n"))
}

#[test]
fn the_page_of_cargo_volt_is_its_help() {
    let folder = Folder::new("help");
    let help_of = |command: &str| {
        let done = folder.run(&format!("{command} --help"));
        done.succeeds();
        done.stdout
    };
    let help = help_of("");
    let (_, listed) = help.split_once("Commands:\n").expect("it lists the commands");
    let listed = listed.split("\n\n").next().expect("it is not empty");
    // The lines that continue a description have more spaces.
    let names = listed.lines().filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')));
    let names: Vec<_> = names.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.contains(&"build") && names.contains(&"doctor"), "{names:?}");
    let mut text = format!(
        "# cargo volt\n\n\
         This page has the output of `--help` of `cargo volt` and of each of its commands. [A Tokio program\n\
         on Volt, unchanged](../drop-in.md) explains how to install and use it.\n\
         The page is generated: `{WRITE}`.\n\n{}",
        block(&help)
    );
    for name in names {
        text += &format!("\n## cargo volt {name}\n\n{}", block(&help_of(name)));
    }
    if std::env::var_os("VOLT_WRITE_DOCS").is_some() {
        fs::write(PAGE, text).expect("it can be written");
    } else {
        assert!(
            fs::read_to_string(PAGE).expect("it is there") == text,
            "docs/reference/cargo-volt.md is stale: {WRITE}"
        );
    }
}
