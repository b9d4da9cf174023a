//! Parsers of the values of options, with their limits.

use std::time::Duration;

use crate::commands::doctor;
use crate::text::figures;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use volt_recording::writer::MIN_FILE_BYTES;
use volt_telemetry::finding::Severity;
use volt_telemetry::processes;
use volt_telemetry::tasks::Rank;

/// The shortest and the longest interval between two snapshots.
const INTERVAL_MIN: Duration = Duration::from_millis(20);
const INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// Parses a whole number from 1 to `max`.
pub(super) fn number(text: &str, max: u32) -> Result<u32, String> {
    text.parse().ok().filter(|number| (1..=max).contains(number)).ok_or_else(|| format!("expected 1 to {max}"))
}

pub(super) fn severities() -> impl TypedValueParser<Value = Severity> {
    let names = PossibleValuesParser::new(Severity::ALL.map(Severity::name));
    names.try_map(|name| {
        let found = Severity::ALL.into_iter().find(|severity| severity.name() == name);
        found.ok_or("no such severity")
    })
}

pub(super) fn rank() -> impl TypedValueParser<Value = Rank> {
    let value = |rank: Rank| {
        let help = match rank {
            Rank::Busy => "Total duration of its polls",
            Rank::Longest => "Duration of its longest poll",
            Rank::Polls => "Number of its polls",
            Rank::Delay => "Total time from its wake-ups to its polls",
            Rank::Woken => "Time since its last wake-up",
            Rank::Wakers => "Number of its live wakers",
            Rank::Age => "Time since it was spawned",
            Rank::Id => "Task id",
            _ => "",
        };
        PossibleValue::new(rank.name()).help(help)
    };
    let names = PossibleValuesParser::new(Rank::ALL.map(value));
    names.try_map(|name| Rank::ALL.into_iter().find(|rank| rank.name() == name).ok_or("no such order"))
}

pub(super) fn process_rank() -> impl TypedValueParser<Value = processes::Rank> {
    use processes::Rank;
    let value = |rank: Rank| {
        let help = match rank {
            Rank::Mailbox => "Number of messages in its mailbox",
            Rank::Peak => "Largest number of messages that its mailbox has had",
            Rank::Lost => "Number of messages that it dropped or refused",
            Rank::Steps => "Number of times that a worker ran it (steps)",
            Rank::Busy => "Total duration of the polls of its task",
            Rank::Pid => "Process id",
            _ => "",
        };
        PossibleValue::new(rank.name()).help(help)
    };
    let names = PossibleValuesParser::new(Rank::ALL.map(value));
    names.try_map(|name| Rank::ALL.into_iter().find(|rank| rank.name() == name).ok_or("no such order"))
}

/// Parses `250ms`, `2s` or `0.5s`, within the bounds of an interval.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    figures::time(text).and_then(|time| within(time, INTERVAL_MIN))
}

/// Like [`interval`], but accepts 0, and otherwise at least the doctor's shortest interval.
pub(super) fn interval_or_zero(text: &str) -> Result<Duration, String> {
    let time = figures::time(text)?;
    if time.is_zero() { Ok(time) } else { within(time, doctor::WAIT_MIN) }
}

/// Like [`interval_or_zero`], but rejects 0.
pub(super) fn positive_interval(text: &str) -> Result<Duration, String> {
    figures::time(text).and_then(|time| within(time, doctor::WAIT_MIN))
}

/// Parses `10`, `0.5`, `2s` or `300ms`; must be above 0.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let time = match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|_| "expected a number of seconds above 0")?,
        Err(_) => figures::time(text).map_err(|_| "expected a number of seconds, such as 10 or 0.5")?,
    };
    if time.is_zero() { Err("expected a number of seconds above 0".into()) } else { Ok(time) }
}

/// Parses `64M`, `1G` or `2000000` as bytes; at least [`MIN_FILE_BYTES`].
pub(super) fn size(text: &str) -> Result<u64, String> {
    let units = [('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30)];
    let unit = units.into_iter().find_map(|(letter, unit)| Some((text.strip_suffix(letter)?, unit)));
    let (number, unit) = unit.unwrap_or((text, 1));
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    let bytes = bytes.ok_or("expected a whole number of bytes, such as 64M or 1G")?;
    if bytes >= MIN_FILE_BYTES {
        Ok(bytes)
    } else {
        Err(format!("expected at least {MIN_FILE_BYTES} bytes, such as 1M"))
    }
}

fn within(time: Duration, min: Duration) -> Result<Duration, String> {
    if (min..=INTERVAL_MAX).contains(&time) {
        Ok(time)
    } else {
        Err(format!("expected {min:?} to {}h", INTERVAL_MAX.as_secs() / 3600))
    }
}
