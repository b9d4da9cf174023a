//! Test helpers: a `nats-server` on a free port, other programs of the cluster, and the watchdog
//! under which every test here runs.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::StreamExt;
use rustix::process::{Pid, Signal, kill_process};

/// The time limit of a test, on a machine that is busy with other work.
const LIMIT: Duration = Duration::from_secs(120);
/// The file in the server's folder that configures it.
const CONFIGURATION: &str = "nats-server.conf";
/// The interval between two checks whether the server has written its port file.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Runs `test` in a runtime with Tokio compatibility, with one worker and with two. If the test
/// hangs, prints its name and aborts.
pub fn on_volt<F: Future<Output = ()>>(test: impl Fn() -> F) {
    for workers in [1, 2] {
        let name = std::thread::current().name().unwrap_or("a test").to_owned();
        let (done, is_done) = mpsc::channel::<()>();
        let watchdog = std::thread::spawn(move || {
            if is_done.recv_timeout(LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
                let _result = std::io::Write::write_all(&mut std::io::stderr(), format!("{name} hangs\n").as_bytes());
                std::process::abort();
            }
        });
        let builder = volt::Builder::new_multi_thread().worker_threads(workers).park_timeout(None).tokio_compat(true);
        builder.build().unwrap().block_on(test());
        drop(done);
        watchdog.join().unwrap();
    }
}

/// A program that is killed when this is dropped.
pub struct Program(Child);

impl Program {
    /// Starts the example `ping` as a node that replies. The node is in its cluster when this
    /// returns.
    pub fn ping(server: &str, node: &str) -> Self {
        let program = env!("CARGO_BIN_EXE_ping");
        let mut child = Command::new(program).args([server, node]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, format!("{node} is there\n"));
        Self(child)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    pub fn wait(&mut self) {
        self.0.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A thread with its own runtime that sends hellos to a node as fast as it can. Each has a higher
/// session, so that each causes work.
pub struct Flood {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Flood {
    /// Starts the flood. It has begun when this returns.
    pub fn of(server: &str, node: &'static str) -> Self {
        let (ends, server) = (Arc::new(AtomicBool::new(false)), server.to_owned());
        let (began, has_begun) = mpsc::channel();
        let is_over = ends.clone();
        let thread = std::thread::spawn(move || {
            let builder = volt::Builder::new_multi_thread().worker_threads(1).tokio_compat(true);
            builder.build().unwrap().block_on(async move {
                let client = async_nats::connect(server).await.unwrap();
                let mut presence = client.subscribe("volt.ping.presence").await.unwrap();
                let to = loop {
                    let from = presence.next().await.unwrap().reply.unwrap();
                    if from.contains(node) {
                        break from;
                    }
                };
                drop(presence);
                let mut session = 0_u64;
                // ORDERING: Relaxed; a flag that publishes nothing.
                while !is_over.load(Ordering::Relaxed) {
                    session += 1;
                    let head = [session, 0, 0].map(u64::to_le_bytes).concat();
                    let hello = [&[1, 1][..], &head].concat();
                    let from = "volt.ping.frame.mallory.0000000000000001";
                    client.publish_with_reply(to.clone(), from, hello.into()).await.unwrap();
                    if session == 1000 {
                        client.flush().await.unwrap();
                        began.send(()).unwrap();
                    }
                }
                session
            })
        });
        has_begun.recv().unwrap();
        Self { ends, thread }
    }

    /// Stops the flood. Returns the number of hellos.
    pub fn end(self) -> u64 {
        // ORDERING: Relaxed; a flag that publishes nothing.
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// A server on the loopback interface, without TLS, which writes only its port to the disk.
pub struct Server {
    pub program: Program,
    pub address: String,
    folder: PathBuf,
}

impl Server {
    /// Starts a server on a free port.
    pub fn start() -> Self {
        Self::start_with("")
    }

    /// Starts a server on a free port, with more lines of its configuration file.
    pub fn start_with(configuration: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("volt-nats-{}-{:?}", std::process::id(), std::thread::current().id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(CONFIGURATION), format!("host: \"127.0.0.1\"\n{configuration}")).unwrap();
        let program = launch("-1", &folder);
        let file = folder.join(format!("nats-server_{}.ports", program.0.id()));
        let address = loop {
            // The file contains, for example, {"nats":["nats://127.0.0.1:41235"]}. It is empty
            // while it is written.
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            match text.split("nats://").nth(1).and_then(|rest| rest.split('"').next()) {
                Some(address) => break address.to_owned(),
                None => std::thread::sleep(CHECK_INTERVAL),
            }
        };
        Self { program, address, folder }
    }

    /// Kills the server, and starts another on the same port.
    pub fn restart(&mut self) {
        self.program.signal(Signal::KILL);
        self.program.wait();
        let (_, port) = self.address.rsplit_once(':').unwrap();
        self.program = launch(port, &self.folder);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

fn launch(port: &str, folder: &std::path::Path) -> Program {
    let mut command = Command::new("nats-server");
    command.args(["-p", port, "--ports_file_dir"]).arg(folder).arg("-c").arg(folder.join(CONFIGURATION));
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    Program(child.expect("nats-server can be started: it is Debian's package nats-server"))
}
