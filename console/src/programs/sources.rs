//! Adds source lines to a dump, where the console has the source: on the machine where the program
//! was built.
//!
//! A source is used only if it was not changed since the program's file was written, since its
//! lines may have moved then.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use volt_telemetry::dump::{Dump, Link};

use crate::text::clean;

/// The largest source that is read, in bytes.
const SOURCE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// The largest number of sources that are read for a dump.
const SOURCES_MAX: usize = 200;

/// The sources that were read so far; `None` if there is none that can be used.
pub(crate) struct Sources {
    built_at: Option<SystemTime>,
    files: HashMap<PathBuf, Option<Vec<String>>>,
}

impl Sources {
    /// Returns the sources of the program with this pid.
    pub(crate) fn of_program(pid: u32) -> Self {
        let built_at = fs::metadata(format!("/proc/{pid}/exe")).and_then(|file| file.modified()).ok();
        Self { built_at, files: HashMap::new() }
    }

    /// Adds the lines of the application's sources. A call without a name gets that of the function
    /// that its line is in.
    pub(crate) fn fill_in(&mut self, dump: &mut Dump) {
        let groups = dump.groups.iter_mut().flat_map(|group| &mut group.chain);
        let running = dump.running.iter_mut().flat_map(|running| &mut running.chain);
        let block_on = dump.block_on.iter_mut().flat_map(|block_on| &mut block_on.chain);
        groups.chain(running).chain(block_on).filter(|link| link.is_user_code).for_each(|link| self.fill_in_link(link));
    }

    fn fill_in_link(&mut self, link: &mut Link) {
        let (Some(file), Some(line)) = (&link.file, link.line) else { return };
        let Some(lines) = self.lines(Path::new(file)) else { return };
        // Lines count from 1.
        let Some(at) = (line as usize).checked_sub(1) else { return };
        let Some(code) = lines.get(at) else { return };
        if link.function.is_none() {
            link.function = function_around(&lines[..=at]);
        }
        link.code = Some(clean::text(code.trim()));
    }

    fn lines(&mut self, file: &Path) -> Option<&[String]> {
        let built_at = self.built_at?;
        if !self.files.contains_key(file) && self.files.len() < SOURCES_MAX {
            self.files.insert(file.to_owned(), read(file, built_at));
        }
        self.files.get(file)?.as_deref()
    }
}

/// Reads a source, if it is older than the program.
fn read(file: &Path, built_at: SystemTime) -> Option<Vec<String>> {
    let about = fs::metadata(file).ok().filter(|about| about.is_file() && about.len() <= SOURCE_BYTES_MAX)?;
    let is_source = file.is_absolute() && file.extension().is_some_and(|extension| extension == "rs");
    if !is_source || about.modified().ok()? > built_at {
        return None;
    }
    Some(fs::read_to_string(file).ok()?.lines().map(str::to_owned).collect())
}

/// Returns the name of the function that the last of these lines is in: the nearest line above that
/// is indented less and begins a function.
fn function_around(lines: &[String]) -> Option<String> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let (last, above) = lines.split_last()?;
    let mut least = indent(last);
    for line in above.iter().rev().filter(|line| !line.trim().is_empty()) {
        if indent(line) >= least {
            continue;
        }
        least = indent(line);
        let words = line.trim_start();
        if let Some(at) = words.find("fn ").filter(|&at| at == 0 || words[..at].ends_with(' ')) {
            let name: String = words[at + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            return (!name.is_empty()).then_some(name);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
impl Shop {
    pub(crate) async fn order(&self) {
        if self.is_open {
            self.lock.lock().await;
        }
    }

    fn other() {}
}
";

    fn source() -> Vec<String> {
        SOURCE.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_line_is_in_the_function_that_it_is_indented_below() {
        assert_eq!(function_around(&source()[..4]).as_deref(), Some("order"));
        assert_eq!(function_around(&source()[..1]), None);
    }

    #[test]
    fn a_source_that_changed_after_the_build_is_not_used() {
        let file = std::env::temp_dir().join(format!("volt-console-source-{}.rs", std::process::id()));
        fs::write(&file, SOURCE).unwrap();
        let changed_at = fs::metadata(&file).unwrap().modified().unwrap();
        let link =
            || Link { file: Some(file.display().to_string()), line: Some(4), is_user_code: true, ..Link::default() };
        for (built_at, expected) in [
            (changed_at, (Some("order"), Some("self.lock.lock().await;"))),
            (changed_at - std::time::Duration::from_secs(1), (None, None)),
        ] {
            let mut link = link();
            Sources { built_at: Some(built_at), files: HashMap::new() }.fill_in_link(&mut link);
            assert_eq!((link.function.as_deref(), link.code.as_deref()), expected);
        }
        fs::remove_file(&file).unwrap();
    }

    #[test]
    fn a_line_that_the_source_does_not_have_adds_nothing() {
        let files = HashMap::from([("/shop.rs".into(), Some(source()))]);
        let mut sources = Sources { built_at: Some(SystemTime::now()), files };
        // A hostile program can send any number.
        for line in [0, 10, u32::MAX] {
            let sent = Link { file: Some("/shop.rs".into()), line: Some(line), is_user_code: true, ..Link::default() };
            let mut link = sent.clone();
            sources.fill_in_link(&mut link);
            assert_eq!(link, sent);
        }
    }
}
