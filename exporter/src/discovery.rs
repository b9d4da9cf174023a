//! Collects snapshots from other programs, for the sidecar `volt-exporter`: finds their control
//! sockets, keeps a connection to each, and requests snapshots from all of them at the same time.
//!
//! # Shape
//!
//! Each program has a thread, which owns the connection and waits for requests for a snapshot. The
//! thread that renders a page sends these requests, and gathers the replies until [`TIMEOUT`] has
//! passed.
//!
//! Ownership: [`Discovery::collect`] has `&mut` access to the list of programs. Each connection is
//! used only by its thread.
//!
//! An ordinary case: two programs run, and both have a thread. A page sends each thread a request,
//! and has both replies a few milliseconds later.
//!
//! The race: one of the programs is stopped, and its reply arrives after [`TIMEOUT`]. The page has
//! reported it as not responding by then. The late reply is found and dropped by the next
//! collection.
//!
//! # Protocol of one program
//!
//! 1. A new socket gets a thread, which connects, and sends the program's name from the hello
//!    message to the page.
//! 2. A collection sends a request to each program that has no request outstanding.
//! 3. A reply to an earlier collection is too old. It is dropped, and the program gets a new
//!    request.
//! 4. If the connection fails, its thread exits, and the page finds its channel closed. The next
//!    collection connects again if the socket still exists. Until the program replies, it is
//!    reported as not responding, under the name that it sent before.
//!
//! # Invariants
//!
//! *One program, one thread*: a socket counts once, also if two of the directories are the same,
//! such as `/run/volt` and `/var/run/volt`. Otherwise the page would have duplicate series. *No
//! long wait*: programs that are stopped delay a page by at most [`TIMEOUT`], however many there
//! are. *Bounded*: at most [`PROGRAMS_MAX`] threads, each with at most one request and
//! [`ANSWERS_MAX`] replies in its channels. The thread of a program whose socket was removed may
//! wait for a reply for a few more seconds.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use volt_diagnosis::exposition::Origin;
use volt_telemetry::client::{Client, ConnectError};
use volt_telemetry::snapshot::Program;
use volt_telemetry::socket::{self, Environment, Listing};

/// How long a page waits for the replies of programs.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Messages that a program's thread can send before the page receives them: hello, and one reply.
const ANSWERS_MAX: usize = 2;
/// The maximum number of programs on one page.
const PROGRAMS_MAX: usize = 256;

/// One program in one collection.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) origin: Origin,
    /// `None` if it did not reply in time, or its connection failed.
    pub(crate) program: Option<Program>,
}

/// The programs found so far, and their threads. See the header of this file.
#[derive(Debug)]
pub(crate) struct Discovery {
    environments: Vec<Environment>,
    attached: HashMap<PathBuf, Attached>,
    /// The number of collections, which identifies replies to an earlier one.
    collections: u64,
    /// The names of programs whose connection has failed, so that they can be reported under their
    /// names until they reply again.
    programs: HashMap<PathBuf, String>,
    /// The paths whose failure was logged, so that each is logged only once.
    warned_of: Vec<PathBuf>,
    /// The directories and sockets that could not be read at the last collection, as they were
    /// logged.
    refused: Vec<String>,
}

/// A program that has a thread.
#[derive(Debug)]
struct Attached {
    pid: u32,
    /// The program's name, once it sent hello on this or an earlier connection.
    program: Option<String>,
    requests: SyncSender<()>,
    answers: Receiver<Answer>,
    /// The collection whose request has no reply yet.
    requested_in: Option<u64>,
}

#[derive(Debug)]
enum Answer {
    Hello(String),
    /// Has no runtimes if the program could not take this snapshot.
    Snapshot(Box<Program>),
    /// The connection has failed, with the reason.
    Failed(ConnectError),
}

impl Discovery {
    pub(crate) fn new(environments: Vec<Environment>) -> Self {
        let (attached, programs) = (HashMap::new(), HashMap::new());
        let (warned_of, refused) = (Vec::new(), Vec::new());
        let mut discovery = Self { environments, attached, collections: 0, programs, warned_of, refused };
        // Logs what cannot be read at the start, and not only at the first scrape.
        discovery.list();
        discovery
    }

    /// Returns every program that has a control socket and has sent hello, sorted by pid.
    pub(crate) fn collect(&mut self) -> Vec<Seen> {
        self.attach();
        self.gather()
    }

    /// Returns the control socket of a program that has sent hello.
    pub(crate) fn socket(&self, origin: &Origin) -> Option<&Path> {
        let found = self.attached.iter().find(|(_, attached)| attached.origin().as_ref() == Some(origin));
        found.map(|(path, _)| path.as_path())
    }

    /// Requests a snapshot from every program that has a thread, and returns what they reply.
    fn gather(&mut self) -> Vec<Seen> {
        self.collections += 1;
        for attached in self.attached.values_mut() {
            attached.request(self.collections);
        }
        let deadline = Instant::now() + TIMEOUT;
        let (mut seen, mut gone) = (Vec::new(), Vec::new());
        for (path, attached) in &mut self.attached {
            match attached.answer(self.collections, deadline) {
                Ok(program) => seen.extend(attached.origin().map(|origin| (attached.pid, Seen { origin, program }))),
                Err(why) => gone.push((path.clone(), why)),
            }
        }
        for (path, why) in gone {
            let attached = self.attached.remove(&path);
            match why {
                // The program has exited, or is about to.
                Some(error) if error.is_closed() || error.is_stale() || error.is_missing() => {}
                Some(error) => {
                    if let Some(attached) = attached {
                        seen.extend(attached.origin().map(|origin| (attached.pid, Seen { origin, program: None })));
                        self.programs.extend(attached.program.map(|program| (path.clone(), program)));
                    }
                    self.warn_once(path, &error.to_string());
                }
                None => {}
            }
        }
        seen.sort_by_key(|(pid, _)| *pid);
        seen.into_iter().map(|(_, seen)| seen).collect()
    }

    /// Lists the sockets of all environments, and logs each directory and socket that could not be
    /// read, once.
    fn list(&mut self) -> Vec<Listing> {
        let listings: Vec<_> = self.environments.iter().map(socket::list).collect();
        let refused: Vec<_> = listings.iter().flat_map(|listing| &listing.refused).map(ToString::to_string).collect();
        for why in refused.iter().filter(|why| !self.refused.contains(why)) {
            tracing::warn!(why, "skipped this directory or socket; its programs are not exported");
        }
        self.refused = refused;
        listings
    }

    /// Starts a thread for each new socket, and drops the threads of sockets that no longer exist.
    fn attach(&mut self) {
        let mut files = HashSet::new();
        let mut is_new =
            |path: &Path| std::fs::symlink_metadata(path).is_ok_and(|file| files.insert((file.dev(), file.ino())));
        let found = self.list().into_iter().flat_map(|listing| listing.sockets);
        let alive = found.filter(|socket| socket.is_alive && is_new(&socket.path));
        let alive: HashMap<PathBuf, u32> = alive.map(|socket| (socket.path, socket.pid)).collect();
        self.attached.retain(|path, _| alive.contains_key(path));
        self.programs.retain(|path, _| alive.contains_key(path));
        self.warned_of.retain(|path| alive.contains_key(path));
        for (path, pid) in alive {
            if self.attached.contains_key(&path) {
                continue;
            }
            let is_full = self.attached.len() >= PROGRAMS_MAX;
            let attached = if is_full {
                Err(format!("the exporter already serves {PROGRAMS_MAX} programs"))
            } else {
                Attached::start(&path, pid, self.programs.get(&path).cloned())
            };
            match attached {
                Ok(attached) => {
                    self.attached.insert(path, attached);
                }
                Err(why) => self.warn_once(path, &why),
            }
        }
    }

    fn warn_once(&mut self, path: PathBuf, why: &str) {
        if !self.warned_of.contains(&path) {
            tracing::warn!(socket = %path.display(), why, "skipped this program; its metrics are not exported");
            self.warned_of.push(path);
        }
    }
}

impl Attached {
    fn start(path: &Path, pid: u32, program: Option<String>) -> Result<Self, String> {
        let (requests, received) = sync_channel(1);
        let (to_page, answers) = sync_channel(ANSWERS_MAX);
        let path = path.to_path_buf();
        let run = move || {
            if let Err(error) = serve(&path, &received, &to_page) {
                // Fails if the page, which has the receiver, was dropped.
                let _ = to_page.send(Answer::Failed(error));
            }
        };
        let thread = std::thread::Builder::new().name(format!("volt-export-{pid}"));
        thread.spawn(run).map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok(Self { pid, program, requests, answers, requested_in: None })
    }

    fn request(&mut self, collection: u64) {
        // A full channel means that a request is already outstanding. `answer` detects a closed
        // channel.
        if self.requested_in.is_none() && self.requests.try_send(()).is_ok() {
            self.requested_in = Some(collection);
        }
    }

    /// Returns the snapshot for this collection, or `None` if it does not arrive in time. Returns
    /// an error if the connection has failed, with the reason if it is known.
    fn answer(&mut self, collection: u64, deadline: Instant) -> Result<Option<Program>, Option<ConnectError>> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let answer = match self.answers.recv_timeout(left) {
                Ok(answer) => answer,
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => return Err(None),
            };
            match answer {
                Answer::Hello(program) => {
                    self.program = Some(program);
                }
                Answer::Failed(error) => return Err(Some(error)),
                Answer::Snapshot(program) if self.requested_in == Some(collection) => {
                    self.requested_in = None;
                    return Ok(Some(*program));
                }
                Answer::Snapshot(_) => {
                    self.requested_in = None;
                    self.request(collection);
                }
            }
        }
    }

    /// Returns `None` until the program has sent hello.
    fn origin(&self) -> Option<Origin> {
        Some(vec![self.program.clone()?, self.pid.to_string()])
    }
}

/// Runs the thread of one program, until its connection or its page is closed.
fn serve(path: &Path, received: &Receiver<()>, to_page: &SyncSender<Answer>) -> Result<(), ConnectError> {
    let mut client = Client::connect(path)?;
    let (pid, program) = (client.hello().pid, client.hello().program.clone());
    let mut is_wanted = to_page.send(Answer::Hello(program.clone())).is_ok();
    let mut is_warned = false;
    while is_wanted && received.recv().is_ok() {
        let program = match client.snapshot() {
            Ok(program) => program,
            // The program is up, but it did not send a snapshot.
            Err(error) if error.is_answer() => {
                if !std::mem::replace(&mut is_warned, true) {
                    tracing::warn!(socket = %path.display(), why = %error, "the metrics of this program are missing from a scrape; later failures are not logged");
                }
                Program { pid, name: program.clone(), ..Program::default() }
            }
            Err(error) => return Err(error),
        };
        is_wanted = to_page.send(Answer::Snapshot(Box::new(program))).is_ok();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::DirBuilder;
    use std::os::unix::fs::{DirBuilderExt, symlink};
    use std::os::unix::net::UnixListener;

    use volt_telemetry::wire::{self, Hello, MAX_REPLY_BYTES, MAX_REQUEST_BYTES, Reply, Request};

    use super::*;

    /// Returns a program that has no thread: the test receives its requests and sends its replies.
    fn by_hand(pid: u32) -> (Attached, Receiver<()>, SyncSender<Answer>) {
        let (requests, received) = sync_channel(1);
        let (to_page, answers) = sync_channel(ANSWERS_MAX);
        let attached = Attached { pid, program: Some("shop".into()), requests, answers, requested_in: None };
        (attached, received, to_page)
    }

    #[test]
    fn silent_programs_do_not_add_up_their_delays() {
        let mut discovery = Discovery::new(Vec::new());
        let mut peers = Vec::new();
        for pid in 1..=PROGRAMS_MAX as u32 {
            let (attached, received, to_page) = by_hand(pid);
            discovery.attached.insert(pid.to_string().into(), attached);
            peers.push((received, to_page));
        }
        let (to_test, gathered) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let seen = discovery.gather();
            to_test.send((discovery, seen)).unwrap();
        });
        // Far more than the delay of one program, and far less than the sum of all.
        let gathered = gathered.recv_timeout(60 * TIMEOUT);
        let (mut discovery, seen) = gathered.expect("the page waits for each program in turn");
        assert_eq!(seen.len(), PROGRAMS_MAX);
        assert!(seen.iter().all(|seen| seen.program.is_none()), "none has replied");
        // The late reply of one program is dropped, and the next one counts.
        let (received, to_page) = &peers[0];
        received.recv().unwrap();
        for name in ["late", "new"] {
            let program = Program { name: name.into(), ..Program::default() };
            to_page.send(Answer::Snapshot(Box::new(program))).unwrap();
        }
        let seen = discovery.gather();
        let replied = seen.iter().filter_map(|seen| seen.program.as_ref()).map(|program| program.name.as_str());
        assert_eq!(replied.collect::<Vec<_>>(), ["new"]);
    }

    #[test]
    fn a_socket_with_two_paths_is_one_program() {
        let base = std::env::temp_dir().join(format!("volt-paths-{}", std::process::id()));
        let (run, var) = (base.join("run"), base.join("var"));
        DirBuilder::new().mode(0o700).recursive(true).create(&run).unwrap();
        symlink(&base, &var).unwrap();
        let socket = run.join(socket::file_name(7, 8));
        let _listener = UnixListener::bind(&socket).unwrap();
        let environment = |dir| Environment { socket_dir: Some(dir), ..Environment::of_program() };
        let mut discovery = Discovery::new(vec![environment(run), environment(var.join("run"))]);
        discovery.attach();
        assert_eq!(discovery.attached.keys().collect::<Vec<_>>(), [&socket]);
        std::fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn an_error_reply_does_not_count_as_a_silent_program() {
        let path = std::env::temp_dir().join(format!("volt-cannot-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            let magic = wire::MAGIC.to_owned();
            let hello = Hello { magic, version: wire::VERSION, pid: 7, program: "shop".into(), ..Hello::default() };
            let send = |reply: &Reply| wire::write_frame(&socket, reply, MAX_REPLY_BYTES).unwrap();
            send(&Reply::Hello(hello));
            assert_eq!(wire::read_frame::<Request>(&socket, MAX_REQUEST_BYTES).unwrap(), Some(Request::Snapshot));
            send(&Reply::Error { message: "not this time".into() });
        });
        let mut attached = Attached::start(&path, 7, None).unwrap();
        attached.request(1);
        let answer = attached.answer(1, Instant::now() + Duration::from_secs(20)).unwrap();
        let program = answer.expect("it has answered");
        assert_eq!((program.pid, program.name.as_str(), program.runtimes.len()), (7, "shop", 0));
        server.join().unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}
