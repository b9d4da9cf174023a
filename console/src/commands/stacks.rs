//! `volt-console stacks`: prints the stacks of stuck polls, as text or as JSON.
//!
//! The program captures these stacks itself when it detects that a poll is stuck. This command does
//! not interrupt any of its threads. Of many similar polls, the program captures only some. For a
//! poll in flight without a stack, the command prints the latest similar incident.

use std::io::Write;

use serde_json::{Value, json};
use volt_telemetry::client::Client;
use volt_telemetry::incident::Incident;
use volt_telemetry::snapshot::{Duty, Program, Snapshot};

use crate::error::Error;
use crate::facts::causes;
use crate::facts::incidents::{Unrecorded, calls, cause, named, newest_first, remedy, task, unrecorded, when};
use crate::text::clean;
use crate::text::figures::{count, duration, left, width};

/// The maximum width of the function column; a longer name moves its location to the right.
const FUNCTION_WIDTH: usize = 72;

/// The options of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether to print past incidents too, as many as the program keeps.
    pub is_all: bool,
    /// Whether to print one JSON object.
    pub as_json: bool,
}

/// Prints the stacks once.
///
/// # Errors
///
/// Fails with [`Error::is_connect`] if the program exits, and [`Error::is_output_closed`].
pub fn run(client: &mut Client, options: Options, out: &mut impl Write) -> Result<(), Error> {
    let program = clean::program(client.snapshot()?);
    let text =
        if options.as_json { format!("{}\n", json(&program, options.is_all)) } else { text(&program, options.is_all) };
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::output)
}

/// Returns the selected incidents, the latest first.
fn chosen(runtime: &Snapshot, is_all: bool) -> impl Iterator<Item = &Incident> {
    newest_first(&runtime.incidents).filter(move |incident| is_all || !incident.is_over)
}

/// Returns text: the current incidents, or all that the program keeps.
pub fn text(program: &Program, is_all: bool) -> String {
    let mut text = String::new();
    for runtime in &program.runtimes {
        text.push_str(&format!("{}  pid {}  runtime {}\n", program.name, program.pid, runtime.runtime));
        let unrecorded = unrecorded(runtime);
        unrecorded.iter().for_each(|one| text.push_str(&unrecorded_text(one)));
        let incidents: Vec<_> = chosen(runtime, is_all).collect();
        let like: Vec<_> = unrecorded.iter().filter_map(|one| one.like).collect();
        // Prints each incident once, even if several polls refer to it.
        let stands_in =
            |incident: &&Incident| like.iter().any(|like| like.id == incident.id) && !is_all && incident.is_over;
        let shown = incidents.into_iter().chain(newest_first(&runtime.incidents).filter(stands_in));
        let shown: Vec<_> = shown.map(|incident| incident_text(incident, runtime.at_ns)).collect();
        if shown.is_empty() && unrecorded.is_empty() {
            text.push_str(&format!("{}\n", nothing(runtime, is_all)));
        }
        text.push_str(&shown.concat());
        text.push('\n');
    }
    if program.runtimes.is_empty() {
        text = format!("{}  pid {}  no runtime is running\n", program.name, program.pid);
    }
    text
}

/// Returns JSON. `incidents` has every selected incident, the latest first, with each number under
/// its own name, its `runtime`, and `guilty`, the innermost call of the application's code.
/// `unrecorded` has the polls in flight without a current incident, with the `duty` of the worker,
/// and the number of the latest incident `like` each.
pub fn json(program: &Program, is_all: bool) -> Value {
    let of_runtime = |runtime: &Snapshot| -> Vec<Value> {
        let with_more = |incident: &Incident| {
            let mut value = json!(incident);
            value["runtime"] = json!(runtime.runtime);
            value["guilty"] = json!(incident.guilty());
            value
        };
        chosen(runtime, is_all).map(with_more).collect()
    };
    let incidents: Vec<Value> = program.runtimes.iter().flat_map(of_runtime).collect();
    let of_runtime = |runtime: &Snapshot| -> Vec<Value> {
        let value = |one: &Unrecorded<'_>| {
            let mut value = json!(one.poll);
            value["runtime"] = json!(runtime.runtime);
            value["worker"] = json!(one.worker.index);
            value["duty"] = json!(one.worker.duty.name());
            value["like"] = json!(one.like.map(|like| like.id));
            value
        };
        unrecorded(runtime).iter().map(value).collect()
    };
    let unrecorded: Vec<Value> = program.runtimes.iter().flat_map(of_runtime).collect();
    json!({
        "pid": program.pid,
        "program": program.name,
        "at_ns": program.at_ns,
        "incidents": incidents,
        "unrecorded": unrecorded,
    })
}

fn nothing(runtime: &Snapshot, is_all: bool) -> String {
    let incidents = &runtime.incidents;
    let causes = causes(incidents);
    let polls = match incidents.total() {
        1 => "1 stuck poll".into(),
        total => format!("{} stuck polls", count(total)),
    };
    match incidents.latest.len() as u64 {
        _ if incidents.total() == 0 => "no stuck poll since the runtime started".into(),
        0 => format!("{polls} since the runtime started ({causes}); the program no longer keeps their incidents"),
        1 if !is_all => {
            format!("no poll is stuck now; {polls} since the runtime started ({causes}); --all prints the latest")
        }
        kept if !is_all => {
            format!(
                "no poll is stuck now; {polls} since the runtime started ({causes}); --all prints the latest {kept}"
            )
        }
        _ => String::new(),
    }
}

fn unrecorded_text(one: &Unrecorded<'_>) -> String {
    let Unrecorded { worker, poll, like } = one;
    let (stuck, none) = match worker.duty {
        Duty::Blocking => ("in block_in_place", "no stack, since another worker runs its tasks"),
        _ => ("stuck", "no stack yet"),
    };
    let like = like.map_or_else(|| none.into(), |like| format!("stack: see incident {}, a similar poll", like.id));
    format!(
        "worker {} has been {stuck} for {} so far in {}, spawned at {}: {like}\n",
        worker.index,
        duration(poll.for_ns),
        named(poll.name(), poll.task_id),
        poll.spawned_at
    )
}

fn incident_text(incident: &Incident, at_ns: u64) -> String {
    let how_long = duration(incident.for_ns);
    let (worker, id) = (incident.worker, incident.id);
    let mut text = match incident.is_over {
        true => {
            format!("incident {id}: worker {worker} was stuck for {how_long}, began {} ago\n", when(incident, at_ns))
        }
        false => format!("incident {id}: worker {worker} has been stuck for {how_long} so far\n"),
    };
    let facts = [
        ("task", format!("{}, spawned at {}", task(incident), incident.spawned_at)),
        ("cause", cause(incident)),
        ("action", remedy(incident)),
    ];
    facts.iter().for_each(|(title, fact)| text.push_str(&format!("  {title:<8}{fact}\n")));
    let calls = calls(incident);
    let widest = calls.iter().map(|call| width(&call.function)).max().unwrap_or(0).min(FUNCTION_WIDTH);
    for (number, call) in calls.iter().enumerate() {
        // Not truncated, so that the whole name can be read and searched.
        let function = left(&call.function, widest.max(width(&call.function)));
        text.push_str(format!("{number:>4} {} {function}  {}", call.whose.mark(), call.place).trim_end());
        text.push('\n');
    }
    match (&incident.stack_error, calls.is_empty()) {
        (Some(error), true) => text.push_str(&format!("  stack   none: {error}\n")),
        (Some(error), false) => text.push_str(&format!("  stack   incomplete: {error}\n")),
        (None, true) => text.push_str("  stack   none: not read yet, or stack capture is off\n"),
        (None, false) => {}
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn text_lists_stuck_polls_and_with_all_the_past_ones_too() {
        let program = fixture::stalled(fixture::program(4, 3), 7);
        let now = text(&program, false);
        assert_eq!(now.matches("incident ").count(), 1, "{now}");
        assert!(now.contains("incident 7: worker 1 has been stuck for 230ms so far\n"), "{now}");
        assert!(now.contains("   2 → demo::handlers::price "), "{now}");
        assert!(
            now.contains("  task    GET /blocking #48212, spawned at examples/src/bin/demo/handlers.rs:118:21\n"),
            "{now}"
        );
        let all = text(&program, true);
        assert_eq!(all.matches("incident ").count(), 7, "{all}");
        assert!(all.find("incident 7").unwrap() < all.find("incident 6").unwrap(), "the latest first");
        assert!(all.contains("stack   none: the poll ended before its stack could be captured"), "{all}");
    }

    #[test]
    fn the_text_without_stuck_polls_names_the_option_all() {
        let mut program = fixture::stalled(fixture::program(4, 3), 7);
        program.runtimes[0].incidents.latest.pop();
        program.runtimes[0].workers[1].in_flight = None;
        let wanted = "no poll is stuck now; 17 stuck polls since the runtime started (sleep 14, cpu 2, io 1); --all prints the latest 6";
        assert!(text(&program, false).contains(wanted), "{}", text(&program, false));
        assert!(text(&program, false).contains("no stuck poll since the runtime started"), "the other runtime");
        program.runtimes[0].incidents.latest.clear();
        assert!(text(&program, true).contains(
            "17 stuck polls since the runtime started (sleep 14, cpu 2, io 1); the program no longer keeps their incidents"
        ));
    }

    #[test]
    fn an_unrecorded_poll_is_printed_with_a_similar_incident() {
        let mut program = fixture::stalled(fixture::program(4, 3), 7);
        program.runtimes[0].incidents.latest[6].is_over = true;
        let now = text(&program, false);
        let wanted = "worker 1 has been stuck for 230ms so far in GET /blocking #48212, spawned at \
                      examples/src/bin/demo/handlers.rs:118:21: stack: see incident 7, a similar poll\nincident 7: worker 1 was stuck";
        assert!(now.contains(wanted), "{now}");
        assert_eq!(now.matches("\nincident ").count(), 1, "{now}");
        let all = text(&program, true);
        assert_eq!(all.matches("\nincident ").count(), 7, "each once: {all}");
        assert_eq!(json(&program, false)["unrecorded"][0]["like"], json!(7));
        program.runtimes[0].incidents.latest.clear();
        assert!(text(&program, false).contains("handlers.rs:118:21: no stack yet\n"));
        program.runtimes[0].workers[1].duty = Duty::Blocking;
        let now = text(&program, false);
        assert!(now.contains("worker 1 has been in block_in_place for 230ms so far in GET /blocking #48212"), "{now}");
        assert!(now.contains("handlers.rs:118:21: no stack, since another worker runs its tasks\n"), "{now}");
        assert_eq!(json(&program, false)["unrecorded"][0]["duty"], json!("blocking"));
    }

    #[test]
    fn json_has_every_field_of_an_incident_and_the_suspect_line() {
        let program = fixture::stalled(fixture::program(4, 3), 7);
        let all = json(&program, true);
        assert_eq!(all["incidents"].as_array().unwrap().len(), 7);
        let now = json(&program, false);
        let incident = &now["incidents"][0];
        for (field, value) in json!(program.runtimes[0].incidents.latest[6]).as_object().unwrap() {
            assert_eq!(&incident[field], value, "{field}");
        }
        assert_eq!((&incident["runtime"], &incident["guilty"]["line"]), (&json!("app"), &json!(61)));
        assert_eq!(json(&Program::default(), true)["incidents"], json!([]));
    }
}
