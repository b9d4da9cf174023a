//! Prepares the build of a project on Volt: its lock file, and the sources that replace tokio.
//!
//! Everything is below `TARGET/volt`:
//!
//! | path | content |
//! |---|---|
//! | `sources/VERSION-HASH` | see `sources`; never changed once it is there |
//! | `projects/NAME/project/Cargo.lock` | the project's lock file, brought up to date |
//! | `projects/NAME/Cargo.lock` | the same with Volt's dependencies: cargo builds with this one |
//! | `projects/NAME/base.lock` | the project's lock file from which the others were made, or empty |
//! | `projects/NAME/replaced` | the versions of tokio and axum that this build replaces |
//! | `projects/NAME/next/Cargo.lock` | the file that takes the place of `Cargo.lock` if it differs |
//! | `projects/NAME/probe` | a package that requires tokio or axum, to get its sources from cargo |
//! | `lock` | locked while a `cargo volt` prepares, if the file system has locks |
//!
//! Several projects may share a target directory. The project's own lock file is only read.
//!
//! The lock ends before cargo starts: `cargo run` becomes the user's program, which would keep it
//! for as long as it runs. Another `cargo volt` may therefore prepare while cargo reads. It never
//! changes sources that are there, and replaces a lock file in one step.

use std::env;
use std::fs::{self, File, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::arguments::Given;
use crate::cargo::{Cargo, Patch};
use crate::choice;
use crate::error::Error;
use crate::lock::Lock;
use crate::profile::Layers;
use crate::project::{Project, relayed};
use crate::shell::Shell;
use crate::sources::{self, folder};
use crate::versions::{self, Choice, Verdict};

/// The most versions to raise for one lock file. More are a sign of an endless loop.
const RAISES_MAX: usize = 64;

/// The files and arguments that cargo needs for the build.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) lock: PathBuf,
    /// The sources that replace others.
    pub(crate) patches: Vec<Patch>,
    /// The target directory of the build.
    pub(crate) target: PathBuf,
}

/// The state that all steps of the preparation share.
pub(crate) struct Preparation<'a> {
    pub(crate) shell: &'a Shell,
    pub(crate) cargo: &'a Cargo,
    pub(crate) given: &'a Given,
    pub(crate) project: &'a Project,
    /// `TARGET/volt`.
    home: PathBuf,
    /// `TARGET/volt/projects/NAME`.
    folder: PathBuf,
}

impl<'a> Preparation<'a> {
    pub(crate) fn new(
        shell: &'a Shell,
        cargo: &'a Cargo,
        given: &'a Given,
        project: &'a Project,
    ) -> Result<Self, Error> {
        let target = match &given.target_dir {
            Some(folder) => {
                std::path::absolute(folder).map_err(|error| Error::io("find", Path::new(folder), &error))?
            }
            None => project.target.clone(),
        };
        Ok(Preparation::below(target.join("volt"), shell, cargo, given, project))
    }

    /// A preparation in another folder than `TARGET/volt`.
    pub(crate) fn below(
        home: PathBuf,
        shell: &'a Shell,
        cargo: &'a Cargo,
        given: &'a Given,
        project: &'a Project,
    ) -> Self {
        let mut hasher = DefaultHasher::new();
        project.root.hash(&mut hasher);
        let name = project.root.file_name().unwrap_or_default().display();
        let folder = home.join(format!("projects/{name}-{:016x}", hasher.finish()));
        Preparation { shell, cargo, given, project, home, folder }
    }

    /// Prepares the build, or only updates its lock file if it is prepared. Another `cargo volt`
    /// waits meanwhile.
    pub(crate) fn run(&self, layers: &Layers) -> Result<Prepared, Error> {
        self.prepare(layers).map_err(|error| error.below_target(self.home_parent()))
    }

    fn prepare(&self, layers: &Layers) -> Result<Prepared, Error> {
        self.check_lock_path(layers)?;
        let _turn = self.turn()?;
        if self.given.is_locked {
            self.check_locked()?;
        }
        let base = self.base()?;
        let lock = self.folder.join("Cargo.lock");
        let former = read_if_any(&self.folder.join("base.lock"))?;
        let is_kept = former.as_deref() == Some(base.as_deref().unwrap_or_default()) && lock.exists();
        let choice = match is_kept {
            // The project may have changed in a way that its lock file does not have yet.
            true => self.resolve_again(&lock)?,
            false => None,
        };
        let choice = match choice {
            Some(choice) => choice,
            None => self.resolve(base.as_deref(), &lock)?,
        };
        Ok(Prepared {
            patches: sources::patches(&choice, &self.sources(&choice)),
            target: if self.given.target_dir.is_some() { self.home_parent().to_owned() } else { self.home.clone() },
            lock,
        })
    }

    /// Writes the sources into the user's folder. Returns the versions that they replace.
    pub(crate) fn vendor(&self, folder: &Path, layers: &Layers) -> Result<Choice, Error> {
        self.write_vendored(folder, layers).map_err(|error| error.below_target(self.home_parent()))
    }

    fn write_vendored(&self, folder: &Path, layers: &Layers) -> Result<Choice, Error> {
        self.check_lock_path(layers)?;
        let _turn = self.turn()?;
        if self.given.is_locked {
            self.check_locked()?;
        }
        let (lock, choice) = self.choose(self.base()?.as_deref())?;
        self.warn_if_untested(&choice.version);
        self.shell.status("Vendoring", &format!("Volt for tokio v{} ({})", choice.version, folder.display()));
        create(folder.parent().unwrap_or(folder))?;
        self.write_sources(&lock, &choice, folder)?;
        Ok(choice)
    }

    /// Returns the project's lock file, brought up to date, and the versions to replace.
    pub(crate) fn examine(&self, layers: &Layers) -> Result<(Lock, Choice), Error> {
        self.check_lock_path(layers)?;
        create(&self.folder)?;
        let (lock, choice) = self.choose(self.base()?.as_deref())?;
        Ok((Lock::read(&lock)?, choice))
    }

    /// Waits until no other `cargo volt` prepares a build in the same target directory.
    fn turn(&self) -> Result<File, Error> {
        create(&self.folder)?;
        let path = self.home.join("lock");
        let failed = |error| Error::io("lock", &path, &error);
        let file = File::create(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                self.shell.waiting("Blocking", "waiting for file lock on Volt's sources");
                file.lock().map_err(failed)?;
            }
            Err(TryLockError::Error(error)) if is_without_locks(&error) => {}
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        Ok(file)
    }

    /// Checks that the project's lock file is where it usually is: the build needs this option.
    fn check_lock_path(&self, layers: &Layers) -> Result<(), Error> {
        let variable = "CARGO_RESOLVER_LOCKFILE_PATH";
        let place = if self.given.has_lockfile_path {
            "--lockfile-path"
        } else if env::var_os(variable).is_some() {
            variable
        } else if layers.get(&["resolver", "lockfile-path"]).is_some() {
            "resolver.lockfile-path"
        } else {
            return Ok(());
        };
        Err(Error::unsupported(format!("`{place}` is set, and `cargo volt` builds with a separate lock file"))
            .help("unset it: `cargo volt` starts from the project's Cargo.lock, and does not change that file"))
    }

    /// Checks for `--locked` that the project's lock file is up to date.
    fn check_locked(&self) -> Result<(), Error> {
        let mut command = self.cargo.command("update");
        command.args(["--workspace", "--locked"]);
        self.cargo.add_given(&mut command, self.given);
        self.cargo.run(&mut command).map(drop).map_err(|stderr| relayed(&stderr))
    }

    /// Returns the project's lock file, or nothing if the project has none.
    fn base(&self) -> Result<Option<Vec<u8>>, Error> {
        read_if_any(&self.project.lock())
    }

    /// Updates the lock file of an earlier run. Returns the versions that the build replaces if the
    /// file is still valid and the sources are prepared.
    fn resolve_again(&self, lock: &Path) -> Result<Option<Choice>, Error> {
        let replaced = read_if_any(&self.folder.join("replaced"))?.unwrap_or_default();
        let Some(choice) = Choice::parse(&String::from_utf8_lossy(&replaced)) else { return Ok(None) };
        let layers = Layers::read(self.project, self.given);
        let is_valid = |lock: &Lock| {
            choice::only_facade_of(lock).as_ref() == Some(&choice.version)
                && choice::axums_to_replace(lock, &layers).is_empty()
                && !lock.has_unused_patch("axum")
        };
        let folder = self.sources(&choice);
        let is_current = folder::is_current(&folder, &sources::stamp(&choice));
        if !is_current || !Lock::read(lock).is_ok_and(|lock| is_valid(&lock)) {
            return Ok(None);
        }
        let next = self.next()?;
        fs::copy(lock, &next).map_err(|error| Error::io("copy", lock, &error))?;
        if self.update(&next, &sources::patches(&choice, &folder))?.is_err() || !is_valid(&Lock::read(&next)?) {
            return Ok(None);
        }
        replace(lock, &next)?;
        Ok(Some(choice))
    }

    /// Returns where the next lock file of the build is made.
    fn next(&self) -> Result<PathBuf, Error> {
        let folder = self.folder.join("next");
        create(&folder)?;
        Ok(folder.join("Cargo.lock"))
    }

    /// Makes the lock file and the sources from the project's lock file.
    fn resolve(&self, base: Option<&[u8]>, lock: &Path) -> Result<Choice, Error> {
        let (project_lock, choice) = self.choose(base)?;
        self.warn_if_untested(&choice.version);
        let found = self.prepare_sources(&project_lock, &choice)?;
        let next = self.next()?;
        self.make_lock(&project_lock, &choice, &sources::patches(&choice, &found), &next)?;
        // If the program is interrupted before the last step, the next one resolves again.
        remove(&self.folder.join("base.lock"))?;
        replace(lock, &next)?;
        write(&self.folder.join("replaced"), choice.to_text().as_bytes())?;
        write(&self.folder.join("base.lock"), base.unwrap_or_default())?;
        Ok(choice)
    }

    /// Brings a copy of the project's lock file up to date, and chooses the packages to replace.
    fn choose(&self, base: Option<&[u8]>) -> Result<(PathBuf, Choice), Error> {
        let path = self.folder.join("project/Cargo.lock");
        create(&self.folder.join("project"))?;
        match base {
            Some(base) => write(&path, base)?,
            None => remove(&path)?,
        }
        self.update(&path, &[])?.map_err(|stderr| relayed(&stderr))?;
        let lock = Lock::read(&path)?;
        let choice = choice::choose(&lock, &path, self.project, self.cargo, self.given)?;
        Ok((path, choice))
    }

    fn warn_if_untested(&self, version: &str) {
        if versions::verdict(version) == Verdict::Untested {
            self.shell.warn(&versions::untested(version));
        }
    }

    /// Prepares and returns the folder of the sources that replace these versions.
    fn prepare_sources(&self, lock: &Path, choice: &Choice) -> Result<PathBuf, Error> {
        let folder = self.sources(choice);
        if !folder::is_current(&folder, &sources::stamp(choice)) {
            self.shell.status("Preparing", &format!("Volt for tokio v{} ({})", choice.version, folder.display()));
            create(folder.parent().unwrap_or(&folder))?;
            self.write_sources(lock, choice, &folder)?;
        }
        Ok(folder)
    }

    /// Writes the sources that replace these versions.
    fn write_sources(&self, lock: &Path, choice: &Choice, folder: &Path) -> Result<(), Error> {
        let tokio = self.unpacked(lock, "tokio", &choice.version)?;
        let copy = self.unpacked(lock, "tokio", versions::copied(&choice.version))?;
        let mut files = sources::files(&tokio, &copy, choice)?;
        for version in &choice.axums {
            if !sources::axum::add(version, &self.unpacked(lock, "axum", version)?, &mut files)? {
                self.shell.warn(&format!("the requests of axum v{version} are not counted by route: its sources differ from those of the versions that Volt was tested with"));
            }
        }
        folder::write(folder, &files, &sources::stamp(choice))
    }

    /// Returns the folder of a package in cargo's registry. Cargo downloads it if needed.
    fn unpacked(&self, lock: &Path, name: &str, version: &str) -> Result<PathBuf, Error> {
        let probe = self.folder.join("probe");
        create(&probe)?;
        let manifest = format!(
            "[package]\nname = \"probe\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\n[lib]\npath = \"lib.rs\"\n\n\
             [dependencies]\n{name} = {{ version = \"={version}\", default-features = false }}\n\n[workspace]\n"
        );
        write(&probe.join("Cargo.toml"), manifest.as_bytes())?;
        write(&probe.join("lib.rs"), b"")?;
        fs::copy(lock, probe.join("Cargo.lock")).map_err(|error| Error::io("copy", lock, &error))?;
        let mut command = self.cargo.command("metadata");
        command.arg("--format-version=1").arg("--manifest-path").arg(probe.join("Cargo.toml"));
        self.cargo.add_configuration(&mut command, self.given);
        let json = self.cargo.run(&mut command).map_err(|stderr| relayed(&stderr))?;
        let metadata: Value = serde_json::from_slice(&json)
            .map_err(|error| Error::new(format!("cannot read the output of `cargo metadata`: {error}")))?;
        let packages = metadata["packages"].as_array().into_iter().flatten();
        let mut found = packages.filter(|package| package["name"] == name && package["version"] == version);
        let manifest = found.next().and_then(|package| package["manifest_path"].as_str());
        let folder = manifest.and_then(|path| Path::new(path).parent());
        folder.map(Path::to_owned).ok_or_else(|| Error::new(format!("cargo has no sources of {name} v{version}")))
    }

    /// Makes the lock file of the build on Volt. Volt's dependencies have the versions with which
    /// Volt was tested, unless the project has a compatible one. The project's versions stay,
    /// except those that are older than Volt requires.
    fn make_lock(&self, project: &Path, choice: &Choice, patches: &[Patch], path: &Path) -> Result<(), Error> {
        let volt = sources::lock()?;
        let mut lock = Lock::read(project)?;
        lock.suggest(&volt);
        let mut raised = Vec::new();
        loop {
            write(path, lock.to_text().as_bytes())?;
            let Err(stderr) = self.update(path, patches)? else { break };
            let name = conflict(&stderr).unwrap_or_default();
            let versions = lock.raise(name, &volt);
            if versions.is_empty() || raised.len() > RAISES_MAX {
                remove(path)?;
                let failed = relayed(&stderr);
                return Err(match name {
                    "" => failed,
                    _ => failed.help(format!(
                        "Volt needs a newer `{name}` than this project allows: relax the requirement, or update the package with this requirement"
                    )),
                });
            }
            raised.extend(versions.into_iter().map(|(old, new)| format!("{name} v{old} -> v{new}")));
        }
        for text in raised {
            self.shell.status("Raising", &format!("{text}, in this build only (Volt requires it)"));
        }
        choice::check(&Lock::read(path)?, choice)
    }

    /// Brings a lock file up to date with the manifests. The packages in it keep their versions.
    /// If that fails, returns what cargo wrote to standard error.
    fn update(&self, lock: &Path, patches: &[Patch]) -> Result<Result<(), String>, Error> {
        let mut command = self.cargo.command("update");
        command.arg("--workspace");
        self.cargo.add_given(&mut command, self.given);
        self.cargo.use_lock(&mut command, lock)?;
        self.cargo.patch(&mut command, patches)?;
        Ok(self.cargo.run(&mut command).map(drop))
    }

    fn sources(&self, choice: &Choice) -> PathBuf {
        self.home.join("sources").join(sources::folder_name(choice))
    }

    fn home_parent(&self) -> &Path {
        self.home.parent().unwrap_or(&self.home)
    }
}

/// Returns whether locking failed because the file system has no locks. Cargo continues there, too.
fn is_without_locks(error: &io::Error) -> bool {
    // ENOTSUP, ENOSYS and ENOLCK.
    const CODES: [i32; 3] =
        if cfg!(any(target_os = "linux", target_os = "android")) { [95, 38, 37] } else { [45, 78, 77] };
    error.kind() == io::ErrorKind::Unsupported || error.raw_os_error().is_some_and(|code| CODES.contains(&code))
}

/// Returns the package for which cargo found no version.
fn conflict(stderr: &str) -> Option<&str> {
    let (_, rest) = stderr.split_once("failed to select a version for ")?;
    let rest = rest.strip_prefix("the requirement ").unwrap_or(rest).strip_prefix('`')?;
    rest.split(['`', ' ', '=']).next()
}

fn create(folder: &Path) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(|error| Error::io("create", folder, &error))
}

fn read_if_any(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    match fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", path, &error)),
    }
}

/// Writes a file so that it is never half-written.
fn write(path: &Path, content: &[u8]) -> Result<(), Error> {
    let new = path.with_extension("new");
    let written = fs::write(&new, content).and_then(|()| fs::rename(&new, path));
    written.map_err(|error| Error::io("write", path, &error))
}

/// Puts a new file in the place of another, unless both have the same content.
fn replace(path: &Path, new: &Path) -> Result<(), Error> {
    if read_if_any(path)? == read_if_any(new)? {
        return Ok(());
    }
    fs::rename(new, path).map_err(|error| Error::io("write", path, &error))
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", path, &error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_of_a_conflict_is_read() {
        let error = "error: failed to select a version for `bytes`.\n    ... required by package `volt-core v0.1.0`";
        assert_eq!(conflict(error), Some("bytes"));
        let error = "error: failed to select a version for the requirement `libc = \"^0.2.190\"` (locked to 0.2.1)";
        assert_eq!(conflict(error), Some("libc"));
        assert_eq!(conflict("error: no matching package named `tokio` found"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_file_system_without_locks_is_recognized() {
        let fails = |code: i32| !is_without_locks(&io::Error::from_raw_os_error(code));
        assert_eq!([95, 38, 37, 5, 13].map(fails), [false, false, false, true, true], "EIO and EACCES are failures");
    }
}
