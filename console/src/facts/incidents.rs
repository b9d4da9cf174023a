//! Texts about stuck polls for screens and commands: how many, why, which line, and the stack.
//!
//! Independent of the terminal. Used by [`model`](crate::model), [`view`](crate::view) and several
//! [`commands`](crate::commands), such as `stacks`.

use volt_telemetry::incident::{Frame, Incident, Incidents, Remedy};
use volt_telemetry::snapshot::{Duty, InFlight, Snapshot, Worker};

use crate::facts::{LONG_NS, Tone};
use crate::text::figures::short_place;
use crate::text::figures::{age, count, duration, head, tail, width};

/// Returns the incidents, the latest first.
pub fn newest_first(incidents: &Incidents) -> impl Iterator<Item = &Incident> {
    incidents.latest.iter().rev()
}

/// Returns the most important incident: the longest that is not over, else the latest.
pub fn worst(incidents: &Incidents) -> Option<&Incident> {
    let open = incidents.latest.iter().filter(|incident| !incident.is_over);
    open.max_by_key(|incident| incident.for_ns).or(incidents.latest.last())
}

/// The smallest width at which paths include directories.
const FOLDERS_FROM: usize = 30;

/// A poll that has lasted long, and that has no incident.
#[derive(Clone, Copy, Debug)]
pub struct Unrecorded<'a> {
    /// The worker that it blocks.
    pub worker: &'a Worker,
    /// The poll.
    pub poll: &'a InFlight,
    /// The latest incident of a task with the same spawn location: of similar polls, only one is
    /// captured within some time.
    pub like: Option<&'a Incident>,
}

/// Returns the long polls in flight that have no current incident, the longest first.
pub fn unrecorded(snapshot: &Snapshot) -> Vec<Unrecorded<'_>> {
    let incidents = &snapshot.incidents;
    let is_written = |worker: &Worker, poll: &InFlight| {
        let open = incidents.latest.iter().filter(|incident| !incident.is_over);
        open.into_iter().any(|incident| incident.worker == worker.index && incident.task_id == poll.task_id)
    };
    let in_flight = snapshot.workers.iter().filter_map(|worker| Some((worker, worker.in_flight.as_ref()?)));
    let long = in_flight.filter(|(worker, poll)| poll.for_ns >= LONG_NS && !is_written(worker, poll));
    let mut long: Vec<_> = long
        .map(|(worker, poll)| {
            // A poll in `block_in_place` is no stuck poll.
            let is_like =
                |incident: &&Incident| incident.spawned_at == poll.spawned_at && worker.duty != Duty::Blocking;
            let like = newest_first(incidents).find(is_like);
            Unrecorded { worker, poll, like }
        })
        .collect();
    long.sort_by_key(|unrecorded| std::cmp::Reverse(unrecorded.poll.for_ns));
    long
}

/// Returns how long ago the incident began; `now` if it is not over.
pub fn when(incident: &Incident, at_ns: u64) -> String {
    if incident.is_over { age(at_ns.saturating_sub(incident.began_at_ns)) } else { "now".into() }
}

/// Returns the duration of the poll, so far or in total, with the mark of its tone.
pub fn how_long(incident: &Incident) -> (String, Tone) {
    let tone = Tone::of_duration(incident.for_ns);
    (format!("{}{}", duration(incident.for_ns), tone.mark()), tone)
}

/// Returns the task as `http 10.0.0.7:51234 #48212`, or with the HTTP route that it handled:
/// `GET /users/{id} #48212`.
pub fn task(incident: &Incident) -> String {
    named(incident.name(), incident.task_id)
}

/// Returns a task's name and id.
pub fn named(name: Option<&str>, id: u64) -> String {
    name.map_or_else(|| format!("#{id}"), |name| format!("{name} #{id}"))
}

/// Returns [`task`] in at most `columns`; a long name is cut before the id.
pub fn task_within(incident: &Incident, columns: usize) -> String {
    let number = format!("#{}", incident.task_id);
    match incident.name() {
        Some(name) if width(&number) + 2 < columns => format!("{} {number}", head(name, columns - width(&number) - 1)),
        _ => head(&number, columns),
    }
}

/// Returns the line to fix, such as `src/handlers.rs:118`, if the stack has it. If it does not fit
/// into `columns`, it is cut from the left; with few columns, it has no directories.
pub fn line_within(incident: &Incident, columns: usize) -> Option<String> {
    let line = incident.guilty().and_then(place)?;
    Some(tail(if columns < FOLDERS_FROM { short_place(&line) } else { &line }, columns))
}

/// Returns the line to fix (`at handlers.rs:118`), or else where the task was spawned (`spawned at
/// …`).
pub fn place_of(incident: &Incident) -> String {
    match incident.guilty().and_then(place) {
        Some(line) => format!("at {}", short_place(&line)),
        None => format!("spawned at {}", short_place(&incident.spawned_at)),
    }
}

/// Describes the latest incident for which `is_it` returns true.
pub fn latest(snapshot: &Snapshot, is_it: impl Fn(&Incident) -> bool) -> String {
    let Some(incident) = newest_first(&snapshot.incidents).find(|incident| is_it(incident)) else {
        return "no incident recorded".into();
    };
    let (how_long, _) = how_long(incident);
    let ago = if incident.is_over { format!("began {} ago", when(incident, snapshot.at_ns)) } else { "now".into() };
    format!("{how_long} {ago}, {}; {}", place_of(incident), cause(incident))
}

/// Returns what the runtime did about it.
pub fn remedy(incident: &Incident) -> String {
    let done = match incident.remedy {
        Remedy::Replaced => "replaced by a spare worker",
        Remedy::Rescued => "rescued: a parked worker took the tasks",
        Remedy::Capped => "none: no spare worker was available",
        Remedy::None if incident.is_over => "none",
        Remedy::None => "none so far",
        newer => newer.name(),
    };
    let waiting = match incident.waiting {
        0 => "no tasks waited".into(),
        1 => "1 task waited".into(),
        n => format!("{} tasks waited", count(n)),
    };
    let like_it = match incident.suppressed {
        0 => String::new(),
        1 => "; 1 similar not recorded".into(),
        n => format!("; {} similar not recorded", count(n)),
    };
    format!("{done}; {waiting}{like_it}")
}

/// Returns the name of a remedy in at most eight columns.
pub fn remedy_word(remedy: Remedy) -> &'static str {
    match remedy {
        Remedy::Capped => "no spare",
        other => other.name(),
    }
}

/// Returns why the poll is stuck: `sleep: the thread sleeps in the kernel (hrtimer_nanosleep)`. If
/// it has several causes, adds the time of each, and the lines of the others: `lock: the thread
/// waits for a lock or another thread, for 1.3s; sleep at src/main.rs:26, for 290ms`.
pub fn cause(incident: &Incident) -> String {
    let channel = incident.wait_channel.as_ref().map_or_else(String::new, |channel| format!(" ({channel})"));
    let mut text = format!("{}: the thread {}{channel}", incident.cause.name(), incident.cause.explain());
    let several = incident.main_causes();
    if !several.is_empty() {
        text.push_str(&format!(", for {}", duration(incident.cause_for_ns())));
    }
    for part in several.iter().filter(|part| part.cause != incident.cause) {
        let at = part.at.as_ref().map_or_else(String::new, |at| format!(" at {at}"));
        text.push_str(&format!("; {}{at}, for {}", part.cause.name(), duration(part.for_ns)));
    }
    text
}

/// Whose code a call belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The innermost call of the application's code: the line to fix.
    Guilty,
    /// The application.
    User,
    /// A library, Rust's standard library, or Volt.
    Library,
}

impl Whose {
    /// Returns the mark that is used without colours.
    pub fn mark(self) -> &'static str {
        match self {
            Whose::Guilty => "→",
            Whose::User => "+",
            Whose::Library => " ",
        }
    }
}

/// One call of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Whose code it is.
    pub whose: Whose,
    /// The function, or the address of the code if its name is unknown.
    pub function: String,
    /// `file:line`, or the program or library; empty if neither is known.
    pub place: String,
}

/// Returns the calls of an incident's stack, the innermost first.
pub fn calls(incident: &Incident) -> Vec<Call> {
    let guilty = incident.stack.iter().position(|frame| frame.is_user_code);
    let call = |(index, frame): (usize, &Frame)| Call {
        whose: match frame.is_user_code {
            true if Some(index) == guilty => Whose::Guilty,
            true => Whose::User,
            false => Whose::Library,
        },
        function: frame.function.clone().unwrap_or_else(|| format!("{:#x}", frame.address)),
        place: place(frame).or_else(|| frame.module.clone()).unwrap_or_default(),
    };
    incident.stack.iter().enumerate().map(call).collect()
}

/// Formats a frame's line as `src/handlers.rs:118`.
fn place(frame: &Frame) -> Option<String> {
    let file = library_path(frame.file.as_deref()?);
    Some(frame.line.map_or_else(|| file.to_string(), |line| format!("{file}:{line}")))
}

/// Removes the prefix before `library/` from a path of Rust's standard library, and the prefix
/// before the package from a path of a registry.
fn library_path(file: &str) -> &str {
    if let Some((_, inside)) = file.strip_prefix("/rustc/").and_then(|rest| rest.split_once('/')) {
        return inside;
    }
    match file.split_once("/registry/src/").and_then(|(_, rest)| rest.split_once('/')) {
        Some((_, package)) => package,
        None => file,
    }
}

/// Shortens `function` to at most `columns` by omitting what is in angle brackets, the innermost
/// first. The result may still be longer.
pub fn shortened(function: &str, columns: usize) -> String {
    let mut text = function.to_string();
    while width(&text) > columns {
        let Some(shorter) = without_innermost(&text) else { break };
        text = shorter;
    }
    text
}

/// Returns `text` with `…` for the contents of its deepest angle brackets; `None` if there is
/// nothing to omit.
fn without_innermost(text: &str) -> Option<String> {
    let brackets = |text: &str| {
        // The `>` of `->` is not a bracket.
        let mut before = ' ';
        let ends = text.char_indices().filter(move |(_, c)| {
            let is_arrow = *c == '>' && before == '-';
            before = *c;
            (*c == '<' || *c == '>') && !is_arrow
        });
        ends.collect::<Vec<_>>()
    };
    let (mut depth, mut deepest) = (0_i32, 0);
    let mut spans: Vec<(i32, usize, usize)> = Vec::new();
    let mut open = Vec::new();
    for (at, bracket) in brackets(text) {
        if bracket == '<' {
            depth += 1;
            open.push(at + 1);
        } else if let Some(start) = open.pop() {
            // Skips what is omitted already, and the type whose method it is.
            if start > 1 && &text[start..at] != "…" {
                deepest = deepest.max(depth);
                spans.push((depth, start, at));
            }
            depth -= 1;
        }
    }
    let mut shorter = String::new();
    let mut kept = 0;
    for (_, start, end) in spans.into_iter().filter(|(depth, ..)| *depth == deepest) {
        shorter.push_str(&text[kept..start]);
        shorter.push('…');
        kept = end;
    }
    (kept > 0).then(|| shorter + &text[kept..])
}

#[cfg(test)]
mod tests {
    use volt_telemetry::incident::{Cause, CauseTime};

    use super::*;

    fn incident(for_ns: u64, is_over: bool) -> Incident {
        Incident { for_ns, is_over, ..Incident::default() }
    }

    #[test]
    fn the_worst_incident_is_the_longest_current_or_the_latest() {
        let mut incidents = Incidents::default();
        assert_eq!(worst(&incidents), None);
        incidents.latest = vec![incident(900, true), incident(20, false), incident(30, false), incident(5, true)];
        assert_eq!(worst(&incidents).unwrap().for_ns, 30);
        incidents.latest.iter_mut().for_each(|incident| incident.is_over = true);
        assert_eq!(worst(&incidents).unwrap().for_ns, 5);
    }

    #[test]
    fn each_cause_of_a_poll_has_its_time_and_line() {
        let part = |cause, for_ms: u64, line: u32| CauseTime {
            cause,
            for_ns: for_ms * 1_000_000,
            at: Some(format!("src/main.rs:{line}")),
        };
        let causes = vec![part(Cause::Lock, 1_300, 19), part(Cause::Sleep, 290, 26), part(Cause::Cpu, 10, 30)];
        let mut several = Incident { cause: Cause::Lock, causes, ..incident(1_600_000_000, true) };
        let wanted =
            "lock: the thread waits for a lock or another thread, for 1.3s; sleep at src/main.rs:26, for 290ms";
        assert_eq!(cause(&several), wanted);
        several.causes.truncate(1);
        assert_eq!(cause(&several), "lock: the thread waits for a lock or another thread");
    }

    #[test]
    fn an_unrecorded_long_poll_is_shown_with_a_similar_incident() {
        let worker = |index, for_ns, spawned_at: &str| Worker {
            index,
            in_flight: Some(InFlight { task_id: 7, for_ns, spawned_at: spawned_at.into(), ..InFlight::default() }),
            ..Worker::default()
        };
        let written = |id, worker, is_over, at: &str| Incident {
            id,
            worker,
            task_id: 7,
            spawned_at: at.into(),
            ..incident(LONG_NS, is_over)
        };
        let snapshot = Snapshot {
            workers: vec![
                worker(0, LONG_NS, "a"),
                worker(1, 3 * LONG_NS, "b"),
                worker(2, 2 * LONG_NS, "a"),
                worker(3, 9, "a"),
            ],
            incidents: Incidents {
                latest: vec![written(1, 5, true, "a"), written(2, 0, true, "a"), written(3, 2, false, "c")],
                ..Incidents::default()
            },
            ..Snapshot::default()
        };
        let found = unrecorded(&snapshot);
        let found: Vec<_> = found.iter().map(|one| (one.worker.index, one.like.map(|like| like.id))).collect();
        assert_eq!(found, [(1, None), (0, Some(2))]);
    }

    #[test]
    fn the_first_call_of_the_applications_own_is_the_guilty_one() {
        let frame = |function: &str, is_user_code| Frame {
            function: Some(function.into()),
            file: Some("src/main.rs".into()),
            line: Some(7),
            is_user_code,
            ..Frame::default()
        };
        let unknown = Frame { address: 0x7f00, module: Some("libc.so.6".into()), ..Frame::default() };
        let stack = vec![unknown, frame("sleep", false), frame("load", true), frame("main", true)];
        let calls = calls(&Incident { stack, ..Incident::default() });
        let whose: Vec<_> = calls.iter().map(|call| call.whose).collect();
        assert_eq!(whose, [Whose::Library, Whose::Library, Whose::Guilty, Whose::User]);
        assert_eq!((calls[0].function.as_str(), calls[0].place.as_str()), ("0x7f00", "libc.so.6"));
        assert_eq!(calls[2].place, "src/main.rs:7");
    }

    #[test]
    fn paths_of_libraries_begin_with_the_library() {
        let cases = [
            ("/rustc/59807616e1fa/library/std/src/thread/mod.rs", "library/std/src/thread/mod.rs"),
            ("/root/.cargo/registry/src/index.crates.io-1949/mio-1.2.0/src/poll.rs", "mio-1.2.0/src/poll.rs"),
            ("examples/src/bin/demo/handlers.rs", "examples/src/bin/demo/handlers.rs"),
            ("/rustc/", "/rustc/"),
        ];
        cases.iter().for_each(|(path, wanted)| assert_eq!(library_path(path), *wanted));
    }

    #[test]
    fn long_functions_lose_their_innermost_types_first() {
        let function = "<core::pin::Pin<&mut app::Worker<u8>> as core::future::Future>::poll::<fn(u8) -> u8>";
        assert_eq!(shortened(function, 200), function);
        let one_less = "<core::pin::Pin<&mut app::Worker<…>> as core::future::Future>::poll::<fn(u8) -> u8>";
        assert_eq!(shortened(function, width(one_less)), one_less);
        assert_eq!(shortened(function, 72), "<core::pin::Pin<…> as core::future::Future>::poll::<fn(u8) -> u8>");
        assert_eq!(shortened(function, 1), "<core::pin::Pin<…> as core::future::Future>::poll::<…>");
        for odd in ["a > b", "<", "operator<", "->", "<<>>"] {
            assert!(width(&shortened(odd, 0)) > 0, "{odd}");
        }
    }

    #[test]
    fn without_a_stack_the_line_is_where_the_task_was_spawned() {
        let mut incident = Incident { spawned_at: "src/bin/demo.rs:12:5".into(), ..Incident::default() };
        assert_eq!((line_within(&incident, 80), place_of(&incident)), (None, "spawned at demo.rs:12".into()));
        let file = Some("src/slow.rs".into());
        incident.stack = vec![Frame { file, line: Some(3), is_user_code: true, ..Frame::default() }];
        assert_eq!(place_of(&incident), "at slow.rs:3");
        let within = |columns| line_within(&incident, columns).unwrap();
        assert_eq!([within(30), within(29), within(6)], ["src/slow.rs:3", "slow.rs:3", "….rs:3"]);
    }
}
