//! Reads lock files: which versions of tokio one contains, and which packages require them. Also
//! makes the lock file for the build on Volt.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::path::Path;

use toml::{Table, Value};

use crate::error::Error;
use crate::project::read_toml;
use crate::versions::{line, numbers};

/// How a lock file names crates.io.
const CRATES_IO: [&str; 2] =
    ["registry+https://github.com/rust-lang/crates.io-index", "sparse+https://index.crates.io/"];

/// The content of a `Cargo.lock`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lock(Table);

/// A package in a lock file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Package<'a> {
    pub(crate) name: &'a str,
    pub(crate) version: &'a str,
    /// Where it is from; `None` for a package in a local folder.
    pub(crate) source: Option<&'a str>,
}

impl Package<'_> {
    pub(crate) fn is_from_crates_io(&self) -> bool {
        self.source.is_some_and(|source| CRATES_IO.contains(&source))
    }
}

impl fmt::Display for Package<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} v{}", self.name, self.version)?;
        match self.source {
            Some(source) if !self.is_from_crates_io() => write!(f, " ({source})"),
            _ => Ok(()),
        }
    }
}

impl Lock {
    pub(crate) fn read(path: &Path) -> Result<Lock, Error> {
        read_toml(path).map(Lock)
    }

    pub(crate) fn parse(text: &str) -> Result<Lock, Error> {
        text.parse().map(Lock).map_err(|error| Error::new(format!("cannot parse Cargo.lock: {error}")))
    }

    pub(crate) fn to_text(&self) -> String {
        self.0.to_string()
    }

    pub(crate) fn packages(&self) -> impl Iterator<Item = Package<'_>> {
        self.entries().map(package)
    }

    pub(crate) fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = Package<'a>> {
        self.packages().filter(move |package| package.name == name)
    }

    /// Returns whether a patch of a package is in the file but not used.
    pub(crate) fn has_unused_patch(&self, name: &str) -> bool {
        let unused = self.0.get("patch").and_then(|patch| patch.get("unused")).and_then(Value::as_array);
        unused.into_iter().flatten().any(|entry| package(entry).name == name)
    }

    /// Returns a shortest chain of packages from the one that requires `wanted` to one of the
    /// project's. Empty if nothing requires it.
    pub(crate) fn chain_to<'a>(&'a self, wanted: Package<'a>) -> Vec<Package<'a>> {
        let mut parents: HashMap<Package<'a>, Package<'a>> = HashMap::new();
        let mut seen = HashSet::from([wanted]);
        let mut queue = VecDeque::from([wanted]);
        while let Some(next) = queue.pop_front() {
            if next.source.is_none() && next != wanted {
                let mut chain = Vec::new();
                let mut last = next;
                while last != wanted {
                    chain.push(last);
                    last = parents[&last];
                }
                chain.reverse();
                return chain;
            }
            for entry in self.entries().filter(|entry| self.requires(entry, next)) {
                let above = package(entry);
                if seen.insert(above) {
                    parents.insert(above, next);
                    queue.push_back(above);
                }
            }
        }
        Vec::new()
    }

    /// Returns whether an entry depends on a package. Dependencies have the form `name`, `name
    /// version` or `name version (source)`, as short as is unambiguous.
    fn requires(&self, entry: &Value, wanted: Package<'_>) -> bool {
        let dependencies = entry.get("dependencies").and_then(Value::as_array);
        dependencies.into_iter().flatten().filter_map(Value::as_str).any(|dependency| {
            let mut words = dependency.split(' ');
            words.next() == Some(wanted.name)
                && words.next().is_none_or(|version| version == wanted.version)
                && words.next().is_none_or(|source| Some(source.trim_matches(['(', ')'])) == wanted.source)
        })
    }

    /// Adds the packages of another lock file of which this one has no compatible version, so that
    /// cargo chooses these versions when it needs the packages. It drops those that it does not
    /// need.
    pub(crate) fn suggest(&mut self, other: &Lock) {
        let known: HashSet<_> = self.packages().map(|it| (it.name.to_owned(), line(it.version).to_owned())).collect();
        let is_new = |entry: &&Value| {
            let it = package(entry);
            it.source.is_some() && !known.contains(&(it.name.to_owned(), line(it.version).to_owned()))
        };
        let added: Vec<_> = other.entries().filter(is_new).cloned().collect();
        self.entries_mut().extend(added);
    }

    /// Replaces each version of a package by a compatible, newer one that another lock file has.
    /// Returns the old and the new versions.
    pub(crate) fn raise(&mut self, name: &str, other: &Lock) -> Vec<(String, String)> {
        let mut raised = Vec::new();
        for entry in self.entries_mut() {
            let old = package(entry);
            if old.name != name {
                continue;
            }
            let is_newer = |new: &Package<'_>| {
                line(new.version) == line(old.version) && numbers(new.version) > numbers(old.version)
            };
            let found = other.entries().find(|entry| package(entry).name == name && is_newer(&package(entry)));
            if let Some(found) = found {
                raised.push((old.version.to_owned(), package(found).version.to_owned()));
                *entry = found.clone();
            }
        }
        raised
    }

    fn entries(&self) -> impl Iterator<Item = &Value> {
        self.0.get("package").and_then(Value::as_array).into_iter().flatten()
    }

    fn entries_mut(&mut self) -> &mut Vec<Value> {
        let packages = self.0.entry("package").or_insert_with(|| Value::Array(Vec::new()));
        if !packages.is_array() {
            *packages = Value::Array(Vec::new());
        }
        packages.as_array_mut().expect("it was made an array if it was none")
    }
}

fn package(entry: &Value) -> Package<'_> {
    let text = |key: &str| entry.get(key).and_then(Value::as_str);
    Package {
        name: text("name").unwrap_or_default(),
        version: text("version").unwrap_or_default(),
        source: text("source"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "registry+https://github.com/rust-lang/crates.io-index";

    /// A lock file from lines such as `tokio 1.54.1 crates: bytes, mio`.
    fn lock(lines: &str) -> Lock {
        let mut text = String::from("version = 4\n");
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (package, dependencies) = line.split_once(": ").unwrap_or((line, ""));
            let words: Vec<_> = package.split_whitespace().collect();
            text += &format!("[[package]]\nname = {:?}\nversion = {:?}\n", words[0], words[1]);
            match words.get(2) {
                Some(&"crates") => text += &format!("source = {SOURCE:?}\n"),
                Some(other) => text += &format!("source = {other:?}\n"),
                None => {}
            }
            let names: Vec<_> = dependencies.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
            text += &format!("dependencies = {names:?}\n");
        }
        Lock::parse(&text).expect("the text is valid")
    }

    #[test]
    fn the_chain_to_another_tokio_ends_in_the_project() {
        let lock = lock(
            "app 0.1.0: old, tokio 1.54.1
             old 3.0.0 crates: deep
             deep 0.2.0 crates: tokio 0.2.25
             tokio 0.2.25 crates
             tokio 1.54.1 crates",
        );
        let wanted = lock.named("tokio").next().expect("it is in there");
        let chain: Vec<_> = lock.chain_to(wanted).iter().map(ToString::to_string).collect();
        assert_eq!(chain, ["deep v0.2.0", "old v3.0.0", "app v0.1.0"]);
    }

    #[test]
    fn a_suggestion_never_changes_what_the_project_has() {
        let mut project = lock("app 0.1.0: bytes\nbytes 1.4.0 crates\nsyn 2.0.1 crates");
        project.suggest(&lock("volt 0.1.0\nbytes 1.12.1 crates\nsyn 3.0.1 crates\nmio 1.2.0 crates"));
        let found: Vec<_> = project.packages().map(|it| it.to_string()).collect();
        assert_eq!(found, ["app v0.1.0", "bytes v1.4.0", "syn v2.0.1", "syn v3.0.1", "mio v1.2.0"]);
    }

    #[test]
    fn only_older_compatible_versions_are_raised() {
        let mut project = lock("bytes 1.4.0 crates\nbytes 0.4.12 crates\nsyn 2.0.1 crates");
        let volt = lock("bytes 1.12.1 crates");
        assert_eq!(project.raise("bytes", &volt), [("1.4.0".to_owned(), "1.12.1".to_owned())]);
        assert_eq!(project.raise("bytes", &volt), []);
        assert_eq!(project.raise("syn", &volt), []);
    }

    #[test]
    fn sources_other_than_crates_io_are_named() {
        let lock = lock("tokio 1.54.1 git+https://example.org/tokio#abc\ntokio 1.54.1 crates");
        let found: Vec<_> = lock.named("tokio").map(|it| (it.to_string(), it.is_from_crates_io())).collect();
        assert_eq!(found[0], ("tokio v1.54.1 (git+https://example.org/tokio#abc)".to_owned(), false));
        assert_eq!(found[1], ("tokio v1.54.1".to_owned(), true));
    }
}
