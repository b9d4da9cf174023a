//! `volt-console top`: prints the metrics as text or JSON, once or at regular intervals. Needs no
//! terminal.
//!
//! If the program exits, the command waits for it to come back, as `tail -F` waits for a file. This
//! applies if the program was selected by name or as the only one. A program that was selected by
//! its pid or its socket does not come back, so the command ends.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use volt_diagnosis::doctor::{Verdict, Watch};
use volt_diagnosis::rates::{Rates, local_queue_len, searchers_max, worker_count};
use volt_telemetry::client::{Client, ConnectError};
use volt_telemetry::snapshot::{Program, Snapshot};
use volt_telemetry::socket::Environment;

use crate::error::Error;
use crate::facts::{Group, Scene};
use crate::model::busiest;
use crate::programs::again::Again;
use crate::programs::connection::{FIRST_RETRY, LAST_RETRY, missed};
use crate::programs::target::Found;
use crate::tables::workers::{IN_FLIGHT_TITLE, Row, columns, group_titles, in_flight};
use crate::terminal::input::is_output_closed;
use crate::text::clean;
use crate::text::figures::duration;
use crate::view::ascii;

/// The time between the two snapshots from which the rates of a single output are computed.
pub const SAMPLING_INTERVAL: Duration = Duration::from_millis(250);
/// The width of the poll in flight in columns. Text output has no screen edge to end at.
const IN_FLIGHT_WIDTH: usize = 100;

/// The options of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether to stop after one output.
    pub is_once: bool,
    /// Whether to print JSON, one object per line.
    pub as_json: bool,
    /// Whether the text has only ASCII characters.
    pub is_ascii: bool,
    /// Time between two snapshots.
    pub interval: Duration,
}

/// Prints until the output is closed or the program has exited for good; only once if `is_once`.
///
/// # Errors
///
/// Fails with [`Error::is_connect`] if the program exits and cannot come back, or, if `is_once`, as
/// soon as it exits; and [`Error::is_output_closed`].
pub fn run(found: Found, environment: &Environment, options: Options, out: &mut impl Write) -> Result<(), Error> {
    let Found { mut client, again } = found;
    let mut earlier = clean::program(client.snapshot()?);
    // Computes the findings of programs that do not compute them.
    let mut watch = Watch::within(nanos(options.interval));
    watch.filled(&earlier);
    let mut received_at = Instant::now();
    let mut lost = 0;
    loop {
        std::thread::sleep(options.interval);
        let later = match client.snapshot() {
            Ok(later) => clean::program(later),
            Err(error) if options.is_once => return Err(error.into()),
            Err(error) => {
                let (anew, back) = wait_for(&again, environment, error)?;
                client = anew;
                let missed = missed(received_at.elapsed(), options.interval);
                lost += missed;
                print_error(&format!("{} is back, pid {}: {missed} updates lost", back.name, back.pid));
                received_at = Instant::now();
                // Two snapshots of the same program can be compared across the gap.
                if back.pid != earlier.pid {
                    earlier = back;
                }
                continue;
            }
        };
        received_at = Instant::now();
        let text = match options {
            Options { as_json: true, .. } => format!("{}\n", json_with(&earlier, &later, lost)),
            Options { is_ascii: true, .. } => ascii::text(&text(&earlier, &watch.filled(&later))),
            _ => text(&earlier, &watch.filled(&later)),
        };
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::output)?;
        if options.is_once {
            return Ok(());
        }
        earlier = later;
    }
}

/// Returns a connection to the program once it is running and responds again, and its first
/// snapshot. Retries at growing intervals.
fn wait_for(again: &Again, environment: &Environment, mut reason: ConnectError) -> Result<(Client, Program), Error> {
    let mut locate = again.clone().locate(environment.clone());
    let mut retry_in = FIRST_RETRY;
    let mut is_reported = false;
    loop {
        if again.exited().is_some() {
            return Err(reason.into());
        }
        if is_output_closed() {
            return Err(Error::output(io::ErrorKind::BrokenPipe.into()));
        }
        if !std::mem::replace(&mut is_reported, true) {
            print_error(&format!("{reason}; waiting for the program to come back (Ctrl-C quits)"));
        }
        std::thread::sleep(retry_in);
        retry_in = (retry_in * 2).min(LAST_RETRY);
        let answer = |mut client: Client| client.snapshot().map(|program| (client, clean::program(program)));
        match locate().and_then(|path| Client::connect(&path)).and_then(answer) {
            Ok(back) => return Ok(back),
            Err(error) => reason = error,
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn print_error(text: &str) {
    // If stderr is closed, no user can read this.
    let _ = writeln!(io::stderr(), "volt-console: {}", clean::text(text));
}

/// Returns [`json`] with the number of updates lost since the command started.
fn json_with(earlier: &Program, later: &Program, lost: u64) -> Value {
    let mut whole = json(earlier, later);
    whole["lost"] = json!(lost);
    whole
}

/// Returns text: the verdict, the state in `later`, and the rates since `earlier`.
pub fn text(earlier: &Program, later: &Program) -> String {
    let mut text = format!("{}\n", Verdict::of(&later.runtimes));
    for (snapshot, rates) in later.runtimes.iter().zip(Rates::of_program(earlier, later)) {
        let scene = Scene { snapshot, rates: rates.as_ref() };
        let up = duration(snapshot.at_ns.saturating_sub(snapshot.started_at_ns));
        text.push_str(&format!("{}  pid {}  runtime {}  up {up}", later.name, later.pid, snapshot.runtime));
        if let Some(rates) = &rates {
            text.push_str(&format!("  over {}", duration(rates.interval_ns)));
        }
        text.push('\n');
        let groups = [scene.workers(), scene.poll_time(), scene.schedule_delay(), scene.queues(), scene.tasks()];
        let others =
            [scene.driver(), scene.timers(), scene.blocking(), scene.sentinel(), scene.incidents(), scene.settings()];
        groups.iter().chain(&others).for_each(|group| text.push_str(&fact_line(group)));
        if !snapshot.incomplete.is_empty() {
            text.push_str(&format!("incomplete {}\n", snapshot.incomplete.join(", ")));
        }
        text.push_str(&table(&scene));
        text.push('\n');
    }
    if later.runtimes.is_empty() {
        text = format!("{}  pid {}  no runtime is running\n", later.name, later.pid);
    }
    text
}

/// Returns JSON: the state in `later`, and the rates since `earlier`.
///
/// `runtimes` has every runtime: each number of its [`Snapshot`] under its own name, as in
/// `/snapshot`, and also `parked_bitmap_string` (a 0 or 1 for each worker), `rates` for the runtime
/// and for each worker, and numbers that are computed from the snapshot, such as `parked_count`.
/// The fields of the busiest runtime are at the top level too.
pub fn json(earlier: &Program, later: &Program) -> Value {
    let rates = Rates::of_program(earlier, later);
    let runtimes: Vec<Value> =
        later.runtimes.iter().zip(&rates).map(|(snapshot, rates)| runtime_json(snapshot, rates.as_ref())).collect();
    let mut whole = match busiest(&later.runtimes).map(|index| runtimes[index].clone()) {
        Some(Value::Object(busiest)) => busiest,
        _ => Map::new(),
    };
    whole.insert("pid".into(), json!(later.pid));
    whole.insert("program".into(), json!(later.name));
    whole.insert("at_ns".into(), json!(later.at_ns));
    whole.insert("interval_ns".into(), json!(later.at_ns.saturating_sub(earlier.at_ns)));
    whole.insert("runtimes".into(), Value::Array(runtimes));
    Value::Object(whole)
}

fn runtime_json(snapshot: &Snapshot, rates: Option<&Rates>) -> Value {
    let mut runtime = json!(snapshot);
    let bit = |index| if snapshot.is_parked(index) { '1' } else { '0' };
    let string: String = (0..snapshot.workers.len()).map(bit).collect();
    runtime["parked_bitmap_string"] = json!(string);
    runtime["parked_count"] = json!(snapshot.parked_count());
    runtime["searchers_max"] = json!(searchers_max(worker_count(snapshot)));
    runtime["active_count"] = json!(snapshot.active_count());
    runtime["incidents_total"] = json!(snapshot.incidents.total());
    runtime["local_queue_len"] = json!(local_queue_len(snapshot));
    for index in 0..snapshot.workers.len() {
        let worker = &mut runtime["workers"][index];
        worker["is_parked"] = json!(snapshot.is_parked(index));
        worker["rates"] = json!(rates.and_then(|rates| rates.workers.get(index)));
    }
    let mut of_runtime = json!(rates);
    if let Value::Object(of_runtime) = &mut of_runtime {
        // Each worker has its rates next to its numbers.
        of_runtime.remove("workers");
    }
    runtime["rates"] = of_runtime;
    runtime
}

fn fact_line(group: &Group) -> String {
    let mut line = format!("{:<10}", group.title);
    for fact in &group.facts {
        let gap = if fact.label.is_empty() { "" } else { " " };
        line.push_str(&format!("  {}{gap}{}", fact.label, fact.marked()));
    }
    line + "\n"
}

fn table(scene: &Scene<'_>) -> String {
    let config = &scene.snapshot.config;
    let columns = columns(&scene.snapshot.workers);
    let mut text = group_titles(&columns.iter().collect::<Vec<_>>()) + "counters per second\n";
    for column in &columns {
        text.push_str(&column.set(&column.title(config, false)));
        text.push(' ');
    }
    text.push_str(&format!("{IN_FLIGHT_TITLE}\n"));
    for index in scene.shown_workers() {
        let Some(row) = Row::of(scene, index, false) else { continue };
        for column in &columns {
            text.push_str(&column.set(&column.cell(&row).text));
            text.push(' ');
        }
        text.push_str(in_flight(row.worker.in_flight.as_ref(), IN_FLIGHT_WIDTH).text.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::tables::workers::COLUMNS;

    fn sample() -> (Program, Program) {
        (fixture::program(4, 2), fixture::program(4, 3))
    }

    #[test]
    fn json_has_every_field_of_the_snapshot_under_its_own_name() {
        let (earlier, later) = sample();
        let json = json(&earlier, &later);
        let plain = json!(later.runtimes[0]);
        for (field, value) in plain.as_object().unwrap() {
            if field == "workers" || field == "at_ns" {
                continue;
            }
            assert_eq!(&json[field], value, "{field}");
        }
        for (index, worker) in plain["workers"].as_array().unwrap().iter().enumerate() {
            for (field, value) in worker.as_object().unwrap() {
                assert_eq!(&json["workers"][index][field], value, "workers[{index}].{field}");
            }
        }
    }

    #[test]
    fn json_shows_the_bitmap_as_bits_and_as_a_string() {
        let (earlier, later) = sample();
        let json = json(&earlier, &later);
        assert_eq!(json["parked_bitmap"], json!([0b1100]), "words of 64 bits, as at /snapshot");
        assert_eq!(json["parked_bitmap_string"], "0011");
        assert_eq!((&json["parked_count"], &json["workers"][2]["is_parked"]), (&json!(2), &json!(true)));
    }

    #[test]
    fn json_has_the_busiest_runtime_on_top_and_lists_all() {
        let (mut earlier, mut later) = sample();
        earlier.runtimes.reverse();
        later.runtimes.reverse();
        let json = json(&earlier, &later);
        assert_eq!((&json["pid"], &json["program"], &json["runtime"]), (&json!(48_213), &json!("demo"), &json!("app")));
        assert_eq!(json["runtimes"].as_array().unwrap().len(), 2);
        assert_eq!(json["workers"], json["runtimes"][1]["workers"]);
        assert_eq!(json["interval_ns"], json!(fixture::STEP.as_nanos() as u64));
    }

    #[test]
    fn json_has_rates_for_the_runtime_and_for_each_worker() {
        let (earlier, later) = sample();
        let json = json(&earlier, &later);
        assert_eq!(json["workers"][1]["rates"]["polls_per_second"], json!(164_000.0));
        assert!(json["rates"]["poll_time"]["p99_ns"].is_u64());
        assert!(json["rates"]["busy_ratio"].is_f64());
        assert!(json["rates"].get("workers").is_none(), "they stand in the workers");
    }

    #[test]
    fn json_of_a_program_without_a_runtime_is_an_object_still() {
        let program = Program { pid: 7, ..Program::default() };
        assert_eq!(json(&program, &program)["runtimes"], json!([]));
    }

    #[test]
    fn text_begins_with_the_verdict() {
        let (earlier, mut later) = sample();
        later.runtimes.iter_mut().for_each(|runtime| runtime.findings = Some(Vec::new()));
        assert!(text(&earlier, &later).starts_with("1 worker stuck for 230 ms, spawned at "));
        later.runtimes[0].workers[1].in_flight = None;
        assert!(text(&earlier, &later).starts_with("OK: no findings for 12 min\ndemo  pid 48213"));
        let stalled = fixture::stalled(later, 1);
        let judged = Watch::default().filled(&stalled).into_owned();
        let verdict = Verdict::of(&judged.runtimes).to_string();
        assert!(text(&earlier, &judged).starts_with(&format!("{verdict}\n")), "{verdict}");
    }

    #[test]
    fn text_has_a_line_for_each_worker_and_every_column() {
        let (earlier, later) = sample();
        let text = text(&earlier, &later);
        let heads: Vec<_> = text.lines().collect();
        let row = heads.iter().position(|line| line.contains("in flight")).unwrap();
        assert!(heads[row - 1].contains("queue ─") && heads[row - 1].ends_with(" counters per second"), "{text}");
        let head = heads[row];
        for column in COLUMNS {
            let title = column.title(&later.runtimes[0].config, false);
            assert!(head.contains(&title), "{title}");
        }
        assert_eq!(text.lines().filter(|line| line.contains("●") || line.contains("○")).count(), 5, "{text}");
        assert!(text.contains("230ms!! GET /blocking #48212 examples/src/bin/demo/handlers.rs:118:21"), "{text}");
        assert!(text.contains("runtime exporter"));
    }
}
