//! Small projects in a temporary folder, and `cargo volt` in them.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Output};
use std::sync::OnceLock;
use std::{env, iter};

/// The lock file of this workspace. Cargo has downloaded its packages, so that the projects need no
/// network; it removes those that a project does not need.
const LOCK: &str = include_str!("../../../../Cargo.lock");

/// The version of Tokio in that file.
pub(crate) fn tokio_version() -> &'static str {
    version_of("tokio")
}

/// The version of a package in that file.
pub(crate) fn version_of(package: &str) -> &'static str {
    let (_, rest) = LOCK.split_once(&format!("name = \"{package}\"\nversion = \"")).expect("the workspace requires it");
    rest.split('"').next().expect("it has a version")
}

/// A folder that is removed at the end of the test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path = env::temp_dir().join(format!("cargo-volt-test-{}-{name}", process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("it can be created");
        Folder(path.canonicalize().expect("it is there"))
    }

    /// A workspace of a package that requires tokio, and a program without dependencies, which
    /// compiles quickly. The program prints its arguments and exits with their number.
    pub(crate) fn with_project(name: &str) -> Folder {
        let folder = Folder::new(name);
        folder.write("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"leaf\", \"service\"]\n");
        let package = |name: &str| format!("[package]\nname = {name:?}\nversion = \"0.1.0\"\nedition = \"2024\"\n");
        folder.write("leaf/Cargo.toml", &package("leaf"));
        let program = "fn main() {\n    let all: Vec<_> = std::env::args().skip(1).collect();\n    \
            println!(\"{all:?}\");\n    std::process::exit(all.len() as i32);\n}\n";
        folder.write("leaf/src/main.rs", program);
        let service =
            format!("{}[dependencies]\ntokio = {{ version = \"1\", features = [\"full\"] }}\n", package("service"));
        folder.write("service/Cargo.toml", &service);
        folder.write("service/src/main.rs", "#[tokio::main]\nasync fn main() {}\n");
        // Cargo removes from the lock file what the project does not need. That takes as long as
        // the rest of a test, and all projects have the same lock file.
        static UP_TO_DATE: OnceLock<String> = OnceLock::new();
        let lock = UP_TO_DATE.get_or_init(|| {
            folder.write("Cargo.lock", LOCK);
            let mut update = command(env!("CARGO"));
            let status = update.args(["update", "--workspace", "--quiet"]).current_dir(&folder.0).status();
            assert!(status.expect("cargo can be started").success());
            folder.read("Cargo.lock")
        });
        folder.write("Cargo.lock", lock);
        folder
    }

    /// Adds a dependency to the package that requires tokio.
    pub(crate) fn require(&self, line: &str) {
        self.write("service/Cargo.toml", &(self.read("service/Cargo.toml") + line));
        self.write("Cargo.lock", LOCK);
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("it is in the folder")).expect("it can be created");
        fs::write(path, text).expect("it can be written");
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Returns the command `cargo volt` in this folder.
    pub(crate) fn volt(&self, arguments: &str) -> Command {
        let mut command = command(env!("CARGO_BIN_EXE_cargo-volt"));
        command.args(iter::once("volt").chain(arguments.split_whitespace())).current_dir(&self.0);
        command
    }

    pub(crate) fn run(&self, arguments: &str) -> Done {
        Done::from(self.volt(arguments).output().expect("it can be started"))
    }

    /// Runs cargo itself in this folder.
    pub(crate) fn cargo(&self, arguments: &str) -> Done {
        let mut command = command(env!("CARGO"));
        let command = command.args(arguments.split_whitespace()).current_dir(&self.0);
        Done::from(command.output().expect("it can be started"))
    }

    /// Returns the path of a file of the preparation, such as the lock file of the build.
    pub(crate) fn prepared(&self, name: &str) -> PathBuf {
        only_entry(&self.path("target/volt/projects")).join(name)
    }

    /// Returns the folder with the sources of Volt.
    pub(crate) fn sources(&self) -> PathBuf {
        only_entry(&self.path("target/volt/sources"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Done {
    fn from(output: Output) -> Done {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Done { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    /// Checks that the command failed with these words in its messages, and with a remedy.
    #[track_caller]
    pub(crate) fn fails_with(&self, words: &[&str]) {
        self.fails_as_cargo(words);
        assert!(self.stderr.contains("\nhelp: "), "no remedy: {self:?}");
    }

    /// Checks that the command failed with these words of cargo's, which may name no remedy.
    #[track_caller]
    pub(crate) fn fails_as_cargo(&self, words: &[&str]) {
        assert_eq!(self.code, Some(101), "{self:?}");
        for word in iter::once(&"error: ").chain(words) {
            assert!(self.stderr.contains(word), "{word:?} is missing: {self:?}");
        }
    }

    #[track_caller]
    pub(crate) fn succeeds(&self) {
        assert_eq!(self.code, Some(0), "{self:?}");
    }
}

/// Returns a command without the settings of the cargo that runs the tests and of the machine, and
/// without network.
fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let is_setting = ["CARGO", "__CARGO", "RUSTC", "RUSTDOC", "RUSTFLAGS"].iter().any(|it| text.starts_with(it));
        if is_setting && text != "CARGO_HOME" {
            command.env_remove(&name);
        }
    }
    command.env("CARGO", env!("CARGO")).env("CARGO_NET_OFFLINE", "true").env("CARGO_TERM_COLOR", "never");
    command
}

/// Returns the path of the only file or folder in a folder.
fn only_entry(folder: &Path) -> PathBuf {
    let [name] = &names(folder)[..] else { panic!("{} has other entries", folder.display()) };
    folder.join(name)
}

/// Returns the names below a folder, sorted.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("it is there");
    let mut names: Vec<_> =
        entries.map(|it| it.expect("it is there").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
