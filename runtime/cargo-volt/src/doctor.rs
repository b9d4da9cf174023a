//! `cargo volt doctor`: whether a project can be built on Volt, and the obstacles.

use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process;

use toml::Value;

use crate::arguments::Given;
use crate::cargo::Cargo;
use crate::choice;
use crate::error::Error;
use crate::lock::Lock;
use crate::prepare::Preparation;
use crate::profile::Layers;
use crate::project::{Member, Project};
use crate::shell::{Shell, print_result};
use crate::targets;
use crate::versions::{self, Choice, Verdict};

/// Tokio's features that have no effect on Volt, and the reason.
const WITHOUT_EFFECT: [(&str, &str); 3] = [
    ("io-uring", "files are read and written on threads for blocking work"),
    ("schedule-latency", "`volt-console` shows how long tasks wait for a worker"),
    ("taskdump", "`volt-console dump` lists all tasks with their await points"),
];

/// One line of the report.
enum Line {
    /// This works.
    Fine(String),
    /// This works in another way, or is worth knowing.
    Note(String),
    /// The project cannot be built on Volt.
    Problem(Error),
}

/// Prints the report to standard output. Returns whether the project can be built on Volt, or why
/// that could not be checked.
pub(crate) fn run(shell: &Shell, given: &Given) -> Result<bool, Error> {
    let mut lines = Vec::new();
    let examined = examine(shell, given, &mut lines);
    let problems = lines.iter().filter(|line| matches!(line, Line::Problem(_))).count();
    let mut text = String::new();
    for line in &lines {
        match line {
            Line::Fine(line) => text += &format!("     ok  {line}\n"),
            Line::Note(line) => text += &format!("   note  {line}\n"),
            Line::Problem(error) => {
                text += &format!("problem  {}\n", error.message().replace('\n', "\n         "));
                for help in error.remedies() {
                    text += &format!("         help: {help}\n");
                }
            }
        }
    }
    if examined.is_ok() {
        text += match problems {
            0 => "This project can be built on Volt: cargo volt run\n",
            _ => "This project cannot be built on Volt as it is.\n",
        };
    }
    print_result(&text)?;
    examined.map(|()| problems == 0)
}

/// Checks everything that can be checked without compiling. If a check fails that the others need,
/// its result is the last line. An error is a failure of the check itself.
fn examine(shell: &Shell, given: &Given, lines: &mut Vec<Line>) -> Result<(), Error> {
    let Some(cargo) = judge(Cargo::find(shell), lines)? else { return Ok(()) };
    lines.push(Line::Fine(format!("Cargo {}", cargo.release)));
    let project = Project::find(&cargo, given)?;
    lines.push(Line::Fine(format!("project {}", project.root.display())));
    let layers = Layers::read(&project, given);
    judge(targets::check(&layers, given, &cargo.host), lines)?;
    let scratch = Scratch::new()?;
    let preparation = Preparation::below(scratch.0.clone(), shell, &cargo, given, &project);
    if let Some((lock, choice)) = judge(preparation.examine(&layers), lines)? {
        lines.extend(of_lock(&lock, &choice.version));
        lines.extend(of_axum(&lock, &choice));
    }
    lines.extend(project.members.iter().flat_map(of_member));
    lines.extend(of_flags(&layers));
    lines.extend(of_source(&layers).map(Line::Note));
    lines.extend(of_unstable(&cargo, &layers).map(Line::Note));
    for profile in ["dev", "release"] {
        lines.extend(layers.overrides(profile).iter().filter_map(|change| {
            let old = change.instead_of.as_ref()?;
            let text =
                format!("{} is {:?} instead of {old}, so that stacks show source lines", change.key, change.value);
            Some(Line::Note(text))
        }));
        let kept = layers.kept(profile).into_iter();
        lines.extend(kept.map(|text| Line::Note(format!("{text}, so stacks do not show source lines"))));
    }
    Ok(())
}

/// Returns the result of a check. Adds a line if the project cannot be built on Volt.
fn judge<T>(result: Result<T, Error>, lines: &mut Vec<Line>) -> Result<Option<T>, Error> {
    match result {
        Err(error) if error.is_unsupported() => {
            lines.push(Line::Problem(error));
            Ok(None)
        }
        other => other.map(Some),
    }
}

/// A folder for lock files that are needed only for the check. It is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch, Error> {
        let folder = env::temp_dir();
        for attempt in 0.. {
            let path = folder.join(format!("cargo-volt-doctor-{}-{attempt}", process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Scratch(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io("create", &path, &error)),
            }
        }
        unreachable!("some number is free")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Reports on the versions of Tokio.
fn of_lock(lock: &Lock, version: &str) -> Vec<Line> {
    let mut lines = vec![match versions::verdict(version) {
        Verdict::Tested if version == versions::TESTED => {
            Line::Fine(format!("tokio v{version}, with which Volt was tested"))
        }
        Verdict::Tested => {
            let tested = versions::TESTED;
            Line::Fine(format!(
                "tokio v{version}; its I/O traits, channels and macros are replaced by those of v{tested}"
            ))
        }
        _ => Line::Note(versions::untested(version)),
    }];
    for other in lock.named("tokio").filter(|tokio| tokio.version != version) {
        let why = choice::why(lock, other).replace('\n', "\n         ");
        lines.push(Line::Note(format!("{other} is not replaced; it is not part of the default build\n         {why}")));
    }
    lines
}

/// Reports for each axum whether its requests are counted by route.
fn of_axum(lock: &Lock, choice: &Choice) -> Vec<Line> {
    let all = lock.named("axum").map(|axum| match choice.axums.iter().any(|version| version == axum.version) {
        true => Line::Fine(format!("{axum}, whose requests are counted by route")),
        false => Line::Note(format!(
            "{axum}: its requests are not counted by route; this needs axum {} from crates.io",
            versions::AXUM.join(" or ")
        )),
    });
    all.collect()
}

/// Reports on a package of the project.
fn of_member(member: &Member) -> Vec<Line> {
    let is_without_std = |path: &Path| {
        fs::read_to_string(path).is_ok_and(|text| text.lines().any(|line| line.trim_start().starts_with("#![no_std]")))
    };
    let mut lines = Vec::new();
    if member.roots.iter().any(|path| is_without_std(path)) {
        lines.push(Line::Note(format!("package `{}` is `#![no_std]`; Volt changes nothing in it", member.name)));
    }
    for (feature, reason) in WITHOUT_EFFECT {
        if member.features.iter().any(|found| found == feature) {
            let name = &member.name;
            lines.push(Line::Note(format!(
                "package `{name}`: the feature `{feature}` of tokio has no effect: {reason}"
            )));
        }
    }
    lines
}

/// Reports on flags for the compiler that Tokio's sources depend on.
fn of_flags(layers: &Layers) -> Vec<Line> {
    let mut flags: Vec<String> = ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_RUSTFLAGS"]
        .iter()
        .filter_map(|name| env::var(name).ok())
        .collect();
    let mut add = |value: Option<&Value>| match value {
        Some(Value::String(text)) => flags.push(text.clone()),
        Some(Value::Array(list)) => flags.extend(list.iter().filter_map(Value::as_str).map(str::to_owned)),
        _ => {}
    };
    add(layers.get(&["build", "rustflags"]));
    for (_, target) in layers.get(&["target"]).and_then(Value::as_table).into_iter().flatten() {
        add(target.get("rustflags"));
    }
    let has = |name: &str| flags.iter().flat_map(|text| text.split([' ', '\u{1f}', '='])).any(|word| word == name);
    let mut lines = Vec::new();
    if has("tokio_unstable") {
        lines.push(Line::Note(
            "tokio_unstable: Volt has the callbacks for tasks, `task::Builder`, `JoinSet::build_task`, the numbers of \
             `RuntimeMetrics` and some settings of `runtime::Builder`; other unstable items do not compile, and each error names a replacement"
                .to_owned(),
        ));
    }
    if has("loom") {
        let error = Error::new("the build has `--cfg loom`, with which Volt cannot be built");
        lines.push(Line::Problem(error.help("build loom models with `cargo`, without `volt`")));
    }
    lines
}

/// Returns a note if a directory replaces crates.io.
pub(crate) fn of_source(layers: &Layers) -> Option<String> {
    let name = layers.get(&["source", "crates-io", "replace-with"])?.as_str()?;
    let folder = layers.get(&["source", name, "directory"])?.as_str()?;
    Some(format!(
        "crates.io is replaced by the directory `{folder}`, which must also contain Volt's dependencies: \
         run `cargo volt vendor DIR`, add the lines that it prints to Cargo.toml, and repeat `cargo vendor`"
    ))
}

/// Returns a remark if settings take effect that this cargo would otherwise ignore.
pub(crate) fn of_unstable(cargo: &Cargo, layers: &Layers) -> Option<String> {
    let keys = layers.unstable();
    if keys.is_empty() || !cargo.pretends() {
        return None;
    }
    let keys: Vec<_> = keys.into_iter().collect();
    Some(format!(
        "[unstable] of cargo's configuration takes effect in this build ({}), because `cargo volt` has to enable an \
         unstable option of Cargo {}; with Cargo 1.97 or later, it need not",
        keys.join(", "),
        cargo.release
    ))
}
