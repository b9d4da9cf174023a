//! Tests that the dependencies between the crates of the workspace are those listed in
//! ARCHITECTURE.md, that no crate uses one above it, that the exporter's library needs no crate of
//! its program, and that the workspace has few test binaries.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Each crate of the workspace, with the members that it depends on.
type Arrows = BTreeMap<String, BTreeSet<String>>;

const PAGE: &str = include_str!("../../../ARCHITECTURE.md");

/// Each of them links the runtime again, which costs seconds and tens of megabytes.
const TEST_BINARIES_MAX: usize = 20;

/// Reads the manifests of the workspace.
fn packages() -> Vec<Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root)
        .output()
        .expect("cargo can be started");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let mut metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    let Value::Array(packages) = metadata["packages"].take() else { panic!("a list of packages") };
    packages
}

/// Returns the dependencies between the crates of the workspace in a normal build.
fn of_libraries() -> Arrows {
    of_manifests(|dependency| dependency["kind"].is_null())
}

/// Returns the dependencies between different crates of the workspace, including those of tests,
/// benches and build scripts. A crate may use itself in tests, with more features.
fn of_all_targets() -> Arrows {
    let mut arrows = of_manifests(|_| true);
    for (from, to) in &mut arrows {
        to.remove(from);
    }
    arrows
}

fn of_manifests(is_included: impl Fn(&Value) -> bool) -> Arrows {
    let name_of = |value: &Value| value["name"].as_str().expect("it has a name").to_owned();
    let packages = packages();
    let members: BTreeSet<_> = packages.iter().map(name_of).collect();
    let arrows_of = |package: &Value| {
        let all = package["dependencies"].as_array().expect("a list of dependencies");
        let included = all.iter().filter(|dependency| is_included(dependency));
        included.map(name_of).filter(|name| members.contains(name)).collect()
    };
    packages.iter().map(|package| (name_of(package), arrows_of(package))).collect()
}

/// Returns the lines between "```crates" and the end of that block.
fn block_of(page: &str) -> Vec<&str> {
    let lines = page.lines().skip_while(|line| *line != "```crates").skip(1);
    lines.take_while(|line| *line != "```").collect()
}

/// Returns one line for each crate, as the page has them: `volt-process -> volt-runtime volt-shim`.
fn lines_of(arrows: &Arrows) -> Vec<String> {
    let line = |(from, to): (&String, &BTreeSet<String>)| {
        let names = to.iter().fold(String::new(), |line, name| line + " " + name);
        format!("{from} ->{names}")
    };
    arrows.iter().map(line).collect()
}

/// Returns the lines that only one side has, or how the order differs. Empty if both are the same.
fn differences(page: &[&str], manifests: &[String]) -> Vec<String> {
    let is_in_page = |line: &&String| page.contains(&line.as_str());
    let is_in_manifests = |line: &&&str| manifests.iter().any(|other| other == **line);
    let only_page = page.iter().filter(|line| !is_in_manifests(line)).map(|line| format!("page:      {line}"));
    let only_manifests = manifests.iter().filter(|line| !is_in_page(line)).map(|line| format!("manifests: {line}"));
    let mut found: Vec<_> = only_page.chain(only_manifests).collect();
    if found.is_empty() && page != manifests {
        found.push("the page's lines are not sorted, or one is there twice".to_owned());
    }
    found
}

/// Returns the crates that depend on each other in a circle. Repeatedly removes all crates that
/// depend on no remaining crate, or that no remaining crate depends on; the crates that are left
/// form the circle.
fn circle(arrows: &Arrows) -> Vec<String> {
    let mut left: BTreeSet<&String> = arrows.keys().collect();
    loop {
        let depends = |name: &&&String| arrows[**name].iter().any(|to| left.contains(to));
        let is_used = |name: &&&String| left.iter().any(|from| arrows[*from].contains(**name));
        let (stays, goes): (BTreeSet<_>, BTreeSet<_>) = left.iter().partition(|name| depends(name) && is_used(name));
        if goes.is_empty() {
            return stays.into_iter().cloned().collect();
        }
        left = stays;
    }
}

#[test]
fn the_page_lists_the_dependencies_between_the_crates() {
    let arrows = of_libraries();
    assert!(arrows.len() > 10, "the whole workspace was read: {arrows:?}");
    let block = block_of(PAGE);
    assert!(!block.is_empty(), "ARCHITECTURE.md has a block that begins with ```crates");
    let found = differences(&block, &lines_of(&arrows));
    assert!(
        found.is_empty(),
        "ARCHITECTURE.md and the manifests differ; change the block ```crates of the page, or the manifest:\n{}",
        found.join("\n")
    );
}

/// If the tests of `volt-core` used `volt-runtime`, which links `volt-core`, then every edit of a
/// socket would build the tests of the scheduler again.
#[test]
fn no_crate_uses_one_above_it_even_in_tests() {
    let arrows = of_all_targets();
    assert!(arrows["volt-core"].contains("volt-recording"), "the dependencies of tests were read: {arrows:?}");
    let found = circle(&arrows);
    assert!(found.is_empty(), "these crates depend on each other, their tests included: {found:?}");
}

#[test]
fn the_workspace_has_at_most_20_test_binaries() {
    let mut binaries = Vec::new();
    for package in packages() {
        let targets = package["targets"].as_array().expect("a list of targets").clone();
        let tested = targets.into_iter().filter(|target| target["test"] == true);
        binaries.extend(tested.map(|target| format!("{} in {}", target["name"], package["name"])));
    }
    let count = binaries.len();
    assert!(
        (10..=TEST_BINARIES_MAX).contains(&count),
        "{count} test binaries; make a new test a module of one of these: {binaries:#?}"
    );
}

#[test]
fn the_exporter_needs_clap_only_for_its_program() {
    let packages = packages();
    let exporter = packages.iter().find(|package| package["name"] == "volt-exporter").expect("it is a member");
    assert_eq!(exporter["features"]["default"], Value::Array(Vec::new()), "the library has no default features");
    for name in ["clap", "tracing-subscriber"] {
        let mut all = exporter["dependencies"].as_array().expect("a list of dependencies").iter();
        let normal = all.find(|dependency| dependency["name"] == name && dependency["kind"].is_null());
        assert_eq!(normal.expect(name)["optional"], true, "{name}");
    }
    let mut targets = exporter["targets"].as_array().expect("a list of targets").iter();
    let program = targets.find(|target| target["kind"][0] == "bin").expect("the sidecar");
    assert_eq!(program["required-features"], Value::Array(vec!["cli".into()]));
}

#[test]
fn a_changed_dependency_and_a_circle_are_found() {
    let arrows = |all: &[(&str, &[&str])]| -> Arrows {
        let set = |to: &&[&str]| to.iter().map(|name| (*name).to_owned()).collect();
        all.iter().map(|(from, to)| ((*from).to_owned(), set(to))).collect()
    };
    let page = block_of("text\n```crates\na -> b\nb ->\n```\nmore\n");
    assert_eq!(page, ["a -> b", "b ->"]);
    let same = arrows(&[("a", &["b"]), ("b", &[])]);
    assert!(differences(&page, &lines_of(&same)).is_empty() && circle(&same).is_empty());
    let more = arrows(&[("a", &["b"]), ("b", &["a"]), ("c", &["a"]), ("d", &[])]);
    let expected = ["page:      b ->", "manifests: b -> a", "manifests: c -> a", "manifests: d ->"];
    assert_eq!(differences(&page, &lines_of(&more)), expected);
    assert_eq!(differences(&["b ->", "a -> b"], &lines_of(&same)).len(), 1);
    assert_eq!(circle(&more), ["a", "b"]);
}
