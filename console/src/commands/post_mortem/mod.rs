//! `volt-console post-mortem`: prints the last state of a program from its black boxes.
//!
//! A black box is a file that a runtime writes while it runs. The poll in flight and the events in
//! it are those of the last instruction. The findings and the memory are as old as the last sample,
//! and the text has their age.

mod ending;
mod found;
mod text;

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use volt_recording::black_box::{BlackBox, Worker, lives};
use volt_recording::error::RecordingError;
use volt_recording::timeline::What;
use volt_recording::writer::{Settings, Writer};
use volt_telemetry::recording::flush::Track;

use self::ending::How;
use self::found::Found;
use crate::commands::doctor::TextStyle;
use crate::error::Error;
use crate::facts::events;
use crate::text::clean;

/// The most other runs that the text lists.
const OTHERS_MAX: usize = 5;

/// The options of the command.
#[derive(Clone, Debug)]
pub struct Options {
    /// The number of events that are printed, of all that the file has.
    pub events: usize,
    /// Whether to print one JSON object.
    pub as_json: bool,
    /// A new recording with the events and samples.
    pub output: Option<PathBuf>,
    /// The medium that the text is formatted for.
    pub style: TextStyle,
}

/// Prints the black box at `path`, or those of a run in the directory `path`: the one that ended
/// last, or the newest if all still run.
///
/// # Errors
///
/// Fails with [`Error::is_recording`] and [`Error::is_output_closed`].
pub fn run(path: &Path, options: &Options, out: &mut impl Write) -> Result<(), Error> {
    let (files, others) = if path.is_dir() {
        let mut runs = lives::lives_in(path)?;
        // Of several replicas, the one that started first may have ended last.
        let ends = runs.iter().enumerate().filter_map(|(place, run)| Some((ended_at_unix_ns(run)?, place)));
        let place = ends.max().map_or(0, |(_, place)| place);
        (runs.remove(place).files, runs)
    } else {
        (vec![path.to_owned()], Vec::new())
    };
    if let Some(output) = &options.output
        && files.len() > 1
    {
        return Err(Error::several_black_boxes(output, &files));
    }
    let mut all = Vec::new();
    let mut failed = None;
    for file in files {
        match BlackBox::open(&file) {
            Ok(black_box) => all.push(Found::new(file, black_box)),
            // The other runtimes of the program are worth printing.
            Err(error) => failed = Some(error),
        }
    }
    if let Some(error) = failed.take_if(|_| all.is_empty()) {
        return Err(error.into());
    }
    if let (Some(output), [found]) = (&options.output, &all[..]) {
        write_recording(&found.black_box, output)?;
    }
    let text = if options.as_json {
        let boxes: Vec<_> = all.iter().map(|found| json(found, options.events)).collect();
        format!("{}\n", json!({ "black_boxes": boxes }))
    } else {
        let mut text: String = all
            .iter()
            .map(|found| text::text(found, options.events, options.output.as_deref(), options.style))
            .collect();
        if !others.is_empty() {
            text += "Other runs in this directory:\n";
            for run in others.iter().take(OTHERS_MAX) {
                let (file, state) = (&run.files[0], if ended_at_unix_ns(run).is_none() { "  still runs" } else { "" });
                text += &format!("  {}{state}\n", clean::text(&file.display().to_string()));
            }
        }
        text
    };
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::output)?;
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

/// Returns when this run ended, ns since 1970: at the last entry in its files, or when it began if
/// they cannot be read. `None` if its program still runs.
fn ended_at_unix_ns(run: &lives::Life) -> Option<u64> {
    let mut last_ns = run.stamp_ms.saturating_mul(1_000_000);
    for file in &run.files {
        let Ok(black_box) = BlackBox::open(file) else { continue };
        if How::of(file, &black_box) == How::Runs {
            return None;
        }
        last_ns = last_ns.max(black_box.unix_ns(black_box.last_sign_ns()).unwrap_or_default());
    }
    Some(last_ns)
}

fn write_recording(black_box: &BlackBox, path: &Path) -> Result<(), RecordingError> {
    let settings = Settings { path: path.to_owned(), max_file_bytes: u64::MAX, max_files: 1 };
    let mut writer = Writer::create(settings, black_box.head())?;
    for flush in black_box.flushes() {
        writer.write(&flush)?;
    }
    writer.finish()
}

fn json(found: &Found, events: usize) -> Value {
    let Found { path, black_box, how, memory_kills } = found;
    let last_ns = black_box.last_sign_ns();
    let sample = black_box.samples.last();
    let of_worker = |worker: &Worker| {
        let poll = worker.poll.as_ref().map(|poll| {
            json!({
                "task_id": poll.task_id,
                "task_name": poll.task_name,
                "spawned_at": poll.spawned_at,
                "began_at_ns": poll.began_at_ns,
                "for_ns": last_ns.saturating_sub(poll.began_at_ns),
            })
        });
        let index = match worker.track {
            Track::Worker { index } | Track::Spare { index } => Some(index),
            _ => None,
        };
        json!({
            "index": index,
            "is_spare": matches!(worker.track, Track::Spare { .. }),
            "thread_id": worker.thread_id,
            "phase": worker.phase.name(),
            "phase_for_ns": last_ns.saturating_sub(worker.phase_since_ns),
            "in_flight": poll,
        })
    };
    let all = found.events();
    let shown = all.iter().skip(all.len().saturating_sub(events)).filter_map(|item| {
        let What::Event { track, event } = item.what else { return None };
        let track = black_box.tracks.get(track as usize).map(ToString::to_string);
        Some(json!({ "at_ns": item.at_ns, "track": track, "text": events::text(event, &black_box.texts) }))
    });
    let lost = black_box.chunks.iter().map(|chunk| chunk.lost).fold(0, u64::saturating_add);
    json!({
        "path": path.display().to_string(),
        "identity": black_box.identity,
        "ended": how.name(),
        "is_same_boot": ending::is_same_boot(black_box),
        "memory_kills_since": memory_kills,
        "last_sign_ns": last_ns,
        "last_sign_unix_ns": black_box.unix_ns(last_ns),
        "is_truncated": black_box.is_truncated,
        "workers": black_box.workers.iter().map(of_worker).collect::<Vec<_>>(),
        "sampled_at_ns": sample.map(|sample| sample.snapshot.at_ns),
        "memory": sample.map(|sample| sample.memory),
        "snapshot": sample.map(|sample| &sample.snapshot),
        "events": shown.collect::<Vec<_>>(),
        "events_kept": all.len(),
        "events_lost": lost,
    })
}

#[cfg(test)]
mod tests;
