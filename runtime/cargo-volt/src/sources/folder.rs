//! Writes a folder so that it is either complete or not there.
//!
//! The files go to a temporary folder beside it, which then takes its place. A file whose content
//! is as before keeps its modification time, so that cargo does not compile it again. The last file
//! of the folder is the stamp: its first line records from what the folder was made, and the others
//! are the paths of the files.

use std::collections::HashSet;
use std::fs::{self, File as Handle};
use std::io;
use std::path::{Path, PathBuf};

use super::File;
use crate::error::Error;

/// The name of the file with the stamp.
const STAMP: &str = ".cargo-volt";

/// Returns whether the folder is complete and was made from what the stamp records.
pub(crate) fn is_current(folder: &Path, stamp: &str) -> bool {
    fs::read_to_string(folder.join(STAMP)).is_ok_and(|found| found.starts_with(stamp))
}

/// Returns a file that `write` would remove, and that it has not written. None if there is no
/// folder, if it is empty, or if all its files are `write`'s.
pub(crate) fn foreign_file(folder: &Path) -> Result<Option<PathBuf>, Error> {
    let stamp = fs::read_to_string(folder.join(STAMP)).unwrap_or_default();
    let written: HashSet<&Path> = stamp.lines().skip(1).chain([STAMP]).map(Path::new).collect();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        let failed = |error| Error::io("read", &next, &error);
        let entries = match fs::read_dir(&next) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let path = entry.path();
            if entry.file_type().map_err(failed)?.is_dir() {
                folders.push(path);
            } else if !path.strip_prefix(folder).is_ok_and(|name| written.contains(name)) {
                return Ok(Some(path));
            }
        }
    }
    Ok(None)
}

/// Writes the folder. Only one thread of one program may write it at a time.
pub(crate) fn write(folder: &Path, files: &[File], stamp: &str) -> Result<(), Error> {
    let new = beside(folder, "new");
    let old = beside(folder, "old");
    // An interrupted program may have left them.
    remove(&new)?;
    remove(&old)?;
    for (path, content) in files {
        write_file(&new.join(path), content, &folder.join(path))?;
    }
    let list: String = files.iter().map(|(path, _)| format!("{path}\n")).collect();
    write_file(&new.join(STAMP), format!("{stamp}{list}").as_bytes(), &folder.join(STAMP))?;
    // If the program is interrupted here, there is no folder, and the next program writes it.
    match fs::rename(folder, &old) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(Error::io("move", folder, &error)),
        _ => {}
    }
    fs::rename(&new, folder).map_err(|error| Error::io("write", folder, &error))?;
    remove(&old)
}

/// Writes a file with the modification time of the old one if that has the same content.
fn write_file(path: &Path, content: &[u8], old: &Path) -> Result<(), Error> {
    let write = || -> io::Result<()> {
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        fs::write(path, content)?;
        if fs::read(old).is_ok_and(|found| found == content) {
            Handle::options().write(true).open(path)?.set_modified(fs::metadata(old)?.modified()?)?;
        }
        Ok(())
    };
    write().map_err(|error| Error::io("write", path, &error))
}

fn remove(folder: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", folder, &error)),
        _ => Ok(()),
    }
}

/// Returns the path of a folder with another name in the same place.
fn beside(folder: &Path, suffix: &str) -> PathBuf {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    folder.with_file_name(format!(".{name}.{suffix}"))
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process;
    use std::time::{Duration, SystemTime};

    use super::*;

    /// A folder in the directory for temporary files, which is removed at the end of the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = env::temp_dir().join(format!("cargo-volt-{}-{name}", process::id()));
            remove(&path).expect("it can be removed");
            Scratch(path)
        }

        fn folder(&self) -> PathBuf {
            self.0.join("sources")
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            remove(&self.0).expect("it can be removed");
        }
    }

    fn files(all: &[(&str, &str)]) -> Vec<File> {
        all.iter().map(|(path, text)| ((*path).to_owned(), (*text).into())).collect()
    }

    #[test]
    fn unchanged_files_keep_their_time_and_others_go() {
        let scratch = Scratch::new("times");
        let folder = scratch.folder();
        write(&folder, &files(&[("a/same", "1"), ("changed", "1"), ("gone", "1")]), "one\n").expect("it is written");
        let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        for name in ["a/same", "changed"] {
            let file = Handle::options().write(true).open(folder.join(name)).expect("it is there");
            file.set_modified(past).expect("the time can be set");
        }
        write(&folder, &files(&[("a/same", "1"), ("changed", "2"), ("new", "1")]), "two\n").expect("it is written");
        let time_of = |name: &str| fs::metadata(folder.join(name)).and_then(|it| it.modified()).expect("it is there");
        assert!(time_of("a/same") == past && time_of("changed") != past);
        assert!(folder.join("new").exists() && !folder.join("gone").exists());
        assert!(is_current(&folder, "two\n") && !is_current(&folder, "one\n"));
        let left = fs::read_dir(&scratch.0).expect("it is there").count();
        assert_eq!(left, 1, "no temporary folder is left");
    }

    #[test]
    fn an_interrupted_preparation_is_repeated() {
        let scratch = Scratch::new("interrupted");
        let folder = scratch.folder();
        let half = beside(&folder, "new");
        fs::create_dir_all(half.join("a")).expect("it can be created");
        fs::write(half.join("a/stale"), "1").expect("it can be written");
        assert!(!is_current(&folder, "one\n"));
        write(&folder, &files(&[("b", "1")]), "one\n").expect("it is written");
        assert!(is_current(&folder, "one\n") && !half.exists() && !folder.join("a").exists());
    }

    #[test]
    fn files_of_the_users_are_found_at_any_depth() {
        let scratch = Scratch::new("foreign");
        let folder = scratch.folder();
        let found = || foreign_file(&folder).expect("it can be read");
        assert_eq!(found(), None);
        fs::create_dir_all(&folder).expect("it can be created");
        assert_eq!(found(), None);
        write(&folder, &files(&[("a/b", "1")]), "one\n").expect("it is written");
        assert_eq!(found(), None);
        fs::write(folder.join("a/notes"), "1").expect("it can be written");
        assert_eq!(found(), Some(folder.join("a/notes")));
        fs::remove_file(folder.join("a/notes")).expect("it is there");
        fs::remove_file(folder.join(STAMP)).expect("it is there");
        assert_eq!(found(), Some(folder.join("a/b")));
    }
}
