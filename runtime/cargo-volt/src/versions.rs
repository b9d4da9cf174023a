//! The versions of Tokio that work with the facade.

/// The version with which the facade was tested. A project with an older one gets the I/O traits,
/// channels and macros of this version, which have everything that the older ones have. Volt needs
/// items that are new in it.
pub(crate) const TESTED: &str = "1.54.1";

/// Whether the facade can replace a version of Tokio.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is the tested version, or an older one.
    Tested,
    /// It is newer.
    Untested,
    /// It has another major version, and so another API.
    Other,
}

/// Judges a version.
pub(crate) fn verdict(version: &str) -> Verdict {
    if !version.starts_with("1.") {
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
    fn only_tokio_1_is_replaced() {
        assert_eq!(verdict(TESTED), Verdict::Tested);
        assert_eq!(verdict("1.9.0"), Verdict::Tested);
        assert_eq!(verdict("1.999.0"), Verdict::Untested);
        assert_eq!(verdict("0.2.25"), Verdict::Other);
    }
}
