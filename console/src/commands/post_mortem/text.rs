//! The text that `post-mortem` prints.

use std::path::Path;

use volt_recording::black_box::{BlackBox, Poll, Worker};
use volt_recording::timeline::What;
use volt_telemetry::Phase;
use volt_telemetry::recording::black_box::Memory;

use super::ending::{How, is_same_boot};
use super::found::Found;
use crate::commands::doctor::{self, TextStyle};
use crate::facts::events;
use crate::facts::incidents::named;
use crate::text::clean;
use crate::text::figures::{count, duration};

/// The width of the column of times before the end.
const BEFORE_WIDTH: usize = 8;
/// The width of the column of tracks.
const TRACK_WIDTH: usize = 10;

/// Returns the report on one runtime, with the last `shown` events. Its events were written to the
/// recording `output`, if that is given.
pub(super) fn text(found: &Found, shown: usize, output: Option<&Path>, style: TextStyle) -> String {
    let Found { path, black_box, .. } = found;
    let identity = &black_box.identity;
    let mut text = format!("{}  pid {}  runtime {}\n", identity.program, identity.pid, identity.runtime);
    text += &format!("{}\n", verdict(found));
    text += &format!("file {}\n", clean::text(&path.display().to_string()));
    if let Some(executable) = &identity.executable {
        let build = identity.build_id.as_ref().map_or_else(String::new, |id| format!(", build id {id}"));
        text += &format!("executable {executable}{build}, Volt {}\n", identity.volt);
    }
    if black_box.is_truncated {
        text += "the file is truncated, and its last part is missing\n";
    }
    text += &format!("\nWorkers at the last sign of life:\n{}", workers(black_box));
    match black_box.samples.last() {
        Some(sample) => {
            let age = duration(black_box.last_sign_ns().saturating_sub(sample.snapshot.at_ns));
            text += &format!("\nMemory, {age} before the last sign of life:\n{}", memory(sample.memory, found));
            text += &format!("\nFindings, {age} before the last sign of life:\n");
            text += &doctor::report(&found.program(), style).unwrap_or_else(|| "  none\n\n".into());
        }
        None => {
            text +=
                "\nNo snapshot: the program ended within its first quarter of a second, or its sentinel was off.\n\n"
        }
    }
    text += &events_text(found, shown);
    text += &next_steps(found, output);
    text
}

/// How the program ended, in one line.
fn verdict(found: &Found) -> String {
    let black_box = &found.black_box;
    let at = |ns: u64| black_box.unix_ns(ns).map_or_else(|| "an unknown time".into(), utc);
    let last = at(black_box.last_sign_ns());
    let lived = black_box.last_sign_ns().saturating_sub(black_box.identity.anchor.at_ns);
    let lived = duration(lived);
    match found.how {
        How::Runs => format!("still runs after {lived}; the state below is from {last}"),
        How::ShutDown => format!("the runtime was shut down at {last}, after {lived}"),
        How::Exited => format!("the program exited at {last}, after {lived}, without shutting the runtime down"),
        How::Killed => {
            let restarted = match is_same_boot(black_box) {
                Some(false) => "; the machine has restarted since, or is another one",
                _ => "",
            };
            let memory = match found.memory_kills {
                Some(1..) => "; since then, the OOM killer has killed a process of its control group",
                _ => "",
            };
            let idle = if was_idle(black_box) { "; all workers were parked, so it may have ended later" } else { "" };
            format!("killed or crashed at about {last} (last sign of life), after {lived}{idle}{memory}{restarted}")
        }
    }
}

/// Whether no worker was awake, so that an idle program leaves no trace.
fn was_idle(black_box: &BlackBox) -> bool {
    let sleeps = |worker: &Worker| matches!(worker.phase, Phase::Parked | Phase::Driver | Phase::Stopped);
    black_box.workers.iter().all(|worker| worker.poll.is_none() && sleeps(worker))
}

fn workers(black_box: &BlackBox) -> String {
    let last_ns = black_box.last_sign_ns();
    let line = |worker: &Worker| {
        let thread = worker.thread_id.map_or_else(String::new, |id| format!("  thread {id}"));
        let what = match &worker.poll {
            Some(poll) => poll_text(poll, last_ns),
            None => {
                let for_ns = duration(last_ns.saturating_sub(worker.phase_since_ns));
                match worker.phase {
                    Phase::Busy => "between two polls".into(),
                    Phase::Searching => format!("searched for work for {for_ns}"),
                    Phase::Parked => format!("was parked for {for_ns}"),
                    Phase::Driver => format!("was parked in the I/O driver for {for_ns}"),
                    Phase::Maintenance => format!("polled timers and I/O for {for_ns}"),
                    _ => "had not started, or had ended".into(),
                }
            }
        };
        format!("  {}{thread}  {what}\n", worker.track)
    };
    black_box.workers.iter().map(line).collect()
}

fn poll_text(poll: &Poll, last_ns: u64) -> String {
    let task = named(poll.task_name.as_deref(), poll.task_id);
    let line = poll.spawned_at.as_deref().unwrap_or("a line that was not recorded yet");
    let for_ns = duration(last_ns.saturating_sub(poll.began_at_ns));
    format!("polled task {task} for {for_ns}, spawned at {line}")
}

fn memory(memory: Memory, found: &Found) -> String {
    let mut text = match memory.resident_bytes {
        Some(bytes) => format!("  resident {}\n", mebibytes(bytes)),
        None => "  unknown\n".into(),
    };
    if let Some(bytes) = memory.group_bytes {
        let limit = memory.group_max_bytes.map_or_else(|| "no limit".into(), |max| format!("limit {}", mebibytes(max)));
        text += &format!("  control group {}, {limit}\n", mebibytes(bytes));
    }
    if let Some(kills @ 1..) = found.memory_kills {
        text += &format!("  processes of the group that the OOM killer has killed since then: {}\n", count(kills));
    }
    text
}

fn mebibytes(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    format!("{}.{} MiB", bytes / MIB, bytes % MIB * 10 / MIB)
}

fn events_text(found: &Found, shown: usize) -> String {
    let black_box = &found.black_box;
    let all = found.events();
    if all.is_empty() {
        return "No events: the flight recorder was off (`volt-console record --on` switches it on).\n".into();
    }
    let last_ns = black_box.last_sign_ns();
    let shown = &all[all.len().saturating_sub(shown)..];
    let mut text =
        format!("Last events, {} of {}, by the time before the last sign of life:\n", shown.len(), all.len());
    for item in shown {
        let What::Event { track, event } = item.what else { continue };
        let before = duration(last_ns.saturating_sub(item.at_ns));
        let track = black_box.tracks.get(track as usize).map(ToString::to_string).unwrap_or_default();
        let what = events::text(event, &black_box.texts);
        text += &format!("  {before:>BEFORE_WIDTH$}  {track:<TRACK_WIDTH$}  {what}\n");
    }
    text
}

fn next_steps(found: &Found, output: Option<&Path>) -> String {
    match output {
        Some(output) => {
            let output = clean::text(&output.display().to_string());
            format!("\nNext steps:\n  volt-console replay {output}\n  volt-console export {output}\n\n")
        }
        None if found.black_box.chunks.is_empty() => "\n".into(),
        None => "\nTo replay or export the events, write them to a recording with `-o FILE.voltrec`.\n\n".into(),
    }
}

/// Formats ns since 1970 as a date and time in UTC.
pub(super) fn utc(unix_ns: u64) -> String {
    let (seconds, ms) = (unix_ns / 1_000_000_000, unix_ns / 1_000_000 % 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Howard Hinnant, chrono-Compatible Low-Level Date Algorithms, `civil_from_days`, for days from
    // 1970 on. Years begin in March there.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{ms:03} UTC")
}
