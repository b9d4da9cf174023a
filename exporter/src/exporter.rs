//! A page that is being served: its runtime, and the guard that stops it.
//!
//! The exporter has a separate runtime with one worker, so that it serves the page even while every
//! worker of the application is stuck. That runtime opens no control socket by itself.

use std::net::{SocketAddr, TcpListener};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use volt::Runtime;
use volt::sync::Mutex;
use volt::task::JoinHandle;

use crate::error::ServeError;
use crate::live::history::STEP;
#[cfg(feature = "otlp")]
use crate::otlp::{Push, settings::Target};
use crate::routes::{self, Scope, router};

/// The name of the exporter's runtime.
const RUNTIME: &str = "exporter";
/// Time limit for the head of a request, and for the pause between two requests. Scrapes come every
/// 15 s or so and open a new connection, which is cheap; idle connections are closed soon. A client
/// whose connection overflowed the listen queue can exceed the limit without being slow itself: see
/// [`Builder::max_connections`](crate::Builder::max_connections).
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the exporter waits for a client that does not read its response. Prometheus cancels a
/// scrape after 10 s.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum size of a request's head in bytes. Prometheus sends some 300.
const MAX_HEADER_BYTES: usize = 8 * 1024;
/// How often the application's histograms are folded into their buckets, so that they do not grow
/// without bound while no client scrapes. metrics-exporter-prometheus does the same in its own
/// server.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);
/// How long dropping an exporter waits for its worker.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves metrics until it is dropped.
///
/// | path | content |
/// |---|---|
/// | `/metrics` | the metrics, for Prometheus |
/// | `/` | the live page, for a browser |
/// | `/snapshot` | the snapshots of all runtimes as JSON |
/// | `/runbooks` | the runbooks of the alerts |
/// | `/healthz` | liveness probe: status 200 |
/// | `/readyz` | readiness probe: status 503 while a runtime is missing |
///
/// On the live page, a user can request dumps and lists of tasks. Their paths are `/live/dump.json`
/// and `/live/tasks.json`. A request needs the header `Volt-Request`.
///
/// A missing runtime is one that [`Builder::runtimes`](crate::Builder::runtimes) names and that no
/// program has.
///
/// Dropping the exporter cancels responses in progress and releases the port. Outside a runtime,
/// the drop waits at most 1 s until the port is released. Inside a runtime it does not wait, since
/// it must not block, and the port is released a moment later.
///
/// With [`Builder::otlp`](crate::Builder::otlp), dropping the exporter also pushes for the last
/// time, so that the collector gets the final counts. Outside a runtime, the drop waits at most 5 s
/// for this push. Inside a runtime, a blocking job of that runtime waits for the push, and so does
/// the shutdown of the runtime. Drop the exporter before the runtimes whose counts it pushes.
///
/// ```
/// let exporter = volt_exporter::Exporter::builder().listen("127.0.0.1:0").runtimes(["main"]).serve().unwrap();
/// assert_ne!(exporter.local_addr().port(), 0);
/// ```
#[derive(Debug)]
#[must_use = "the page is served only while this lives"]
pub struct Exporter {
    local_addr: SocketAddr,
    /// Taken on drop, and not changed before, so a panic leaves nothing half changed.
    running: AssertUnwindSafe<Option<Running>>,
}

/// The parts of a served page.
#[derive(Debug)]
struct Running {
    /// The program that has the runtime's threads.
    pid: u32,
    server: JoinHandle<()>,
    #[cfg(feature = "otlp")]
    push: Option<Push>,
    runtime: Runtime,
}

impl Exporter {
    /// Returns the address that the exporter listens on, with the port that the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    pub(crate) fn start(
        listener: TcpListener,
        scope: Arc<Mutex<Scope>>,
        application: Option<PrometheusHandle>,
        max_connections: usize,
    ) -> Result<Self, ServeError> {
        let system = |error| ServeError::system("listen", format!("{error}: try another address"), error);
        let local_addr = listener.local_addr().map_err(system)?;
        let runtime = volt::Builder::new_multi_thread().worker_threads(1).name(RUNTIME).control_socket(false).build();
        let runtime = runtime.map_err(|error| ServeError::system("runtime", error.to_string(), error.into()))?;
        let listener = {
            let _entered = runtime.handle().enter();
            volt::net::TcpListener::from_std(listener)
        };
        let listener = match listener {
            Ok(listener) => listener,
            Err(error) => {
                // Inside async code, a drop would panic.
                runtime.shutdown_background();
                return Err(system(error));
            }
        };
        let router = router(scope.clone(), local_addr);
        let tasks = runtime.handle();
        let server = volt::task::Builder::new().name("serve").spawn_on(
            async move {
                let server = volt::axum::serve(listener, router)
                    .max_connections(max_connections)
                    .header_read_timeout(HEADER_READ_TIMEOUT)
                    .write_timeout(WRITE_TIMEOUT)
                    .max_header_bytes(MAX_HEADER_BYTES);
                if let Err(error) = server.await {
                    tracing::error!(%error, "stopped serving metrics");
                }
            },
            tasks,
        );
        volt::task::Builder::new().name("history").spawn_on(note_history(scope), tasks);
        if let Some(application) = application {
            volt::task::Builder::new().name("upkeep").spawn_on(upkeep(application), tasks);
        }
        Ok(Self {
            local_addr,
            running: AssertUnwindSafe(Some(Running {
                pid: std::process::id(),
                server,
                #[cfg(feature = "otlp")]
                push: None,
                runtime,
            })),
        })
    }

    /// Pushes to a collector for as long as the page is served.
    #[cfg(feature = "otlp")]
    pub(crate) fn with_push(mut self, scope: Arc<Mutex<Scope>>, target: Target) -> Self {
        if let Some(running) = self.running.as_mut() {
            running.push = Some(Push::start(&running.runtime, scope, target));
        }
        self
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let Some(running) = self.running.take() else { return };
        if running.pid != std::process::id() {
            running.forget();
            return;
        }
        // Releases the port before the last push.
        running.server.abort();
        match volt::Handle::try_current() {
            Err(_) => running.end(),
            #[cfg(feature = "otlp")]
            Ok(current) if running.push.is_some() => {
                let last = Last(Some(running));
                // The job need not be awaited: the shutdown of that runtime waits for it.
                drop(current.spawn_blocking(move || last.end()));
            }
            // Async code must not block. There, the port is released a moment later.
            Ok(_) => running.runtime.shutdown_background(),
        }
    }
}

impl Running {
    /// Drops the copy of a forked child. The tasks stayed in the parent. One of its threads may
    /// have locked what they use when the program forked, and stopping them would then block
    /// forever.
    fn forget(self) {
        std::mem::forget(self.server);
        #[cfg(feature = "otlp")]
        std::mem::forget(self.push);
        self.runtime.shutdown_background();
    }

    /// Pushes for the last time, and waits until everything has ended, for a limited time.
    fn end(self) {
        #[cfg(feature = "otlp")]
        if let Some(push) = self.push {
            push.end(&self.runtime);
        }
        self.runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    }
}

/// The end of an exporter, in a blocking job of another runtime. That runtime cancels the job, and
/// thus drops this, if it has no thread for it any more. Then there is no last push.
#[cfg(feature = "otlp")]
struct Last(Option<Running>);

#[cfg(feature = "otlp")]
impl Last {
    fn end(mut self) {
        self.0.take().into_iter().for_each(Running::end);
    }
}

#[cfg(feature = "otlp")]
impl Drop for Last {
    fn drop(&mut self) {
        if let Some(running) = self.0.take() {
            running.runtime.shutdown_background();
        }
    }
}

/// Keeps the history of the live page, also while no browser shows it.
async fn note_history(scope: Arc<Mutex<Scope>>) {
    loop {
        volt::time::sleep(STEP).await;
        routes::with(&scope, Scope::note_history).await;
    }
}

async fn upkeep(application: PrometheusHandle) {
    loop {
        volt::time::sleep(UPKEEP_INTERVAL).await;
        application.run_upkeep();
    }
}
