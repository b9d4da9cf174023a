//! Formats numbers as short text, for the screens and the tables.
//!
//! Invariant *each kind of figure has a largest width*, defined here, so that a column never moves
//! and never cuts a number.
//!
//! Durations are written in two ways. All figures of the console are as short as [`duration`] and
//! [`span`] make them: `1m02s`. Sentences that come from elsewhere, such as the title of a finding,
//! which the log has too, use [`volt_telemetry::text::duration`]: `1 min 2 s`.

use std::time::Duration;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The largest width of [`count`] and [`rate`].
pub const COUNT_WIDTH: usize = 5;
/// The largest width of [`duration`].
pub const DURATION_WIDTH: usize = 6;
/// The largest width of [`percent`].
pub const PERCENT_WIDTH: usize = 4;
/// The text for an absent value.
pub const ABSENT: &str = "-";

/// Formats `n` in at most [`COUNT_WIDTH`] columns: `9999`, `12.3k`, `812k`, `1.23M`.
///
/// ```
/// assert_eq!(volt_console::text::figures::count(1_234_567), "1.23M");
/// ```
pub fn count(n: u64) -> String {
    if n < 10_000 {
        return n.to_string();
    }
    let mut unit = 1_000u64;
    for suffix in ["k", "M", "G", "T", "P", "E"] {
        // Digits are truncated, not rounded, so that 999,999 does not become 1000k.
        let whole = n / unit;
        let hundredths = (n % unit) / (unit / 100);
        match whole {
            0..=9 => return format!("{whole}.{hundredths:02}{suffix}"),
            10..=99 => return format!("{whole}.{}{suffix}", hundredths / 10),
            100..=999 => return format!("{whole}{suffix}"),
            _ => unit = unit.saturating_mul(1_000),
        }
    }
    n.to_string()
}

/// Formats a rate in at most [`COUNT_WIDTH`] columns: `0`, `<0.1`, `0.4`, `37`, `12.3k`.
pub fn rate(per_second: f64) -> String {
    match per_second {
        zero if zero <= 0.0 || !zero.is_finite() => "0".into(),
        tiny if tiny < 0.1 => "<0.1".into(),
        small if small < 9.95 => format!("{small:.1}"),
        large => count(large.round() as u64),
    }
}

/// Formats a duration in at most [`DURATION_WIDTH`] columns: `17ns`, `1.2µs`, `12.3ms`, `1m02s`,
/// `2h05m`, `12d03h`.
pub fn duration(ns: u64) -> String {
    const SECOND: u64 = 1_000_000_000;
    let seconds = ns / SECOND;
    let scaled = |unit: u64, name: &str| {
        let tenths = ns % unit / (unit / 10);
        match ns / unit {
            whole @ 0..=99 => format!("{whole}.{tenths}{name}"),
            whole => format!("{whole}{name}"),
        }
    };
    match seconds {
        0 if ns < 1_000 => format!("{ns}ns"),
        0 if ns < 1_000_000 => scaled(1_000, "µs"),
        0 => scaled(1_000_000, "ms"),
        1..60 => scaled(SECOND, "s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        86_400..8_640_000 => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
        8_640_000..864_000_000 => format!("{}d", seconds / 86_400),
        _ => format!("{}y", seconds / 31_557_600),
    }
}

/// Like [`duration`], but in whole seconds, for elapsed times that must not flicker.
pub fn age(ns: u64) -> String {
    match ns / 1_000_000_000 {
        seconds @ 0..60 => format!("{seconds}s"),
        _ => duration(ns),
    }
}

/// Like [`duration`], but without a tenth of 0, for times that a user sets: `500ms`, `10s`,
/// `1m30s`.
///
/// ```
/// use std::time::Duration;
/// use volt_console::text::figures::span;
///
/// assert_eq!([500, 1_500, 10_000].map(Duration::from_millis).map(span), ["500ms", "1.5s", "10s"]);
/// ```
pub fn span(time: Duration) -> String {
    duration(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)).replacen(".0", "", 1)
}

/// Formats a [`duration`], or [`ABSENT`].
pub fn maybe_duration(ns: Option<u64>) -> String {
    ns.map_or_else(|| ABSENT.into(), duration)
}

/// Formats a ratio in at most [`PERCENT_WIDTH`] columns: `0%`, `<1%`, `97%`, `100%`.
pub fn percent(ratio: f64) -> String {
    match ratio * 100.0 {
        zero if zero <= 0.0 || !zero.is_finite() => "0%".into(),
        tiny if tiny < 0.5 => "<1%".into(),
        whole => format!("{:.0}%", whole.min(100.0)),
    }
}

/// Returns a bar of `width` columns, filled to `ratio` in eighths of a column. A ratio above 0
/// fills at least one eighth.
pub fn bar(ratio: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let ratio = if ratio.is_finite() { ratio.clamp(0.0, 1.0) } else { 0.0 };
    let mut eighths = (ratio * width as f64 * 8.0).round() as usize;
    if ratio > 0.0 {
        eighths = eighths.max(1);
    }
    let partial = EIGHTHS[eighths % 8];
    let filled = eighths / 8 + usize::from(!partial.is_empty());
    format!("{}{partial}{}", "█".repeat(eighths / 8), "·".repeat(width - filled))
}

/// Returns how many columns of a terminal `text` takes.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Returns the end of `text` in at most `columns`, with `…` for what was cut. For paths, whose end
/// matters most.
pub fn tail(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.into();
    }
    let kept: String = fitting(text.chars().rev(), columns).collect();
    let cut = if columns == 0 { "" } else { "…" };
    format!("{cut}{}", kept.chars().rev().collect::<String>())
}

/// Returns the start of `text` in at most `columns`, with `…` for what was cut.
pub fn head(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.into();
    }
    let kept: String = fitting(text.chars(), columns).collect();
    let cut = if columns == 0 { "" } else { "…" };
    format!("{kept}{cut}")
}

/// Cuts `text` to `columns`, and pads it with spaces on the right.
pub fn left(text: &str, columns: usize) -> String {
    let text = head(text, columns);
    let fill = columns.saturating_sub(width(&text));
    text + &" ".repeat(fill)
}

/// Cuts `text` to `columns`, and pads it with spaces on the left.
pub fn right(text: &str, columns: usize) -> String {
    let text = head(text, columns);
    " ".repeat(columns.saturating_sub(width(&text))) + &text
}

/// Returns the first of `chars` that fit into `columns` with one column left over. Counts at least
/// as many columns as [`width`] does, which depends on sequences of characters.
fn fitting(chars: impl Iterator<Item = char>, columns: usize) -> impl Iterator<Item = char> {
    let mut used = 1;
    chars.take_while(move |c| {
        used += match c {
            // Such a selector can make the character before it wider by one column, as in ⚠️.
            '\u{fe01}' | '\u{fe0f}' => 1,
            // In a text, a control character has one column.
            c => c.width().unwrap_or(1),
        };
        used <= columns
    })
}

/// Breaks `text` between words into lines of at most `columns`. A longer word is cut.
pub fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut().filter(|line| width(line) + 1 + width(word) <= columns) {
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(head(word, columns)),
        }
    }
    lines
}

/// Parses `250ms`, `2s`, `0.5s`, `500us`, `5m` or `1h` as a time.
///
/// # Errors
///
/// Returns a message with the expected format.
pub fn time(text: &str) -> Result<Duration, String> {
    // Units that end in another unit come first.
    const UNITS: [(&str, f64); 6] = [("ms", 1e-3), ("us", 1e-6), ("µs", 1e-6), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let number = |(unit, seconds): (&str, f64)| Some((text.strip_suffix(unit)?, seconds));
    let (number, unit) =
        UNITS.into_iter().find_map(number).ok_or("expected a number with a unit, such as 250ms or 2s")?;
    let seconds = number.parse::<f64>().map_err(|_| "expected a number with a unit, such as 250ms or 2s")? * unit;
    Duration::try_from_secs_f64(seconds).map_err(|_| "expected a time of 0 or more, such as 250ms or 2s".into())
}

/// Returns `handlers.rs:118` of `examples/src/handlers.rs:118:21`.
pub fn short_place(place: &str) -> &str {
    let file = place.rsplit_once('/').map_or(place, |(_, file)| file);
    match file.rsplit_once(':') {
        Some((without_column, _)) if without_column.contains(':') => without_column,
        _ => file,
    }
}

/// Breaks `text` between words into lines of at most `columns`. A longer word, such as a path, gets
/// a separate line.
pub(crate) fn paragraph(first: &str, rest: &str, text: &str, columns: usize) -> String {
    let mut lines = String::from(first);
    let (mut used, mut is_fresh) = (width(first), true);
    for word in text.split_whitespace() {
        if !is_fresh && used + 1 + width(word) > columns {
            lines.push('\n');
            lines.push_str(rest);
            (used, is_fresh) = (width(rest), true);
        }
        if !is_fresh {
            lines.push(' ');
            used += 1;
        }
        lines.push_str(word);
        (used, is_fresh) = (used + width(word), false);
    }
    lines.push('\n');
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_keep_at_least_three_digits_and_never_round_up() {
        let cases = [
            (0, "0"),
            (9_999, "9999"),
            (10_000, "10.0k"),
            (12_345, "12.3k"),
            (812_345, "812k"),
            (999_999, "999k"),
            (1_234_567, "1.23M"),
            (u64::MAX, "18.4E"),
        ];
        cases.iter().for_each(|(n, text)| assert_eq!(count(*n), *text));
    }

    #[test]
    fn durations_name_their_unit() {
        let cases = [
            (0, "0ns"),
            (999, "999ns"),
            (1_234, "1.2µs"),
            (99_999, "99.9µs"),
            (123_456, "123µs"),
            (999_999, "999µs"),
            (1_200_000, "1.2ms"),
            (300_000_000, "300ms"),
            (4_200_000_000, "4.2s"),
            (62_000_000_000, "1m02s"),
            (7_500_000_000_000, "2h05m"),
            (1_047_600_000_000_000, "12d03h"),
            (u64::MAX, "584y"),
        ];
        cases.iter().for_each(|(ns, text)| assert_eq!(duration(*ns), *text));
    }

    #[test]
    fn a_span_has_no_tenth_of_zero() {
        let cases = [(50, "50ms"), (1_234, "1.2s"), (2_000, "2s"), (10_040, "10s"), (90_000, "1m30s")];
        cases.iter().for_each(|(ms, text)| assert_eq!(span(Duration::from_millis(*ms)), *text));
    }

    #[test]
    fn no_figure_is_wider_than_its_kind_allows() {
        let mut n = 1u64;
        while n < u64::MAX / 3 {
            for n in [n - 1, n, n + 1, n * 2] {
                assert!(count(n).chars().count() <= COUNT_WIDTH, "{n}");
                assert!(rate(n as f64 / 7.0).chars().count() <= COUNT_WIDTH, "{n}");
                assert!(duration(n).chars().count() <= DURATION_WIDTH, "{n}: {}", duration(n));
                assert!(percent(n as f64 / 1e6).chars().count() <= PERCENT_WIDTH, "{n}");
            }
            n *= 3;
        }
    }

    #[test]
    fn rates_and_ratios_distinguish_little_from_nothing() {
        assert_eq!([0.0, 0.01, 0.4, 9.94, 37.2, 12_345.0].map(rate), ["0", "<0.1", "0.4", "9.9", "37", "12.3k"]);
        assert_eq!([0.0, 0.001, 0.974, 1.0].map(percent), ["0%", "<1%", "97%", "100%"]);
        assert_eq!(rate(f64::NAN), "0");
    }

    #[test]
    fn bars_have_the_given_width_and_show_any_nonzero_value() {
        assert_eq!(bar(0.0, 4), "····");
        assert_eq!(bar(0.001, 4), "▏···");
        assert_eq!(bar(0.5, 4), "██··");
        assert_eq!(bar(1.0, 4), "████");
        assert_eq!(bar(7.0, 4), "████");
        (0..=100).for_each(|i| assert_eq!(bar(f64::from(i) / 100.0, 6).chars().count(), 6));
    }

    #[test]
    fn long_text_is_truncated_at_its_least_useful_part() {
        assert_eq!(tail("examples/src/demo.rs:12:5", 12), "…emo.rs:12:5");
        assert_eq!(tail("demo.rs:12:5", 12), "demo.rs:12:5");
        assert_eq!(head("slow-handler", 6), "slow-…");
        assert_eq!((head("abc", 0), tail("abc", 0)), (String::new(), String::new()));
    }

    #[test]
    fn text_wraps_between_words_within_the_width() {
        let lines = wrapped("one two three muchlongerthanthat four", 9);
        assert_eq!(lines, ["one two", "three", "muchlong…", "four"]);
    }

    #[test]
    fn columns_are_counted_as_a_terminal_does() {
        assert_eq!(head("数据库任务", 6), "数据…");
        assert_eq!(tail("数据库任务", 6), "…任务");
        assert_eq!((left("数据", 6), right("数据", 6)), ("数据  ".into(), "  数据".into()));
    }

    #[test]
    fn text_with_variation_selectors_is_cut_to_the_columns() {
        let keycaps = "1\u{fe0f}\u{20e3}".repeat(9);
        for text in ["\u{26a0}\u{fe0f} payments-service", "\u{201c}\u{fe01}quoted-service", "a\r\n\t\tb", &keycaps] {
            for columns in 0..12 {
                assert_eq!(
                    [left(text, columns), right(text, columns)].map(|text| width(&text)),
                    [columns; 2],
                    "{text:?}"
                );
                assert!(
                    [head(text, columns), tail(text, columns)].iter().all(|text| width(text) <= columns),
                    "{text:?}"
                );
            }
        }
    }
}
