//! Tests of the page of the book that has the help of the program `volt-exporter`.

use std::fs;
use std::process::Command;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/volt-exporter.md");
/// How the page is written.
const WRITE: &str = "VOLT_WRITE_DOCS=1 cargo test -p volt-exporter --features cli,otlp --test exporter help";

/// The page has the options of all features. Without the feature `otlp`, the help lacks some of its
/// lines, and the page cannot be written.
#[test]
fn the_page_of_the_exporter_is_its_help() {
    let run = Command::new(env!("CARGO_BIN_EXE_volt-exporter")).arg("--help").output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let help = String::from_utf8(run.stdout).unwrap();
    let help: Vec<_> = help.trim_end().lines().map(str::trim_end).collect();
    if cfg!(feature = "otlp") {
        let text = format!(
            "# volt-exporter\n\n\
             The program `volt-exporter` serves the metrics of running programs. [Export\n\
             metrics](../guide/metrics.md#sidecar) explains how to install it. This page has the output of\n\
             `--help`. The options that begin with `--otlp` need the feature `otlp`.\n\
             The page is generated:\n`{WRITE}`.\n\n```text\n{}\n```\n",
            help.join("\n")
        );
        if std::env::var_os("VOLT_WRITE_DOCS").is_some() {
            fs::write(PAGE, text).unwrap();
        } else {
            assert!(fs::read_to_string(PAGE).unwrap() == text, "{PAGE} is stale: {WRITE}");
        }
    } else {
        let page = fs::read_to_string(PAGE).unwrap();
        let mut on_page = page.lines();
        for line in help {
            assert!(on_page.any(|other| other == line), "{PAGE} lacks the line {line:?} of the help: {WRITE}");
        }
    }
}
