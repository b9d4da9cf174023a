//! Tests that the README shows the code that is built, and that the links of the documents are
//! valid.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::documents::pages;

const README: &str = include_str!("../../../README.md");
const HELLO: &str = include_str!("../../src/bin/hello.rs");

#[test]
fn the_program_in_the_readme_is_hello() {
    let (_, program) = HELLO.split_once("\n\n").expect("a header, then the program");
    let program = &program[program.find("use std").expect("the program begins with its imports")..];
    assert!(README.contains(&format!("```rust\n{program}```\n")), "README.md does not show this program:\n{program}");
}

#[test]
fn the_readme_has_the_two_commands() {
    for command in ["cargo run --release --bin demo ", "cargo test --workspace "] {
        assert!(README.lines().any(|line| line.starts_with(command)), "{command:?} is missing");
    }
}

#[test]
fn the_documents_name_the_version_for_the_registry() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (version, _) = env!("CARGO_PKG_VERSION").rsplit_once('.').expect("major, minor and patch");
    let line = format!("volt = {{ package = \"volt-runtime\", version = \"{version}\" }}");
    for document in ["README.md", "runtime/README.md", "docs/guide/program.md"] {
        let text = fs::read_to_string(root.join(document)).unwrap();
        assert!(text.lines().any(|it| it.starts_with(&line)), "{document} has no line {line}");
    }
}

#[test]
fn every_link_of_a_document_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut documents = vec![root.join("dashboards/README.md"), root.join("examples/actors/README.md")];
    documents.extend(["console/README.md", "exporter/README.md", "runtime/README.md"].map(|name| root.join(name)));
    // Of the packages in `runtime`, each has one.
    let packages = fs::read_dir(root.join("runtime")).unwrap().map(|entry| entry.unwrap().path());
    documents.extend(packages.map(|path| path.join("README.md")).filter(|path| path.exists()));
    let files = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().path());
    documents.extend(files.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    // A page that is a symbolic link is one of the documents above, whose links start elsewhere.
    documents.extend(pages().into_iter().filter(|page| !page.is_symlink()));
    let mut links = 0;
    for document in documents {
        let text = fs::read_to_string(&document).unwrap();
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://")) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() { document.clone() } else { document.parent().unwrap().join(file) };
            let name = document.strip_prefix(&root).unwrap().display();
            assert!(path.exists(), "{name} links to {target}, and there is no such file");
            assert!(
                anchor.is_empty() || anchors(&path).contains(anchor),
                "{name} links to {target}, and there is no such heading"
            );
            links += 1;
        }
    }
    assert!(links > 40, "links are still written as [text](file): only {links} were found");
}

/// Returns the anchors of a document's headings, formed as GitHub does.
fn anchors(document: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(document).unwrap();
    let headings = text.split("```").step_by(2).flat_map(str::lines).filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let words = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        words.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
    };
    headings.map(anchor).collect()
}
