//! `cargo volt vendor DIR`: writes the sources into a folder that the project keeps.

use std::path::{self, Path};

use crate::arguments::Given;
use crate::cargo::Cargo;
use crate::error::Error;
use crate::prepare::Preparation;
use crate::project::Project;
use crate::shell::Shell;
use crate::sources::{self, folder};

/// Writes the folder, and prints the lines for the manifest to standard output.
pub(crate) fn run(shell: &Shell, given: &Given, folder: &Path) -> Result<(), Error> {
    let folder = path::absolute(folder).map_err(|error| Error::io("find", folder, &error))?;
    if !folder::is_replaceable(&folder) {
        return Err(Error::new(format!("`{}` has files that `cargo volt vendor` did not write", folder.display()))
            .help("choose a new folder, or an empty one"));
    }
    let cargo = Cargo::find()?;
    let project = Project::find(&cargo, given)?;
    let version = Preparation::new(shell, &cargo, given, &project)?.vendor(&folder)?;
    let facade = folder.join(sources::FACADE);
    let facade = facade.strip_prefix(&project.root).unwrap_or(&facade).display().to_string();
    shell.note(&format!(
        "add these lines to {}, in its sections of the same names if it has them; after an update of \
         tokio v{version}, run this command again",
        project.root.join("Cargo.toml").display()
    ));
    println!("[patch.crates-io]\ntokio = {{ path = {facade:?} }}\n");
    println!("# Line tables, so that stacks name lines.\n[profile.release]\ndebug = \"line-tables-only\"");
    Ok(())
}
