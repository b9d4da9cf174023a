//! Tests that tokio-console works with Volt. Its subscriber observes a program on Volt. A client of
//! its protocol, like the console itself, waits until it has received a task with its name, line,
//! polls, wake-ups and wakers, and a blocking job.
//!
//! Run it with `cargo run` in this directory, whose `.cargo/config.toml` configures the subscriber
//! for a runtime other than Tokio. Exits with code 0 if everything was received within
//! [`PATIENCE`]; otherwise prints what was received.

use std::collections::HashMap;
use std::net::TcpListener;
use std::process::ExitCode;
use std::time::Duration;

use console_api::field::{Name, Value};
use console_api::instrument::InstrumentRequest;
use console_api::instrument::instrument_client::InstrumentClient;
use console_api::tasks::{Stats, Task};
use console_subscriber::ConsoleLayer;
use tracing_subscriber::prelude::*;

/// The time limit of the test.
const PATIENCE: Duration = Duration::from_secs(30);

/// The data received so far.
#[derive(Default)]
struct Seen {
    tasks: HashMap<u64, Task>,
    stats: HashMap<u64, Stats>,
}

impl Seen {
    /// Returns the text of a field of a task.
    fn field(task: &Task, name: &str) -> String {
        let is_it = |field: &&console_api::Field| matches!(&field.name, Some(Name::StrName(found)) if found == name);
        match task.fields.iter().find(is_it).and_then(|field| field.value.as_ref()) {
            Some(Value::StrVal(text) | Value::DebugVal(text)) => text.clone(),
            Some(value) => format!("{value:?}"),
            None => String::new(),
        }
    }

    fn has_all(&self) -> bool {
        let is_fed = self.tasks.iter().any(|(id, task)| {
            let location = task.location.as_ref();
            let stats = self.stats.get(id);
            Self::field(task, "task.name") == "feed"
                && Self::field(task, "kind") == "task"
                && location.is_some_and(|location| location.line.is_some_and(|line| line > 0))
                && stats.is_some_and(|stats| stats.wakes > 2 && stats.waker_clones > 0)
                && stats.and_then(|stats| stats.poll_stats.as_ref()).is_some_and(|polls| polls.polls > 2)
        });
        is_fed && self.tasks.values().any(|task| Self::field(task, "kind") == "blocking")
    }
}

fn main() -> ExitCode {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port();
    let console = ConsoleLayer::builder()
        .server_addr(([127, 0, 0, 1], port))
        .publish_interval(Duration::from_millis(100))
        .spawn();
    tracing_subscriber::registry().with(console).init();

    let runtime = volt::Builder::new_multi_thread().worker_threads(2).control_socket(false).build().expect("a runtime");
    let feed = async {
        loop {
            volt::time::sleep(Duration::from_millis(5)).await;
            volt::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(1))).await.expect("it ends");
        }
    };
    let feed = volt::task::Builder::new().name("feed").spawn_on(feed, runtime.handle());

    let client = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("the client's runtime");
    let mut seen = Seen::default();
    let watched = client.block_on(async { tokio::time::timeout(PATIENCE, watch(port, &mut seen)).await });
    feed.abort();
    if watched.is_ok() {
        println!("tokio-console sees {} tasks of Volt's", seen.tasks.len());
        return ExitCode::SUCCESS;
    }
    eprintln!("not all was seen within {PATIENCE:?}: {:#?} {:#?}", seen.tasks, seen.stats);
    ExitCode::FAILURE
}

/// Receives updates until everything was seen.
async fn watch(port: u16, seen: &mut Seen) {
    let mut client = loop {
        // The server may not listen yet.
        match InstrumentClient::connect(format!("http://127.0.0.1:{port}")).await {
            Ok(client) => break client,
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    let mut updates = client.watch_updates(InstrumentRequest {}).await.expect("a stream").into_inner();
    while let Some(update) = updates.message().await.expect("an update") {
        let Some(update) = update.task_update else { continue };
        seen.tasks.extend(update.new_tasks.into_iter().filter_map(|task| Some((task.id.as_ref()?.id, task))));
        seen.stats.extend(update.stats_update);
        if seen.has_all() {
            return;
        }
    }
}
