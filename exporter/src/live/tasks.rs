//! What the tasks of a runtime wait for, for the live page: a dump, and a list of tasks.
//!
//! # Shape
//!
//! The script requests `/live/dump.json` or `/live/tasks.json` when the user presses a button, and
//! at no other time: a dump polls each waiting task once. A [`Target`] is the runtime that the
//! request names. In its own program, the exporter calls `volt::observe`. In another one, it opens
//! a separate connection to the control socket, since a dump would delay the snapshots. That
//! blocks, as do lists, so they use a thread for blocking calls.
//!
//! If the client disconnects, the server drops the future of the reply, and the dump ends early: a
//! page that was closed needs none. In its own program, that future is the dump's. In another one,
//! the connection to its control socket is ended ([`remote_dump`](super::remote_dump)).
//!
//! The replies have the form of `volt-console dump --json` and `volt-console tasks --json`, with
//! one runtime. A dump also has the lines and notes of its text form, so that the script need not
//! describe a resource.
//!
//! # Invariants
//!
//! *No other website*: a request needs the header [`HEADER`]. A page of another website can have
//! the visitor's browser send requests to this exporter, but a header that is not a standard one
//! only after the browser has requested permission, with the method OPTIONS. The exporter never
//! grants it. A website whose name resolves to the exporter is not another one to the browser; on a
//! loopback address, the exporter refuses its requests by their `Host`. *One at a time*: a program
//! has at most one request in progress, and rests for as long as the request took, at most
//! [`REST_MAX`] ([`Turns`]). *Bounded*: at most [`REQUESTS_MAX`] requests in progress. A cancelled
//! dump of its own program may end a few seconds later; the runtime bounds how many dumps wait for
//! it. A reply has at most [`GROUPS_MAX`] groups, [`RUNNING_MAX`] running tasks and [`ROWS_MAX`]
//! rows. A dump takes at most 20 s in its program, and a sidecar waits at most 45 s for it.
//!
//! Rejected: a check of `Sec-Fetch-Site`, which old browsers do not send.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::json;
use volt_diagnosis::exposition::Origin;
use volt_telemetry::client::{Client, ConnectError};
use volt_telemetry::dump::{self, Dump};
use volt_telemetry::listing::MAX_FILTER_BYTES;
use volt_telemetry::tasks::{self, Rank, TaskList};

use super::remote_dump::{self, CancelOnDrop, Cancellation};

/// The header that a request needs. Its value does not matter.
pub(crate) const HEADER: &str = "volt-request";
/// The maximum number of groups in a reply. A page with more is slow, and too long to read.
const GROUPS_MAX: usize = 100;
/// The maximum number of running tasks in a reply.
const RUNNING_MAX: usize = 64;
/// The maximum number of rows of a list.
const ROWS_MAX: u32 = 50;
/// The maximum number of requests in progress, for all programs together.
const REQUESTS_MAX: usize = 4;
/// The longest rest of a program.
const REST_MAX: Duration = Duration::from_secs(10);
/// How long a list is requested again if the program returns that of another query.
const LIST_TIMEOUT: Duration = Duration::from_secs(2);
/// The time between two such requests.
const LIST_PAUSE: Duration = Duration::from_millis(50);

/// The parameters of a request.
#[derive(Debug, Deserialize)]
pub(crate) struct Wanted {
    pub(crate) program: String,
    pub(crate) pid: u32,
    pub(crate) runtime: String,
    /// Selects tasks; see the queries of dumps and lists.
    #[serde(default)]
    filter: String,
    /// The order of a list.
    #[serde(default)]
    rank: Rank,
}

/// Which of the two replies is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Dump,
    List,
}

/// The program of a request.
#[derive(Debug)]
pub(crate) enum Target {
    /// The exporter's own program.
    Own,
    /// The program with this control socket.
    Socket(PathBuf),
}

/// Why a request has no reply, with the remedy.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
    wait: Option<Duration>,
}

/// A reply in the form of `volt-console dump --json` and `volt-console tasks --json`.
#[derive(Serialize)]
struct Reply<'a, T> {
    pid: u32,
    program: &'a str,
    runtimes: [T; 1],
}

/// A dump in the form of `volt-console dump --json`, with parts of its text form.
#[derive(Serialize)]
struct ShownDump<'a> {
    #[serde(flatten)]
    dump: &'a Dump,
    /// The lines below the chain of each group.
    details: Vec<Vec<String>>,
    /// The remarks, and the numbers of tasks that are missing.
    notes: Vec<String>,
}

impl Wanted {
    /// Checks the header and the parameters of a request.
    pub(crate) fn check(headers: &HeaderMap, wanted: Result<Self, String>) -> Result<Self, Refusal> {
        if !headers.contains_key(HEADER) {
            let text = "the request has no header Volt-Request, which protects the program from other websites: use \
                        the button on the live page, or add the header, as with `curl -H 'Volt-Request: 1'`";
            return Err(Refusal::new(StatusCode::FORBIDDEN, text));
        }
        let wanted = wanted.map_err(|error| {
            let text = format!("{error}: name the program, pid and runtime, as in ?program=shop&pid=7&runtime=main");
            Refusal::new(StatusCode::BAD_REQUEST, text)
        })?;
        if wanted.filter.len() > MAX_FILTER_BYTES {
            let text = format!("the filter is longer than {MAX_FILTER_BYTES} bytes: shorten it");
            return Err(Refusal::new(StatusCode::BAD_REQUEST, text));
        }
        if wanted.rank == Rank::Unknown {
            let ranks: Vec<_> = Rank::ALL.iter().map(|rank| rank.name()).collect();
            let text = format!("there is no such rank: use one of {}", ranks.join(", "));
            return Err(Refusal::new(StatusCode::BAD_REQUEST, text));
        }
        Ok(wanted)
    }

    fn dump_query(&self) -> dump::Query {
        dump::Query { filter: self.filter.clone(), ..dump::Query::default() }
    }

    fn json(&self, runtime: impl Serialize) -> String {
        let reply = Reply { pid: self.pid, program: &self.program, runtimes: [runtime] };
        serde_json::to_string(&reply).expect("plain data has a JSON form")
    }

    fn dump_json(&self, mut dump: Dump) -> String {
        self.json(ShownDump::of(&mut dump))
    }
}

impl Target {
    /// Returns the reply as JSON.
    ///
    /// If the future is dropped, a dump ends early. The turn may be over before it has ended in the
    /// exporter's own program, whose runtime makes one dump at a time.
    pub(crate) async fn reply(self, what: What, wanted: Wanted, turn: Turn) -> Result<String, Refusal> {
        match (self, what) {
            (Target::Own, What::Dump) => {
                let _turn = turn;
                let dump = volt::observe::dump_async(&wanted.runtime, wanted.dump_query()).await;
                let dump = dump.ok_or_else(|| Refusal::no_runtime(&wanted))?;
                Ok(volt::task::block_in_place(|| wanted.dump_json(dump)))
            }
            (Target::Socket(path), What::Dump) => {
                let cancellation = Cancellation::default();
                let _cancels = CancelOnDrop(cancellation.clone());
                let dump = move || {
                    let dump = remote_dump::dump(&path, &wanted.runtime, &wanted.dump_query(), &cancellation);
                    dump.map(|dump| wanted.dump_json(dump)).map_err(|error| Refusal::of_client(&error))
                };
                blocking(turn, dump).await
            }
            (target, What::List) => blocking(turn, move || target.list(&wanted).map(|list| wanted.json(list))).await,
        }
    }

    fn list(&self, wanted: &Wanted) -> Result<TaskList, Refusal> {
        let query =
            tasks::Query { rank: wanted.rank, is_inverted: false, filter: wanted.filter.clone(), limit: ROWS_MAX };
        let mut request: Box<dyn FnMut() -> Result<TaskList, Refusal>> = match self {
            Target::Own => {
                Box::new(|| volt::observe::tasks(&wanted.runtime, &query).ok_or_else(|| Refusal::no_runtime(wanted)))
            }
            Target::Socket(path) => {
                let mut client = Client::connect(path).map_err(|error| Refusal::of_client(&error))?;
                let query = &query;
                Box::new(move || client.tasks(Some(&wanted.runtime), query).map_err(|error| Refusal::of_client(&error)))
            }
        };
        list_of(&query, LIST_TIMEOUT, &mut *request)
    }
}

/// Runs a job that blocks. It has the turn, since it may continue after its client has
/// disconnected.
async fn blocking(
    turn: Turn,
    job: impl FnOnce() -> Result<String, Refusal> + Send + 'static,
) -> Result<String, Refusal> {
    let job = volt::task::spawn_blocking(move || {
        let _turn = turn;
        job()
    });
    job.await.map_err(|error| {
        let text = format!("making the reply failed ({error}): see the exporter's stderr, and report it as a bug");
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, text)
    })?
}

/// Requests the list of this query again until it is complete: a program makes one list at a time,
/// and returns that of another query while another client requests it.
fn list_of(
    query: &tasks::Query,
    timeout: Duration,
    request: &mut dyn FnMut() -> Result<TaskList, Refusal>,
) -> Result<TaskList, Refusal> {
    let deadline = Instant::now() + timeout;
    loop {
        let list = request()?;
        if list.query == *query {
            return Ok(list);
        }
        if Instant::now() > deadline {
            let text = "another client, such as a console, is listing other tasks of this program: try again later";
            return Err(Refusal { wait: Some(timeout), ..Refusal::new(StatusCode::SERVICE_UNAVAILABLE, text) });
        }
        std::thread::sleep(LIST_PAUSE);
    }
}

impl<'a> ShownDump<'a> {
    /// Removes what exceeds the limits of a reply, and notes that.
    fn of(dump: &'a mut Dump) -> Self {
        dump.groups_left_out += dump.groups.len().saturating_sub(GROUPS_MAX) as u64;
        dump.groups.truncate(GROUPS_MAX);
        if let Some(more @ 1..) = dump.running.len().checked_sub(RUNNING_MAX) {
            dump.remarks.push(format!("{more} more tasks that were being polled are left out"));
            dump.running.truncate(RUNNING_MAX);
        }
        let details = dump.groups.iter().map(dump::Group::details).collect();
        Self { details, notes: dump.notes(), dump }
    }
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into(), wait: None }
    }

    pub(crate) fn no_runtime(wanted: &Wanted) -> Self {
        let Wanted { program, pid, runtime, .. } = wanted;
        let text = format!(
            "this exporter serves no runtime {runtime:?} of {program:?} with pid {pid}: it was shut down, or its \
             program has exited; choose another one on the live page"
        );
        Self::new(StatusCode::NOT_FOUND, text)
    }

    fn of_client(error: &ConnectError) -> Self {
        let status = if error.is_wrong_version() {
            StatusCode::NOT_IMPLEMENTED
        } else if error.is_timeout() {
            StatusCode::GATEWAY_TIMEOUT
        } else if error.is_busy() || error.is_answer() {
            StatusCode::SERVICE_UNAVAILABLE
        } else {
            StatusCode::BAD_GATEWAY
        };
        Self::new(status, error.to_string())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
        let response = (self.status, headers, json!({ "error": self.text }).to_string());
        match self.wait {
            Some(wait) => ([(RETRY_AFTER, wait.as_secs_f64().ceil().max(1.0).to_string())], response).into_response(),
            None => response.into_response(),
        }
    }
}

/// The programs that have a request in progress, or rest after one. See the module documentation.
///
/// A map has the programs of which a request was allowed: at most [`REQUESTS_MAX`] in progress, and
/// those that rest, which are removed when the next request arrives.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns(Arc<Mutex<HashMap<Origin, State>>>);

#[derive(Debug)]
enum State {
    InProgress,
    RestsUntil(Instant),
}

/// The right to request something from a program, until this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Turns,
    origin: Origin,
    began_at: Instant,
}

impl Turns {
    /// Begins a request, if the program has none and does not rest.
    pub(crate) fn take(&self, origin: Origin) -> Result<Turn, Refusal> {
        let now = Instant::now();
        let mut states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        states.retain(|_, state| !matches!(state, State::RestsUntil(until) if *until <= now));
        let too_many =
            |text: &str, wait| Err(Refusal { wait: Some(wait), ..Refusal::new(StatusCode::TOO_MANY_REQUESTS, text) });
        match states.get(&origin) {
            Some(State::InProgress) => {
                return too_many(
                    "another dump or list of this program is in progress: wait for it, then try again",
                    REST_MAX,
                );
            }
            Some(State::RestsUntil(until)) => {
                let wait = *until - now;
                let text = format!(
                    "the program pauses after a dump or list for as long as that took: try again in {:.1} s",
                    wait.as_secs_f64()
                );
                return too_many(&text, wait);
            }
            None => {}
        }
        if states.values().filter(|state| matches!(state, State::InProgress)).count() >= REQUESTS_MAX {
            let text = format!(
                "dumps and lists of {REQUESTS_MAX} programs are in progress, which is the limit: try again later"
            );
            return Err(Refusal { wait: Some(REST_MAX), ..Refusal::new(StatusCode::SERVICE_UNAVAILABLE, text) });
        }
        states.insert(origin.clone(), State::InProgress);
        Ok(Turn { turns: self.clone(), origin, began_at: now })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let now = Instant::now();
        let rests_until = now + now.duration_since(self.began_at).min(REST_MAX);
        let mut states = self.turns.0.lock().unwrap_or_else(PoisonError::into_inner);
        states.insert(std::mem::take(&mut self.origin), State::RestsUntil(rests_until));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use volt_telemetry::dump::{Group, Running};
    use volt_telemetry::wire::{self, Hello, MAX_REPLY_BYTES, Version};

    use super::*;

    fn wanted() -> Wanted {
        let (program, runtime) = ("shop".to_owned(), "main".to_owned());
        Wanted { program, pid: 7, runtime, filter: String::new(), rank: Rank::Busy }
    }

    fn program(pid: usize) -> Origin {
        vec!["shop".into(), pid.to_string()]
    }

    #[test]
    fn a_list_of_another_query_is_never_returned() {
        let query = tasks::Query { limit: 5, ..tasks::Query::default() };
        let list =
            |limit| Ok(TaskList { query: tasks::Query { limit, ..tasks::Query::default() }, ..TaskList::default() });
        let refused = list_of(&query, Duration::ZERO, &mut || list(6)).unwrap_err();
        assert_eq!((refused.status, refused.wait.is_some()), (StatusCode::SERVICE_UNAVAILABLE, true));
        let mut limits = [6, 5].into_iter();
        let found = list_of(&query, LIST_TIMEOUT, &mut || list(limits.next().unwrap())).unwrap();
        assert_eq!(found.query, query);
    }

    #[test]
    fn a_program_has_one_request_at_a_time_and_then_rests() {
        let turns = Turns::default();
        let mut turn = turns.take(program(1)).unwrap();
        let refusal = turns.take(program(1)).unwrap_err();
        assert_eq!(refusal.status, StatusCode::TOO_MANY_REQUESTS);
        assert!(refusal.text.contains("in progress"), "{}", refusal.text);
        drop(turns.take(program(2)).unwrap());
        // As if the request had taken very long.
        let Some(long_ago) = turn.began_at.checked_sub(10 * REST_MAX) else { return };
        turn.began_at = long_ago;
        drop(turn);
        let refusal = turns.take(program(1)).unwrap_err();
        assert!(refusal.text.contains("for as long as that took: try again in"), "{}", refusal.text);
        assert!(refusal.wait.is_some_and(|wait| wait <= REST_MAX));
        turns.0.lock().unwrap().insert(program(1), State::RestsUntil(Instant::now()));
        assert!(turns.take(program(1)).is_ok(), "its rest is over");
    }

    #[test]
    fn the_number_of_requests_in_progress_is_limited() {
        let turns = Turns::default();
        let mut taken: Vec<_> = (0..REQUESTS_MAX).map(|pid| turns.take(program(pid)).unwrap()).collect();
        let refusal = turns.take(program(99)).unwrap_err();
        assert_eq!(refusal.status, StatusCode::SERVICE_UNAVAILABLE);
        taken.pop();
        assert!(turns.take(program(99)).is_ok());
        turns.0.lock().unwrap().values_mut().for_each(|state| *state = State::RestsUntil(Instant::now()));
        let _turn = turns.take(program(100)).unwrap();
        assert_eq!(turns.0.lock().unwrap().len(), 1, "programs that do not rest any more are forgotten");
    }

    #[test]
    fn a_reply_counts_what_exceeds_its_limits() {
        let groups = vec![Group::default(); GROUPS_MAX + 3];
        let running = vec![Running::default(); RUNNING_MAX + 2];
        let mut dump = Dump { groups, groups_left_out: 4, running, ..Dump::default() };
        let shown = serde_json::to_value(ShownDump::of(&mut dump)).unwrap();
        let len = |name: &str| shown[name].as_array().unwrap().len();
        assert_eq!([len("groups"), len("details"), len("running")], [GROUPS_MAX, GROUPS_MAX, RUNNING_MAX]);
        assert_eq!(shown["groups_left_out"], 7);
        let notes = shown["notes"].to_string();
        assert!(notes.contains("7 more groups") && notes.contains("2 more tasks that were being polled"), "{notes}");
    }

    #[test]
    fn an_old_program_is_refused_with_both_versions() {
        let path = std::env::temp_dir().join(format!("volt-old-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let magic = wire::MAGIC.to_owned();
            let version = Version { minor: 1, ..wire::VERSION };
            for _ in 0..2 {
                let (socket, _) = listener.accept().unwrap();
                let hello = Hello { magic: magic.clone(), version, program: "shop".into(), ..Hello::default() };
                wire::write_frame(&socket, &wire::Reply::Hello(hello), MAX_REPLY_BYTES).unwrap();
            }
        });
        let target = Target::Socket(path.clone());
        let dump = remote_dump::dump(&path, "main", &dump::Query::default(), &Cancellation::default());
        let dump = Refusal::of_client(&dump.unwrap_err());
        let list = target.list(&wanted()).unwrap_err();
        for (refusal, needed) in [(dump, "cannot dump its tasks"), (list, "cannot list its tasks")] {
            assert_eq!(refusal.status, StatusCode::NOT_IMPLEMENTED);
            assert!(refusal.text.contains(needed) && refusal.text.contains("build the program with a newer Volt"));
        }
        server.join().unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}
