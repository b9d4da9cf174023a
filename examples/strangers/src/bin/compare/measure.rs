//! Measures the programs on both runtimes, in turns.

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use strangers::load;
use strangers::tls::Error;

use crate::cases::{Backends, Case};

/// How long the clients send requests before the measurement, in seconds.
const WARM_UP: f64 = 0.5;

/// The measurements: the columns of the table.
const COLUMNS: [Column; 4] = [
    Column { name: "requests/s", digits: 0, target: Target::AtLeast(1.0) },
    Column { name: "p99, ms", digits: 2, target: Target::AtMost(1.0) },
    Column { name: "processor time, µs per request", digits: 1, target: Target::AtMost(1.0) },
    Column { name: "memory, MB", digits: 1, target: Target::AtMost(1.1) },
];

struct Column {
    name: &'static str,
    digits: usize,
    target: Target,
}

/// A limit for the value on Volt divided by that on Tokio.
enum Target {
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    /// Compares the ratio as it is printed, with two digits.
    fn is_met(&self, ratio: f64) -> bool {
        let ratio = (ratio * 100.0).round() / 100.0;
        match *self {
            Target::AtLeast(limit) => ratio >= limit,
            Target::AtMost(limit) => ratio <= limit,
        }
    }
}

/// The result of a run: the values of the columns, and the response.
pub type Measured = ([f64; COLUMNS.len()], String);

/// How the programs are measured.
pub struct Settings<'a> {
    pub tokio: &'a Path,
    pub volt: &'a Path,
    pub seconds: f64,
    pub rounds: usize,
}

impl Settings<'_> {
    /// Returns the folder with the programs on one of the runtimes.
    pub fn programs(&self, is_volt: bool) -> &Path {
        if is_volt { self.volt } else { self.tokio }
    }
}

/// Measures each case with this number of connections, and prints a Markdown table.
///
/// # Errors
///
/// Fails if a request fails, or if the responses on the two runtimes differ.
pub async fn measure(cases: &[Case], settings: &Settings<'_>, connections: usize, scratch: &Path) -> Result<(), Error> {
    let backends = Backends::start(settings.tokio, scratch).await?;
    let run = async |case, is_volt| run(case, is_volt, settings, connections, scratch, &backends).await;
    table(cases, settings, &format!("{connections} connections, "), run).await
}

/// Measures each row on both runtimes, in turns, and prints a Markdown table. `run` measures a row
/// once; its second argument is whether the runtime is Volt. `clients` is text for the last lines.
///
/// # Errors
///
/// Fails if `run` fails, or if the responses on the two runtimes differ.
pub async fn table<R: Copy + Display>(
    rows: &[R],
    settings: &Settings<'_>,
    clients: &str,
    run: impl AsyncFn(R, bool) -> Result<Measured, Error>,
) -> Result<(), Error> {
    print!("| program |");
    for Column { name, .. } in COLUMNS {
        print!(" {name} on Tokio | Volt / Tokio |");
    }
    println!("\n|---|{}", "---|".repeat(2 * COLUMNS.len()));
    let (mut met, mut all) = (0, 0);
    for &row in rows {
        let mut rounds = Vec::new();
        for round in 0..settings.rounds {
            // Each runtime is the first one in every second round.
            let is_volt_first = round % 2 == 1;
            let first = run(row, is_volt_first).await?;
            let second = run(row, !is_volt_first).await?;
            if first.1 != second.1 {
                return Err(format!("{row}: responses differ: {:?} and {:?}", first.1, second.1).into());
            }
            rounds.push(if is_volt_first { (second.0, first.0) } else { (first.0, second.0) });
        }
        print!("| {row} |");
        for (at, column) in COLUMNS.iter().enumerate() {
            let on_tokio = median(rounds.iter().map(|(tokio, _)| tokio[at]));
            let ratio = median(rounds.iter().map(|(tokio, volt)| volt[at] / tokio[at]));
            print!(" {} | {ratio:.2} |", formatted(on_tokio, column.digits));
            all += 1;
            met += usize::from(column.target.is_met(ratio));
        }
        println!();
    }
    println!(
        "\n{met} of {all} targets met: requests/s at least 1.00, p99 and processor time at most 1.00, memory at most 1.10."
    );
    println!(
        "{} rounds of {} s, {clients}{} processors shared with the clients.",
        settings.rounds,
        settings.seconds,
        std::thread::available_parallelism()?
    );
    let load = std::fs::read_to_string("/proc/loadavg")?;
    println!("Load of the machine at the end: {}", load.split(' ').take(3).collect::<Vec<_>>().join(" "));
    Ok(())
}

/// Runs one program. Returns the values of the columns, and the response.
async fn run(
    case: Case,
    is_volt: bool,
    settings: &Settings<'_>,
    connections: usize,
    scratch: &Path,
    backends: &Backends,
) -> Result<Measured, Error> {
    let (program, address) = case.start(settings.programs(is_volt), scratch, backends, &[]).await?;
    let clients = case.clients(address, scratch, connections).await?;
    load::run(clients, Duration::from_secs_f64(WARM_UP)).await?;
    let clients = case.clients(address, scratch, connections).await?;
    let before = program.processor_time()?;
    let measured = load::run(clients, Duration::from_secs_f64(settings.seconds)).await?;
    let used = program.processor_time()? - before;
    let per_request = used * 1e6 / measured.requests;
    let values = [measured.requests_per_second, measured.p99_ms, per_request, program.peak_memory()?];
    Ok((values, measured.answer))
}

/// Returns the middle one of an odd number of values, or the lower one of the two in the middle.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) / 2]
}

/// Returns a number with a space between thousands, as in the documents.
fn formatted(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped + rest
}
