//! Tests of `cargo volt` in small projects. Checks that take a whole build are in `.ci/drop-in`.

mod differences;
mod fixture;
mod help;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Stdio;

use fixture::{Folder, names, tokio_version, version_of};

#[test]
fn the_project_stays_as_it_was() {
    let folder = Folder::with_project("unchanged");
    let files = ["Cargo.toml", "Cargo.lock", "service/Cargo.toml", "leaf/Cargo.toml"];
    let before = files.map(|name| folder.read(name));
    let first = folder.run("check -p leaf");
    first.succeeds();
    assert!(first.stderr.contains("   Preparing Volt for tokio v"), "{first:?}");
    assert_eq!(files.map(|name| folder.read(name)), before);
    // Cargo itself writes hidden files.
    let written = names(&folder.path("target")).into_iter().filter(|name| !name.starts_with('.'));
    assert_eq!(written.collect::<Vec<_>>(), ["volt"]);
    let second = folder.run("check -p leaf");
    second.succeeds();
    assert!(!second.stderr.contains("Preparing"), "{second:?}");
}

#[test]
fn the_facade_is_the_only_tokio_of_the_build() {
    let folder = Folder::with_project("only");
    folder.run("check -p leaf").succeeds();
    let lock = fs::read_to_string(folder.prepared("Cargo.lock")).expect("it is there");
    let tokios: Vec<_> = lock.split("[[package]]\n").filter(|text| text.starts_with("name = \"tokio\"\n")).collect();
    assert_eq!(tokios.len(), 1, "{tokios:?}");
    assert!(!tokios[0].contains("source = "), "{tokios:?}");
    assert!(lock.contains("name = \"volt-runtime\"") && lock.contains("name = \"volt-tokio-parts\""));
    let sources = folder.sources();
    assert_eq!(names(&sources), [".cargo-volt", "Cargo.toml", "parts", "tokio", "volt"]);
}

#[test]
fn arguments_and_exit_code_are_those_of_the_program() {
    let folder = Folder::with_project("arguments");
    let done = folder.run("run -q -p leaf -- --locked -- b --target x86_64-pc-windows-msvc");
    assert_eq!(done.stdout.trim(), r#"["--locked", "--", "b", "--target", "x86_64-pc-windows-msvc"]"#, "{done:?}");
    assert_eq!(done.code, Some(5), "{done:?}");
}

#[test]
fn a_target_directory_is_used_as_given() {
    let folder = Folder::with_project("directory");
    folder.run("build -p leaf --release --target-dir out").succeeds();
    assert!(folder.path("out/release/leaf").exists() && folder.path("out/volt/sources").exists());
    assert!(!folder.path("target").exists());
}

#[test]
fn locked_requires_an_up_to_date_lock_file() {
    let folder = Folder::with_project("locked");
    folder.run("check -p leaf --locked").succeeds();
    let lock = folder.read("Cargo.lock");
    folder.write(
        "Cargo.lock",
        &lock.replacen("name = \"leaf\"\nversion = \"0.1.0\"", "name = \"leaf\"\nversion = \"0.0.1\"", 1),
    );
    folder.run("check -p leaf --locked").fails_as_cargo(&["Cargo.lock", "--locked"]);
    folder.run("check -p leaf").succeeds();
    assert!(folder.read("Cargo.lock").contains("0.0.1"), "the lock file is still outdated");
}

#[test]
fn a_project_without_lock_file_gets_none() {
    let folder = Folder::with_project("unlocked");
    fs::remove_file(folder.path("Cargo.lock")).expect("it is there");
    folder.run("check -p leaf").succeeds();
    assert!(!folder.path("Cargo.lock").exists());
    // A second run keeps the versions that the first one has chosen.
    let copy = folder.prepared("project/Cargo.lock");
    fs::remove_file(&copy).expect("it is there");
    folder.run("check -p leaf").succeeds();
    assert!(!copy.exists() && !folder.path("Cargo.lock").exists());
}

#[test]
fn a_lock_file_is_replaced_only_if_it_changes() {
    let folder = Folder::with_project("replaced");
    folder.run("check -p leaf").succeeds();
    let path = folder.prepared("Cargo.lock");
    // Stands for another cargo that reads the file meanwhile.
    let mut reader = File::open(&path).expect("it is there");
    let inode = |path: &Path| fs::metadata(path).expect("it is there").ino();
    let (before, old) = (inode(&path), fs::read_to_string(&path).expect("it is there"));
    folder.run("check -p leaf").succeeds();
    assert_eq!(inode(&path), before);
    folder.write("leaf/Cargo.toml", &folder.read("leaf/Cargo.toml").replace("0.1.0", "0.2.0"));
    folder.run("check -p leaf").succeeds();
    let mut read = String::new();
    reader.read_to_string(&mut read).expect("it is text");
    assert_eq!(read, old);
    assert!(inode(&path) != before && fs::read_to_string(&path).expect("it is there") != old);
}

#[test]
fn an_interrupted_preparation_is_repeated() {
    let folder = Folder::with_project("interrupted");
    folder.run("check -p leaf").succeeds();
    let sources = folder.sources();
    fs::remove_file(sources.join(".cargo-volt")).expect("it is there");
    fs::remove_file(sources.join("tokio/Cargo.toml")).expect("it is there");
    let done = folder.run("check -p leaf");
    done.succeeds();
    assert!(done.stderr.contains("Preparing") && sources.join("tokio/Cargo.toml").exists(), "{done:?}");
}

#[test]
fn a_killed_preparation_is_repeated() {
    let folder = Folder::with_project("killed");
    let sources = folder.path("target/volt/sources");
    let mut child = folder.volt("check -p leaf").stderr(Stdio::piped()).spawn().expect("it can be started");
    let mut lines = BufReader::new(child.stderr.take().expect("it is a pipe")).lines();
    // It prints this line before it writes the sources.
    let found = lines.by_ref().map_while(Result::ok).find(|line| line.contains("Preparing Volt"));
    assert!(found.is_some(), "it prepares");
    // The file that marks the sources as complete is written last.
    let is_partial = || sources.read_dir().is_ok_and(|mut entries| entries.next().is_some());
    while !is_partial() {
        assert!(child.try_wait().expect("it is a child").is_none(), "it has ended");
        std::thread::yield_now();
    }
    child.kill().expect("it can be killed");
    child.wait().expect("it ends");
    folder.run("check -p leaf").succeeds();
    assert_eq!(names(&folder.sources()), [".cargo-volt", "Cargo.toml", "parts", "tokio", "volt"]);
}

#[test]
fn two_concurrent_first_builds_succeed() {
    let folder = Folder::with_project("twins");
    let start = || folder.volt("check -p leaf").stderr(Stdio::piped()).spawn().expect("it can be started");
    for child in [start(), start()] {
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(names(&folder.sources()), [".cargo-volt", "Cargo.toml", "parts", "tokio", "volt"]);
}

#[test]
fn a_member_without_std_is_built_and_noted() {
    let folder = Folder::with_project("bare");
    let manifest = folder.read("Cargo.toml").replace("\"leaf\"", "\"leaf\", \"bare\"");
    folder.write("Cargo.toml", &manifest);
    folder.write("bare/Cargo.toml", "[package]\nname = \"bare\"\nversion = \"0.1.0\"\nedition = \"2024\"\n");
    folder.write("bare/src/lib.rs", "#![no_std]\npub fn two() -> u8 {\n    2\n}\n");
    folder.run("check -p bare").succeeds();
    let done = folder.run("doctor");
    done.succeeds();
    assert!(done.stdout.contains("note  package `bare` is `#![no_std]`; Volt changes nothing in it"), "{done:?}");
}

#[test]
fn a_preparation_waits_for_another_one() {
    let folder = Folder::with_project("two");
    fs::create_dir_all(folder.path("target/volt")).expect("it can be created");
    let other = File::create(folder.path("target/volt/lock")).expect("it can be created");
    other.lock().expect("no other program has locked it");
    let mut child = folder.volt("check -p leaf").stderr(Stdio::piped()).spawn().expect("it can be started");
    let mut lines = BufReader::new(child.stderr.take().expect("it is a pipe")).lines();
    let first = lines.next().expect("it prints a line").expect("the line is text");
    assert_eq!(first, "    Blocking waiting for file lock on Volt's sources");
    other.unlock().expect("it is locked");
    let rest: Vec<_> = lines.map_while(Result::ok).collect();
    assert!(child.wait().expect("it ends").success(), "{rest:?}");
}

#[test]
fn a_folder_without_project_is_an_error() {
    Folder::new("nothing").run("run").fails_as_cargo(&["could not find `Cargo.toml`"]);
}

#[test]
fn a_project_without_tokio_is_an_error() {
    let folder = Folder::with_project("none");
    folder.write("service/Cargo.toml", "[package]\nname = \"service\"\nversion = \"0.1.0\"\nedition = \"2024\"\n");
    folder.run("build").fails_with(&["does not use tokio", "help: "]);
    assert!(!folder.path("target/volt/sources").exists());
}

#[test]
fn a_tokio_before_1_is_refused_with_the_remedy() {
    let folder = Folder::with_project("ancient");
    folder.write("Cargo.toml", &folder.read("Cargo.toml").replace("resolver", "exclude = [\"old\"]\nresolver"));
    folder.write("old/Cargo.toml", "[package]\nname = \"tokio\"\nversion = \"0.3.7\"\nedition = \"2024\"\n");
    folder.write("old/src/lib.rs", "");
    let manifest = folder.read("service/Cargo.toml");
    let (package, _) = manifest.split_once("tokio").expect("it requires tokio");
    folder.write("service/Cargo.toml", &format!("{package}tokio = {{ path = \"../old\" }}\n"));
    let expected =
        ["from v1.0.0 on, and this project uses tokio v0.3.7", "`service v0.1.0`", "`cargo update -p tokio`"];
    folder.run("check -p leaf").fails_with(&expected);
    let done = folder.run("doctor");
    assert!(done.code == Some(1) && done.stdout.contains("this project uses tokio v0.3.7"), "{done:?}");
}

#[test]
fn a_second_tokio_is_an_error_once_it_is_there() {
    let folder = Folder::with_project("second");
    folder.run("check -p leaf").succeeds();
    folder.write("old/Cargo.toml", "[package]\nname = \"tokio\"\nversion = \"0.2.25\"\nedition = \"2024\"\n");
    folder.write("old/src/lib.rs", "");
    folder.write("Cargo.toml", &folder.read("Cargo.toml").replace("resolver", "exclude = [\"old\"]\nresolver"));
    let old = "old = { package = \"tokio\", path = \"../old\" }\n";
    folder.write("service/Cargo.toml", &(folder.read("service/Cargo.toml") + old));
    let expected = ["tokio v0.2.25 in addition to tokio v1.", "required by package `service v0.1.0`", "help: "];
    folder.run("check -p leaf").fails_with(&expected);
}

#[test]
fn a_patched_tokio_is_an_error() {
    let folder = Folder::with_project("patched");
    let manifest = folder.read("Cargo.toml") + "[patch.crates-io]\ntokio = { path = \"mine\" }\n";
    folder.write("Cargo.toml", &manifest);
    let features = "bytes fs full io-std io-util macros net parking_lot process rt rt-multi-thread signal sync time";
    let features: String = features.split(' ').map(|name| format!("{name} = []\n")).collect();
    let mine = format!("[package]\nname = \"tokio\"\nversion = {:?}\n[features]\n{features}", tokio_version());
    folder.write("mine/Cargo.toml", &mine);
    folder.write("mine/src/lib.rs", "");
    folder.run("build").fails_with(&["tokio is already replaced", "help: remove `tokio` from [patch.crates-io]"]);
}

#[test]
fn a_target_without_volt_is_an_error() {
    let folder = Folder::with_project("windows");
    let expected = ["Volt does not run on `x86_64-pc-windows-msvc`", "help: "];
    folder.run("build --target x86_64-pc-windows-msvc").fails_with(&expected);
    folder.write(".cargo/config.toml", "[build]\ntarget = \"x86_64-pc-windows-msvc\"\n");
    folder.run("build").fails_with(&expected);
}

#[test]
fn cargos_name_for_its_host_is_a_target() {
    let folder = Folder::with_project("host");
    folder.run("check -p leaf --target host-tuple").succeeds();
    folder.write(".cargo/config.toml", "[build]\ntarget = \"host-tuple\"\n");
    folder.run("check -p leaf").succeeds();
    let done = folder.run("doctor");
    done.succeeds();
}

#[test]
fn another_place_of_the_lock_file_is_an_error() {
    let folder = Folder::with_project("place");
    let expected = ["separate lock file"];
    folder.run("check -p leaf --lockfile-path other/Cargo.lock").fails_with(&expected);
    folder.run("check -p leaf --config resolver.lockfile-path=\"other/Cargo.lock\"").fails_with(&expected);
}

#[test]
fn programs_see_the_channel_that_cargo_has() {
    let folder = Folder::with_project("channel");
    let name = "__CARGO_TEST_CHANNEL_OVERRIDE_DO_NOT_USE_THIS";
    let read = format!("std::env::var({name:?}).unwrap_or_default()");
    folder
        .write("leaf/build.rs", &format!("fn main() {{\n    println!(\"cargo::rustc-env=SEEN={{}}\", {read});\n}}\n"));
    folder.write(
        "leaf/src/main.rs",
        &format!("fn main() {{\n    println!(\"channels: {{}} {{}}\", env!(\"SEEN\"), {read});\n}}\n"),
    );
    let done = folder.run("run -q -p leaf");
    done.succeeds();
    assert!(done.stdout.starts_with("channels: ") && !done.stdout.contains("nightly"), "{done:?}");
}

#[test]
fn settings_that_only_this_build_obeys_are_named() {
    let folder = Folder::with_project("unstable");
    let version = folder.cargo("--version").stdout;
    let minor = version.split('.').nth(1).and_then(|text| text.parse::<u32>().ok()).expect("it is a version");
    folder.write(".cargo/config.toml", "[unstable]\nmtime-on-use = true\n");
    let done = folder.run("check -p leaf");
    done.succeeds();
    let expected = minor < 97 && !version.contains("nightly");
    assert_eq!(done.stderr.contains("takes effect in this build (mtime-on-use)"), expected, "{done:?}");
}

#[test]
fn cargos_progress_is_passed_on_unless_quiet() {
    let folder = Folder::with_project("progress");
    let cargo = folder.path("cargo");
    folder.write(
        "cargo",
        &format!(
            "#!/bin/sh\ncase $1 in update) echo '    Updating example index' >&2;; esac\n\
             exec '{}' \"$@\"\n",
            env!("CARGO")
        ),
    );
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).expect("it is there");
    for (arguments, expected) in [("check -p leaf", true), ("check -q -p leaf", false)] {
        let output = folder.volt(arguments).env("CARGO", &cargo).output().expect("it can be started");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr}");
        assert_eq!(stderr.contains("    Updating example index\n"), expected, "{stderr}");
    }
}

#[test]
fn a_target_directory_that_cannot_be_written_is_an_error() {
    let folder = Folder::with_project("unwritable");
    folder.write("target", "a file");
    folder.run("build").fails_with(&["cannot create"]);
}

#[test]
fn a_stripped_profile_is_reported() {
    let folder = Folder::with_project("stripped");
    let manifest = folder.read("Cargo.toml") + "[profile.release]\nstrip = true\n";
    folder.write("Cargo.toml", &manifest);
    let done = folder.run("build -p leaf --release");
    done.succeeds();
    assert!(done.stderr.contains("note: profile.release.strip is \"none\" instead of true"), "{done:?}");
    assert!(has_section(&folder, "release", ".debug_line") && has_section(&folder, "release", ".symtab"));
}

#[test]
fn only_profiles_for_releases_are_overridden() {
    let folder = Folder::with_project("overridden");
    let done = folder.run("build -p leaf --release --config profile.release.debug=false");
    done.succeeds();
    assert!(done.stderr.contains("note: profile.release.debug is \"line-tables-only\" instead of false"), "{done:?}");
    assert!(has_section(&folder, "release", ".debug_line"));
    let done = folder.run("build -p leaf --config profile.dev.debug=false --config profile.dev.strip=true");
    done.succeeds();
    assert!(!done.stderr.contains("profile.") && !has_section(&folder, "debug", ".debug_line"), "{done:?}");
    let doctor = folder.run("doctor --config profile.dev.debug=false");
    assert!(
        doctor.stdout.contains("note  profile.dev.debug is false, so stacks do not show source lines"),
        "{doctor:?}"
    );
}

/// Returns whether the built program has a section of this name. The names of the sections end with
/// a zero each; the same words without it are in the standard library, which reads such sections.
fn has_section(folder: &Folder, profile: &str, name: &str) -> bool {
    let program = fs::read(folder.path(&format!("target/volt/{profile}/leaf"))).expect("it was built");
    let wanted = format!("\0{name}\0");
    program.windows(wanted.len()).any(|window| window == wanted.as_bytes())
}

#[test]
fn the_doctor_names_what_does_not_work() {
    let folder = Folder::with_project("doctor");
    let fine = folder.run("doctor");
    fine.succeeds();
    assert!(fine.stdout.contains("tokio v") && !fine.stdout.contains("problem"), "{fine:?}");
    let manifest = folder.read("service/Cargo.toml").replace("\"full\"", "\"full\", \"schedule-latency\"");
    folder.write("service/Cargo.toml", &manifest);
    folder.write(
        ".cargo/config.toml",
        "[build]\nrustflags = [\"--cfg\", \"tokio_unstable\"]\ntarget = \"wasm32-wasip1\"\n",
    );
    let before = folder.read("Cargo.lock");
    let ill = folder.run("doctor");
    assert_eq!(ill.code, Some(1), "{ill:?}");
    for word in
        ["problem  Volt does not run on `wasm32-wasip1`", "note  tokio_unstable: ", "the feature `schedule-latency`"]
    {
        assert!(ill.stdout.contains(word), "{word:?} is missing: {ill:?}");
    }
    assert_eq!(folder.read("Cargo.lock"), before);
}

#[test]
fn a_failure_of_the_doctor_is_not_a_finding() {
    let folder = Folder::with_project("ill-doctor");
    assert!(!folder.path("target").exists());
    folder.run("doctor").succeeds();
    assert!(!folder.path("target").exists(), "the doctor has written files");
    folder.write("service/Cargo.toml", "[package\n");
    let done = folder.run("doctor");
    done.fails_as_cargo(&["service/Cargo.toml"]);
    assert!(!done.stdout.contains("cannot be built"), "{done:?}");
}

/// Returns the lines of the lock file of the build from each `name = "axum"` to the next package.
fn axums(folder: &Folder) -> Vec<String> {
    let lock = fs::read_to_string(folder.prepared("Cargo.lock")).expect("it is there");
    let packages = lock.split("[[package]]\n").filter(|text| text.starts_with("name = \"axum\"\n"));
    packages.map(str::to_owned).collect()
}

#[test]
fn axum_is_replaced_by_a_copy_that_counts_requests() {
    let folder = Folder::with_project("axum");
    folder.require("axum = { version = \"0.8\", default-features = false }\n");
    folder.run("check -p leaf").succeeds();
    let [axum] = &axums(&folder)[..] else { panic!("it has one axum") };
    assert!(!axum.contains("source = ") && axum.contains("\"volt-runtime\""), "{axum}");
    let copy = folder.sources().join(format!("registry/src/volt/axum-{}", version_of("axum")));
    let read = |name: &str| fs::read_to_string(copy.join(name)).expect("it is there");
    assert!(read("src/routing/route.rs").contains("volt_boxed(MapIntoResponse::new(svc))"));
    assert!(read("src/lib.rs").contains("\nmod volt_routes;\n") && read("src/volt_routes.rs").contains("RouteLayer"));
    assert!(!read("src/routing/path_router.rs").contains("feature = \"matched-path\""));
    let again = folder.run("check -p leaf");
    again.succeeds();
    assert!(!again.stderr.contains("Preparing"), "{again:?}");
    let done = folder.run("doctor");
    let line = format!("ok  axum v{}, whose requests are counted by route\n", version_of("axum"));
    assert!(done.stdout.contains(&line), "{done:?}");
}

#[test]
fn an_axum_that_is_added_later_is_replaced() {
    let folder = Folder::with_project("axum-later");
    folder.run("check -p leaf").succeeds();
    assert_eq!(axums(&folder).len(), 0);
    folder.require("axum = { version = \"0.8\", default-features = false }\n");
    folder.run("check -p leaf").succeeds();
    assert!(axums(&folder).iter().all(|axum| !axum.contains("source = ")) && axums(&folder).len() == 1);
}

#[test]
fn a_patched_axum_stays_as_it_is() {
    let folder = Folder::with_project("axum-patched");
    folder.require("axum = { version = \"0.8\", default-features = false }\n");
    let manifest = folder.read("Cargo.toml") + "[patch.crates-io]\naxum = { path = \"mine\" }\n";
    folder.write("Cargo.toml", &manifest.replace("resolver", "exclude = [\"mine\"]\nresolver"));
    folder.write("mine/Cargo.toml", &format!("[package]\nname = \"axum\"\nversion = {:?}\n", version_of("axum")));
    folder.write("mine/src/lib.rs", "");
    folder.run("check -p leaf").succeeds();
    assert!(axums(&folder).iter().all(|axum| !axum.contains("volt-runtime")) && axums(&folder).len() == 1);
    let done = folder.run("doctor");
    assert!(done.stdout.contains(": its requests are not counted by route"), "{done:?}");
}

#[test]
fn vendored_sources_replace_axum_too() {
    let folder = Folder::with_project("vendor-axum");
    folder.require("axum = { version = \"0.8\", default-features = false }\n");
    let done = folder.run("vendor volt");
    done.succeeds();
    let name = format!("volt/registry/src/volt/axum-{}", version_of("axum"));
    let line = format!("\naxum-0-8 = {{ package = \"axum\", path = {name:?} }}\n");
    assert!(done.stdout.contains(&line), "{done:?}");
    folder.write("Cargo.toml", &(folder.read("Cargo.toml") + &done.stdout));
    folder.cargo("check -p leaf").succeeds();
    let tree = folder.cargo("tree --locked --package service --depth 1 --prefix none");
    let expected = format!("axum v{} ({})", version_of("axum"), folder.path(&name).display());
    assert!(tree.stdout.lines().any(|line| line == expected), "{expected}: {tree:?}");
}

#[test]
fn a_closed_output_of_vendor_is_no_failure() {
    let folder = Folder::with_project("vendor-closed");
    let (reader, writer) = std::io::pipe().expect("it can be created");
    drop(reader);
    let output = folder.volt("vendor volt").stdout(writer).output().expect("it can be started");
    assert!(output.status.success(), "{output:?}");
    assert!(folder.path("volt/tokio/Cargo.toml").exists());
}

#[test]
fn vendored_sources_work_without_cargo_volt() {
    let folder = Folder::with_project("vendor");
    let done = folder.run("vendor third-party/volt");
    done.succeeds();
    let (patch, _) = done.stdout.split_once("\n\n").expect("it prints two tables");
    assert_eq!(patch, "[patch.crates-io]\ntokio = { path = \"third-party/volt/tokio\" }");
    // A second time replaces the folder; a folder with other files is not touched.
    folder.run("vendor third-party/volt").succeeds();
    let other = ["has files that `cargo volt vendor` did not write"];
    folder.run("vendor service").fails_with(&other);
    folder.write("third-party/volt/tokio/notes", "mine");
    folder.run("vendor third-party/volt").fails_with(&[other[0], "or remove `", "third-party/volt/tokio/notes"]);
    assert_eq!(folder.read("third-party/volt/tokio/notes"), "mine");

    folder.write("Cargo.toml", &(folder.read("Cargo.toml") + &done.stdout));
    folder.cargo("check -p leaf").succeeds();
    let tree = folder.cargo("tree --locked --package service --depth 1 --prefix none");
    tree.succeeds();
    let expected = format!("tokio v{} ({})", tokio_version(), folder.path("third-party/volt/tokio").display());
    assert!(tree.stdout.lines().any(|line| line == expected), "{expected}: {tree:?}");
    // Only of this platform: the packages of others are not downloaded yet.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let metadata = folder.cargo(&format!("metadata --locked --format-version=1 --filter-platform {platform}"));
    metadata.succeeds();
    assert_eq!(metadata.stdout.matches("\"name\":\"volt-runtime\",\"version\"").count(), 1);
    folder.run("check -p leaf").fails_with(&["this project is already on Volt", "help: use `cargo`"]);
}
