//! Cargo's profiles: which settings the build on Volt overrides, so that stacks show source lines.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::arguments::Given;
use crate::cargo;
use crate::project::{Project, read_toml};

/// A setting to override, as cargo's configuration key and value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Override {
    pub(crate) key: String,
    pub(crate) value: &'static str,
    /// The setting of the project, if it had one.
    pub(crate) instead_of: Option<String>,
}

/// The places with cargo's configuration, the one that takes precedence first.
pub(crate) struct Layers(Vec<Table>);

impl Layers {
    /// Reads the configuration that applies to a project: `--config`, the configuration files from
    /// this folder upwards, and the root manifest. A file that cannot be read is left out: cargo
    /// itself reports it.
    pub(crate) fn read(project: &Project, given: &Given) -> Layers {
        let mut layers: Vec<Table> = given.configs.iter().rev().filter_map(of_argument).collect();
        layers.extend(config_files().iter().filter_map(|path| read_toml(path).ok()));
        layers.push(project.manifest.clone());
        Layers(layers)
    }

    /// Returns the value of a dotted key from the first place that has it.
    pub(crate) fn get(&self, key: &[&str]) -> Option<&Value> {
        self.0.iter().find_map(|layer| {
            let (first, rest) = key.split_first()?;
            rest.iter().try_fold(layer.get(*first)?, |value, name| value.get(*name))
        })
    }

    /// Returns a profile and those from which it inherits.
    fn ancestors(&self, profile: &str) -> Vec<String> {
        let mut found = vec![profile.to_owned()];
        while let Some(last) = found.last()
            && let Some(parent) = match (last.as_str(), self.get(&["profile", last, "inherits"])) {
                (_, Some(parent)) => parent.as_str().map(str::to_owned),
                ("test", None) => Some("dev".to_owned()),
                ("bench", None) => Some("release".to_owned()),
                _ => None,
            }
            && !found.contains(&parent)
        {
            found.push(parent);
        }
        found
    }

    /// Returns a setting of a profile: its own, or that of the profile from which it inherits.
    fn setting(&self, profile: &str, name: &str) -> Option<Value> {
        let in_environment = |profile: &str| {
            let upper = |text: &str| text.to_uppercase().replace('-', "_");
            let text = env::var(format!("CARGO_PROFILE_{}_{}", upper(profile), upper(name))).ok()?;
            Some(text.parse().map_or(Value::String(text), Value::Boolean))
        };
        // In cargo, arguments take precedence over the environment. It is rare to set both.
        let of_one =
            |profile: &String| in_environment(profile).or_else(|| self.get(&["profile", profile, name]).cloned());
        self.ancestors(profile).iter().find_map(of_one)
    }

    /// Returns whether a profile inherits from `dev`. Cargo's default for it is full debug
    /// information, so a project that has less has chosen it, usually to compile faster.
    fn is_for_development(&self, profile: &str) -> bool {
        self.ancestors(profile).pop().as_deref() == Some("dev")
    }

    /// Returns the settings that must change so that a stack of the program shows functions and
    /// lines: line tables, unless the profile has them or more, and no stripping. The settings of
    /// profiles for development stay.
    pub(crate) fn overrides(&self, profile: &str) -> Vec<Override> {
        let mut found = Vec::new();
        if self.is_for_development(profile) {
            return found;
        }
        let has_none = self.setting(profile, "debug").is_none_or(|debug| is_without_lines(&debug));
        if has_none {
            found.push(Override {
                key: format!("profile.{profile}.debug"),
                value: "line-tables-only",
                instead_of: self.setting(profile, "debug").map(|value| value.to_string()),
            });
        }
        if let Some(strip) = self.setting(profile, "strip").filter(is_stripped) {
            let key = format!("profile.{profile}.strip");
            found.push(Override { key, value: "none", instead_of: Some(strip.to_string()) });
        }
        found
    }

    /// Returns the settings of a profile for development because of which stacks show no source
    /// lines, as keys and values.
    pub(crate) fn kept(&self, profile: &str) -> Vec<String> {
        if !self.is_for_development(profile) {
            return Vec::new();
        }
        let debug = self.setting(profile, "debug").filter(is_without_lines);
        let strip = self.setting(profile, "strip").filter(is_stripped);
        let named = [("debug", debug), ("strip", strip)].into_iter();
        named.filter_map(|(name, value)| Some(format!("profile.{profile}.{name} is {}", value?))).collect()
    }

    /// Returns the keys of the tables `[unstable]`, and of the environment.
    pub(crate) fn unstable(&self) -> BTreeSet<String> {
        let tables = self.0.iter().filter_map(|layer| layer.get("unstable")?.as_table());
        let in_files = tables.flat_map(|table| table.keys().cloned());
        let variables = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let in_environment = variables.filter(|name| name.starts_with("CARGO_UNSTABLE_"));
        in_files.chain(in_environment).collect()
    }
}

pub(crate) fn is_without_lines(debug: &Value) -> bool {
    match debug {
        Value::Boolean(is_on) => !is_on,
        Value::Integer(level) => *level == 0,
        Value::String(name) => matches!(name.as_str(), "none" | "0" | "line-directives-only"),
        _ => false,
    }
}

fn is_stripped(strip: &Value) -> bool {
    match strip {
        Value::Boolean(is_on) => *is_on,
        Value::String(name) => name != "none",
        _ => false,
    }
}

/// Returns the profile that a command uses.
pub(crate) fn of_command(verb: &str, given: &Given) -> String {
    match (&given.profile, verb) {
        (Some(profile), _) => profile.clone(),
        (None, "bench") => "bench".to_owned(),
        (None, "test") => "test".to_owned(),
        (None, _) => "dev".to_owned(),
    }
}

/// Reads a value of `--config`: a line of TOML, or the path of a file.
fn of_argument(value: &OsString) -> Option<Table> {
    value.to_string_lossy().parse().ok().or_else(|| read_toml(Path::new(value)).ok())
}

/// Returns the paths of cargo's configuration files, the nearest first.
fn config_files() -> Vec<PathBuf> {
    let here = env::current_dir().unwrap_or_default();
    let mut folders: Vec<PathBuf> = here.ancestors().map(|folder| folder.join(".cargo")).collect();
    folders.extend(cargo::home());
    folders.iter().flat_map(|folder| [folder.join("config.toml"), folder.join("config")]).collect()
}

#[cfg(test)]
impl Layers {
    /// Layers of these texts, the first one of the highest rank.
    pub(crate) fn of(texts: &[&str]) -> Self {
        Self(texts.iter().map(|text| text.parse().expect("the text is valid TOML")).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overrides(manifest: &str, profile: &str) -> Vec<String> {
        let layers = Layers::of(&[manifest]);
        layers.overrides(profile).into_iter().map(|it| format!("{}={}", it.key, it.value)).collect()
    }

    #[test]
    fn release_builds_get_line_tables() {
        assert_eq!(overrides("", "release"), ["profile.release.debug=line-tables-only"]);
        assert_eq!(overrides("", "bench"), ["profile.bench.debug=line-tables-only"]);
        assert_eq!(overrides("", "dev"), [""; 0]);
        assert_eq!(overrides("", "test"), [""; 0]);
    }

    #[test]
    fn a_profile_with_debug_information_keeps_it() {
        for debug in ["1", "2", "true", "\"limited\"", "\"full\"", "\"line-tables-only\""] {
            assert_eq!(overrides(&format!("[profile.release]\ndebug = {debug}"), "release"), [""; 0], "{debug}");
        }
        for debug in ["0", "false", "\"none\""] {
            assert_eq!(overrides(&format!("[profile.release]\ndebug = {debug}"), "bench").len(), 1, "{debug}");
        }
    }

    #[test]
    fn the_settings_of_a_development_profile_stay() {
        let manifest = "[profile.dev]\ndebug = 0\nstrip = true\n[profile.quick]\ninherits = \"test\"";
        for profile in ["dev", "test", "quick"] {
            assert_eq!(overrides(manifest, profile), [""; 0], "{profile}");
            let layers = Layers::of(&[manifest]);
            let expected = ["debug is 0", "strip is true"].map(|text| format!("profile.{profile}.{text}"));
            assert_eq!(layers.kept(profile), expected);
        }
    }

    #[test]
    fn a_custom_profile_inherits() {
        let manifest = "[profile.dist]\ninherits = \"release\"\n[profile.release]\nstrip = true";
        assert_eq!(overrides(manifest, "dist"), ["profile.dist.debug=line-tables-only", "profile.dist.strip=none"]);
        assert_eq!(overrides("[profile.fast]\ninherits = \"dev\"", "fast"), [""; 0]);
    }

    #[test]
    fn a_configuration_argument_takes_precedence() {
        let argument = of_argument(&"profile.release.debug=2".into()).expect("it is TOML");
        let manifest = "[profile.release]\ndebug = false".parse().expect("it is TOML");
        assert!(Layers(vec![argument, manifest]).overrides("release").is_empty());
    }
}
