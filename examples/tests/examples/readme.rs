//! What the README shows is what is built.

const README: &str = include_str!("../../../README.md");
const HELLO: &str = include_str!("../../src/bin/hello.rs");

#[test]
fn the_program_in_the_readme_is_hello() {
    let (_, program) = HELLO.split_once("\n\n").expect("a header, then the program");
    let program = &program[program.find("use std").expect("the program begins with its imports")..];
    assert!(README.contains(&format!("```rust\n{program}```\n")), "README.md does not show this program:\n{program}");
}

#[test]
fn the_two_commands_stand_in_the_readme() {
    for command in ["cargo run --release --bin demo ", "cargo test --workspace "] {
        assert!(README.lines().any(|line| line.starts_with(command)), "{command:?} is missing");
    }
}

#[test]
fn the_readme_links_to_files_that_are_there() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let targets = README.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let files: Vec<_> = targets.filter(|target| !target.contains("://")).collect();
    assert!(files.len() >= 4, "links are still written as [text](file): {files:?}");
    for file in files {
        assert!(root.join(file).exists(), "README.md links to {file}, which is not there");
    }
}
