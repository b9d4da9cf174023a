//! The second pass of the export: turns each item into lines of the trace.
//!
//! `export` passes all items in the order of the timeline. Lines are collected and written in large
//! pieces.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;

use volt_telemetry::recording::event::{Event, ParkTarget};
use volt_telemetry::recording::flush::{Anchor, Head, Track};
use volt_telemetry::snapshot::Snapshot;

use super::json::{self, Line};
use super::lane::{Lane, Slice};
use super::pairing::{Link, Links, Pairing};
use crate::error::RecordingError;
use crate::reader::Texts;
use crate::timeline::{Item, What};

/// The thread id for counters and marks. Not 0, which Perfetto treats as the kernel's idle thread.
const PROGRAM_TID: u32 = 1;
/// Number of bytes that are collected before they are written.
const BUFFER_BYTES: usize = 256 * 1024;

/// A summary of an export.
#[derive(Debug, Default)]
pub struct Exported {
    /// Number of polls.
    pub polls: u64,
    /// Number of arrows from a wake-up to a poll.
    pub flows: u64,
    /// Number of missing events.
    pub lost: u64,
    /// The error if the recording ended early. Everything before it is exported.
    pub broke: Option<RecordingError>,
}

/// The trace that is being written. See the module documentation.
pub(super) struct Trace<W> {
    to: W,
    buffer: Vec<u8>,
    is_first_line: bool,
    /// Lines of the current item.
    lines: Vec<Line>,
    pid: u32,
    lanes: BTreeMap<u32, Lane>,
    /// The track of each worker.
    workers: HashMap<u16, u32>,
    pairing: Pairing,
    links: Links,
    last_ns: u64,
    /// The last time that was written for the program as a whole.
    program_ns: u64,
    exported: Exported,
}

impl<W: Write> Trace<W> {
    /// Begins the file with the names of the tracks.
    pub(super) fn open(to: W, head: &Head, links: Links) -> Result<Self, RecordingError> {
        let of_worker = |(place, track): (usize, &Track)| match track {
            Track::Worker { index } => Some((*index, place as u32)),
            _ => None,
        };
        let mut trace = Self {
            to,
            buffer: b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n".to_vec(),
            is_first_line: true,
            lines: Vec::new(),
            pid: head.pid,
            lanes: BTreeMap::new(),
            workers: head.tracks.iter().enumerate().filter_map(of_worker).collect(),
            pairing: Pairing::default(),
            links,
            last_ns: 0,
            program_ns: 0,
            exported: Exported::default(),
        };
        let name = format!("{} ({})", head.program, head.runtime);
        trace.lines.push(Line::metadata(head.pid, PROGRAM_TID, "process_name").arg("name", name.as_str()));
        trace.lines.push(Line::metadata(head.pid, PROGRAM_TID, "thread_name").arg("name", "runtime"));
        for (place, track) in head.tracks.iter().enumerate() {
            let tid = tid_of(place as u32);
            let name = track.to_string();
            trace.lines.push(Line::metadata(head.pid, tid, "thread_name").arg("name", name.as_str()));
            trace.lines.push(Line::metadata(head.pid, tid, "thread_sort_index").arg("sort_index", u64::from(tid)));
        }
        trace.write_lines()?;
        Ok(trace)
    }

    pub(super) fn item(&mut self, item: Item, texts: &Texts) -> Result<(), RecordingError> {
        let Item { at_ns, what } = item;
        self.last_ns = self.last_ns.max(at_ns);
        match what {
            What::Event { track, event } => self.event(track, at_ns, event, texts),
            What::Lost { track, count } => {
                self.exported.lost = self.exported.lost.saturating_add(count);
                let (lane, lines) = lane_of(&mut self.lanes, &mut self.lines, self.pid, track);
                lane.lose(lines, count);
            }
            What::Snapshot(snapshot) => {
                let at_ns = self.place_of_program(at_ns);
                self.counters(at_ns, &snapshot);
            }
            What::Mark(mark) => {
                let line =
                    Line::at(self.pid, PROGRAM_TID, 'i', self.place_of_program(at_ns)).name("recorded").scope('p');
                self.lines.push(line.arg("trigger", mark.trigger.to_string().as_str()));
            }
        }
        self.write_lines()
    }

    /// Like [`Lane::place`], for items that belong to no track.
    fn place_of_program(&mut self, at_ns: u64) -> u64 {
        self.program_ns = self.program_ns.max(at_ns);
        self.program_ns
    }

    fn event(&mut self, track: u32, recorded_ns: u64, event: Event, texts: &Texts) {
        let link = self.pairing.link(recorded_ns, event);
        let flow = link.map(|(Link::Wake(wake) | Link::Poll(wake))| wake).filter(|wake| self.links.has(*wake));
        let on = match event {
            // An incident is placed on the track of the worker that it blocks.
            Event::Stall { worker, .. } => self.workers.get(&worker).copied().unwrap_or(track),
            _ => track,
        };
        let (lane, lines) = lane_of(&mut self.lanes, &mut self.lines, self.pid, on);
        let began_ns = match event {
            Event::PollEnd { took_ns: ns, .. } | Event::Unpark { slept_ns: ns, .. } => {
                recorded_ns.saturating_sub(ns.into())
            }
            _ => recorded_ns,
        };
        let at_ns = lane.place(recorded_ns, began_ns);
        match event {
            Event::PollBegin { task, location, delay_ns } => {
                let source = lane.source.take();
                lane.begin(lines, at_ns, Slice::Poll { task }, |line| {
                    named_poll(line, task, location, texts).arg("delay_ns", u64::from(delay_ns)).arg_if("from", source)
                });
                self.exported.polls += 1;
                if let Some(flow) = flow {
                    lane.end_flow(lines, at_ns, flow);
                    self.exported.flows += 1;
                }
            }
            Event::PollEnd { task, location, outcome, .. } => {
                let fill = |line| {
                    self.exported.polls += 1;
                    named_poll(line, task, location, texts)
                };
                let outcome = |line: Line| line.arg("outcome", outcome.name());
                lane.end(lines, (began_ns, at_ns), Slice::Poll { task }, fill, outcome);
            }
            Event::Wake { task, by, .. } => {
                let fill = |line: Line| line.name("wake").arg("task", task).arg("by", by.name());
                flow.into_iter().for_each(|flow| lane.begin_flow(lines, at_ns, flow, fill));
            }
            Event::Spawn { task, .. } => {
                let fill = |line: Line| line.name("spawn").arg("task", task);
                flow.into_iter().for_each(|flow| lane.begin_flow(lines, at_ns, flow, fill));
            }
            Event::SearchBegin => lane.begin(lines, at_ns, Slice::Search, named("search")),
            Event::SearchEnd { is_hit } => {
                let hit = |line: Line| line.arg("is_hit", is_hit);
                lane.end(lines, (began_ns, at_ns), Slice::Search, named("search"), hit);
            }
            Event::Park { target } => {
                let name = if target == ParkTarget::Unknown { "parked" } else { target.name() };
                lane.begin(lines, at_ns, Slice::Park, named(name));
            }
            Event::Unpark { reason, .. } => {
                let reason = |line: Line| line.arg("reason", reason.name());
                lane.end(lines, (began_ns, at_ns), Slice::Park, named("parked"), reason);
            }
            Event::DriverIn => lane.begin(lines, at_ns, Slice::Driver, named("driver")),
            Event::DriverOut { events, timers } => {
                let brought = |line: Line| line.arg("events", events).arg("timers", u64::from(timers));
                lane.end(lines, (began_ns, at_ns), Slice::Driver, named("driver"), brought);
            }
            Event::LifoHit { .. } => lane.source = Some("lifo"),
            Event::Steal { .. } | Event::GlobalFetch { .. } => {
                lane.source = Some(if matches!(event, Event::Steal { .. }) { "steal" } else { "global queue" });
                point(lane, lines, at_ns, event, texts);
            }
            _ => point(lane, lines, at_ns, event, texts),
        }
    }

    fn counters(&mut self, at_ns: u64, snapshot: &Snapshot) {
        let counter = |name| Line::at(self.pid, PROGRAM_TID, 'C', at_ns).name(name);
        let waiting = counter("waiting").arg("global queue", snapshot.global_queue.len);
        let waiting = waiting.arg("blocking", snapshot.blocking.queue_len);
        let mut queues = counter("queued");
        for worker in &snapshot.workers {
            queues = queues.arg(&format!("worker {}", worker.index), worker.queued());
        }
        let tasks = counter("tasks").arg("alive", snapshot.tasks.alive);
        let workers = counter("workers").arg("parked", u64::from(snapshot.parked_count()));
        let workers = workers.arg("searching", u64::from(snapshot.searching));
        self.lines.extend([waiting, queues, tasks, workers]);
    }

    /// Ends all open slices, writes the readings of the clocks, and closes the file.
    pub(super) fn close(
        mut self,
        head: &Head,
        (first, last): (Option<Anchor>, Option<Anchor>),
    ) -> Result<Exported, RecordingError> {
        self.lanes.values_mut().for_each(|lane| lane.close(&mut self.lines, self.last_ns));
        self.write_lines()?;
        let clocks = |anchor: Option<Anchor>| {
            let anchor = anchor.unwrap_or_default();
            [anchor.at_ns, anchor.monotonic_ns.unwrap_or(0), anchor.unix_ns.unwrap_or(0), anchor.cycles.unwrap_or(0)]
        };
        let other = json::object([
            ("program", head.program.as_str().into()),
            ("runtime", head.runtime.as_str().into()),
            ("volt", head.volt.as_str().into()),
            ("pid", u64::from(head.pid).into()),
            ("part", u64::from(head.part).into()),
            ("clocks", "at_ns, monotonic_ns, unix_ns, cycles; 0 = not known".into()),
            ("clocks_at_begin", clocks(first).into()),
            ("clocks_at_end", clocks(last).into()),
            ("events_lost", self.exported.lost.into()),
        ]);
        self.buffer.extend_from_slice(b"\n],\"otherData\":");
        self.buffer.extend_from_slice(other.as_bytes());
        self.buffer.extend_from_slice(b"}\n");
        self.write_out()?;
        self.to.flush().map_err(RecordingError::export)?;
        Ok(self.exported)
    }

    fn write_lines(&mut self) -> Result<(), RecordingError> {
        for line in self.lines.drain(..) {
            if !std::mem::take(&mut self.is_first_line) {
                self.buffer.extend_from_slice(b",\n");
            }
            self.buffer.extend_from_slice(line.finish().as_bytes());
        }
        if self.buffer.len() >= BUFFER_BYTES { self.write_out() } else { Ok(()) }
    }

    fn write_out(&mut self) -> Result<(), RecordingError> {
        self.to.write_all(&self.buffer).map_err(RecordingError::export)?;
        self.buffer.clear();
        Ok(())
    }
}

/// Returns the thread id of a track. Tracks follow the thread of the program.
fn tid_of(track: u32) -> u32 {
    track.saturating_add(PROGRAM_TID + 1)
}

/// Returns the lane of a track and the output for its lines, as separate borrows.
fn lane_of<'a>(
    lanes: &'a mut BTreeMap<u32, Lane>,
    lines: &'a mut Vec<Line>,
    pid: u32,
    track: u32,
) -> (&'a mut Lane, &'a mut Vec<Line>) {
    (lanes.entry(track).or_insert_with(|| Lane::new(pid, tid_of(track))), lines)
}

fn named(name: &'static str) -> impl FnOnce(Line) -> Line {
    move |line| line.category("worker").name(name)
}

/// Names a poll by the task's name, or else its spawn location, or else its number.
fn named_poll(line: Line, task: u64, location: u16, texts: &Texts) -> Line {
    let (line, location) = (line.category("poll"), texts.location(location));
    let line = match (texts.task(task), location) {
        (Some(name), _) => line.name(name),
        (None, Some(location)) => line.name(file_and_line(location)),
        (None, None) => line.name(&format!("task {task}")),
    };
    line.arg("task", task).arg_if("spawned_at", location)
}

/// Adds the process's id without the node, and its name and type if they are known.
fn of_process(line: Line, process: u64, texts: &Texts) -> Line {
    let pid = format!("{}.{}", process >> 32, process as u32);
    line.arg("process", pid.as_str()).arg_if("what", texts.process(process))
}

/// Writes an event that is neither a slice nor a flow.
fn point(lane: &mut Lane, lines: &mut Vec<Line>, at_ns: u64, event: Event, texts: &Texts) {
    let mut put = |name: &str, args: &dyn Fn(Line) -> Line| lane.instant(lines, at_ns, name, args);
    match event {
        Event::TaskEnd { task, outcome } => {
            put("task end", &|line| line.arg("task", task).arg("outcome", outcome.name()));
        }
        Event::LifoFlush { task } => put("lifo cap flush", &|line| line.arg("task", task)),
        Event::Steal { victim, count } => {
            put("steal", &|line| line.arg("victim", u64::from(victim)).arg("count", u64::from(count)));
        }
        Event::StealMiss { victims } => put("steal miss", &|line| line.arg("victims", u64::from(victims))),
        Event::GlobalFetch { count } => put("global fetch", &|line| line.arg("count", u64::from(count))),
        Event::Overflow { count } => put("overflow", &|line| line.arg("count", u64::from(count))),
        Event::BudgetExhausted => put("budget exhausted", &|line| line),
        Event::CoopYield { task } => put("coop yield", &|line| line.arg("task", task)),
        Event::Stall { incident, worker } => put("incident", &|line| {
            let line = line.arg("incident", incident).arg("worker", u64::from(worker));
            line.arg_if("text", texts.incident(incident))
        }),
        Event::Replace { worker } => put("stands in", &|line| line.arg("worker", u64::from(worker))),
        Event::Retire { worker } => put("declared stuck", &|line| line.arg("worker", u64::from(worker))),
        Event::Return => put("returned", &|line| line),
        Event::ProcessStart { process, parent } => put("process start", &|line| {
            let line = of_process(line, process, texts);
            if parent == 0 { line } else { line.arg("parent", u64::from(parent - 1)) }
        }),
        Event::ProcessEnd { process, ending, steps } => put("process end", &|line| {
            of_process(line, process, texts).arg("reason", ending.name()).arg("steps", u64::from(steps))
        }),
        Event::MessageLost { process, loss } => {
            put("message lost", &|line| of_process(line, process, texts).arg("loss", loss.name()));
        }
        Event::ProcessRestart { supervisor } => put("restart", &|line| of_process(line, supervisor, texts)),
        Event::Unknown { kind, subject } => {
            put("unknown", &|line| line.arg("kind", u64::from(kind)).arg("subject", subject));
        }
        Event::PollBegin { .. }
        | Event::PollEnd { .. }
        | Event::Wake { .. }
        | Event::Spawn { .. }
        | Event::LifoHit { .. }
        | Event::SearchBegin
        | Event::SearchEnd { .. }
        | Event::Park { .. }
        | Event::Unpark { .. }
        | Event::DriverIn
        | Event::DriverOut { .. } => {}
        // An event that is newer than this table: shown in a generic form.
        _ => put("event", &|line| line.arg("event", format!("{event:?}").as_str())),
    }
}

/// Cuts `/src/main.rs:12:5` to `main.rs:12`.
fn file_and_line(location: &str) -> &str {
    let name = location.rsplit('/').next().unwrap_or(location);
    match name.match_indices(':').nth(1) {
        Some((column, _)) => &name[..column],
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_cut_to_file_and_line() {
        assert_eq!(file_and_line("/home/a/src/main.rs:12:5"), "main.rs:12");
        assert_eq!(file_and_line("main.rs"), "main.rs");
    }
}
