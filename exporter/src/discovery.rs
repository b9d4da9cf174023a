//! Other processes: finds their control sockets, keeps a connection to each, and asks them all at
//! once.
//!
//! Shape: a thread for each process, which owns the connection and waits for the wish for a
//! snapshot; whoever renders a page sends the wishes, and gathers the answers until [`PATIENCE`]
//! has passed.
//!
//! Who writes: [`Discovery::collect`], under `&mut`, keeps the list; each thread has its connection
//! to itself.
//!
//! Protocol of one process. (1) A new socket gets a thread, which connects and says hello's name.
//! (2) A collection asks those that owe no answer.
//! (3) An answer to an earlier collection is too old: it is thrown away, and the process asked
//! again. (4) A connection that fails ends its thread, which is seen by its channel; the next
//! collection connects anew if the socket is still there. Until it answers it is told of as silent,
//! by the name that it once gave.
//!
//! Invariants. *Nobody is waited for long*: a process that is stopped costs a page [`PATIENCE`] at
//! most, however many are. *Bounded*: [`PROCESSES_MAX`] threads, each with one wish and
//! [`ANSWERS_MAX`] answers under way.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use volt_telemetry::client::{Client, ConnectError};
use volt_telemetry::snapshot::Process;
use volt_telemetry::socket::{self, Environment};

use crate::samples::Origin;

/// How long a page waits for processes.
const PATIENCE: Duration = Duration::from_secs(1);
/// What a process's thread may say before somebody listens: hello, and one answer.
const ANSWERS_MAX: usize = 2;
/// Processes on one page.
const PROCESSES_MAX: usize = 256;

/// One program at one collection.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) origin: Origin,
    /// `None` when it did not answer in time.
    pub(crate) process: Option<Process>,
}

/// See the header of this file.
#[derive(Debug)]
pub(crate) struct Discovery {
    environments: Vec<Environment>,
    attached: HashMap<PathBuf, Attached>,
    /// Counts collections, so that an answer to an earlier one is known.
    collections: u64,
    /// What the programs are called of which a connection has failed, so that one that is silent is
    /// told of by its name.
    programs: HashMap<PathBuf, String>,
    /// The paths that were told to be in trouble, so that each is told once.
    told: Vec<PathBuf>,
    /// What could not be read at the last collection, as it was reported.
    refused: Vec<String>,
}

/// A process that has a thread.
#[derive(Debug)]
struct Attached {
    pid: u32,
    /// Its program's name, once it said hello, on this connection or one before.
    program: Option<String>,
    wishes: SyncSender<()>,
    answers: Receiver<Answer>,
    /// The collection whose wish has not been answered.
    asked_at: Option<u64>,
}

#[derive(Debug)]
enum Answer {
    Hello(String),
    /// Without a runtime if it could not take this one.
    Snapshot(Box<Process>),
    /// The connection has ended, and why.
    Failed(ConnectError),
}

impl Discovery {
    pub(crate) fn new(environments: Vec<Environment>) -> Self {
        let (attached, programs) = (HashMap::new(), HashMap::new());
        Self { environments, attached, collections: 0, programs, told: Vec::new(), refused: Vec::new() }
    }

    /// Every process that is there, by pid.
    pub(crate) fn collect(&mut self) -> Vec<Seen> {
        self.collections += 1;
        self.attach();
        for attached in self.attached.values_mut() {
            attached.ask(self.collections);
        }
        let deadline = Instant::now() + PATIENCE;
        let (mut seen, mut gone) = (Vec::new(), Vec::new());
        for (path, attached) in &mut self.attached {
            match attached.answer(self.collections, deadline) {
                Ok(process) => seen.extend(attached.origin().map(|origin| (attached.pid, Seen { origin, process }))),
                Err(why) => gone.push((path.clone(), why)),
            }
        }
        for (path, why) in gone {
            let attached = self.attached.remove(&path);
            match why {
                // It has ended, or is about to.
                Some(error) if error.is_closed() || error.is_stale() || error.is_missing() => {}
                Some(error) => {
                    if let Some(attached) = attached {
                        seen.extend(attached.origin().map(|origin| (attached.pid, Seen { origin, process: None })));
                        self.programs.extend(attached.program.map(|program| (path.clone(), program)));
                    }
                    self.tell(path, &error.to_string());
                }
                None => {}
            }
        }
        seen.sort_by_key(|(pid, _)| *pid);
        seen.into_iter().map(|(_, seen)| seen).collect()
    }

    /// A thread for each socket that has none, and none for sockets that are gone.
    fn attach(&mut self) {
        let listings: Vec<_> = self.environments.iter().map(socket::list).collect();
        let refused: Vec<_> = listings.iter().flat_map(|listing| &listing.refused).map(ToString::to_string).collect();
        for why in refused.iter().filter(|why| !self.refused.contains(why)) {
            tracing::warn!(why, "skipped this directory; its programs are not exported");
        }
        self.refused = refused;
        let alive = listings.into_iter().flat_map(|listing| listing.sockets).filter(|socket| socket.is_alive);
        let alive: HashMap<PathBuf, u32> = alive.map(|socket| (socket.path, socket.pid)).collect();
        self.attached.retain(|path, _| alive.contains_key(path));
        self.programs.retain(|path, _| alive.contains_key(path));
        self.told.retain(|path| alive.contains_key(path));
        for (path, pid) in alive {
            if self.attached.contains_key(&path) {
                continue;
            }
            let is_full = self.attached.len() >= PROCESSES_MAX;
            let attached = if is_full {
                Err(format!("the exporter already serves {PROCESSES_MAX} programs"))
            } else {
                Attached::start(&path, pid, self.programs.get(&path).cloned())
            };
            match attached {
                Ok(attached) => {
                    self.attached.insert(path, attached);
                }
                Err(why) => self.tell(path, &why),
            }
        }
    }

    fn tell(&mut self, path: PathBuf, why: &str) {
        if !self.told.contains(&path) {
            tracing::warn!(socket = %path.display(), why, "skipped this program; its metrics are not exported");
            self.told.push(path);
        }
    }
}

impl Attached {
    fn start(path: &Path, pid: u32, program: Option<String>) -> Result<Self, String> {
        let (wishes, wished) = sync_channel(1);
        let (to_page, answers) = sync_channel(ANSWERS_MAX);
        let path = path.to_path_buf();
        let run = move || {
            if let Err(error) = serve(&path, &wished, &to_page) {
                // Nobody listens when the page has ended.
                let _ = to_page.send(Answer::Failed(error));
            }
        };
        let thread = std::thread::Builder::new().name(format!("volt-export-{pid}"));
        thread.spawn(run).map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok(Self { pid, program, wishes, answers, asked_at: None })
    }

    fn ask(&mut self, collection: u64) {
        // A full channel is a wish under way; a closed one is found when its answer is waited for.
        if self.asked_at.is_none() && self.wishes.try_send(()).is_ok() {
            self.asked_at = Some(collection);
        }
    }

    /// Its snapshot for this collection; `None` if it does not come in time. An error says that its
    /// connection has ended, and why if it is known.
    fn answer(&mut self, collection: u64, deadline: Instant) -> Result<Option<Process>, Option<ConnectError>> {
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
                Answer::Snapshot(process) if self.asked_at == Some(collection) => {
                    self.asked_at = None;
                    return Ok(Some(*process));
                }
                Answer::Snapshot(_) => {
                    self.asked_at = None;
                    self.ask(collection);
                }
            }
        }
    }

    /// Unknown until it said hello.
    fn origin(&self) -> Option<Origin> {
        Some(vec![self.program.clone()?, self.pid.to_string()])
    }
}

/// The thread of one process, until its connection or its page ends.
fn serve(path: &Path, wished: &Receiver<()>, to_page: &SyncSender<Answer>) -> Result<(), ConnectError> {
    let mut client = Client::connect(path)?;
    let (pid, program) = (client.hello().pid, client.hello().program.clone());
    let mut is_wanted = to_page.send(Answer::Hello(program.clone())).is_ok();
    let mut is_told = false;
    while is_wanted && wished.recv().is_ok() {
        let process = match client.snapshot() {
            Ok(process) => process,
            // It is there, and no more is known.
            Err(error) if error.is_answer() => {
                if !std::mem::replace(&mut is_told, true) {
                    tracing::warn!(socket = %path.display(), why = %error, "the metrics of this program are missing from one page");
                }
                Process { pid, program: program.clone(), ..Process::default() }
            }
            Err(error) => return Err(error),
        };
        is_wanted = to_page.send(Answer::Snapshot(Box::new(process))).is_ok();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use volt_telemetry::wire::{self, Hello, MAX_REPLY_BYTES, MAX_REQUEST_BYTES, Reply, Request};

    use super::*;

    #[test]
    fn a_process_that_says_that_it_cannot_is_not_taken_for_a_silent_one() {
        let path = std::env::temp_dir().join(format!("volt-cannot-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            let magic = wire::MAGIC.to_owned();
            let hello = Hello { magic, version: wire::VERSION, pid: 7, program: "shop".into(), ..Hello::default() };
            let say = |reply: &Reply| wire::write_frame(&socket, reply, MAX_REPLY_BYTES).unwrap();
            say(&Reply::Hello(hello));
            assert_eq!(wire::read_frame::<Request>(&socket, MAX_REQUEST_BYTES).unwrap(), Some(Request::Snapshot));
            say(&Reply::Error { message: "not this time".into() });
        });
        let mut attached = Attached::start(&path, 7, None).unwrap();
        attached.ask(1);
        let answer = attached.answer(1, Instant::now() + Duration::from_secs(20)).unwrap();
        let process = answer.expect("it has answered");
        assert_eq!((process.pid, process.program.as_str(), process.runtimes.len()), (7, "shop", 0));
        server.join().unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}
