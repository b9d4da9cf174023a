//! The table of `docs/drop-in.md` with the tests of Tokio that have another outcome on Volt. It is
//! generated from `conformance.tsv`, which `.ci/conformance/run` compares with a run of the tests.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

const LIST: &str = include_str!("../../conformance.tsv");
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/drop-in.md");
/// The comments around the table.
const BEGIN: &str = "<!-- generated: VOLT_WRITE_DOCS=1 cargo test -p cargo-volt differences -->\n";
const END: &str = "<!-- end of the generated part -->\n";
/// With more tests of a file for the same reason, the table has the name of the file.
const NAMES_MAX: usize = 2;
/// The texts in place of a test's name: for the number of all tests, and for a file as a whole.
const ALL: &str = "*";
const COMPILES: &str = "compiles";

/// A line of the list.
struct Line {
    /// The package whose tests these are, with `-unstable` if the flag is set.
    suite: &'static str,
    file: &'static str,
    test: &'static str,
    outcomes: [&'static str; 2],
    reason: &'static str,
}

fn lines() -> Vec<Line> {
    let lines = LIST.lines().filter(|line| !line.starts_with('#'));
    let split = lines.map(|line| {
        let columns: Vec<_> = line.split('\t').collect();
        let &[name, on_tokio, on_volt, reason] = &columns[..] else { panic!("four columns: {line}") };
        let (suite, name) = name.split_once("::").expect("a suite and a test");
        let (file, test) = name.split_once("::").unwrap_or(("", name));
        Line { suite, file, test, outcomes: [on_tokio, on_volt], reason }
    });
    split.collect()
}

/// Returns whether Volt causes the difference. If the outcome on Tokio varies, the test depends on
/// something else.
fn is_difference(line: &Line) -> bool {
    line.test != ALL && line.outcomes[0] != line.outcomes[1] && line.outcomes[0] != "either"
}

/// Returns the names of the tests with the same reason.
fn names(group: &[&Line]) -> String {
    let files: BTreeSet<_> = group.iter().map(|line| (line.suite, line.file)).collect();
    let names = files.into_iter().flat_map(|(suite, file)| {
        let tests: Vec<_> = group.iter().filter(|line| (line.suite, line.file) == (suite, file)).collect();
        let suite = suite.strip_suffix("-unstable").unwrap_or(suite);
        let of = if suite == "tokio" { String::new() } else { format!("{suite}: ") };
        match &tests[..] {
            [line] if line.test == COMPILES => vec![format!("{of}`{file}`, all tests")],
            _ if tests.len() > NAMES_MAX => vec![format!("{of}`{file}`, {} tests", tests.len())],
            _ => tests.iter().map(|line| format!("{of}`{file}::{}`", line.test)).collect(),
        }
    });
    names.collect::<Vec<_>>().join("; ").replace("facade: ", "this repository: ")
}

/// Returns the runtimes on which the tests pass.
fn passes_on(line: &Line) -> &'static str {
    match line.outcomes {
        ["passed", "failed" | "timed out" | "does not compile"] => "Tokio",
        ["passed", "either"] => "Tokio, sometimes Volt",
        ["failed", "passed"] => "Volt",
        other => panic!("the table has no word for {other:?}"),
    }
}

/// Returns the rows for these suites: one for each reason, in the order of the list.
fn rows(lines: &[Line], is_unstable: bool) -> String {
    let of_suites = |line: &&Line| is_difference(line) && line.suite.ends_with("-unstable") == is_unstable;
    let mut differences: Vec<_> = lines.iter().filter(of_suites).collect();
    // This repository's own tests come last.
    differences.sort_by_key(|line| line.suite.starts_with("facade"));
    let mut text = "| difference | tests pass on | tests |\n|---|---|---|\n".to_owned();
    let mut reasons = BTreeSet::new();
    for line in &differences {
        if reasons.insert(line.reason) {
            let group: Vec<_> = differences.iter().copied().filter(|other| other.reason == line.reason).collect();
            writeln!(text, "| {} | {} | {} |", line.reason, passes_on(line), names(&group)).expect("it is memory");
        }
    }
    text
}

fn table() -> String {
    let lines = lines();
    let tests = |suite: &str| {
        let all = lines.iter().find(|line| line.suite == suite && line.test == ALL).expect("the number of its tests");
        all.outcomes[1].to_owned()
    };
    format!(
        "Of {} tests of tokio, {} of tokio-util and {} of tokio-stream, and of this repository's own\n\
         tests of the drop-in, these have different outcomes on Tokio and on Volt:\n\n{}\n\
         With `--cfg tokio_unstable`, {} tests of tokio use unstable items. Of these:\n\n{}",
        tests("tokio"),
        tests("tokio-util"),
        tests("tokio-stream"),
        rows(&lines, false),
        tests("tokio-unstable"),
        rows(&lines, true),
    )
}

#[test]
fn the_page_has_the_differences_of_the_list() {
    let page = fs::read_to_string(PAGE).expect("it is there");
    let (before, rest) = page.split_once(BEGIN).expect("the page has the first comment");
    let (written, after) = rest.split_once(END).expect("the page has the second comment");
    let table = format!("\n{}\n", table());
    if std::env::var_os("VOLT_WRITE_DOCS").is_some() {
        fs::write(PAGE, [before, BEGIN, &table, END, after].concat()).expect("it can be written");
    } else {
        assert!(written == table, "docs/drop-in.md is stale: VOLT_WRITE_DOCS=1 cargo test -p cargo-volt differences");
    }
}
