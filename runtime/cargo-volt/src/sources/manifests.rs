//! The manifests of the prepared sources, made from those of Volt, of the facade and of Tokio.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::names::{FACADE, PARTS, PARTS_PACKAGE, VOLT};
use crate::error::Error;

/// The sections of a manifest that only tests, benches, lints or the registry need.
const NOT_NEEDED: [&str; 8] =
    ["dev-dependencies", "dev_dependencies", "lints", "test", "bench", "example", "bin", "badges"];

fn parse(text: &str) -> Result<Table, Error> {
    text.parse().map_err(|error| Error::new(format!("cannot parse a manifest: {error}")))
}

/// Removes the sections that are not needed, and what is for models under loom.
fn trim(manifest: &mut Table) {
    for name in NOT_NEEDED {
        manifest.remove(name);
    }
    if let Some(targets) = manifest.get_mut("target").and_then(Value::as_table_mut) {
        targets.retain(|condition, _| condition != "cfg(loom)");
        for (_, target) in targets.iter_mut() {
            if let Some(target) = target.as_table_mut() {
                target.remove("dev-dependencies");
            }
        }
        targets.retain(|_, target| target.as_table().is_none_or(|target| !target.is_empty()));
    }
}

/// Names the workspace in the manifest of the member in `folder`. Without it, cargo takes the
/// project for the workspace, because the folder of the sources is below it.
fn name_workspace(manifest: &mut Table, folder: &str) {
    if let Some(package) = manifest.get_mut("package").and_then(Value::as_table_mut) {
        package.insert("workspace".to_owned(), up(folder).into());
    }
}

/// Returns the path from a folder to that of the workspace.
fn up(folder: &str) -> String {
    vec![".."; folder.split('/').count()].join("/")
}

/// Makes the manifest of one of Volt's crates.
pub(super) fn member(text: &str, folder: &str) -> Result<String, Error> {
    let mut manifest = parse(text)?;
    trim(&mut manifest);
    name_workspace(&mut manifest, folder);
    Ok(manifest.to_string())
}

/// Makes the manifest of the workspace, in which `tokio` is the copy.
pub(super) fn workspace(text: &str, members: &[String]) -> Result<String, Error> {
    let mut manifest = parse(text)?;
    manifest.retain(|name, _| name == "workspace");
    let workspace = manifest.get_mut("workspace").and_then(Value::as_table_mut);
    let workspace = workspace.ok_or_else(|| Error::new("Volt's manifest has no workspace"))?;
    workspace.remove("lints");
    workspace.insert("members".to_owned(), members.to_vec().into());
    let dependencies = workspace.get_mut("dependencies").and_then(Value::as_table_mut);
    let dependencies = dependencies.ok_or_else(|| Error::new("Volt's workspace has no dependencies"))?;
    dependencies.retain(|_, dependency| {
        let Some(path) = dependency.get_mut("path") else { return true };
        let moved = format!("{VOLT}/{}", path.as_str().unwrap_or_default());
        let is_embedded = members.contains(&moved);
        *path = moved.into();
        is_embedded
    });
    let tokio = dependencies.get_mut("tokio").and_then(Value::as_table_mut);
    let tokio = tokio.ok_or_else(|| Error::new("Volt's workspace has no dependency on tokio"))?;
    tokio.remove("version");
    tokio.insert("package".to_owned(), PARTS_PACKAGE.into());
    tokio.insert("path".to_owned(), PARTS.into());
    Ok(manifest.to_string())
}

/// Makes the manifest of a copy of axum, which counts its requests with Volt.
pub(super) fn axum(mut manifest: Table, folder: &str) -> String {
    trim(&mut manifest);
    name_workspace(&mut manifest, folder);
    if let Some(package) = manifest.get_mut("package").and_then(Value::as_table_mut) {
        package.insert("publish".to_owned(), false.into());
        for name in ["metadata", "readme"] {
            package.remove(name);
        }
    }
    let mut volt = Table::new();
    volt.insert("package".to_owned(), "volt-runtime".into());
    volt.insert("path".to_owned(), format!("{}/{VOLT}/runtime", up(folder)).into());
    volt.insert("default-features".to_owned(), false.into());
    let dependencies = manifest.entry("dependencies").or_insert_with(|| Table::new().into());
    if let Some(dependencies) = dependencies.as_table_mut() {
        dependencies.insert("volt".to_owned(), volt.into());
    }
    manifest.to_string()
}

/// Makes the manifest of the copy.
pub(super) fn parts(mut manifest: Table) -> String {
    trim(&mut manifest);
    name_workspace(&mut manifest, PARTS);
    if let Some(package) = manifest.get_mut("package").and_then(Value::as_table_mut) {
        package.insert("name".to_owned(), PARTS_PACKAGE.into());
        package.insert("publish".to_owned(), false.into());
        for name in ["metadata", "readme", "default-run"] {
            package.remove(name);
        }
    }
    let library = manifest.entry("lib").or_insert_with(|| Table::new().into());
    if let Some(library) = library.as_table_mut() {
        library.insert("name".to_owned(), "tokio".into());
        library.insert("path".to_owned(), "src/lib.rs".into());
    }
    manifest.to_string()
}

/// Makes the manifest of the facade. The template has these words:
///
/// | word | is replaced by |
/// |---|---|
/// | `@VERSION@` | the project's version; with another one, cargo would ignore the facade |
/// | `@MACROS@` | the version of `tokio-macros` that the copy requires |
/// | `@FEATURES@` | the features of both that the template does not have |
pub(super) fn facade(template: &str, tokio: &Table, copy: &Table) -> Result<String, Error> {
    let version = tokio.get("package").and_then(|package| package.get("version")?.as_str());
    let version = version.ok_or_else(|| Error::new("tokio's manifest has no version"))?;
    let macros = copy.get("dependencies").and_then(|all| all.get("tokio-macros")?.get("version")?.as_str());
    let macros = macros.unwrap_or("2");
    let filled = template.replace("@VERSION@", version).replace("@MACROS@", macros).replace("@FEATURES@", "");
    let mut manifest = parse(&filled)?;
    name_workspace(&mut manifest, FACADE);
    let own = names(&manifest).into_iter().chain(optional_dependencies(&manifest)).collect::<Vec<_>>();
    let mut added = features(tokio);
    added.extend(features(copy));
    let table = manifest.entry("features").or_insert_with(|| Table::new().into());
    let table = table.as_table_mut().ok_or_else(|| Error::new("the facade's features are not a table"))?;
    for (name, enabled) in added {
        if !own.contains(&name) {
            table.insert(name, enabled.into());
        }
    }
    Ok(manifest.to_string())
}

/// Returns all features of Tokio, those of optional dependencies included, with the features that
/// each enables. Features of Tokio's dependencies are left out: the facade has other dependencies.
fn features(tokio: &Table) -> BTreeMap<String, Vec<String>> {
    let table = tokio.get("features").and_then(Value::as_table);
    let lists: BTreeMap<&String, Vec<&str>> = table
        .into_iter()
        .flatten()
        .map(|(name, list)| (name, list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()))
        .collect();
    // A dependency that is named with `dep:` has no implicit feature.
    let hidden: Vec<_> = lists.values().flatten().filter_map(|item| item.strip_prefix("dep:")).collect();
    let implicit = optional_dependencies(tokio).into_iter().filter(|name| !hidden.contains(&name.as_str()));
    let mut found: BTreeMap<String, Vec<String>> = implicit.map(|name| (name, Vec::new())).collect();
    let known: Vec<String> = found.keys().cloned().chain(lists.keys().map(ToString::to_string)).collect();
    for (name, list) in lists {
        let enabled = list.into_iter().filter(|item| known.iter().any(|name| name == item)).map(str::to_owned);
        found.insert(name.clone(), enabled.collect());
    }
    found
}

/// Returns the names of the features that a manifest lists.
fn names(manifest: &Table) -> Vec<String> {
    let features = manifest.get("features").and_then(Value::as_table);
    features.into_iter().flatten().map(|(name, _)| name.clone()).collect()
}

/// Returns the names of the optional dependencies, for any platform.
fn optional_dependencies(manifest: &Table) -> Vec<String> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let of_targets = targets.into_iter().flatten().filter_map(|(_, target)| target.get("dependencies"));
    let all = manifest.get("dependencies").into_iter().chain(of_targets).filter_map(Value::as_table).flatten();
    let is_optional = |value: &Value| value.get("optional").and_then(Value::as_bool) == Some(true);
    let mut found: Vec<_> = all.filter(|(_, value)| is_optional(value)).map(|(name, _)| name.clone()).collect();
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKIO: &str = r#"
        [package]
        name = "tokio"
        version = "1.54.1"
        readme = "README.md"
        [features]
        default = []
        full = ["io-util", "macros", "net", "parking_lot"]
        io-util = ["bytes"]
        io-uring = ["dep:slab", "mio/os-poll"]
        macros = ["tokio-macros"]
        net = ["mio/net", "mio/os-poll"]
        [lib]
        name = "tokio"
        [[test]]
        name = "io"
        [dependencies]
        bytes = { version = "1", optional = true }
        parking_lot = { version = "0.12", optional = true }
        pin-project-lite = "0.2"
        tokio-macros = { version = "~2.7.0", optional = true }
        [dev-dependencies]
        loom = "0.7"
        [target."cfg(unix)".dependencies]
        slab = { version = "0.4", optional = true }
        [target."cfg(unix)".dev-dependencies]
        nix = "0.31"
        [lints.rust]
        unexpected_cfgs = "warn"
    "#;
    const OLDER: &str = r#"
        [package]
        name = "tokio"
        version = "1.38.0"
        [features]
        macros = ["tokio-macros"]
        [dependencies]
        num_cpus = { version = "1", optional = true }
        tokio-macros = { version = "~2.3.0", optional = true }
    "#;
    const TEMPLATE: &str = r#"
        [package]
        name = "tokio"
        version = "@VERSION@"
        [dependencies]
        tokio-macros = { version = "@MACROS@", optional = true }
        [features]
        net = []
        @FEATURES@
    "#;

    fn table(text: &str) -> Table {
        text.parse().expect("the text is valid")
    }

    #[test]
    fn the_facade_has_the_version_and_every_feature() {
        let manifest = table(&facade(TEMPLATE, &table(OLDER), &table(TOKIO)).expect("it can be made"));
        assert_eq!(manifest["package"]["version"].as_str(), Some("1.38.0"));
        assert_eq!(manifest["dependencies"]["tokio-macros"]["version"].as_str(), Some("~2.7.0"));
        let expected = r#"
            bytes = []
            default = []
            full = ["io-util", "macros", "net", "parking_lot"]
            io-uring = []
            io-util = ["bytes"]
            macros = ["tokio-macros"]
            net = []
            num_cpus = []
            parking_lot = []
        "#;
        assert_eq!(manifest["features"].as_table(), Some(&table(expected)));
    }

    #[test]
    fn the_copy_is_renamed_and_has_no_tests() {
        let manifest = table(&parts(table(TOKIO)));
        assert_eq!(manifest["package"]["name"].as_str(), Some(PARTS_PACKAGE));
        assert_eq!(manifest["lib"]["name"].as_str(), Some("tokio"));
        let sections: Vec<_> = manifest.keys().map(String::as_str).collect();
        assert_eq!(sections, ["dependencies", "features", "lib", "package", "target"]);
        assert_eq!(manifest["target"]["cfg(unix)"].as_table().map(Table::len), Some(1));
    }

    #[test]
    fn the_copy_of_axum_depends_on_volt() {
        let original = r#"
            [package]
            name = "axum"
            version = "0.8.9"
            [dependencies]
            tokio = { version = "1.44", optional = true }
            [dev-dependencies]
            reqwest = "0.12"
        "#;
        let expected = r#"
            [package]
            name = "axum"
            version = "0.8.9"
            publish = false
            workspace = "../../.."
            [dependencies]
            tokio = { version = "1.44", optional = true }
            volt = { package = "volt-runtime", path = "../../../volt/runtime", default-features = false }
        "#;
        assert_eq!(table(&axum(table(original), "registry/src/axum-0.8.9")), table(expected));
    }

    #[test]
    fn the_workspace_replaces_tokio_by_the_copy() {
        let text = r#"
            [workspace]
            members = ["runtime", "console"]
            [workspace.dependencies]
            tokio = { version = "1.54", default-features = false, features = ["sync"] }
            volt = { package = "volt-runtime", path = "runtime" }
            volt-console = { path = "console" }
            [workspace.lints.rust]
            missing_docs = "warn"
            [profile.release]
            debug = 1
        "#;
        let members = ["tokio".to_owned(), "volt/runtime".to_owned()];
        let expected = r#"
            [workspace]
            members = ["tokio", "volt/runtime"]
            [workspace.dependencies]
            tokio = { package = "volt-tokio-parts", path = "parts", default-features = false, features = ["sync"] }
            volt = { package = "volt-runtime", path = "volt/runtime" }
        "#;
        assert_eq!(table(&workspace(text, &members).expect("it can be made")), table(expected));
    }
}
