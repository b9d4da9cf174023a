//! Characters that names from other programs may hold, and that whoever shows them does not.

/// Whether `c` is shown as nothing, or reorders what is shown: zero-width characters, line separators, and bidirectional marks, overrides
/// and isolates. Control characters are not among them: see `char::is_control`.
///
/// ```
/// use volt_telemetry::text::is_invisible;
///
/// assert!(is_invisible('\u{202e}') && !is_invisible('e'));
/// ```
pub fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}
