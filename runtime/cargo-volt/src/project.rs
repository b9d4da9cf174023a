//! The project that cargo sees from here: its root, its target directory and its members.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use toml::Table;

use crate::arguments::Given;
use crate::cargo::{self, Cargo};
use crate::error::Error;

/// A workspace, or a package without one.
#[derive(Debug)]
pub(crate) struct Project {
    /// The folder of the root manifest and of `Cargo.lock`.
    pub(crate) root: PathBuf,
    /// Where cargo would put its results, without `--target-dir`.
    pub(crate) target: PathBuf,
    /// The root manifest.
    pub(crate) manifest: Table,
    pub(crate) members: Vec<Member>,
}

/// A package of the project.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// The root files of its targets.
    pub(crate) roots: Vec<PathBuf>,
    /// The features of tokio that it requires.
    pub(crate) features: Vec<String>,
}

impl Project {
    /// Finds the project with `cargo metadata`. Downloads nothing and changes nothing.
    pub(crate) fn find(cargo: &Cargo, given: &Given) -> Result<Project, Error> {
        let mut command = cargo.command("metadata");
        command.args(["--no-deps", "--format-version=1"]);
        cargo.add_given(&mut command, given);
        let json = cargo.run(&mut command).map_err(|stderr| relayed(&stderr))?;
        let metadata: Value = serde_json::from_slice(&json)
            .map_err(|error| Error::new(format!("cannot read the output of `cargo metadata`: {error}")))?;
        let path = |key: &str| PathBuf::from(metadata[key].as_str().unwrap_or_default());
        let root = path("workspace_root");
        let manifest = read_toml(&root.join("Cargo.toml"))?;
        let members = list(&metadata["packages"]).map(Member::read).collect();
        Ok(Project { target: path("target_directory"), root, manifest, members })
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.root.join("Cargo.lock")
    }
}

impl Member {
    fn read(package: &Value) -> Member {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let tokio = list(&package["dependencies"]).filter(|dependency| dependency["name"] == "tokio");
        Member {
            name: text(&package["name"]),
            roots: list(&package["targets"]).map(|target| text(&target["src_path"]).into()).collect(),
            features: tokio.flat_map(|dependency| list(&dependency["features"])).map(text).collect(),
        }
    }
}

/// Returns an error with cargo's message. Removes the word `error` from it, because it is printed
/// again.
pub(crate) fn relayed(stderr: &str) -> Error {
    let text = stderr.trim();
    let error = match text.find("error: ") {
        Some(at) => Error::new(&text[at + "error: ".len()..]),
        None => Error::new(text),
    };
    match cargo::home().and_then(|home| remedy_at_home(text, &home)) {
        Some(remedy) => error.help(remedy),
        None => error,
    }
}

/// Returns the remedy if cargo may not write to its home directory, where it unpacks packages.
fn remedy_at_home(text: &str, home: &Path) -> Option<String> {
    let home = home.to_str()?;
    // EACCES and EROFS. Cargo quotes the path.
    let is_denied = text.contains("(os error 13)") || text.contains("(os error 30)");
    (is_denied && text.contains(&format!("`{home}/"))).then(|| {
        format!(
            "cargo unpacks packages in `{home}`: run this command once as a user who may write there, \
             or set CARGO_HOME to a copy of that directory that you may write to"
        )
    })
}

/// Reads a file of TOML.
pub(crate) fn read_toml(path: &Path) -> Result<Table, Error> {
    let text = fs::read_to_string(path).map_err(|error| Error::io("read", path, &error))?;
    text.parse().map_err(|error| Error::new(format!("cannot parse `{}`: {error}", path.display())))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_cargo_home_without_write_access_has_a_remedy() {
        let text = |path: &str, code: u8| {
            format!(
                "failed to download `mio v1.2.4`\n\nCaused by:\n  failed to create directory \
                 `{path}/registry/src/index.crates.io-19/mio-1.2.4`\n\nCaused by:\n  Error (os error {code})"
            )
        };
        let remedy = |text: &str| remedy_at_home(text, Path::new("/home/me/.cargo"));
        for code in [13, 30] {
            let found = remedy(&text("/home/me/.cargo", code)).expect("cargo may not write there");
            assert!(found.contains("in `/home/me/.cargo`: ") && found.contains("CARGO_HOME"), "{found}");
        }
        assert_eq!(remedy(&text("/home/me/.cargo", 28)), None);
        assert_eq!(remedy(&text("/project/target", 13)), None);
    }
}
