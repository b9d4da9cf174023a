//! Lists the running programs and their state.

use std::path::PathBuf;

use serde_json::{Value, json};
use volt_diagnosis::doctor::Verdict;
use volt_telemetry::client::Client;
use volt_telemetry::snapshot::{Duty, Program};
use volt_telemetry::socket::{self, Candidate, Environment};
use volt_telemetry::wire::Hello;

use crate::facts::STUCK_NS;
use crate::text::clean;
use crate::text::figures::{ABSENT, age, count, duration, head, left, right, width};

/// The number of sockets that are queried at the same time: a stopped program takes seconds to time
/// out.
const CONNECTIONS_MAX: usize = 16;
/// The largest width of a program's name, and of the names of its runtimes.
const NAME_MAX_WIDTH: usize = 24;

/// One control socket.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The pid of the program.
    pub pid: u32,
    /// The path of the socket.
    pub path: PathBuf,
    /// When the program started, in clock ticks since boot.
    pub start_time: u64,
    /// The program's hello message; `None` if it did not reply.
    pub hello: Option<Hello>,
    /// The program's state; `None` if it was not requested, or if there was no reply.
    pub condition: Option<Condition>,
    /// Why something is missing.
    pub error: Option<String>,
}

/// The state of a program at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// How long ago the oldest of its runtimes was built, ns.
    pub up_ns: u64,
    /// Active workers, including stuck ones.
    pub workers: u32,
    /// The number of these whose poll has lasted for at least [`STUCK_NS`].
    pub stuck: u32,
    /// The duration so far of the longest poll outside of `block_in_place`, ns; `None` if there is
    /// none.
    pub longest_poll_ns: Option<u64>,
    /// The number of tasks that are alive.
    pub tasks: u64,
    /// The verdict, if there is a finding that needs action.
    pub verdict: Option<String>,
}

impl Condition {
    /// Returns the state of `program`.
    pub fn of(program: &Program) -> Condition {
        let runtimes = || program.runtimes.iter();
        // In `block_in_place`, a poll may last as long as it likes.
        let workers = || runtimes().flat_map(|of| &of.workers).filter(|worker| worker.duty != Duty::Blocking);
        let polls = || workers().filter_map(|worker| worker.in_flight.as_ref()).map(|poll| poll.for_ns);
        let up_ns = runtimes().map(|runtime| runtime.at_ns.saturating_sub(runtime.started_at_ns)).max();
        Condition {
            up_ns: up_ns.unwrap_or(0),
            workers: runtimes().map(|runtime| runtime.active_count()).fold(0, u32::saturating_add),
            stuck: polls().filter(|for_ns| *for_ns >= STUCK_NS).count() as u32,
            longest_poll_ns: polls().max(),
            tasks: runtimes().map(|runtime| runtime.tasks.alive).fold(0, u64::saturating_add),
            verdict: Some(Verdict::of(runtimes()))
                .filter(|verdict| verdict.severity().is_some())
                .map(|verdict| clean::text(&verdict.to_string())),
        }
    }

    /// Formats the state as `4 workers, 812 tasks` or `!! 2 of 4 workers stuck, 3.1s`. The verdict
    /// comes first, because a narrow screen shows only the beginning.
    fn in_words(&self) -> String {
        let Condition { workers, stuck, tasks, .. } = *self;
        let several = if workers == 1 { "worker" } else { "workers" };
        let text = match self.longest_poll_ns {
            Some(longest_ns) if stuck > 0 => {
                format!("!! {stuck} of {workers} {several} stuck, {}", duration(longest_ns))
            }
            _ => format!("{workers} {several}, {} {}", count(tasks), if tasks == 1 { "task" } else { "tasks" }),
        };
        self.verdict.iter().fold(text, |text, verdict| format!("{verdict}; {text}"))
    }
}

/// The text for a socket without a program that listens.
const STALE: &str = "stale: its program has exited";

/// The sockets that were found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// The sockets by pid.
    pub entries: Vec<Entry>,
    /// Directories and sockets that could not be read, with the reasons.
    pub refused: Vec<String>,
}

/// Finds every control socket of this user, and requests the name of each program.
pub fn scan(environment: &Environment) -> Listing {
    scan_with(environment, entry_of)
}

/// Like [`scan`], and also requests the state of each program.
pub fn scan_with_health(environment: &Environment) -> Listing {
    scan_with(environment, entry_with_health)
}

fn scan_with(environment: &Environment, entry_of: fn(&Candidate) -> Entry) -> Listing {
    let found = socket::list(environment);
    let mut entries = Vec::new();
    for candidates in found.sockets.chunks(CONNECTIONS_MAX) {
        std::thread::scope(|scope| {
            let threads: Vec<_> = candidates.iter().map(|candidate| scope.spawn(|| entry_of(candidate))).collect();
            // A thread that panicked leaves no entry; its message is on stderr.
            entries.extend(threads.into_iter().filter_map(|entry| entry.join().ok()));
        });
    }
    Listing { entries, refused: found.refused.iter().map(|error| clean::text(&error.to_string())).collect() }
}

fn entry_of(candidate: &Candidate) -> Entry {
    entry_with(candidate, |_| Ok(None))
}

fn entry_with_health(candidate: &Candidate) -> Entry {
    entry_with(candidate, |client| match client.snapshot() {
        Ok(program) => Ok(Some(Condition::of(&program))),
        Err(error) => Err(clean::text(&error.to_string())),
    })
}

fn entry_with(candidate: &Candidate, how: fn(&mut Client) -> Result<Option<Condition>, String>) -> Entry {
    let Candidate { path, pid, start_time, is_alive } = candidate.clone();
    let mut entry = Entry { pid, path, start_time, hello: None, condition: None, error: None };
    if !is_alive {
        entry.error = Some(STALE.into());
        return entry;
    }
    match Client::connect(&entry.path) {
        Ok(mut client) => {
            entry.hello = Some(clean::hello(client.hello().clone()));
            match how(&mut client) {
                Ok(condition) => entry.condition = condition,
                Err(error) => entry.error = Some(error),
            }
        }
        Err(error) => entry.error = Some(clean::text(&error.to_string())),
    }
    entry
}

impl Entry {
    /// Returns whether it is a socket that an exited program has left behind.
    pub fn is_stale(&self) -> bool {
        self.error.as_deref() == Some(STALE)
    }

    /// Returns why something is missing. If the program did not send its hello message, the text
    /// has the path of its socket.
    pub fn error_at(&self) -> Option<String> {
        if self.hello.is_some() {
            return self.error.clone();
        }
        let path = clean::text(&self.path.display().to_string());
        self.error.as_deref().map(|error| with_path(&path, error))
    }
}

impl Listing {
    /// Returns a table of programs as text. Stale sockets are listed below it.
    pub fn table(&self) -> String {
        let mut rows = vec![["PID", "PROGRAM", "UP", "RUNTIMES", "STATE"].map(String::from)];
        rows.extend(self.entries.iter().filter(|entry| !entry.is_stale()).map(|entry| {
            let path = clean::text(&entry.path.display().to_string());
            let error = entry.error_at();
            let condition = entry.condition.as_ref();
            let up = condition.map_or(ABSENT.into(), |condition| age(condition.up_ns));
            let state = error.or(condition.map(Condition::in_words)).unwrap_or(path);
            let (program, runtimes) = match &entry.hello {
                Some(hello) => (head(&hello.program, NAME_MAX_WIDTH), head(&hello.runtimes.join(","), NAME_MAX_WIDTH)),
                None => (ABSENT.into(), ABSENT.into()),
            };
            [entry.pid.to_string(), program, up, runtimes, state]
        }));
        let widest = |column: usize| rows.iter().map(|row| width(&row[column])).max().unwrap_or(0);
        let widths = [widest(0), widest(1), widest(2), widest(3)];
        let mut text = String::new();
        for row in &rows {
            let [pid, program, up, runtimes] = [
                right(&row[0], widths[0]),
                left(&row[1], widths[1]),
                right(&row[2], widths[2]),
                left(&row[3], widths[3]),
            ];
            text.push_str(&format!("{pid}  {program}  {up}  {runtimes}  {}\n", row[4]));
        }
        self.refused.iter().for_each(|reason| text.push_str(&format!("skipped: {reason}\n")));
        text + &self.left_behind()
    }

    fn left_behind(&self) -> String {
        let stale = self.entries.iter().filter(|entry| entry.is_stale());
        let line = |entry: &Entry| {
            format!("stale: {}, its program has exited\n", clean::text(&entry.path.display().to_string()))
        };
        stale.map(line).collect()
    }

    /// Returns [`table`](Self::table), or the directories that were searched if there is no
    /// program.
    pub fn table_or(&self, environment: &Environment) -> String {
        if !self.entries.iter().all(Entry::is_stale) {
            return self.table();
        }
        let dirs: Vec<_> = environment.directories().iter().map(|dir| dir.display().to_string()).collect();
        let refused: String = self.refused.iter().map(|reason| format!("{reason}\n")).collect();
        let nobody = format!("No Volt program is running (searched {}).\n{refused}", clean::text(&dirs.join(", ")));
        nobody + &self.left_behind()
    }

    /// Returns the list as a JSON array.
    pub fn json(&self) -> Value {
        let entry = |entry: &Entry| {
            let hello = entry.hello.as_ref();
            let condition = entry.condition.as_ref();
            json!({
                "pid": entry.pid,
                "program": hello.map(|hello| &hello.program),
                "runtimes": hello.map(|hello| &hello.runtimes),
                "volt": hello.map(|hello| &hello.volt),
                "protocol": hello.map(|hello| hello.version.to_string()),
                "socket": clean::text(&entry.path.display().to_string()),
                "start_time": entry.start_time,
                "is_alive": hello.is_some(),
                "up_ns": condition.map(|condition| condition.up_ns),
                "workers": condition.map(|condition| condition.workers),
                "stuck_workers": condition.map(|condition| condition.stuck),
                "longest_poll_ns": condition.and_then(|condition| condition.longest_poll_ns),
                "tasks": condition.map(|condition| condition.tasks),
                "verdict": condition.and_then(|condition| condition.verdict.as_ref()),
                "error": entry.error,
            })
        };
        self.entries.iter().map(entry).collect()
    }
}

/// Most messages begin with the path already.
fn with_path(path: &str, error: &str) -> String {
    if error.starts_with(path) { error.into() } else { format!("{path} {error}") }
}

#[cfg(test)]
mod tests {
    use volt_telemetry::finding::{Place, Severity};
    use volt_telemetry::rule::Rule;
    use volt_telemetry::snapshot::{InFlight, Snapshot, Worker};

    use super::*;
    use crate::fixture;

    fn entry(pid: u32, hello: Option<Hello>, condition: Option<Condition>, error: Option<&str>) -> Entry {
        let path = format!("/run/volt/{pid}-7.sock").into();
        Entry { pid, path, start_time: 7, hello, condition, error: error.map(str::to_owned) }
    }

    #[test]
    fn a_row_has_the_program_its_age_and_its_stuck_workers() {
        let poll = |for_ns| Worker { in_flight: Some(InFlight { for_ns, ..InFlight::default() }), ..Worker::default() };
        let blocking = Worker { duty: Duty::Blocking, ..poll(9_000_000_000) };
        let workers = vec![poll(3_100_000_000), poll(STUCK_NS - 1), blocking];
        let place = Place::Guilty { at: "src/a.rs:7".into(), function: None };
        let findings = Some(vec![fixture::finding(Rule::Deadlock, Severity::Critical, &[], &[place])]);
        let runtime = Snapshot { at_ns: 65_000_000_000, workers, findings, ..Snapshot::default() };
        let stuck = Condition::of(&Program { runtimes: vec![runtime], ..Program::default() });
        let well = Condition { up_ns: 3_000_000_000, workers: 1, tasks: 12_300, ..Condition::default() };
        let hello = |name: &str| {
            Some(Hello { program: name.into(), runtimes: vec!["a".into(), "b".into()], ..Hello::default() })
        };
        let entries = vec![
            entry(7, hello("shop"), Some(stuck), None),
            entry(48, hello(&"x".repeat(99)), Some(well), None),
            entry(123, None, None, Some("/run/volt/123-7.sock is silent")),
            entry(124, None, None, Some(STALE)),
        ];
        let expected = "PID  PROGRAM                      UP  RUNTIMES  STATE\n  \
                          7  shop                      1m05s  a,b       1 critical: deadlock at src/a.rs:7; !! 1 of 3 workers stuck, 3.1s\n \
                         48  xxxxxxxxxxxxxxxxxxxxxxx…     3s  a,b       1 worker, 12.3k tasks\n\
                        123  -                             -  -         /run/volt/123-7.sock is silent\n\
                        stale: /run/volt/124-7.sock, its program has exited\n";
        assert_eq!(Listing { entries, refused: Vec::new() }.table(), expected);
    }
}
