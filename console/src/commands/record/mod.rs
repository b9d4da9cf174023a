//! `volt-console record`: records the events of a program's workers to a file, until it is stopped,
//! or only around triggers.
//!
//! Without triggers, it writes all events. With triggers, it keeps the events of the last `before`
//! in memory. When a trigger occurs, it writes them, and then the following events until the window
//! is over; see `volt_recording::windows`. If several files are allowed, each window gets its own;
//! otherwise the first window ends the recording.
//!
//! # Invariants
//!
//! *Recorded events are kept*: after a signal, on a full disk, or when the program exits, the file
//! is finished properly. *Windows are complete*: unless the recording ends first, a window ends
//! after all of its events are written. *Bounded*: the size of a file, the number of files, and the
//! events in memory (`HELD_WEIGHT_MAX`) have limits.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use volt_diagnosis::doctor::rule::examine;
use volt_recording::windows::{Reach, Verdict, Window, Windows};
use volt_recording::writer::{Settings, Writer};
use volt_telemetry::client::Client;
use volt_telemetry::histogram::BUCKETS;
use volt_telemetry::recording::event::{Event, Outcome};
use volt_telemetry::recording::flush::{Flush, Head, Mark, Table, Text};
use volt_telemetry::recording::record::Record;
use volt_telemetry::recording::trigger::Trigger;
use volt_telemetry::rule::Rule;
use volt_telemetry::snapshot::{Snapshot, Worker};

use crate::commands::progress::Progress;
use crate::error::Error;
use crate::model::busiest;
use crate::text::clean;
use crate::text::figures::{count, duration};

/// How long the recording waits for a flush before it checks whether to stop.
const SLICE: Duration = Duration::from_millis(100);
/// The maximum size of the history in memory, in records: 192 MiB.
const HELD_WEIGHT_MAX: u64 = 8 << 20;
/// The memory that one worker of a snapshot needs, in records.
const WORKER_WEIGHT: u64 = (size_of::<Worker>() + 2 * BUCKETS * size_of::<u64>()).div_ceil(size_of::<Record>()) as u64;
/// The maximum number of names that are kept for events not written yet.
const HELD_TEXTS_MAX: usize = 16_384;
/// The maximum length of a program's name in a file name, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// The time between two snapshots that the doctor compares.
const EXAMINED_APART_NS: u64 = 1_000_000_000;

/// The longest limit of a trigger. A recording does not distinguish times above 4.29 s.
pub const TIME_MAX: Duration = Duration::from_secs(4);

/// A trigger of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// A stuck poll.
    Stall,
    /// A task that waits for at least this long.
    Delay(Duration),
    /// A poll that lasts for at least this long, at its end.
    Poll(Duration),
    /// A task that panics.
    Panic,
    /// A finding of this rule; `None` means any rule.
    Rule(Option<Rule>),
}

impl std::str::FromStr for On {
    type Err = String;

    /// Parses `stall`, `delay=10ms`, `poll=20ms`, `panic`, `rule` or `rule=stalled-poll`.
    fn from_str(text: &str) -> Result<On, String> {
        match text.split_once('=') {
            None if text == "stall" => Ok(On::Stall),
            None if text == "panic" => Ok(On::Panic),
            None if text == "rule" => Ok(On::Rule(None)),
            Some(("delay", time)) => limit(time).map(On::Delay),
            Some(("poll", time)) => limit(time).map(On::Poll),
            Some(("rule", name)) => match Rule::by_name(name) {
                Some(rule) => Ok(On::Rule(Some(rule))),
                None => {
                    let names = Rule::names().collect::<Vec<_>>().join(", ");
                    Err(format!("the doctor has no rule named {name:?}; its rules are {names}"))
                }
            },
            _ => Err("expected stall, panic, delay=TIME, poll=TIME, rule or rule=NAME".into()),
        }
    }
}

/// Parses the limit of a trigger. Events contain times up to [`TIME_MAX`].
fn limit(text: &str) -> Result<Duration, String> {
    let limit = crate::text::figures::time(text)?;
    if limit <= TIME_MAX { Ok(limit) } else { Err(format!("expected at most {TIME_MAX:?}")) }
}

/// How to record.
#[derive(Clone, Debug)]
pub struct Options {
    /// The runtime; `None` means the busiest.
    pub runtime: Option<String>,
    /// When to stop; `None` means at a signal, at the end of the first window, or when the file is
    /// full.
    pub seconds: Option<Duration>,
    /// The file to write; `None` means a generated name in the current directory.
    pub path: Option<PathBuf>,
    /// The maximum size of a file in bytes.
    pub max_file_bytes: u64,
    /// The maximum number of files; the oldest are deleted.
    pub max_files: u32,
    /// The triggers; if empty, all events are written.
    pub triggers: Vec<On>,
    /// How much to record before and after a trigger. Without triggers, `before` is the buffered
    /// history to start with.
    pub reach: Reach,
}

/// Switches the flight recorder on or off permanently, and prints its state.
///
/// # Errors
///
/// Fails with [`Error::is_connect`] and [`Error::is_output_closed`].
pub fn switch(client: &mut Client, runtime: Option<&str>, is_on: bool, out: &mut impl Write) -> Result<(), Error> {
    let runtime = chosen(client, runtime)?;
    let recorder = client.recorder(runtime.as_deref(), Some(is_on))?;
    let state = match (is_on, recorder.is_on) {
        (true, _) => format!("on and keeps the last {} events of each worker", count(recorder.capacity)),
        (false, true) => "on until the current recording ends".to_owned(),
        (false, false) => "off".to_owned(),
    };
    let text = clean::lines(&format!("the flight recorder of runtime {} is {state}\n", recorder.runtime));
    out.write_all(text.as_bytes()).map_err(Error::output)
}

/// Returns the name of the selected runtime: the named one, or the busiest.
fn chosen(client: &mut Client, runtime: Option<&str>) -> Result<Option<String>, Error> {
    if let Some(name) = runtime {
        return Ok(Some(name.to_owned()));
    }
    let program = client.snapshot()?;
    Ok(busiest(&program.runtimes).map(|index| program.runtimes[index].runtime.clone()))
}

/// Records until the time is over, a signal arrives, the file is full, the only window has closed,
/// or the program exits. Prints a summary to `out`.
///
/// # Errors
///
/// Fails with [`Error::is_connect`] if the recording cannot start, and [`Error::is_recording`] if a
/// file cannot be written. The events recorded before that stay in the file.
pub fn run(mut client: Client, options: &Options, out: &mut impl Write) -> Result<(), Error> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, stop.clone()).map_err(Error::signals)?;
    }
    let runtime = chosen(&mut client, options.runtime.as_deref())?;
    let before = if options.triggers.is_empty() { options.reach.before } else { Duration::ZERO };
    let head = client.record(runtime.as_deref(), before)?;
    let path = options.path.clone().unwrap_or_else(|| name_of(&head));
    let (max_file_bytes, max_files) = (options.max_file_bytes, options.max_files);
    let writer = Writer::create(Settings { path, max_file_bytes, max_files }, head)?;
    let mut recording = Recording::new(writer, options);
    let ended = recording.record(&mut client, options, &stop);
    let closed = recording.close();
    let why = ended?;
    closed?;
    let text = clean::lines(&recording.report(why));
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::output)
}

/// Returns a file name such as `server-4711-1732108800.voltrec`, in the current directory.
fn name_of(head: &Head) -> PathBuf {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let is_plain = |c: &char| c.is_alphanumeric() || matches!(c, '-' | '_');
    let program: String = head.program.chars().filter(is_plain).collect();
    // File names are limited in bytes, and a name that begins with - would be parsed as an option.
    let program = program[..program.floor_char_boundary(NAME_BYTES_MAX)].trim_start_matches('-');
    let program = if program.is_empty() { "program" } else { program };
    format!("{program}-{}-{}.voltrec", head.pid, since.as_secs()).into()
}

/// Why a recording has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Over,
    Stopped,
    Full,
    ProgramEnded,
}

/// A recording: the writer, and the history that is kept for the next trigger.
struct Recording {
    /// `None` if the recording has ended.
    writer: Option<Writer>,
    files: Vec<PathBuf>,
    bytes: u64,
    records: u64,
    lost: u64,
    windows_written: u64,
    triggers: Vec<On>,
    windows: Windows,
    is_single_file: bool,
    held: VecDeque<Flush>,
    held_weight: u64,
    before_ns: u64,
    /// Names from flushes that were not written.
    texts: BTreeMap<(Table, u64), String>,
    examined: Option<Snapshot>,
    began: Instant,
}

impl Recording {
    fn new(writer: Writer, options: &Options) -> Recording {
        Recording {
            writer: Some(writer),
            files: Vec::new(),
            bytes: 0,
            records: 0,
            lost: 0,
            windows_written: 0,
            triggers: options.triggers.clone(),
            windows: Windows::new(options.reach),
            is_single_file: options.max_files == 1,
            held: VecDeque::new(),
            held_weight: 0,
            before_ns: u64::try_from(options.reach.before.as_nanos()).unwrap_or(u64::MAX),
            texts: BTreeMap::new(),
            examined: None,
            began: Instant::now(),
        }
    }

    fn record(&mut self, client: &mut Client, options: &Options, stop: &AtomicBool) -> Result<Why, Error> {
        let until = options.seconds.and_then(|seconds| Instant::now().checked_add(seconds));
        let mut progress = Progress::begin();
        loop {
            // ORDERING: Relaxed; the flag alone is the message.
            if stop.load(Ordering::Relaxed) {
                return Ok(Why::Stopped);
            }
            let left = until.map_or(SLICE, |until| until.saturating_duration_since(Instant::now()).min(SLICE));
            if left.is_zero() {
                return Ok(Why::Over);
            }
            match client.next_flush(left) {
                Ok(Some(flush)) => match self.take(flush) {
                    Ok(true) => {}
                    Ok(false) => return Ok(Why::Over),
                    Err(error) if error.is_full() => return Ok(Why::Full),
                    Err(error) => return Err(error.into()),
                },
                Ok(None) => {}
                // The events recorded so far are complete.
                Err(error) if error.is_closed() || error.is_answer() => return Ok(Why::ProgramEnded),
                Err(error) => return Err(error.into()),
            }
            self.show(&mut progress);
        }
    }

    /// Adds a flush. Returns whether the recording continues.
    fn take(&mut self, flush: Flush) -> Result<bool, volt_recording::error::RecordingError> {
        if self.triggers.is_empty() {
            self.write(&flush)?;
            return Ok(true);
        }
        for (at_ns, trigger) in self.found_in(&flush) {
            // The last events of the window are in this flush, or in a later piece of it.
            if let Some(window) = self.windows.due(at_ns.min(flush.complete_until_ns)) {
                self.write_with_texts(flush.clone())?;
                if !self.end_window(&window)? {
                    return Ok(false);
                }
            }
            if self.windows.fire(at_ns, trigger) == Verdict::Opened {
                let from_ns = self.windows.open().map_or(0, |window| window.from_ns);
                for held in std::mem::take(&mut self.held).into_iter().filter(|held| held.at_ns >= from_ns) {
                    self.write_with_texts(held)?;
                }
                self.held_weight = 0;
            }
        }
        if self.windows.open().is_none() {
            self.hold(flush);
            return Ok(true);
        }
        let complete_until_ns = flush.complete_until_ns;
        self.write_with_texts(flush)?;
        match self.windows.due(complete_until_ns) {
            Some(window) => self.end_window(&window),
            None => Ok(true),
        }
    }

    /// Returns the triggers that occurred in a flush, in the order of time.
    fn found_in(&mut self, flush: &Flush) -> Vec<(u64, Trigger)> {
        let mut found = Vec::new();
        for record in flush.chunks.iter().flat_map(|chunk| &chunk.records) {
            let trigger = match record.event() {
                Event::Stall { incident, .. } if self.triggers.contains(&On::Stall) => Trigger::Stall { incident },
                Event::PollEnd { outcome: Outcome::Panicked, .. } if self.triggers.contains(&On::Panic) => {
                    Trigger::Panic
                }
                Event::PollEnd { took_ns, .. } if self.is_too_long_a_poll(took_ns) => {
                    Trigger::Poll { poll_ns: took_ns.into() }
                }
                Event::PollBegin { delay_ns, .. } if self.is_too_long_a_delay(delay_ns) => {
                    Trigger::Delay { delay_ns: delay_ns.into() }
                }
                _ => continue,
            };
            found.push((record.at_ns(), trigger));
        }
        if let Some(snapshot) = &flush.snapshot {
            found.extend(self.findings(snapshot).map(|name| (snapshot.at_ns, Trigger::Rule { name })));
        }
        found.sort_by_key(|(at_ns, _)| *at_ns);
        found
    }

    fn is_too_long_a_delay(&self, delay_ns: u32) -> bool {
        let delay = Duration::from_nanos(delay_ns.into());
        self.triggers.iter().any(|on| matches!(on, On::Delay(limit) if delay >= *limit))
    }

    fn is_too_long_a_poll(&self, took_ns: u32) -> bool {
        let took = Duration::from_nanos(took_ns.into());
        self.triggers.iter().any(|on| matches!(on, On::Poll(limit) if took >= *limit))
    }

    /// Returns the rule of the first finding since the last check that a trigger waits for.
    fn findings(&mut self, snapshot: &Snapshot) -> Option<String> {
        let rules: Vec<_> =
            self.triggers.iter().filter_map(|on| if let On::Rule(rule) = on { Some(*rule) } else { None }).collect();
        if rules.is_empty() {
            return None;
        }
        let Some(before) = &self.examined else {
            self.examined = Some(snapshot.clone());
            return None;
        };
        if snapshot.at_ns.saturating_sub(before.at_ns) < EXAMINED_APART_NS {
            return None;
        }
        let since_ns = before.at_ns;
        let mut findings = snapshot.findings.clone().unwrap_or_else(|| examine(before, snapshot));
        findings.retain(|finding| finding.seen.is_current && finding.seen.last_at_ns > since_ns);
        self.examined = Some(snapshot.clone());
        let is_waited_for = |rule: Rule| rules.iter().any(|wanted| wanted.is_none_or(|wanted| wanted == rule));
        findings.iter().find(|finding| is_waited_for(finding.rule)).map(|finding| finding.rule.name().to_owned())
    }

    /// Adds a flush to the history.
    fn hold(&mut self, flush: Flush) {
        let oldest_ns = flush.at_ns.saturating_sub(self.before_ns);
        self.held_weight += weight(&flush);
        self.held.push_back(flush);
        while let Some(first) = self.held.front()
            && (first.at_ns < oldest_ns || self.held_weight > HELD_WEIGHT_MAX)
        {
            let Some(old) = self.held.pop_front() else { break };
            self.held_weight -= weight(&old);
            for text in old.texts {
                self.texts.insert((text.table, text.number), text.text);
            }
            // Keeps spawn locations. Of the names, removes those of the oldest tasks.
            while self.texts.len() > HELD_TEXTS_MAX
                && let Some(key) = self.texts.range((Table::Task, 0)..).next().map(|(key, _)| *key)
            {
                self.texts.remove(&key);
            }
        }
    }

    fn write_with_texts(&mut self, mut flush: Flush) -> Result<(), volt_recording::error::RecordingError> {
        let texts = std::mem::take(&mut self.texts).into_iter();
        flush.texts.extend(texts.map(|((table, number), text)| Text { table, number, text }));
        self.write(&flush)
    }

    fn write(&mut self, flush: &Flush) -> Result<(), volt_recording::error::RecordingError> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        writer.write(flush)?;
        self.records += flush.records();
        self.lost = self.lost.saturating_add(flush.lost());
        self.bytes = writer.bytes();
        Ok(())
    }

    /// Writes the trigger of the window. Then ends the file if the next window gets another one.
    /// Returns whether the recording continues: a single file has only one window.
    fn end_window(&mut self, window: &Window) -> Result<bool, volt_recording::error::RecordingError> {
        let Window { at_ns, ref trigger, from_ns, until_ns, .. } = *window;
        let mark = Mark { at_ns, trigger: trigger.clone(), from_ns, until_ns };
        self.write(&Flush { at_ns: until_ns, marks: vec![mark], ..Flush::default() })?;
        self.windows_written += 1;
        if self.is_single_file {
            return Ok(false);
        }
        if let Some(writer) = &mut self.writer {
            writer.end_file()?;
        }
        Ok(true)
    }

    /// Finishes the file, also if an earlier write to it failed.
    fn close(&mut self) -> Result<(), Error> {
        if let Some(window) = self.windows.close(u64::MAX) {
            // The reason, for example a full disk, is reported already.
            let _ = self.end_window(&window);
        }
        let Some(writer) = self.writer.take() else { return Ok(()) };
        self.files = writer.files();
        self.bytes = writer.bytes();
        match writer.finish() {
            Err(error) if !error.is_full() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Shows the progress on a terminal.
    fn show(&self, progress: &mut Progress) {
        let waits =
            if self.triggers.is_empty() || self.windows.open().is_some() { "" } else { "waiting for a trigger, " };
        progress.print_line(|| {
            format!(
                "recording {}: {waits}{} events, {} lost, {}; Ctrl-C stops",
                duration(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)),
                count(self.records),
                count(self.lost),
                bytes(self.bytes)
            )
        });
    }

    fn report(&self, why: Why) -> String {
        let mut text = match why {
            Why::Over | Why::Stopped => String::new(),
            Why::Full => {
                "The file is full. Increase --max-size, or use --files to keep the newest of several files.\n".into()
            }
            Why::ProgramEnded => "The program has exited, or the runtime was shut down.\n".into(),
        };
        if !self.triggers.is_empty() && self.windows_written == 0 {
            text.push_str("No trigger fired.\n");
        }
        let (records, lost) = (count(self.records), count(self.lost));
        text.push_str(&format!("{records} events, {lost} lost, {}\n", bytes(self.bytes)));
        for file in &self.files {
            text.push_str(&format!("{}\n", file.display()));
        }
        if let Some(file) = self.files.last() {
            let file = file.display();
            text.push_str(&format!("Next steps:\n  volt-console replay {file}\n  volt-console export {file}\n"));
        }
        text
    }
}

fn bytes(n: u64) -> String {
    match n {
        0..10_000 => format!("{n} B"),
        10_000..10_000_000 => format!("{} kB", n / 1_000),
        _ => format!("{} MB", n / 1_000_000),
    }
}

/// Returns the memory that a flush needs, in records. It may have few events, and a snapshot of
/// very many workers.
fn weight(flush: &Flush) -> u64 {
    let workers = flush.snapshot.as_ref().map_or(0, |snapshot| snapshot.workers.len() as u64);
    flush.records() + workers * WORKER_WEIGHT
}

#[cfg(test)]
mod tests;
