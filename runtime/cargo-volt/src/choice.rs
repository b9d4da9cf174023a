//! Selects the version of tokio in a project that the facade replaces, or reports why there is none
//! that it can replace. Also selects the versions of axum whose requests can be counted by route.

use std::path::Path;

use serde_json::Value;

use crate::arguments::Given;
use crate::cargo::Cargo;
use crate::error::Error;
use crate::lock::{Lock, Package};
use crate::profile::Layers;
use crate::project::{Project, relayed};
use crate::sources::PARTS_PACKAGE;
use crate::targets;
use crate::versions::{self, Choice, Verdict};

/// Chooses the tokio of an unpatched lock file.
pub(crate) fn choose(
    lock: &Lock,
    path: &Path,
    project: &Project,
    cargo: &Cargo,
    given: &Given,
) -> Result<Choice, Error> {
    let mut choice = sort_out(lock)?;
    let layers = Layers::read(project, given);
    let others: Vec<_> = lock.named("tokio").filter(|tokio| tokio.version != choice.version).collect();
    if !others.is_empty() {
        let built = built(cargo, given, &layers, path)?;
        if let Some(other) = others.iter().find(|other| built.iter().any(|version| version == other.version)) {
            return Err(second(lock, *other, &choice.version));
        }
    }
    if layers.get(&["patch", "crates-io", "tokio"]).is_some() {
        return Err(patched("in the project's manifest or in cargo's configuration"));
    }
    choice.axums = axums_to_replace(lock, &layers);
    Ok(choice)
}

/// Returns the versions of axum in a lock file that are to be replaced: none if the project patches
/// axum.
pub(crate) fn axums_to_replace(lock: &Lock, layers: &Layers) -> Vec<String> {
    match layers.get(&["patch", "crates-io", "axum"]) {
        Some(_) => Vec::new(),
        None => axums(lock),
    }
}

/// Returns the versions of axum in a lock file that can be replaced.
fn axums(lock: &Lock) -> Vec<String> {
    let all = lock.named("axum").filter(|axum| axum.is_from_crates_io() && versions::has_routes(axum.version));
    all.map(|axum| axum.version.to_owned()).collect()
}

/// Chooses the tokio, without regard to others of another major version.
pub(crate) fn sort_out(lock: &Lock) -> Result<Choice, Error> {
    if lock.named(PARTS_PACKAGE).next().is_some() {
        return Err(Error::unsupported("this project is already on Volt: its lock file contains `volt-runtime`")
            .help("use `cargo` without `volt`"));
    }
    if let Some(native) = lock.named("volt-runtime").next() {
        return Err(Error::unsupported(format!(
            "this project uses `volt-runtime` directly, and a program cannot contain it twice\n{}",
            why(lock, native)
        ))
        .help("for libraries that require tokio, enable the feature `tokio-compat` of `volt-runtime`")
        .help("or remove `volt-runtime`, and use `tokio` everywhere"));
    }
    let all: Vec<_> = lock.named("tokio").collect();
    if all.is_empty() {
        return Err(Error::unsupported("this project does not use tokio, so there is nothing to run on Volt")
            .help("for a new program, use the crate `volt-runtime` directly"));
    }
    let mut candidates = all.iter().filter(|tokio| versions::verdict(tokio.version) != Verdict::Other);
    if let Some(foreign) = candidates.clone().find(|tokio| !tokio.is_from_crates_io()) {
        return Err(match foreign.source {
            None => patched("by a local directory"),
            Some(source) => {
                Error::unsupported(format!("tokio is not from crates.io, but from {source}\n{}", why(lock, *foreign)))
                    .help("use a published version, `tokio = \"1\"`, and remove any [patch] of tokio")
            }
        });
    }
    match candidates.next() {
        Some(tokio) => Ok(Choice { version: tokio.version.to_owned(), axums: axums(lock) }),
        None => Err(no_tokio_1(lock, all[0])),
    }
}

/// The error if the only tokio has another API than the facade.
fn no_tokio_1(lock: &Lock, tokio: Package<'_>) -> Error {
    let error = Error::unsupported(format!(
        "Volt replaces tokio 1, from v{} on, and this project uses {tokio}\n{}",
        versions::OLDEST,
        why(lock, tokio)
    ));
    let wanted = format!("tokio v{}, with which Volt was tested, or another v1", versions::TESTED);
    match lock.chain_to(tokio)[..] {
        // The last one is a package of the project, whose requirements the user can change.
        [package] => error.help(format!(
            "update to {wanted}: require `tokio = \"1\"` in the Cargo.toml of `{}`, and run `cargo update -p tokio`",
            package.name
        )),
        [.., library, ours] => error.help(format!(
            "update to {wanted}: require a version of `{0}` that uses it in the Cargo.toml of `{1}`, and run `cargo update -p {0}`",
            library.name, ours.name
        )),
        [] => error.help(format!("update to {wanted}")),
    }
}

/// Returns the version of the facade if a patched lock file is as it must be: the facade is the
/// only tokio of its major version.
fn facade_of(lock: &Lock) -> Option<String> {
    let mut of_one = lock.named("tokio").filter(|tokio| versions::verdict(tokio.version) != Verdict::Other);
    let facade = of_one.next().filter(|tokio| tokio.source.is_none() && of_one.next().is_none())?;
    (!lock.has_unused_patch("tokio")).then(|| facade.version.to_owned())
}

/// Returns the version of the facade if it is the only tokio at all. Otherwise, whether the others
/// are part of the build must be checked with `choose`.
pub(crate) fn only_facade_of(lock: &Lock) -> Option<String> {
    facade_of(lock).filter(|_| lock.named("tokio").count() == 1)
}

/// Checks that the facade is the only tokio in a patched lock file.
pub(crate) fn check(lock: &Lock, choice: &Choice) -> Result<(), Error> {
    if facade_of(lock).is_some_and(|version| version == choice.version) {
        return Ok(());
    }
    let other = lock.named("tokio").find(|tokio| tokio.source.is_some());
    match other {
        Some(other) => Err(second(lock, other, &choice.version)),
        None => Err(Error::new("cargo does not use Volt's tokio").help("run `cargo volt doctor`")),
    }
}

/// The error if the program would contain a second tokio.
pub(crate) fn second(lock: &Lock, other: Package<'_>, version: &str) -> Error {
    let why = why(lock, other);
    Error::unsupported(format!(
        "this project uses {other} in addition to tokio v{version}, which Volt replaces
{why}"
    ))
    .help("a program on Volt contains only one tokio: update or disable the package that requires the other one")
}

fn patched(place: &str) -> Error {
    Error::unsupported(format!("tokio is already replaced {place}"))
        .help("remove `tokio` from [patch.crates-io], or build without `cargo volt`")
}

/// Returns what requires a package, in the form of cargo's errors.
pub(crate) fn why(lock: &Lock, package: Package<'_>) -> String {
    let lines = lock.chain_to(package).into_iter().map(|above| format!("    ... required by package `{above}`"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the versions of tokio that are part of the build, with the given features and target.
fn built(cargo: &Cargo, given: &Given, layers: &Layers, lock: &Path) -> Result<Vec<String>, Error> {
    let mut command = cargo.command("metadata");
    command.arg("--format-version=1").args(&given.features);
    let mut targets = targets::of_build(layers, given, &cargo.host);
    if targets.is_empty() {
        targets.push(cargo.host.clone());
    }
    for target in targets {
        command.arg("--filter-platform").arg(target);
    }
    cargo.add_given(&mut command, given);
    cargo.use_lock(&mut command, lock)?;
    let json = cargo.run(&mut command).map_err(|stderr| relayed(&stderr))?;
    let metadata: Value = serde_json::from_slice(&json)
        .map_err(|error| Error::new(format!("cannot read the output of `cargo metadata`: {error}")))?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let tokios = packages.filter(|package| package["name"] == "tokio");
    Ok(tokios.filter_map(|package| package["version"].as_str().map(str::to_owned)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(packages: &[(&str, &str, Option<&str>, &str)]) -> Lock {
        let entry = |(name, version, source, requires): &(&str, &str, Option<&str>, &str)| {
            let source = source.map_or(String::new(), |source| format!("source = {source:?}\n"));
            format!("[[package]]\nname = {name:?}\nversion = {version:?}\n{source}dependencies = [{requires:?}]\n")
        };
        Lock::parse(&packages.iter().map(entry).collect::<String>()).expect("the text is valid")
    }

    const CRATES_IO: Option<&str> = Some("registry+https://github.com/rust-lang/crates.io-index");

    #[test]
    fn a_tokio_of_another_major_version_names_its_user() {
        let old = lock(&[("app", "0.1.0", None, "tokio"), ("tokio", "0.2.25", CRATES_IO, "")]);
        let error = sort_out(&old).expect_err("it has another API");
        assert!(error.message().contains("from v1.0.0 on, and this project uses tokio v0.2.25"), "{error}");
        assert!(error.message().ends_with("`app v0.1.0`"), "{error}");
        let help = &error.remedies()[0];
        assert!(help.contains("`tokio = \"1\"` in the Cargo.toml of `app`, and run `cargo update -p tokio`"), "{help}");
        let both = lock(&[("tokio", "0.2.25", CRATES_IO, ""), ("tokio", "1.54.1", CRATES_IO, "")]);
        assert_eq!(sort_out(&both).expect("one can be replaced").version, "1.54.1");
    }

    #[test]
    fn a_library_with_an_old_tokio_is_the_one_to_update() {
        let old = lock(&[
            ("app", "0.1.0", None, "lib"),
            ("lib", "0.3.0", CRATES_IO, "deep"),
            ("deep", "0.1.0", CRATES_IO, "tokio"),
            ("tokio", "0.2.25", CRATES_IO, ""),
        ]);
        let error = sort_out(&old).expect_err("it has another API");
        let help = &error.remedies()[0];
        assert!(help.contains("tokio v1.54.1") && help.contains("a version of `lib` that uses it"), "{help}");
        assert!(help.ends_with("in the Cargo.toml of `app`, and run `cargo update -p lib`"), "{help}");
    }

    #[test]
    fn a_native_use_of_volt_is_not_a_vendored_facade() {
        let native = lock(&[
            ("app", "0.1.0", None, "volt-runtime"),
            ("volt-runtime", "0.1.0", None, "tokio"),
            ("tokio", "1.54.1", CRATES_IO, ""),
        ]);
        let error = sort_out(&native).expect_err("there would be two runtimes");
        assert!(error.message().ends_with("required by package `app v0.1.0`"), "{error}");
        assert!(error.remedies()[0].contains("tokio-compat"), "{error:?}");
        let vendored = [("volt-runtime", "0.1.0", None, ""), ("volt-tokio-parts", "1.54.1", None, "")];
        let error = sort_out(&lock(&vendored)).expect_err("nothing is left to replace");
        assert!(error.message().contains("already on Volt"), "{error}");
    }

    #[test]
    fn a_tokio_from_elsewhere_is_not_replaced() {
        let git = Some("git+https://example.org/tokio?branch=main#0123");
        let error = sort_out(&lock(&[("tokio", "1.54.1", git, "")])).expect_err("the patch is for crates.io");
        assert!(error.message().contains("git+https://example.org/tokio"), "{error}");
        let error = sort_out(&lock(&[("tokio", "1.54.1", None, "")])).expect_err("it is replaced");
        assert!(error.message().contains("already replaced"), "{error}");
    }

    #[test]
    fn every_axum_from_crates_io_with_known_sources_is_replaced() {
        let (tokio, git) = (("tokio", "1.54.1", CRATES_IO, ""), Some("git+https://example.org/axum#0123"));
        let axum = |version, source| ("axum", version, source, "tokio");
        let both = lock(&[tokio, axum("0.6.20", CRATES_IO), axum("0.7.9", CRATES_IO), axum("0.8.9", CRATES_IO)]);
        let choice = sort_out(&both).expect("it can be replaced");
        assert_eq!(choice.axums, ["0.7.9", "0.8.9"]);
        assert_eq!(Choice::parse(&choice.to_text()), Some(choice));
        let none = sort_out(&lock(&[tokio, axum("0.8.9", git), axum("0.8.8", None)])).expect("it can be replaced");
        assert!(none.axums.is_empty() && Choice::parse(&none.to_text()).as_ref() == Some(&none), "{none:?}");
    }

    #[test]
    fn no_axum_is_replaced_in_a_project_that_patches_one() {
        let lock = lock(&[("tokio", "1.54.1", CRATES_IO, ""), ("axum", "0.7.9", CRATES_IO, "tokio")]);
        let layers = |manifest: &str| Layers::of(&[manifest]);
        assert_eq!(axums_to_replace(&lock, &layers("[patch.crates-io]\nhyper = { path = \"mine\" }")), ["0.7.9"]);
        let none: [&str; 0] = [];
        assert_eq!(axums_to_replace(&lock, &layers("[patch.crates-io]\naxum = { path = \"mine\" }")), none);
    }

    #[test]
    fn a_patched_lock_file_has_one_tokio() {
        let choice = Choice { version: "1.54.1".to_owned(), axums: Vec::new() };
        let facade = ("tokio", "1.54.1", None, "");
        assert!(check(&lock(&[facade]), &choice).is_ok());
        // A tokio of another major version is not part of the build, or `choose` has refused it.
        assert!(check(&lock(&[facade, ("tokio", "0.2.25", CRATES_IO, "")]), &choice).is_ok());
        let error = check(&lock(&[facade, ("tokio", "1.50.0", CRATES_IO, "")]), &choice).expect_err("there are two");
        assert!(error.message().contains("tokio v1.50.0 in addition to tokio v1.54.1"), "{error}");
        let unused = Lock::parse("[[patch.unused]]\nname = \"tokio\"\nversion = \"1.54.1\"\n").expect("it is valid");
        assert!(check(&unused, &choice).is_err());
    }
}
