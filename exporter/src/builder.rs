//! The settings of an exporter, and their checks. Applications build an exporter with [`Builder`];
//! [`Builder::serve`] checks the settings before it serves the page.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;

use metrics_exporter_prometheus::PrometheusHandle;

use volt_telemetry::socket::Environment;

use crate::application;
use crate::discovery::Discovery;
use crate::error::ServeError;
use crate::exporter::Exporter;
use crate::live::Live;
#[cfg(feature = "otlp")]
use crate::otlp::settings::Otlp;
use crate::page::Page;
use crate::routes::{Scope, Source, is_local};

/// The default address of an exporter. 9464 is the port that OpenTelemetry's Prometheus exporters
/// use.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:9464";

/// The default number of connections that are served at the same time. It exceeds any usual number
/// of Prometheus servers, and leaves the application enough file descriptors.
const MAX_CONNECTIONS: usize = 256;

/// Serves `/metrics` at `address` until the exporter is dropped.
///
/// Use [`Exporter::builder`] for more settings.
///
/// Installs a global recorder of the `metrics` crate if the program has none yet. If the
/// application has its own, see [`Builder::install_recorder`].
///
/// # Errors
///
/// The same as those of [`Builder::serve`].
///
/// ```
/// let _exporter = volt_exporter::serve("127.0.0.1:0").unwrap();
/// // … the program, for as long as it lives
/// ```
pub fn serve(address: impl ToSocketAddrs) -> Result<Exporter, ServeError> {
    Exporter::builder().listen(address).serve()
}

impl Exporter {
    /// Returns a builder with the default settings.
    pub fn builder() -> Builder {
        Builder::new()
    }
}

/// The settings of an [`Exporter`], made by [`Exporter::builder`].
#[derive(Debug)]
pub struct Builder {
    listen: io::Result<Vec<SocketAddr>>,
    is_remote_allowed: bool,
    runtimes: Option<Vec<String>>,
    discover: Option<Vec<Environment>>,
    application: Option<PrometheusHandle>,
    /// `None`: install one if the program has none.
    installs_recorder: Option<bool>,
    max_connections: usize,
    #[cfg(feature = "otlp")]
    otlp: Option<Otlp>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            listen: resolve(DEFAULT_ADDRESS),
            is_remote_allowed: false,
            runtimes: None,
            discover: None,
            application: None,
            installs_recorder: None,
            max_connections: MAX_CONNECTIONS,
            #[cfg(feature = "otlp")]
            otlp: None,
        }
    }

    /// Sets the address to listen on. Port 0 chooses a free port. Default: [`DEFAULT_ADDRESS`].
    pub fn listen(mut self, address: impl ToSocketAddrs) -> Self {
        self.listen = resolve(address);
        self
    }

    /// Allows [`listen`](Self::listen) to be an address that other machines can reach. Default:
    /// false.
    ///
    /// The page has no password and no encryption. It exposes the names of runtimes and everything
    /// that the application counts, and everyone who can reach it can request dumps of tasks, which
    /// poll each waiting task once. So serve it only inside a trusted network.
    pub fn allow_remote(mut self, is_allowed: bool) -> Self {
        self.is_remote_allowed = is_allowed;
        self
    }

    /// Serves only the runtimes with these names. Default: all runtimes of the program.
    ///
    /// A name that no current runtime has is ignored on the page. `/readyz` fails until all named
    /// runtimes exist.
    pub fn runtimes<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.runtimes = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Serves the runtimes of other programs instead of this program's: of each Volt program whose
    /// control socket is in one of `environments`.
    ///
    /// The sidecar `volt-exporter` uses this, so that the applications need not open a port. Each
    /// series of these programs then also has the labels `program` and `pid`, and `volt_program_up`
    /// reports which programs replied.
    ///
    /// A program that does not reply within a second is missing from that one page. The exporter
    /// collects from at most 256 programs.
    pub fn discover(mut self, environments: impl IntoIterator<Item = Environment>) -> Self {
        self.discover = Some(environments.into_iter().collect());
        self
    }

    /// Adds the metrics of `recorder` to the page, for applications that install a recorder
    /// themselves. The exporter then installs none.
    ///
    /// If the application's recorder is not for Prometheus, combine it with a Prometheus recorder,
    /// for example with `metrics_util::layers::Fanout`, and pass the handle of the Prometheus
    /// recorder.
    ///
    /// ```
    /// use metrics_exporter_prometheus::PrometheusBuilder;
    ///
    /// let recorder = PrometheusBuilder::new().install_recorder()?;
    /// let _exporter =
    ///     volt_exporter::Exporter::builder().listen("127.0.0.1:0").application_metrics(recorder).serve()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn application_metrics(mut self, recorder: PrometheusHandle) -> Self {
        self.application = Some(recorder);
        self
    }

    /// Sets whether the exporter installs a global recorder of the `metrics` crate. The page then
    /// also has what the application counts with `metrics::counter!` and similar macros. Default:
    /// the exporter installs one if the program has none yet.
    ///
    /// A program has at most one global recorder, and it cannot be replaced:
    ///
    /// * If the application installs its own recorder *before* [`serve`](Self::serve), that one
    ///   stays. By default, the page then has Volt's metrics only. To include the application's
    ///   metrics, pass the recorder's handle to
    ///   [`application_metrics`](Self::application_metrics). To publish Volt's metrics into that
    ///   recorder instead, use [`publish_to_recorder`](crate::publish_to_recorder). With
    ///   `install_recorder(true)`, `serve` fails.
    /// * If the application installs its own recorder *after* `serve`, call
    ///   `install_recorder(false)`. Otherwise, the application's installation fails.
    ///
    /// While the page includes a recorder's metrics, the exporter also records the metrics
    /// `process_*` of the operating system (on Linux and FreeBSD) into the global recorder.
    pub fn install_recorder(mut self, enable: bool) -> Self {
        self.installs_recorder = Some(enable);
        self
    }

    /// Sets how many connections are served at the same time. Must be at least 1. Default: 256.
    ///
    /// Up to 128 further connections wait in the kernel's listen queue (fewer if
    /// `net.core.somaxconn` is smaller). The kernel drops packets of connections beyond that, and
    /// the client's TCP sends them again after 0.2 s, then after twice that time, and so on. If the
    /// kernel drops the packet with the request, the exporter can accept the connection before its
    /// request arrives again. After 5 s without a request, it closes the connection without a
    /// response, and logs `read header from client timeout` (target `volt::http`, level DEBUG). A
    /// connection that the kernel never admits is reset after a minute or two. In both cases the
    /// client receives no byte. The exporter cuts off a response only if the client does not read
    /// for 30 s.
    pub fn max_connections(mut self, max: usize) -> Self {
        // Measured: 10,000 simultaneous scrapes, on two busy processors of an Intel Xeon. After
        // 120 s, 5,515 responses were complete, and 701 were outstanding. The exporter had closed
        // 50 connections 6 to 13 s after the client had sent its request, and 3,734 were reset
        // after 96 to 117 s, all without a byte.
        self.max_connections = max;
        self
    }

    /// Also pushes the metrics to `collector`: at each of its intervals while the page is served,
    /// and for the last time when the [`Exporter`] is dropped.
    #[cfg(feature = "otlp")]
    pub fn otlp(mut self, collector: Otlp) -> Self {
        self.otlp = Some(collector);
        self
    }

    /// Binds the address and serves the page on a separate runtime.
    ///
    /// Can be called from any thread, inside or outside a runtime.
    ///
    /// # Errors
    ///
    /// Returns an error in these cases:
    ///
    /// * `listen` is not an address, is not an address of this machine, or is already in use.
    /// * Other machines can reach `listen`, and [`allow_remote`](Self::allow_remote) is not set.
    /// * `max_connections` is 0.
    /// * `install_recorder` is true, and the application has installed another recorder.
    /// * The settings of `otlp` are invalid.
    /// * The operating system cannot start a thread.
    pub fn serve(self) -> Result<Exporter, ServeError> {
        if self.max_connections == 0 {
            return Err(ServeError::invalid("max_connections", "must be at least 1"));
        }
        #[cfg(feature = "otlp")]
        let target = self.otlp.clone().map(Otlp::check).transpose()?;
        let listener = self.bind()?;
        let application = self.application()?;
        let page = application.clone().into_iter().fold(Page::new(), Page::with_application);
        let source = self.discover.map_or(Source::Own, |environments| Source::Found(Discovery::new(environments)));
        let scope = Scope { page, live: Live::default(), source, runtimes: self.runtimes, last: None };
        let scope = Arc::new(volt::sync::Mutex::new(scope));
        let exporter = Exporter::start(listener, scope.clone(), application, self.max_connections)?;
        #[cfg(feature = "otlp")]
        let exporter = target.into_iter().fold(exporter, |exporter, target| exporter.with_push(scope.clone(), target));
        Ok(exporter)
    }

    /// Returns the recorder whose metrics are on the page, if there is one.
    fn application(&self) -> Result<Option<PrometheusHandle>, ServeError> {
        if self.application.is_some() || self.installs_recorder == Some(false) {
            return Ok(self.application.clone());
        }
        let installed = application::recorder();
        match self.installs_recorder {
            Some(_) if installed.is_none() => Err(ServeError::invalid(
                "install_recorder",
                "the application has installed its own recorder of the crate metrics, which cannot be replaced: pass \
                 its handle to application_metrics, or leave install_recorder out and publish Volt's metrics into that \
                 recorder with volt_exporter::publish_to_recorder",
            )),
            None if installed.is_none() => {
                tracing::info!(
                    "the application has installed its own recorder of the crate metrics: to include its metrics in \
                     /metrics, pass its handle to volt_exporter::Builder::application_metrics; to publish Volt's \
                     metrics into it, call volt_exporter::publish_to_recorder"
                );
                Ok(None)
            }
            _ => Ok(installed),
        }
    }

    fn bind(&self) -> Result<TcpListener, ServeError> {
        let invalid = |text: String| ServeError::invalid("listen", text);
        let addresses = match &self.listen {
            Ok(addresses) => addresses,
            Err(error) => return Err(invalid(format!("not an address ({error}): use the form {DEFAULT_ADDRESS}"))),
        };
        if let Some(remote) = addresses.iter().find(|address| !is_local(**address) && !self.is_remote_allowed) {
            return Err(invalid(format!(
                "other machines can reach {remote}, and the metrics page has no password: listen on 127.0.0.1, or \
                 allow it with allow_remote(true) or, for volt-exporter, --allow-remote"
            )));
        }
        TcpListener::bind(addresses.as_slice()).map_err(|error| {
            let names: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
            let names = names.join(", ");
            let text = match error.kind() {
                io::ErrorKind::AddrInUse => {
                    format!("{names} is already in use: choose another port, or port 0 for a free one")
                }
                io::ErrorKind::AddrNotAvailable => {
                    format!("{names} is not an address of this machine: listen on 127.0.0.1")
                }
                io::ErrorKind::PermissionDenied => format!("{names} is not permitted: choose a port above 1023"),
                _ => format!("cannot listen on {names} ({error}): choose another address"),
            };
            ServeError::system("listen", text, error)
        })
    }
}

fn resolve(address: impl ToSocketAddrs) -> io::Result<Vec<SocketAddr>> {
    let addresses: Vec<_> = address.to_socket_addrs()?.collect();
    if addresses.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name has no address"));
    }
    Ok(addresses)
}
