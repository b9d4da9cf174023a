//! The environment of every test: a Tokio runtime, a watchdog, and the programs of this package.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use strangers::tls;
use tokio::net::TcpListener;
use tokio::runtime::Builder;

/// The error of a test.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Runs `test` in a current-thread runtime, and in one with two workers. Aborts the program, with
/// the test's name, if one of them takes longer than `limit`.
pub fn on_runtimes<F>(limit: Duration, test: impl Fn() -> F)
where
    F: Future<Output = Result<(), Error>>,
{
    on(&mut Builder::new_current_thread(), limit, &test);
    on(Builder::new_multi_thread().worker_threads(2), limit, test);
}

/// Like `on_runtimes`, in one runtime.
pub fn on<F>(builder: &mut Builder, limit: Duration, test: impl Fn() -> F)
where
    F: Future<Output = Result<(), Error>>,
{
    tls::install_provider();
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    let (done, is_done) = mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        if is_done.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
            let _result = std::io::Write::write_all(&mut std::io::stderr(), format!("{name} hangs\n").as_bytes());
            std::process::abort();
        }
    });
    let runtime = builder.enable_all().build().unwrap();
    runtime.block_on(test()).unwrap();
    drop(runtime);
    drop(done);
    watchdog.join().unwrap();
}

/// Returns a listener on a free port of this machine, and its address.
pub async fn listen() -> Result<(TcpListener, SocketAddr), Error> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// A program of this package that prints its address; killed when this is dropped.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
}

impl Server {
    pub fn start(program: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new(program).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Server { child, address: line.trim().parse().unwrap() }
    }

    /// Returns its anonymous memory in bytes: what it has allocated and touched. Mapped files do
    /// not count, because the system can reclaim their pages at any time.
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    /// Returns the number of its open descriptors.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// Returns the number of its open sockets. The runtime opens files at any time; sockets
    /// stay.
    pub fn sockets(&self) -> usize {
        let entries = std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap();
        // A descriptor that was closed in the meantime has no target.
        let targets = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}
