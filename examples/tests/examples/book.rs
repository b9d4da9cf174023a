//! Tests of the book in `docs`: its table of contents, its commands and its page about settings.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Component, Path, PathBuf};
use std::process::{self, Stdio};

use serde_json::{Value, json};

use crate::documents::{Command, commands, pages, root};

/// The example programs that the documents run, with their executables.
const PROGRAMS: [(&str, &str); 8] = [
    ("chat", env!("CARGO_BIN_EXE_chat")),
    ("demo", env!("CARGO_BIN_EXE_demo")),
    ("first_steps", env!("CARGO_BIN_EXE_first_steps")),
    ("hello", env!("CARGO_BIN_EXE_hello")),
    ("leak", env!("CARGO_BIN_EXE_leak")),
    ("race", env!("CARGO_BIN_EXE_race")),
    ("starvation", env!("CARGO_BIN_EXE_starvation")),
    ("symptoms", env!("CARGO_BIN_EXE_symptoms")),
];
/// Those that have no options.
const WITHOUT_OPTIONS: [&str; 2] = ["first_steps", "hello"];

#[test]
fn the_table_of_contents_has_every_page_once() {
    let book = root().join("docs");
    let summary = fs::read_to_string(book.join("SUMMARY.md")).unwrap();
    let mut listed: Vec<_> = summary.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    listed.sort_unstable();
    let pages = pages();
    let names = pages.iter().map(|path| path.strip_prefix(&book).unwrap().to_str().unwrap());
    let mut expected: Vec<_> = names.filter(|name| *name != "SUMMARY.md").collect();
    expected.sort_unstable();
    assert_eq!(listed, expected, "docs/SUMMARY.md (left) and the pages in docs (right)");
}

/// Returns the targets of the links and images of a page, without those in code blocks.
fn targets(page: &str) -> Vec<&str> {
    let prose = page.split("```").step_by(2);
    prose.flat_map(|text| text.split("](").skip(1)).filter_map(|rest| rest.split(')').next()).collect()
}

/// Returns a path without `folder/..`. Unlike `canonicalize`, follows no symbolic link.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |normal, part| match part {
        Component::ParentDir => normal.parent().unwrap().to_owned(),
        part => normal.join(part),
    })
}

/// mdBook gives the book to a preprocessor as JSON, writes each `README.md` to `index.html`, and
/// copies no file from outside of the book. A symbolic link to a document is a page.
#[test]
fn each_link_of_the_book_leads_to_a_file_of_the_book() {
    if !process::Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: there is no python3");
        return;
    }
    let book = normal(&root().join("docs"));
    let pages: Vec<_> = pages().iter().map(|path| normal(path)).collect();
    let chapter = |path: &Path| {
        let content = fs::read_to_string(path).unwrap();
        json!({ "Chapter": { "path": path.strip_prefix(&book).unwrap(), "content": content, "sub_items": [] } })
    };
    let chapters: Vec<_> = pages.iter().map(|path| chapter(path)).collect();
    let mut preprocessor = process::Command::new("python3");
    let preprocessor = preprocessor.arg("../.ci/lib/outside.py").current_dir(&book);
    let mut preprocessor = preprocessor.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let input = json!([{}, { "items": chapters }]).to_string();
    preprocessor.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = preprocessor.wait_with_output().unwrap();
    assert!(output.status.success());
    let adapted: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut checked = 0;
    for (page, chapter) in pages.iter().zip(adapted["items"].as_array().unwrap()) {
        for target in targets(chapter["Chapter"]["content"].as_str().unwrap()) {
            let path = target.split('#').next().unwrap();
            if path.is_empty() || path.contains("://") {
                continue;
            }
            let written = normal(&page.with_file_name(path));
            assert!(!written.ends_with("README.md"), "{}: {target} would lead to README.html", page.display());
            let is_index = written.ends_with("index.md");
            let source = if is_index { written.with_file_name("README.md") } else { written };
            assert!(source.starts_with(&book) && source.is_file(), "{}: the book has no {target}", page.display());
            checked += 1;
        }
    }
    assert!(checked > 100, "the pages still have links: only {checked} were found");
}

#[test]
fn example_programs_accept_the_arguments_of_the_documents() {
    let mut checked = 0;
    for command in commands() {
        for (name, program) in PROGRAMS {
            // Only as `cargo run` runs it: other words of that name are names of running programs.
            let Some(arguments) = command.arguments_of(name).filter(|_| command.words[0] == "cargo") else { continue };
            if WITHOUT_OPTIONS.contains(&name) {
                assert!(arguments.is_empty(), "{}: {name} has no options", command.place);
            } else {
                let run = process::Command::new(program).args(arguments).arg("--help").output().unwrap();
                assert!(
                    run.status.success(),
                    "{}: {command:?}\n{}",
                    command.place,
                    String::from_utf8_lossy(&run.stderr)
                );
            }
            checked += 1;
        }
    }
    assert!(checked > 10, "the documents still run examples: only {checked} were found");
}

#[test]
fn cargo_commands_of_the_documents_name_existing_targets() {
    let root = root();
    // The workspace's packages, and the programs, examples and benches of each.
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let members = manifest.split_once("members = [").unwrap().1.split(']').next().unwrap();
    let folders: Vec<_> = members.split('"').skip(1).step_by(2).map(|name| root.join(name)).collect();
    let mut names = BTreeSet::new();
    for folder in &folders {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        names.extend(
            manifest.lines().filter_map(|line| Some(line.strip_prefix("name = \"")?.strip_suffix('"')?.to_owned())),
        );
        for targets in ["src/bin", "examples", "benches"] {
            let Ok(entries) = fs::read_dir(folder.join(targets)) else { continue };
            let paths = entries.map(|entry| entry.unwrap().path());
            names.extend(paths.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()));
        }
    }
    let mut checked = 0;
    let is_target = |option: &str| ["-p", "--package", "--bin", "--example", "--bench"].contains(&option);
    for command in commands() {
        let Command { place, words } = &command;
        if words[0] != "cargo" || words.get(1).is_some_and(|verb| verb == "volt" || verb == "update") {
            continue;
        }
        let words = words.split(|word| word == "--").next().unwrap();
        for pair in words.windows(2) {
            if is_target(&pair[0]) {
                assert!(names.contains(&pair[1]), "{place}: the workspace has no {}", pair[1]);
                checked += 1;
            }
            if pair[0] == "--path" {
                assert!(root.join(&pair[1]).join("Cargo.toml").exists(), "{place}: {} has no package", pair[1]);
                checked += 1;
            }
        }
    }
    assert!(checked > 30, "the documents still have commands of cargo: only {checked} were found");
}

/// Returns the settings of `Tuning`, each with the lines of its documentation.
fn settings() -> Vec<(String, Vec<String>)> {
    let source = fs::read_to_string(root().join("runtime/core/src/builder/tuning.rs")).unwrap();
    let mut settings = Vec::new();
    let mut documentation = Vec::new();
    for line in source.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            documentation.push(text.trim().to_owned());
        } else if let Some(rest) = line.strip_prefix("pub fn ") {
            let name = rest.split(['(', '<']).next().unwrap().to_owned();
            settings.push((name, std::mem::take(&mut documentation)));
        } else if !line.starts_with("#[") {
            documentation.clear();
        }
    }
    assert!(settings.len() > 30, "{settings:?}");
    settings
}

#[test]
fn the_page_about_tuning_names_every_setting() {
    let page = fs::read_to_string(root().join("docs/operations/tuning.md")).unwrap();
    for (setting, _) in settings() {
        let is_named = page.contains(&format!("`{setting}`")) || page.contains(&format!("`{setting}("));
        assert!(is_named, "docs/operations/tuning.md does not name {setting}");
    }
}

#[test]
fn each_tuning_setting_has_one_paragraph() {
    for (setting, documentation) in settings() {
        // Sections and examples may follow.
        let is_text = |line: &&String| !line.starts_with("# ") && !line.starts_with("```");
        let text: Vec<_> = documentation.iter().take_while(is_text).map(String::as_str).collect();
        let paragraphs: Vec<_> = text.split(|line| line.is_empty()).filter(|lines| !lines.is_empty()).collect();
        assert_eq!(paragraphs.len(), 1, "{setting}: {paragraphs:#?}");
    }
}
