//! Text formatting: numbers in the notation that all of Volt's programs use, and the detection of
//! invisible characters in names from other programs.

use std::panic::Location;

/// Returns `true` if `c` is invisible or reorders the text around it.
///
/// These are zero-width characters, line separators, and bidirectional marks, overrides and
/// isolates. Control characters are not included; see `char::is_control`.
///
/// ```
/// use volt_telemetry::text::is_invisible;
///
/// assert!(is_invisible('\u{202e}') && !is_invisible('e'));
/// ```
pub fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Returns `true` if `text` contains `wanted`, ignoring case. `wanted` is in lower case.
///
/// ```
/// use volt_telemetry::text::contains_ignoring_case;
///
/// assert!(contains_ignoring_case("src/Orders.rs:52", "orders.rs:5"));
/// assert!(!contains_ignoring_case("src/orders.rs:52", "orders.rs:6"));
/// ```
pub fn contains_ignoring_case(text: &str, wanted: &str) -> bool {
    if text.is_ascii() {
        let (text, wanted) = (text.as_bytes(), wanted.as_bytes());
        return wanted.is_empty() || text.windows(wanted.len()).any(|part| part.eq_ignore_ascii_case(wanted));
    }
    text.to_lowercase().contains(wanted)
}

/// Returns whether a filter selects the task with this id: `#7` selects only task 7, and `7` each
/// task whose id contains a 7. `wanted` is in lower case.
///
/// ```
/// use volt_telemetry::text::is_id_wanted;
///
/// assert!(is_id_wanted(7, "#7") && is_id_wanted(17, "7") && !is_id_wanted(71, "#7"));
/// ```
pub fn is_id_wanted(id: u64, wanted: &str) -> bool {
    match wanted.strip_prefix('#') {
        Some("") => true,
        Some(exact) => exact.parse() == Ok(id),
        None => id.to_string().contains(wanted),
    }
}

/// Parts of the paths of packages that cargo downloaded, before the name of the registry, and
/// before that of the repository.
const PACKAGE_FOLDERS: [&str; 2] = ["/registry/src/", "/git/checkouts/"];

/// Returns the part of a package's path that begins with its name and version, or with the name and
/// the revision of its git repository. Returns `None` if the file belongs to no package that cargo
/// downloaded.
///
/// ```
/// use volt_telemetry::text::package_path;
///
/// let file = "/home/me/.cargo/registry/src/index.crates.io-1/axum-0.8.9/src/serve/mod.rs";
/// assert_eq!(package_path(file), Some("axum-0.8.9/src/serve/mod.rs"));
/// let file = "/home/me/.cargo/git/checkouts/shop-1a2b3c/5f3e2a1/till/src/lib.rs";
/// assert_eq!(package_path(file), Some("shop-1a2b3c/5f3e2a1/till/src/lib.rs"));
/// assert_eq!(package_path("src/main.rs"), None);
/// ```
pub fn package_path(file: &str) -> Option<&str> {
    let behind = |folder: &str| file.split_once(folder).map(|(_, path)| path);
    match PACKAGE_FOLDERS.map(behind) {
        [Some(path), _] => Some(path.split_once('/').map_or(path, |(_registry, path)| path)),
        [None, path] => path,
    }
}

/// Formats a code location as `file:line:column`. The file of a package begins with the package's
/// name and version: the directory of its registry differs between machines.
///
/// ```
/// let here = std::panic::Location::caller();
/// assert_eq!(volt_telemetry::text::location(here), here.to_string());
/// ```
pub fn location(location: &Location<'_>) -> String {
    let file = package_path(location.file()).unwrap_or(location.file());
    format!("{file}:{}:{}", location.line(), location.column())
}

/// Formats a duration with about two digits: `850 ns`, `4.2 ms`, `312 ms`, `17 s`, `1 min 42 s`.
///
/// ```
/// use volt_telemetry::text::duration;
///
/// assert_eq!(duration(4_250_000), "4.2 ms");
/// assert_eq!(duration(102_000_000_000), "1 min 42 s");
/// ```
pub fn duration(ns: u64) -> String {
    const UNITS: [(u64, &str); 6] = [
        (86_400_000_000_000, "d"),
        (3_600_000_000_000, "h"),
        (60_000_000_000, "min"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "µs"),
    ];
    // From a minute on, units are not decimal.
    const MIXED: usize = 3;
    let Some(index) = UNITS.into_iter().position(|(unit, _)| ns >= unit) else { return format!("{ns} ns") };
    let (unit, name) = UNITS[index];
    let (whole, rest) = (ns / unit, ns % unit);
    if whole >= 10 {
        return format!("{whole} {name}");
    }
    if index < MIXED {
        let (lower, lower_name) = UNITS[index + 1];
        return match rest / lower {
            0 => format!("{whole} {name}"),
            part => format!("{whole} {name} {part} {lower_name}"),
        };
    }
    match rest / (unit / 10) {
        0 => format!("{whole} {name}"),
        tenths => format!("{whole}.{tenths} {name}"),
    }
}

/// Formats a ratio as a percentage: `43 %`.
pub fn percent(ratio: f64) -> String {
    format!("{:.0} %", ratio * 100.0)
}

/// Formats a count with its noun, in singular or plural: `1 task`, `3 tasks`.
pub fn counted(count: u64, thing: &str) -> String {
    if count == 1 { format!("1 {thing}") } else { format!("{count} {thing}s") }
}
