//! What a check holds a program to: a time that no poll, or no delay, may exceed, or all but a few.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::text::figures::time;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// How long polls take.
    Poll,
    /// How long tasks wait from their wake-up to their poll.
    Delay,
}

impl Measure {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Measure::Poll => "poll",
            Measure::Delay => "delay",
        }
    }
}

/// A time, and how many may not exceed it: `50ms` is for each, `p99=20ms` for 99 of 100.
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
    /// The share that may not exceed it, above 0; 1 is each.
    pub quantile: f64,
    /// The time.
    pub time: Duration,
}

impl Limit {
    /// The time in ns.
    pub fn ns(&self) -> u64 {
        u64::try_from(self.time.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Whether it is for each, and one alone exceeds it.
    pub fn is_for_each(&self) -> bool {
        self.quantile >= 1.0
    }
}

impl FromStr for Limit {
    type Err = String;

    /// `50ms`, `max=50ms`, `p99=20ms`, `p99.9=0.5s`.
    fn from_str(text: &str) -> Result<Limit, String> {
        let (quantile, limit) = match text.split_once('=') {
            None | Some(("max", _)) => (1.0, text.strip_prefix("max=").unwrap_or(text)),
            Some((quantile, limit)) => (percentile(quantile)?, limit),
        };
        let time = time(limit)?;
        if time.is_zero() { Err("expected a time above 0, such as 50ms".into()) } else { Ok(Limit { quantile, time }) }
    }
}

/// `p99.9` as 0.999.
fn percentile(text: &str) -> Result<f64, String> {
    let percent = text.strip_prefix('p').and_then(|percent| percent.parse::<f64>().ok());
    match percent {
        // Not `percent / 100`, of which 99.9 makes 0.9990000000000001: one more of a thousand.
        Some(percent) if percent > 0.0 && percent <= 100.0 => Ok((percent * 1e6).round() / 1e8),
        _ => Err("expected a time, such as 50ms, or a percentile and a time, such as p99=20ms".into()),
    }
}

impl fmt::Display for Limit {
    /// `longest`, `p99.9`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_for_each() { f.write_str("longest") } else { write!(f, "p{}", (self.quantile * 1e8).round() / 1e6) }
    }
}
