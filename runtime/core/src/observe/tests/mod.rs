//! Tests of the observer over its real socket, with clients that behave, misbehave or do nothing.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak, mpsc};
use std::time::{Duration, Instant};

use mio::Poll;
use volt_telemetry::client::Client;
use volt_telemetry::dump::{self, Dump};
use volt_telemetry::health::Health;
use volt_telemetry::histogram::Histogram;
use volt_telemetry::incident::{Frame, Incident, Incidents};
use volt_telemetry::routes::Route;
use volt_telemetry::snapshot::{Snapshot, Worker};
use volt_telemetry::socket::Environment;
use volt_telemetry::wire::{self, MAX_REPLY_BYTES, MAX_REQUEST_BYTES, Reply, Request};

use super::limits::Limits;
use super::listener::Listener;
use super::registry::{Observed, Registration, Registry};
use super::server::Server;
use crate::recorder::drain::Names;
use crate::recorder::lanes::Recorder;
use crate::scheduler::core::rng::FastRand;
use crate::scheduler::readers::limit::Limit;

mod clients;
mod dumps;
mod lifecycle;

/// The maximum time for an event that the test expects.
const LONG: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(wire::MIN_INTERVAL_MS);

/// A folder for one test, removed with it.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // ORDERING: Relaxed; only the number matters, it publishes nothing.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Not `TMPDIR`, which may be longer than a socket's path allows.
        let path = PathBuf::from(format!("/tmp/volt-observe-{}-{number}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        Self(path)
    }

    pub(super) fn sockets(&self) -> PathBuf {
        self.0.join("volt")
    }

    pub(super) fn environment(&self) -> Environment {
        let user_id = rustix::process::geteuid().as_raw();
        Environment { socket_dir: Some(self.sockets()), runtime_dir: None, user_id }
    }

    pub(super) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.sockets()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A runtime that consists only of its figures.
#[derive(Default)]
struct Fake {
    name: String,
    workers: u32,
    /// Incidents, each with a deep stack.
    incidents: usize,
    /// HTTP routes with full histograms.
    routes: usize,
    taken: AtomicU64,
    is_broken: AtomicBool,
    recorder: OnceLock<Arc<Recorder>>,
    /// If set, dropped while a snapshot is taken.
    last_words: Mutex<Option<Registration>>,
    /// If set, waited for while a snapshot is taken.
    hold: Mutex<Option<mpsc::Receiver<()>>>,
    /// The actions of the next dumps. A dump without an entry here is empty.
    on_dump: Mutex<VecDeque<OnDump>>,
}

/// The action of a dump until it is complete.
type OnDump = Box<dyn FnOnce(&Limit) + Send>;

impl Observed for Fake {
    fn recorder(&self) -> Option<&Arc<Recorder>> {
        Some(self.recorder.get_or_init(|| Recorder::new(1, 0, 8, false)))
    }

    fn names(&self) -> Option<&dyn Names> {
        Some(self)
    }

    fn dump(self: Arc<Self>, _query: &dump::Query, limit: &Limit) -> Dump {
        let on_dump = self.on_dump.lock().unwrap().pop_front();
        on_dump.into_iter().for_each(|on_dump| on_dump(limit));
        Dump { runtime: self.name.clone(), ..Dump::default() }
    }

    fn snapshot(&self) -> Snapshot {
        // ORDERING: SeqCst; a test's own counter and switch, which prove nothing about order.
        let taken = self.taken.fetch_add(1, Ordering::SeqCst) + 1;
        // ORDERING: see above.
        assert!(!self.is_broken.load(Ordering::SeqCst), "broken on purpose");
        drop(self.last_words.lock().unwrap().take());
        let hold = self.hold.lock().unwrap().take();
        if let Some(hold) = hold {
            hold.recv().unwrap();
        }
        let poll_time = Histogram::from_counts(vec![u64::MAX / 1024; 500], 1);
        let workers =
            (0..self.workers).map(|index| Worker { index, poll_time: poll_time.clone(), ..Worker::default() });
        let function = Some("deep::".repeat(30));
        let stack = vec![Frame { function, file: Some("a/source/file.rs".into()), ..Frame::default() }; 64];
        let latest = vec![Incident { stack, ..Incident::default() }; self.incidents];
        let incidents = Incidents { latest, ..Incidents::default() };
        let workers = workers.collect();
        let routes = vec![Route { duration: poll_time, ..Route::default() }; self.routes];
        Snapshot { runtime: self.name.clone(), at_ns: taken, workers, incidents, routes, ..Snapshot::default() }
    }
}

impl Names for Fake {
    fn location(&self, _number: u16) -> Option<String> {
        None
    }

    fn task(&self, _id: u64) -> Option<String> {
        None
    }

    fn incident(&self, _number: u64) -> Option<String> {
        None
    }
}

/// One observed runtime in its own folder. The fields are dropped in this order.
struct Scene {
    registration: Option<Registration>,
    fake: Arc<Fake>,
    registry: Arc<Registry>,
    folder: Folder,
}

fn observe(runtime: &Arc<Fake>, registry: &Arc<Registry>) -> Registration {
    show(runtime, registry, true)
}

fn show(fake: &Arc<Fake>, registry: &Arc<Registry>, open_socket: bool) -> Registration {
    let runtime: Weak<Fake> = Arc::downgrade(fake);
    let registration = registry.register(&fake.name);
    registration.show(runtime, open_socket);
    registration
}

impl Scene {
    fn new() -> Self {
        Self::with(Limits::DEFAULT, Fake { name: "main".into(), ..Fake::default() })
    }

    fn with(limits: Limits, fake: Fake) -> Self {
        let folder = Folder::new();
        let environment = folder.environment();
        let registry = Registry::new(move || environment.clone(), limits);
        let fake = Arc::new(fake);
        let registration = Some(observe(&fake, &registry));
        Self { registration, fake, registry, folder }
    }

    fn path(&self) -> PathBuf {
        self.registry.socket_path().expect("the socket is open")
    }

    fn client(&self) -> Client {
        Client::connect(&self.path()).unwrap()
    }

    /// Connects without a client library, and reads the hello.
    fn raw(&self) -> UnixStream {
        let stream = UnixStream::connect(self.path()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        assert!(matches!(read(&stream), Some(Reply::Hello(_))));
        stream
    }

    fn until(&self, what: &str, is_so: impl Fn(Health) -> bool) {
        let begun = Instant::now();
        while !is_so(self.registry.health()) {
            assert!(begun.elapsed() < LONG, "never: {what}: {:?}", self.registry.health());
            std::thread::yield_now();
        }
    }
}

/// Returns the next answer, skipping notices that it will be late.
fn read(stream: &UnixStream) -> Option<Reply> {
    loop {
        match wire::read_frame(stream, MAX_REPLY_BYTES).unwrap() {
            Some(Reply::Throttled { .. }) => {}
            reply => return reply,
        }
    }
}

fn request(stream: &UnixStream, request: &Request) {
    wire::write_frame(stream, request, MAX_REQUEST_BYTES).unwrap();
}

/// Waits until the server closes the connection. Returns whether it did.
fn is_closed(mut stream: &UnixStream) -> bool {
    match stream.read(&mut [0; 64]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}
