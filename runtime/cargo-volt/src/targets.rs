//! The targets on which Volt runs.

use std::env;

use toml::Value;

use crate::arguments::Given;
use crate::error::Error;
use crate::profile::Layers;

/// Systems on which Volt runs, as they are part of the name of a target.
const SYSTEMS: [&str; 4] = ["linux", "apple-darwin", "freebsd", "android"];

/// The name under which cargo accepts its host, whatever that is.
const HOST: &str = "host-tuple";

/// Returns the targets of the build. Empty for a build for the host that names no target.
pub(crate) fn of_build(layers: &Layers, given: &Given, host: &str) -> Vec<String> {
    let mut targets = given.targets.clone();
    if targets.is_empty() {
        targets.extend(env::var("CARGO_BUILD_TARGET"));
    }
    if targets.is_empty() {
        match layers.get(&["build", "target"]) {
            Some(Value::String(target)) => targets.push(target.clone()),
            Some(Value::Array(list)) => targets.extend(list.iter().filter_map(Value::as_str).map(str::to_owned)),
            _ => {}
        }
    }
    targets.into_iter().map(|target| if target == HOST { host.to_owned() } else { target }).collect()
}

/// Checks that Volt runs on the targets of the build.
pub(crate) fn check(layers: &Layers, given: &Given, host: &str) -> Result<(), Error> {
    match of_build(layers, given, host).iter().find(|target| !runs_on(target)) {
        Some(target) => Err(Error::unsupported(format!("Volt does not run on `{target}`"))
            .help("Volt runs on Linux, macOS and FreeBSD; build for this target with `cargo`, without `volt`")),
        None => Ok(()),
    }
}

/// Returns whether Volt runs on a target. Accepts a target file, whose system is not known.
fn runs_on(target: &str) -> bool {
    target.ends_with(".json") || SYSTEMS.iter().any(|system| target.contains(system))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_and_bare_metal_are_refused() {
        for target in ["x86_64-unknown-linux-musl", "aarch64-apple-darwin", "x86_64-unknown-freebsd", "my.json"] {
            assert!(runs_on(target), "{target}");
        }
        for target in ["x86_64-pc-windows-msvc", "thumbv7em-none-eabi", "wasm32-unknown-unknown", "aarch64-apple-ios"] {
            assert!(!runs_on(target), "{target}");
        }
    }
}
