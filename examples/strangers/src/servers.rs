//! Real database servers, each in a separate directory, without a port. They are killed when they
//! are dropped.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Client, ErrorKind};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use sqlx::PgPool;
use tokio::time::sleep;

use crate::stores;
use crate::tls::Error;

/// How long to wait before the next attempt to connect.
const RETRY: Duration = Duration::from_millis(10);

/// A Redis server.
pub struct Redis(Running);

impl Redis {
    pub fn start() -> Self {
        let folder = new_folder("redis");
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(folder.join("redis.sock"));
        Redis(Running::start(command, folder, Signal::TERM))
    }

    pub fn url(&self) -> String {
        format!("redis+unix://{}", self.0.folder.join("redis.sock").display())
    }

    /// Connects as soon as the server accepts connections.
    pub async fn connect(&self) -> Result<MultiplexedConnection, Error> {
        let client = Client::open(self.url())?;
        loop {
            match client.get_multiplexed_async_connection().await {
                Ok(connection) => return Ok(connection),
                Err(error) if error.kind() == ErrorKind::Io => sleep(RETRY).await,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// A PostgreSQL server.
pub struct Postgres(Running);

impl Postgres {
    pub fn start() -> Self {
        let folder = new_folder("postgres");
        let data = folder.join("data");
        let mut initdb = program("initdb", &folder);
        initdb.args(["--auth=trust", "--username=tester", "--no-sync", "--pgdata"]).arg(&data);
        let done = initdb.output().expect(POSTGRES_MISSING);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let mut command = program("postgres", &folder);
        command.args(["-c", "listen_addresses=", "-c", "fsync=off", "-k"]).arg(&folder).arg("-D").arg(&data);
        // The immediate shutdown, which also ends its child processes.
        Postgres(Running::start(command, folder, Signal::QUIT))
    }

    pub fn url(&self) -> String {
        format!("postgres://tester@localhost/postgres?host={}", self.0.folder.display())
    }

    /// Connects as soon as the server accepts connections, and creates an empty table.
    pub async fn connect(&self) -> Result<PgPool, Error> {
        loop {
            let error = match stores::postgres(&self.url()).await {
                Ok(pool) => return Ok(pool),
                Err(error) => error,
            };
            match error.downcast_ref::<sqlx::Error>() {
                // There is no socket yet, or the server refuses connections.
                Some(sqlx::Error::Io(_)) => {}
                Some(sqlx::Error::Database(error)) if error.code().as_deref() == Some(CANNOT_CONNECT_NOW) => {}
                _ => return Err(error),
            }
            sleep(RETRY).await;
        }
    }
}

/// PostgreSQL's code for "the database system is starting up".
const CANNOT_CONNECT_NOW: &str = "57P03";
const POSTGRES_MISSING: &str = "PostgreSQL is needed: install Debian's package `postgresql`";

/// Returns a program of PostgreSQL's. It refuses to run as root, so root runs it as the owner of
/// the folder.
fn program(name: &str, folder: &Path) -> Command {
    // Debian has these programs in a folder for each version.
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let path = debian.map(|version| version.path().join("bin").join(name)).find(|path| path.exists());
    let mut command = Command::new(path.unwrap_or_else(|| name.into()));
    if geteuid().is_root() {
        let nobody = 65534;
        std::os::unix::fs::chown(folder, Some(nobody), Some(nobody)).unwrap();
        command.uid(nobody).gid(nobody);
    }
    command.current_dir(folder).stdin(Stdio::null());
    command
}

/// Creates a folder that only its owner can enter.
fn new_folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("strangers-{name}-{}", std::process::id()));
    let _removed = std::fs::remove_dir_all(&folder);
    DirBuilder::new().mode(0o700).create(&folder).unwrap();
    folder
}

struct Running {
    child: Child,
    folder: PathBuf,
    /// Ends the server.
    signal: Signal,
}

impl Running {
    fn start(mut command: Command, folder: PathBuf, signal: Signal) -> Self {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.unwrap_or_else(|error| panic!("{}: {error}", command.get_program().display()));
        Running { child, folder, signal }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _gone = kill_process(Pid::from_child(&self.child), self.signal);
        let _reaped = self.child.wait();
        let _removed = std::fs::remove_dir_all(&self.folder);
    }
}
