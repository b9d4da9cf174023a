//! The sources that replace tokio and axum: Volt's crates, the facade, a renamed copy of Tokio, and
//! copies of axum.
//!
//! The folder is a workspace, so that Volt's manifests keep their `workspace = true`:
//!
//! | path | content |
//! |---|---|
//! | `Cargo.toml` | the workspace, made from Volt's |
//! | `tokio/` | the facade, a crate named `tokio` with the version and the features of the project's |
//! | `parts/` | the copy, renamed to `volt-tokio-parts` |
//! | `volt/` | Volt's crates, without tests |
//! | `registry/src/volt/axum-VERSION/` | a copy of axum that counts its requests, for each version |
//!
//! The facade depends on Volt, and Volt on Tokio's I/O traits and channels. If that were the crate
//! `tokio`, which is the facade, the dependencies would form a circle. The workspace therefore
//! defines its dependency `tokio` as the renamed copy.

mod names;

mod manifests;

pub(crate) mod axum;
pub(crate) mod folder;

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use crate::cargo::Patch;
use crate::error::Error;
use crate::lock::Lock;
use crate::project::read_toml;
use crate::versions::{self, Choice};

pub(crate) use self::names::{FACADE, PARTS_PACKAGE};
use self::names::{PARTS, VOLT};

/// The embedded files: their paths in the repository, or below this package for the facade.
const EMBEDDED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// The code that makes the other files.
const GENERATOR: [&str; 4] =
    [include_str!("mod.rs"), include_str!("axum.rs"), include_str!("manifests.rs"), include_str!("names.rs")];

/// A file to write: its path below the folder, and its content.
pub(crate) type File = (String, Vec<u8>);

fn embedded(name: &str) -> &'static str {
    let found = EMBEDDED.iter().find(|(path, _)| *path == name);
    found.unwrap_or_else(|| panic!("`{name}` is not embedded")).1
}

/// Returns the versions of Volt's dependencies with which Volt was tested.
pub(crate) fn lock() -> Result<Lock, Error> {
    Lock::parse(embedded("Cargo.lock"))
}

/// Returns the packages in the folder of the sources that replace those of crates.io.
pub(crate) fn patches(choice: &Choice, folder: &Path) -> Vec<Patch> {
    let tokio = Patch { key: "tokio".to_owned(), package: "tokio", path: folder.join(FACADE) };
    let axums = choice.axums.iter().map(|version| Patch {
        key: format!("axum-{}", versions::line(version).replace('.', "-")),
        package: "axum",
        path: folder.join(names::axum(version)),
    });
    std::iter::once(tokio).chain(axums).collect()
}

/// Returns the name of the folder for the sources that replace these versions. Each content has its
/// own folder: a folder from which another cargo may be reading never changes.
pub(crate) fn folder_name(choice: &Choice) -> String {
    let mut hasher = DefaultHasher::new();
    stamp(choice).hash(&mut hasher);
    format!("{}-{:016x}", choice.version, hasher.finish())
}

/// Returns a text that changes whenever the prepared sources for these versions change.
pub(crate) fn stamp(choice: &Choice) -> String {
    let mut hasher = DefaultHasher::new();
    (EMBEDDED, GENERATOR).hash(&mut hasher);
    let (version, hash, copied) = (env!("CARGO_PKG_VERSION"), hasher.finish(), versions::copied(&choice.version));
    format!("cargo-volt {version} {hash:016x} tokio {} {copied} axum {:?}\n", choice.version, choice.axums)
}

/// Makes the files from the unpacked sources of the project's Tokio and of the Tokio to copy. The
/// copies of axum are added by `axum`.
pub(crate) fn files(tokio: &Path, copy: &Path, choice: &Choice) -> Result<Vec<File>, Error> {
    let mut files = Vec::new();
    let mut members = vec![FACADE.to_owned(), PARTS.to_owned()];
    members.extend(choice.axums.iter().map(|version| names::axum(version)));
    for (path, text) in EMBEDDED {
        if let Some(path) = path.strip_prefix("facade/src/") {
            let path = format!("{FACADE}/src/{path}");
            files.push((path.clone(), without_warnings(&path, text).into()));
        } else if let Some(folder) = path.strip_suffix("/Cargo.toml") {
            let folder = format!("{VOLT}/{folder}");
            files.push((format!("{VOLT}/{path}"), manifests::member(text, &folder)?.into()));
            members.push(folder);
        } else if path.starts_with("runtime/") {
            files.push((format!("{VOLT}/{path}"), without_warnings(path, text).into()));
        } else if path.starts_with("LICENSE") {
            files.push((format!("{VOLT}/{path}"), (*text).into()));
        }
    }
    files.push(("Cargo.toml".to_owned(), manifests::workspace(embedded("Cargo.toml"), &members)?.into()));

    let manifest = read_toml(&copy.join("Cargo.toml"))?;
    let facade =
        manifests::facade(embedded("facade/Cargo.toml.in"), &read_toml(&tokio.join("Cargo.toml"))?, &manifest)?;
    files.push((format!("{FACADE}/Cargo.toml"), facade.into()));
    files.push((format!("{PARTS}/Cargo.toml"), manifests::parts(manifest).into()));
    add_copy(&copy.join("src"), &format!("{PARTS}/src"), &mut files)?;
    let license = copy.join("LICENSE");
    if license.exists() {
        files.push((format!("{PARTS}/LICENSE"), read(&license)?));
    }
    Ok(files)
}

/// Adds the files below a folder of the copy.
fn add_copy(folder: &Path, name: &str, files: &mut Vec<File>) -> Result<(), Error> {
    let failed = |error| Error::io("read", folder, &error);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        let name = format!("{name}/{}", entry.file_name().display());
        if path.is_dir() {
            add_copy(&path, &name, files)?;
        } else {
            let content = read(&path)?;
            let content = match String::from_utf8(content) {
                Ok(text) => without_warnings(&name, &text).into(),
                Err(error) => error.into_bytes(),
            };
            files.push((name, content));
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|error| Error::io("read", path, &error))
}

/// Switches the compiler's warnings off in the root file of a crate. Cargo does so for crates of a
/// registry, but not for those in a folder. The attribute is on the first line, so that the numbers
/// of the lines stay as they are. Unlike the manifest's table of lints, it also takes precedence
/// over `RUSTFLAGS="-D warnings"`.
fn without_warnings(path: &str, text: &str) -> String {
    if path.ends_with("/src/lib.rs") { format!("#![allow(warnings)] {text}") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_of_volt_are_embedded_but_no_file_tests_rs() {
        for name in ["runtime/src/lib.rs", "runtime/core/src/lib.rs", "runtime/stacks/Cargo.toml", "facade/src/lib.rs"]
        {
            assert!(!embedded(name).is_empty());
        }
        let tests: Vec<_> = EMBEDDED.iter().filter(|(path, _)| path.ends_with("/tests.rs")).collect();
        assert!(tests.is_empty(), "{tests:?}");
    }

    #[test]
    fn a_crates_root_file_keeps_its_line_numbers() {
        let text = without_warnings("runtime/src/lib.rs", "//! Documentation.\npub mod a;\n");
        assert_eq!(text, "#![allow(warnings)] //! Documentation.\npub mod a;\n");
        assert_eq!(without_warnings("runtime/src/io/mod.rs", "mod a;"), "mod a;");
    }

    #[test]
    fn the_stamp_names_the_versions() {
        let stamp = |text: &str| stamp(&Choice::parse(text).expect("it has a version"));
        assert_ne!(stamp("1.54.1"), stamp("1.54.0"));
        assert_ne!(stamp("1.54.1 0.8.9"), stamp("1.54.1 0.8.8"));
        assert!(stamp("1.999.0").ends_with("tokio 1.999.0 1.999.0 axum []\n"));
    }
}
