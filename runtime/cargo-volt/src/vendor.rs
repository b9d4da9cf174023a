//! `cargo volt vendor DIR`: writes the sources into a directory that the project keeps.

use std::path::{self, Path};

use toml::{Table, Value};

use crate::arguments::Given;
use crate::cargo::{Cargo, Patch};
use crate::error::Error;
use crate::prepare::Preparation;
use crate::profile::{Layers, is_without_lines};
use crate::project::Project;
use crate::shell::{Shell, print_result};
use crate::sources::{self, folder};

/// Writes the directory, and prints the lines for the manifest to standard output.
pub(crate) fn run(shell: &Shell, given: &Given, folder: &Path) -> Result<(), Error> {
    let folder = path::absolute(folder).map_err(|error| Error::io("find", folder, &error))?;
    if let Some(file) = folder::foreign_file(&folder)? {
        return Err(Error::new(format!("`{}` has files that `cargo volt vendor` did not write", folder.display()))
            .help(format!("choose a new directory, or an empty one, or remove `{}`", file.display())));
    }
    let cargo = Cargo::find(shell)?;
    let project = Project::find(&cargo, given)?;
    let layers = Layers::read(&project, given);
    let choice = Preparation::new(shell, &cargo, given, &project)?.vendor(&folder, &layers)?;
    let shown = folder.strip_prefix(&project.root).unwrap_or(&folder);
    if shown.to_str().is_none() {
        let error = Error::new(format!("the path `{}` is not valid UTF-8", shown.display()));
        return Err(error.help("choose another directory"));
    }
    let patches = sources::patches(&choice, shown);
    shell.note(&format!(
        "add these lines to the end of {}, unless it has them already; after an update of tokio v{}{}, run \
         this command again",
        project.root.join("Cargo.toml").display(),
        choice.version,
        choice.axums.iter().map(|version| format!(" or axum v{version}")).collect::<String>()
    ));
    let text = lines(&project.manifest, &patches);
    print_result(&text).map_err(|error| error.help("the sources are complete: run the command again to see the lines"))
}

/// Returns lines that are valid at the end of the manifest: TOML does not allow a table twice.
fn lines(manifest: &Table, patches: &[Patch]) -> String {
    let is_new = manifest.get("patch").and_then(|patch| patch.get("crates-io")).is_none();
    let mut text = if is_new { "[patch.crates-io]\n".to_owned() } else { String::new() };
    for Patch { key, package, path } in patches {
        let package = if key == package { String::new() } else { format!("package = \"{package}\", ") };
        let path = Value::from(path.to_string_lossy().into_owned());
        text += &match is_new {
            true => format!("{key} = {{ {package}path = {path} }}\n"),
            false => format!("[patch.crates-io.{key}]\n{}path = {path}\n", package.replace(", ", "\n")),
        };
    }
    let why = "# Line tables, so that stacks show source lines.\n";
    match manifest.get("profile").and_then(|profile| profile.get("release")) {
        None => text += &format!("\n{why}[profile.release]\ndebug = \"line-tables-only\"\n"),
        Some(profile) if profile.get("debug").is_none_or(is_without_lines) => {
            text += &format!("\n{why}# Set in [profile.release], which exists: debug = \"line-tables-only\"\n");
        }
        Some(_) => {}
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::versions::Choice;

    #[test]
    fn the_printed_lines_fit_the_manifest_as_it_is() {
        let choice = Choice::parse("1.54.1 0.7.9 0.8.9").expect("it has a version");
        let patches = sources::patches(&choice, Path::new("third-party/a \"b\""));
        for (manifest, debug) in [
            ("", Some("line-tables-only")),
            ("[patch.crates-io]\nbytes = { path = \"bytes\" }\n[profile.release]\nlto = true\n", None),
            ("[profile.release]\ndebug = \"full\"\n", Some("full")),
        ] {
            let table = manifest.parse().expect("it is TOML");
            let all = format!("{manifest}{}", lines(&table, &patches));
            let all: Table = all.parse().unwrap_or_else(|error| panic!("{error}: {all}"));
            let patch = &all["patch"]["crates-io"];
            assert_eq!(patch["tokio"]["path"].as_str(), Some("third-party/a \"b\"/tokio"));
            assert_eq!(patch["axum-0-7"]["path"].as_str(), Some("third-party/a \"b\"/registry/src/volt/axum-0.7.9"));
            assert_eq!(patch["axum-0-8"]["package"].as_str(), Some("axum"));
            assert_eq!(all["profile"]["release"].get("debug").and_then(Value::as_str), debug);
        }
        let without = "[profile.release]\ndebug = false\n".parse().expect("it is TOML");
        assert!(lines(&without, &patches).contains("Set in [profile.release]"));
    }
}
