//! Embeds the sources of Volt's crates and of the facade in the program, which writes them into a
//! project's target directory. A program that was installed needs no checkout of Volt.
//!
//! A package can contain only files below its folder. The folder `embedded` therefore has a link to
//! the sources and to the manifest of each crate, and to the manifest and the lock file of the
//! workspace. Cargo follows the links when it makes the package. The manifests have other names
//! there, because cargo leaves a folder with a file `Cargo.toml` out of a package.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The crates that the facade is built from: their folders in the repository, and the names of
/// their links in `embedded`.
const CRATES: [(&str, &str); 7] = [
    ("runtime", "runtime"),
    ("runtime/core", "core"),
    ("runtime/diagnosis", "diagnosis"),
    ("runtime/macros", "macros"),
    ("runtime/shim", "shim"),
    ("runtime/stacks", "stacks"),
    ("runtime/telemetry", "telemetry"),
];
/// The other files: their paths in the repository, and in this package.
const FILES: [(&str, &str); 4] = [
    ("Cargo.toml", "embedded/workspace.toml"),
    ("Cargo.lock", "embedded/workspace.lock"),
    ("LICENSE-APACHE", "LICENSE-APACHE"),
    ("LICENSE-MIT", "LICENSE-MIT"),
];

/// The file of this package, outside of `src`, that the facade's manifest is made from.
const TEMPLATE: &str = "facade/Cargo.toml.in";

fn main() -> io::Result<()> {
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let embedded = package.join("embedded");
    let mut files = Vec::new();
    for (name, file) in FILES {
        files.push((name.to_owned(), package.join(file).canonicalize()?));
    }
    for (name, link) in CRATES {
        files.push((format!("{name}/Cargo.toml"), embedded.join(format!("{link}.toml")).canonicalize()?));
        add_folder(&format!("{name}/src"), &embedded.join(link).canonicalize()?, &mut files)?;
    }
    files.push((TEMPLATE.to_owned(), package.join(TEMPLATE)));
    add_folder("facade/src", &package.join("facade/src"), &mut files)?;
    files.sort();

    let mut list = String::from("&[\n");
    for (name, path) in &files {
        println!("cargo::rerun-if-changed={}", path.display());
        list += &format!("({name:?}, include_str!({path:?})),\n");
    }
    list += "]\n";
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("files.rs"), list)
}

/// Adds the files below a folder, except the modules that only tests have.
fn add_folder(name: &str, folder: &Path, files: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    // Cargo then reruns the script if a file is added to the folder or removed from it.
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut entries = Vec::new();
    let mut tests = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().into_string().expect("the names of source files are UTF-8");
        if matches!(name.as_str(), "lib.rs" | "mod.rs") {
            tests = test_modules(&fs::read_to_string(entry.path())?);
        }
        entries.push((name, entry.path(), entry.file_type()?.is_dir()));
    }
    for (file, path, is_folder) in entries {
        let name = format!("{name}/{file}");
        if tests.contains(file.trim_end_matches(".rs")) {
            continue;
        } else if is_folder {
            add_folder(&name, &path, files)?;
        } else {
            files.push((name, path));
        }
    }
    Ok(())
}

/// Returns the names of the modules with their own file that are declared for tests only.
fn test_modules(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut is_for_tests = false;
    for line in text.lines() {
        if line.starts_with("#[") {
            is_for_tests |= line == "#[cfg(test)]" || line.starts_with("#[cfg(all(test,");
            continue;
        }
        let words: Vec<_> = line.split_whitespace().skip_while(|word| *word != "mod").collect();
        if let ["mod", name] = words[..]
            && let Some(name) = name.strip_suffix(';')
            && is_for_tests
        {
            found.insert(name.to_owned());
        }
        is_for_tests = false;
    }
    found
}
