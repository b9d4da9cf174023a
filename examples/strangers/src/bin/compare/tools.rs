//! Measures programs under the load of the usual tools: `wrk` for HTTP, and `redis-benchmark` for
//! the protocol of Redis.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use strangers::tls::Error;
use tokio::process::Command;

use crate::cases::{Backends, Case};
use crate::measure::{Measured, Settings, table};

/// How long the tools send requests before the measurement, in seconds.
const WARM_UP: f64 = 0.5;
/// The requests of the first run of `redis-benchmark`, which shows how many a longer run needs.
const FIRST_REQUESTS: u64 = 20_000;
/// The connections of `redis-benchmark`; that is its default.
const REDIS_CONNECTIONS: &str = "50";
/// The threads of `wrk`.
const WRK_THREADS: &str = "2";

/// A row of the table: a program, and the load of a tool.
#[derive(Clone, Copy, Debug)]
enum Row {
    /// `wrk`; the program is an axum application.
    Http { case: Case, name: &'static str, route: &'static str, connections: u32 },
    /// `redis-benchmark`, whose option `-P` is `pipeline`; the program is mini-redis.
    Redis { command: &'static str, pipeline: u32 },
}

const ROWS: [Row; 8] = [
    Row::Redis { command: "set", pipeline: 1 },
    Row::Redis { command: "set", pipeline: 16 },
    Row::Redis { command: "get", pipeline: 1 },
    Row::Redis { command: "get", pipeline: 16 },
    Row::Http { case: Case::Axum, name: "hello", route: "/", connections: 64 },
    Row::Http { case: Case::Axum, name: "hello", route: "/", connections: 512 },
    Row::Http { case: Case::TowerHttp, name: "json", route: "/api/item", connections: 64 },
    Row::Http { case: Case::TowerHttp, name: "json", route: "/api/item", connections: 512 },
];

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Row::Http { name, connections, .. } => write!(f, "{name}-{connections}"),
            Row::Redis { command, pipeline } => write!(f, "{command}-p{pipeline}"),
        }
    }
}

/// The report of a tool.
struct Report {
    requests_per_second: f64,
    p99_ms: f64,
    requests: f64,
}

/// Measures the rows whose programs are among `cases`, and prints a Markdown table.
///
/// # Errors
///
/// Fails if a tool is missing or reports errors, or if the responses on the two runtimes differ.
pub async fn measure(cases: &[Case], settings: &Settings<'_>, scratch: &Path) -> Result<(), Error> {
    let rows: Vec<_> = ROWS.into_iter().filter(|row| cases.contains(&row.case())).collect();
    if rows.is_empty() {
        return Err("no tool measures these programs".into());
    }
    let backends = Backends::start(settings.tokio, scratch).await?;
    table(&rows, settings, "", async |row, is_volt| row.run(is_volt, settings, scratch, &backends).await).await
}

impl Row {
    fn case(self) -> Case {
        match self {
            Row::Http { case, .. } => case,
            Row::Redis { .. } => Case::MiniRedis,
        }
    }

    /// Runs the program once, under load.
    async fn run(
        self,
        is_volt: bool,
        settings: &Settings<'_>,
        scratch: &Path,
        backends: &Backends,
    ) -> Result<Measured, Error> {
        let (program, address) = self.case().start(settings.programs(is_volt), scratch, backends, &[]).await?;
        let requests = self.warm_up(address, settings.seconds).await?;
        let before = program.processor_time()?;
        let report = match self {
            Row::Http { route, connections, .. } => wrk(address, route, connections, settings.seconds).await?,
            Row::Redis { command, pipeline } => redis_benchmark(address, command, pipeline, requests).await?,
        };
        let per_request = (program.processor_time()? - before) * 1e6 / report.requests;
        let answer = match self {
            Row::Http { route, .. } => reqwest::get(format!("http://{address}{route}")).await?.text().await?,
            // The tool checks the responses.
            Row::Redis { .. } => String::new(),
        };
        Ok(([report.requests_per_second, report.p99_ms, per_request, program.peak_memory()?], answer))
    }

    /// Runs the tool for a short time. Returns the number of requests of a run of `seconds`.
    async fn warm_up(self, address: SocketAddr, seconds: f64) -> Result<u64, Error> {
        match self {
            Row::Http { route, connections, .. } => {
                let report = wrk(address, route, connections, WARM_UP).await?;
                Ok((report.requests_per_second * seconds) as u64)
            }
            Row::Redis { pipeline, .. } => {
                // It sets the key that is read later.
                let report = redis_benchmark(address, "set", pipeline, FIRST_REQUESTS).await?;
                Ok((report.requests_per_second * seconds) as u64)
            }
        }
    }
}

async fn wrk(address: SocketAddr, route: &str, connections: u32, seconds: f64) -> Result<Report, Error> {
    // It accepts whole seconds only.
    let duration = format!("{}s", seconds.ceil());
    let (connections, url) = (connections.to_string(), format!("http://{address}{route}"));
    let arguments =
        ["--threads", WRK_THREADS, "--connections", &connections, "--duration", &duration, "--latency", &url];
    let text = output("wrk", &arguments).await?;
    wrk_report(&text).ok_or_else(|| format!("wrk {}: {text}", arguments.join(" ")).into())
}

/// Returns the result of `wrk`; `None` if a request failed.
fn wrk_report(text: &str) -> Option<Report> {
    if text.contains("Socket errors") || text.contains("Non-2xx") {
        return None;
    }
    let line = |name: &str| text.lines().find_map(|line| line.trim().strip_prefix(name)).map(str::trim);
    let requests = text.lines().find_map(|line| line.split_once(" requests in "))?.0.trim().parse().ok()?;
    Some(Report { requests_per_second: line("Requests/sec:")?.parse().ok()?, p99_ms: ms(line("99%")?)?, requests })
}

/// Parses a duration of `wrk`, such as 1.25ms.
fn ms(text: &str) -> Option<f64> {
    let unit = text.find(|char: char| char.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit);
    let times = match unit {
        "us" => 1e-3,
        "ms" => 1.0,
        "s" => 1e3,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * times)
}

async fn redis_benchmark(address: SocketAddr, command: &str, pipeline: u32, requests: u64) -> Result<Report, Error> {
    let (port, pipeline, count) = (address.port().to_string(), pipeline.to_string(), requests.to_string());
    let arguments = ["-p", &port, "-c", REDIS_CONNECTIONS, "-P", &pipeline, "-n", &count, "-t", command, "--csv"];
    let text = output("redis-benchmark", &arguments).await?;
    let report = redis_report(&text, requests as f64);
    report.ok_or_else(|| format!("redis-benchmark {}: {text}", arguments.join(" ")).into())
}

/// Returns the result of `redis-benchmark`: a line with names, and one with values.
fn redis_report(text: &str, requests: f64) -> Option<Report> {
    let fields = |line: &str| line.split(',').map(|field| field.trim_matches('"').to_owned()).collect::<Vec<_>>();
    let mut lines = text.lines().skip_while(|line| !line.starts_with("\"test\"")).map(fields);
    let (names, values) = (lines.next()?, lines.next()?);
    let value = |name: &str| values.get(names.iter().position(|found| found == name)?)?.parse::<f64>().ok();
    Some(Report { requests_per_second: value("rps")?, p99_ms: value("p99_latency_ms")?, requests })
}

/// Runs a tool, and returns what it prints.
async fn output(tool: &str, arguments: &[&str]) -> Result<String, Error> {
    let done = Command::new(tool).args(arguments).kill_on_drop(true).output().await;
    let done = done.map_err(|error| format!("{tool} (Debian's package `redis-tools` or `wrk`): {error}"))?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    if !done.status.success() {
        let errors = String::from_utf8_lossy(&done.stderr);
        return Err(format!("{tool} {}: {}: {text}{errors}", arguments.join(" "), done.status).into());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_wrk_is_read() {
        let text = "Running 1s test @ http://127.0.0.1:1/\n  2 threads and 64 connections\n  Latency Distribution\n     \
                    50%  310.00us\n     99%    1.25ms\n  123456 requests in 1.10s, 15.07MB read\nRequests/sec: 112233.44\n";
        let report = wrk_report(text).unwrap();
        assert_eq!((report.requests_per_second, report.p99_ms, report.requests), (112_233.44, 1.25, 123_456.0));
        assert!(wrk_report(&format!("{text}  Socket errors: connect 0, read 1, write 0, timeout 0\n")).is_none());
        assert!(wrk_report(&format!("{text}  Non-2xx or 3xx responses: 5\n")).is_none());
        assert_eq!((ms("250.00us"), ms("2.00s"), ms("5")), (Some(0.25), Some(2000.0), None));
    }

    #[test]
    fn the_report_of_redis_benchmark_is_read() {
        let text = "\"test\",\"rps\",\"avg_latency_ms\",\"p99_latency_ms\"\n\"GET\",\"125000.00\",\"0.2\",\"0.527\"\n";
        let report = redis_report(text, 1000.0).unwrap();
        assert_eq!((report.requests_per_second, report.p99_ms, report.requests), (125_000.0, 0.527, 1000.0));
        assert!(redis_report("Could not connect", 1.0).is_none());
    }
}
