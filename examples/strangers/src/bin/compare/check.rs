//! Checks the output of the console, the doctor and the page of metrics about the programs on Volt,
//! while clients send requests.

use std::fs::DirBuilder;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use strangers::load;
use strangers::tls::Error;
use tokio::process::Command;

use crate::cases::{Backends, Case};

/// How long a program may take to show what is expected.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The number of clients, which send requests while the console runs.
const CONNECTIONS: usize = 4;
/// How long these clients send requests, in one turn.
const TURN: Duration = Duration::from_millis(500);
/// The number of paths that are requested of each route with a parameter.
const PATHS: usize = 50;

/// Runs each case of `programs` on Volt, and checks it with `console`.
///
/// # Errors
///
/// Fails if a request fails, or if the tasks of a library or the routes are not shown in time.
pub async fn check(cases: &[Case], programs: &Path, console: &Path, scratch: &Path) -> Result<(), Error> {
    let sockets = scratch.join("sockets");
    // Volt requires that only its owner can enter the folder.
    DirBuilder::new().mode(0o700).create(&sockets)?;
    let backends = Backends::start(programs, scratch).await?;
    for &case in cases {
        let folder = sockets.display().to_string();
        let environment = [("VOLT_SOCKET_DIR", folder.as_str()), ("VOLT_METRICS", "127.0.0.1:0")];
        let (program, address) = case.start(programs, scratch, &backends, &environment).await?;
        let load = tokio::spawn({
            let scratch = scratch.to_owned();
            async move {
                loop {
                    let clients = case.clients(address, &scratch, CONNECTIONS).await?;
                    load::run(clients, TURN).await?;
                }
            }
        });
        let page = program.listener(Some(address)).await;
        let page = page.map_err(|error| format!("{case}: no page of metrics: {error}"))?;
        let observed = Observed { console, sockets: &sockets, pid: program.pid(), page };
        let checks = async {
            observed.list().await?;
            let tasks = observed.shows(case.spawn_locations(), "tasks", async || observed.tasks().await).await?;
            observed.shows(case.calls(), "dumps", async || observed.calls().await).await?;
            observed.doctor().await?;
            let metrics = observed.shows(case.spawn_locations(), "metrics", async || observed.metrics().await).await?;
            observed.shows(case.routes(), "routes", async || observed.routes().await).await?;
            if case == Case::Axum {
                observed.counts_by_route(address).await?;
            }
            Ok::<_, Error>((tasks, metrics))
        };
        let (tasks, metrics) = tokio::select! {
            done = checks => done.map_err(|error| format!("{case}: {error}"))?,
            failed = load => {
                let failed: Result<(), Error> = failed?;
                return Err(format!("{case}: the clients failed: {failed:?}").into());
            }
        };
        println!("{case}: {} spawn locations in the metrics; in the console:", metrics.len());
        for location in tasks {
            println!("    {location}");
        }
    }
    Ok(())
}

/// A program, observed from outside.
struct Observed<'a> {
    console: &'a Path,
    sockets: &'a Path,
    pid: u32,
    page: SocketAddr,
}

impl Observed<'_> {
    /// Calls `read` until the names that it has returned so far contain each of these parts.
    async fn shows(
        &self,
        parts: &[&str],
        place: &str,
        read: impl AsyncFn() -> Result<Vec<String>, Error>,
    ) -> Result<Vec<String>, Error> {
        let began = Instant::now();
        let mut names = Vec::new();
        loop {
            names.extend(read().await?);
            names.sort();
            names.dedup();
            let missing = parts.iter().find(|part| !names.iter().any(|name: &String| name.contains(**part)));
            let Some(missing) = missing else { return Ok(names) };
            if began.elapsed() > TIMEOUT {
                return Err(format!("nothing in {place} contains {missing}: {names:#?}").into());
            }
        }
    }

    /// Checks that the list of programs has this one.
    async fn list(&self) -> Result<(), Error> {
        let list = self.console(&["list", "--json"]).await?;
        let is_it = |program: &Value| program["pid"] == self.pid && program["is_alive"] == true;
        let has_it = list.as_array().is_some_and(|programs| programs.iter().any(is_it));
        if has_it { Ok(()) } else { Err(format!("the program is not listed: {list}").into()) }
    }

    /// Returns the spawn locations of the tasks.
    async fn tasks(&self) -> Result<Vec<String>, Error> {
        let tasks = self.console(&["tasks", "--json", "--limit", "1000", &self.pid.to_string()]).await?;
        let runtimes = tasks["runtimes"].as_array().ok_or("no runtimes")?;
        let rows = runtimes.iter().filter_map(|runtime| runtime["rows"].as_array()).flatten();
        Ok(rows.filter_map(|row| row["spawned_at"].as_str().map(str::to_owned)).collect())
    }

    /// Returns the calls in a dump, as `FUNCTION FILE:LINE`, of tasks and of `main`. While there is
    /// load, one dump does not have every await.
    async fn calls(&self) -> Result<Vec<String>, Error> {
        let dump = self.console(&["dump", "--json", &self.pid.to_string()]).await?;
        let runtimes = dump["runtimes"].as_array().ok_or("no runtimes")?;
        let waiting = runtimes.iter().flat_map(|runtime| [&runtime["groups"], &runtime["block_on"]]);
        let waiting = waiting.filter_map(Value::as_array).flatten();
        let links = waiting.filter_map(|waiting| waiting["chain"].as_array()).flatten();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(links.map(|link| format!("{} {}:{}", text(&link["function"]), text(&link["file"]), link["line"])).collect())
    }

    /// Checks that the doctor checks the program.
    async fn doctor(&self) -> Result<(), Error> {
        let report = self.console(&["doctor", "--json", "--for", "250ms", &self.pid.to_string()]).await?;
        let is_checked = report["findings"].is_array() && report["rules"].as_array().is_some_and(|it| !it.is_empty());
        if is_checked { Ok(()) } else { Err(format!("the doctor's report is incomplete: {report}").into()) }
    }

    /// Sends requests with many paths, and checks that the metrics have one route for all paths
    /// that the router does not distinguish.
    async fn counts_by_route(&self, address: SocketAddr) -> Result<(), Error> {
        for number in 0..PATHS {
            for folder in ["numbers", "squares", "nowhere"] {
                let answer = reqwest::get(format!("http://{address}/{folder}/{number}?query={number}")).await?;
                if (answer.status() == 200) != (folder != "nowhere") {
                    return Err(format!("/{folder}/{number}: {}", answer.status()).into());
                }
            }
        }
        let expected = ["GET /", "GET /numbers/{number}", "GET /squares/{number}", "GET unmatched"];
        let routes = self.shows(&expected, "routes", async || self.routes().await).await?;
        if routes == expected { Ok(()) } else { Err(format!("other routes than {expected:?}: {routes:?}").into()) }
    }

    /// Returns the routes in the metrics.
    async fn routes(&self) -> Result<Vec<String>, Error> {
        let text = self.page().await?;
        let label = |line: &str, name: &str| {
            let (_, rest) = line.split_once(&format!("{name}=\""))?;
            rest.split('"').next().map(str::to_owned)
        };
        let series = text.lines().filter(|line| line.starts_with("volt_route_requests_total{"));
        let routes = series.filter_map(|line| Some(format!("{} {}", label(line, "method")?, label(line, "route")?)));
        Ok(routes.collect())
    }

    /// Returns the locations in the metrics.
    async fn metrics(&self) -> Result<Vec<String>, Error> {
        let text = self.page().await?;
        let series = text.lines().filter_map(|line| line.split_once("location=\"")?.1.split('"').next());
        Ok(series.map(str::to_owned).collect())
    }

    /// Returns the page of metrics.
    async fn page(&self) -> Result<String, Error> {
        Ok(reqwest::get(format!("http://{}/metrics", self.page)).await?.error_for_status()?.text().await?)
    }

    /// Runs a command of the console, and returns its output.
    async fn console(&self, arguments: &[&str]) -> Result<Value, Error> {
        let mut command = Command::new(self.console);
        let done = command.args(arguments).env("VOLT_SOCKET_DIR", self.sockets).kill_on_drop(true).output().await?;
        // The exit code reports findings, too, so it is not checked.
        serde_json::from_slice(&done.stdout)
            .map_err(|error| format!("{error}: {arguments:?}: {}", String::from_utf8_lossy(&done.stderr)).into())
    }
}
