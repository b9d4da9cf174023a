//! `cargo volt vendor DIR`: writes the sources into a folder that the project keeps.

use std::path::{self, Path};

use toml::{Table, Value};

use crate::arguments::Given;
use crate::cargo::Cargo;
use crate::error::Error;
use crate::prepare::Preparation;
use crate::profile::{Layers, is_without_lines};
use crate::project::Project;
use crate::shell::Shell;
use crate::sources::{self, folder};

/// Writes the folder, and prints the lines for the manifest to standard output.
pub(crate) fn run(shell: &Shell, given: &Given, folder: &Path) -> Result<(), Error> {
    let folder = path::absolute(folder).map_err(|error| Error::io("find", folder, &error))?;
    if let Some(file) = folder::foreign_file(&folder)? {
        return Err(Error::new(format!("`{}` has files that `cargo volt vendor` did not write", folder.display()))
            .help(format!("choose a new folder, or an empty one, or remove `{}`", file.display())));
    }
    let cargo = Cargo::find(shell)?;
    let project = Project::find(&cargo, given)?;
    let layers = Layers::read(&project, given);
    let version = Preparation::new(shell, &cargo, given, &project)?.vendor(&folder, &layers)?;
    let facade = folder.join(sources::FACADE);
    let facade = facade.strip_prefix(&project.root).unwrap_or(&facade);
    let facade = facade.to_str().ok_or_else(|| {
        Error::new(format!("the path `{}` is not valid UTF-8", facade.display())).help("choose another folder")
    })?;
    shell.note(&format!(
        "add these lines to {}, in its sections of the same names if it has them; after an update of \
         tokio v{version}, run this command again",
        project.root.join("Cargo.toml").display()
    ));
    print!("{}", lines(&project.manifest, facade));
    Ok(())
}

/// Returns lines that are valid at the end of the manifest: TOML does not allow a table twice.
fn lines(manifest: &Table, facade: &str) -> String {
    let facade = Value::from(facade);
    let mut text = match manifest.get("patch").and_then(|patch| patch.get("crates-io")) {
        None => format!("[patch.crates-io]\ntokio = {{ path = {facade} }}\n"),
        Some(_) => format!("[patch.crates-io.tokio]\npath = {facade}\n"),
    };
    let why = "# Line tables, so that stacks name lines.\n";
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

    #[test]
    fn the_printed_lines_fit_the_manifest_as_it_is() {
        for (manifest, debug) in [
            ("", Some("line-tables-only")),
            ("[patch.crates-io]\nbytes = { path = \"bytes\" }\n[profile.release]\nlto = true\n", None),
            ("[profile.release]\ndebug = \"full\"\n", Some("full")),
        ] {
            let table = manifest.parse().expect("it is TOML");
            let all = format!("{manifest}{}", lines(&table, "third-party/a \"b\"/tokio"));
            let all: Table = all.parse().unwrap_or_else(|error| panic!("{error}: {all}"));
            assert_eq!(all["patch"]["crates-io"]["tokio"]["path"].as_str(), Some("third-party/a \"b\"/tokio"));
            assert_eq!(all["profile"]["release"].get("debug").and_then(Value::as_str), debug);
        }
        let without = "[profile.release]\ndebug = false\n".parse().expect("it is TOML");
        assert!(lines(&without, "tokio").contains("Set in [profile.release]"));
    }
}
