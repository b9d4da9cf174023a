//! The limits of a check: a time that no poll or delay may exceed, or that only a given share may
//! exceed.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::text::figures::time;

/// The quantity that a limit applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The duration of polls.
    Poll,
    /// The time that tasks wait from their wake-up to their poll.
    Delay,
}

impl Measure {
    /// Returns the name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Measure::Poll => "poll",
            Measure::Delay => "delay",
        }
    }
}

/// A time, and the share of polls or delays that must not exceed it: `50ms` applies to every one,
/// `p99=20ms` to 99 of 100.
///
/// ```
/// use volt_console::commands::check::limit::Limit;
/// let limit: Limit = "p99.9=20ms".parse().unwrap();
/// assert_eq!((limit.quantile, limit.to_string().as_str()), (0.999, "p99.9"));
/// assert_eq!("50ms".parse::<Limit>().unwrap().to_string(), "longest");
/// assert!("p0=20ms".parse::<Limit>().is_err() && "20".parse::<Limit>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// The share that must not exceed the time, above 0; 1 means every one.
    pub quantile: f64,
    /// The time.
    pub time: Duration,
}

impl Limit {
    /// Returns the time in ns.
    pub fn ns(&self) -> u64 {
        u64::try_from(self.time.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns whether the limit applies to every poll or delay, so that a single one can exceed
    /// it.
    pub fn is_for_each(&self) -> bool {
        self.quantile >= 1.0
    }
}

impl FromStr for Limit {
    type Err = String;

    /// Parses `50ms`, `max=50ms`, `p99=20ms` or `p99.9=0.5s`.
    fn from_str(text: &str) -> Result<Limit, String> {
        let (quantile, limit) = match text.split_once('=') {
            None | Some(("max", _)) => (1.0, text.strip_prefix("max=").unwrap_or(text)),
            Some((quantile, limit)) => (percentile(quantile)?, limit),
        };
        let time = time(limit)?;
        if time.is_zero() { Err("expected a time above 0, such as 50ms".into()) } else { Ok(Limit { quantile, time }) }
    }
}

/// Parses `p99.9` as 0.999.
fn percentile(text: &str) -> Result<f64, String> {
    let percent = text.strip_prefix('p').and_then(|percent| percent.parse::<f64>().ok());
    match percent {
        // `percent / 100` would turn 99.9 into 0.9990000000000001, which is one more of a thousand.
        Some(percent) if percent > 0.0 && percent <= 100.0 => Ok((percent * 1e6).round() / 1e8),
        _ => {
            Err("expected a time, such as 50ms, or a percentile and a time, such as p99=20ms; the percentile must be \
                  above 0 and at most 100"
                .into())
        }
    }
}

impl fmt::Display for Limit {
    /// Writes `longest` or `p99.9`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_for_each() { f.write_str("longest") } else { write!(f, "p{}", (self.quantile * 1e8).round() / 1e6) }
    }
}
