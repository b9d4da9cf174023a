//! The origin of a table: the command, the day, the commit, the machine, the versions.
//!
//! Facts that cannot be determined are left out: a table from an unpacked archive has no commit.

use std::fs;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

const SECONDS_A_DAY: u64 = 86_400;

/// Returns the command that has made the table, without the options that Cargo adds.
pub(crate) fn command(bench: &str) -> String {
    let own: Vec<_> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let options = if own.is_empty() { String::new() } else { format!(" -- {}", own.join(" ")) };
    format!("cargo bench -p volt-runtime --bench {bench}{options}")
}

/// Returns, for example, "2026-11-20, at 1dd7c4f".
pub(crate) fn day_and_commit() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (year, month, day) = date(seconds / SECONDS_A_DAY);
    let date = format!("{year}-{month:02}-{day:02}");
    match output_of("git", &["rev-parse", "--short", "HEAD"]) {
        None => date,
        Some(commit) => {
            let is_changed = output_of("git", &["status", "--porcelain"]).is_some();
            format!("{date}, at {commit}{}", if is_changed { " with changes" } else { "" })
        }
    }
}

/// Returns processors, kernel and compiler.
pub(crate) fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
        line.split_once(':').map(|(_, value)| value.trim().to_owned())
    };
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let is_virtual = field("flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    let processor = format!(
        "{count} {}processors, {}",
        if is_virtual { "virtual " } else { "" },
        field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned())
    );
    let kernel =
        fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(|release| format!("Linux {}", release.trim()));
    let clock = fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource").ok();
    let clock = clock.map(|clock| format!("clock source {}", clock.trim()));
    let compiler = output_of("rustc", &["--version"]);
    let compiler = compiler.map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" "));
    let parts: Vec<_> = [Some(processor), kernel, clock, compiler].into_iter().flatten().collect();
    parts.join("; ")
}

/// Returns, for example, "tokio 1.54.1", from the lock file that this benchmark was built with.
pub(crate) fn versions(packages: &[&str]) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock");
    let lock = fs::read_to_string(path).unwrap_or_default();
    let version = |package: &&str| {
        let (_, entry) = lock.split_once(&format!("name = \"{package}\"\nversion = \""))?;
        entry.split_once('"').map(|(version, _)| format!("{package} {version}"))
    };
    packages.iter().filter_map(version).collect::<Vec<_>>().join(", ")
}

/// Returns the system's load averages, if it provides them.
pub(crate) fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// Returns the output of a program, if it exists, succeeds and prints something.
fn output_of(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

/// Returns year, month and day of the given day after 1970-01-01, by the Gregorian calendar.
///
/// Counts from the first of March, so that the leap day is a year's last. Month `m` then begins on
/// day (153 m + 2) / 5.
fn date(days_since_1970: u64) -> (u64, u64, u64) {
    const DAYS_FROM_0000_03_01: u64 = 719_468;
    const DAYS_IN_400_YEARS: u64 = 146_097;
    let days = days_since_1970 + DAYS_FROM_0000_03_01;
    let (era, day) = (days / DAYS_IN_400_YEARS, days % DAYS_IN_400_YEARS);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let year = year + era * 400 + u64::from(month >= 10);
    (year, (month + 2) % 12 + 1, day)
}
