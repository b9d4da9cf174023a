//! The versions of Tokio that work with the facade, and those of axum whose routes are counted.

use std::slice;

/// The version with which the facade was tested. A project with an older one gets the I/O traits,
/// channels and macros of this version, which have everything that the older ones have. Volt needs
/// items that are new in it.
pub(crate) const TESTED: &str = "1.54.1";

/// The oldest version that the facade replaces: the first one with the API of Tokio 1.
pub(crate) const OLDEST: &str = "1.0.0";

/// The versions of axum whose requests can be counted by route, without the last number.
pub(crate) const AXUM: [&str; 2] = ["0.7", "0.8"];

/// The versions of the packages that the prepared sources replace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Choice {
    /// The version of Tokio.
    pub(crate) version: String,
    /// The versions of axum: none, or one of each line in `AXUM`.
    pub(crate) axums: Vec<String>,
}

impl Choice {
    /// Returns a text that `parse` reads.
    pub(crate) fn to_text(&self) -> String {
        [slice::from_ref(&self.version), &self.axums].concat().join(" ")
    }

    pub(crate) fn parse(text: &str) -> Option<Choice> {
        let mut versions = text.split_whitespace().map(str::to_owned);
        Some(Choice { version: versions.next()?, axums: versions.collect() })
    }
}

/// Returns whether the requests of a version of axum can be counted by route.
pub(crate) fn has_routes(axum: &str) -> bool {
    AXUM.contains(&line(axum))
}

/// Whether the facade can replace a version of Tokio.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is the tested version, or an older one.
    Tested,
    /// It is newer.
    Untested,
    /// It is older than Tokio 1 or has a later major version, and so another API.
    Other,
}

/// Judges a version.
pub(crate) fn verdict(version: &str) -> Verdict {
    if line(version) != line(OLDEST) || numbers(version) < numbers(OLDEST) {
        Verdict::Other
    } else if numbers(version) <= numbers(TESTED) {
        Verdict::Tested
    } else {
        Verdict::Untested
    }
}

/// Returns the version of which the facade uses a copy, for a project with this version.
pub(crate) fn copied(version: &str) -> &str {
    if verdict(version) == Verdict::Tested { TESTED } else { version }
}

/// Returns the warning about a version with which Volt was not tested.
pub(crate) fn untested(version: &str) -> String {
    format!("Volt was tested with tokio v{TESTED}; items that are new in v{version} do not compile")
}

/// Returns the numbers of a version, such as `1.54.1`, without what follows them.
pub(crate) fn numbers(version: &str) -> Vec<u64> {
    let release = version.split(['-', '+']).next().unwrap_or_default();
    release.split('.').map_while(|number| number.parse().ok()).collect()
}

/// Returns the part of a version that all compatible versions share: `1` of `1.54.1`, `0.8` of
/// `0.8.9`, `0.0.3` of `0.0.3`.
pub(crate) fn line(version: &str) -> &str {
    let zeros = version.split('.').take_while(|number| *number == "0").count().min(2);
    let end = version.match_indices(['.', '-', '+']).nth(zeros).map_or(version.len(), |(at, _)| at);
    &version[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compatible_versions_share_their_line() {
        let lines = ["1.54.1", "0.8.9", "0.0.3", "2.0.0-beta.1", "0.1.0"].map(line);
        assert_eq!(lines, ["1", "0.8", "0.0.3", "2", "0.1"]);
    }

    #[test]
    fn versions_are_ordered_by_their_numbers() {
        assert!(numbers("1.9.0") < numbers("1.10.0"));
        assert_eq!(numbers("0.13.0+wasi-0.2.4"), [0, 13, 0]);
    }

    #[test]
    fn older_versions_get_a_copy_of_the_tested_one() {
        assert_eq!(["1.0.0", TESTED, "1.999.0"].map(copied), [TESTED, TESTED, "1.999.0"]);
    }

    #[test]
    fn the_guide_names_the_oldest_and_the_tested_version() {
        let guide = include_str!("../drop-in.md");
        for text in [
            format!("Tokio {OLDEST} or later"),
            format!("tested with Tokio {TESTED}"),
            format!("axum {}", AXUM.join(" or ")),
        ] {
            assert!(guide.contains(&text), "`{text}` is missing");
        }
    }

    #[test]
    fn only_tokio_1_is_replaced() {
        assert_eq!(verdict(TESTED), Verdict::Tested);
        assert_eq!(verdict("1.9.0"), Verdict::Tested);
        assert_eq!(verdict("1.999.0"), Verdict::Untested);
        assert_eq!(["0.2.25", "0.3.7", "2.0.0", "10.0.0"].map(verdict), [const { Verdict::Other }; 4]);
        assert_eq!(verdict(OLDEST), Verdict::Tested);
    }
}
