//! The settings of an exporter, and the checks before it listens.

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
use crate::otlp::{self, settings::Otlp};
use crate::page::Page;
use crate::routes::{Scope, Source};

/// Where an exporter listens unless told otherwise: the port that OpenTelemetry's Prometheus
/// exporters use.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:9464";

/// Connections served at once, unless told otherwise: more than any number of Prometheus servers,
/// fewer than the file descriptors that the application needs.
const MAX_CONNECTIONS: usize = 256;

/// Serves `/metrics` at `address` until the exporter is dropped; [`Exporter::builder`] has more
/// settings.
///
/// Becomes the process's recorder of the `metrics` crate if there is none yet. An application that
/// installs its own later uses [`Builder::install_recorder`].
///
/// # Errors
///
/// As [`Builder::serve`].
///
/// ```
/// let _exporter = volt_exporter::serve("127.0.0.1:0").unwrap();
/// // … the program, for as long as it lives
/// ```
pub fn serve(address: impl ToSocketAddrs) -> Result<Exporter, ServeError> {
    Exporter::builder().listen(address).serve()
}

impl Exporter {
    /// An exporter at the default settings, to be changed.
    pub fn builder() -> Builder {
        Builder::new()
    }
}

/// Settings of an [`Exporter`].
#[derive(Debug)]
pub struct Builder {
    listen: io::Result<Vec<SocketAddr>>,
    is_remote_allowed: bool,
    runtimes: Option<Vec<String>>,
    discover: Option<Vec<Environment>>,
    application: Option<PrometheusHandle>,
    installs_recorder: bool,
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
            installs_recorder: true,
            max_connections: MAX_CONNECTIONS,
            #[cfg(feature = "otlp")]
            otlp: None,
        }
    }

    /// Where to listen; port 0 is any free one. [`DEFAULT_ADDRESS`] unless set.
    pub fn listen(mut self, address: impl ToSocketAddrs) -> Self {
        self.listen = resolve(address);
        self
    }

    /// Lets [`listen`](Self::listen) be an address that other machines reach. The page has neither
    /// password nor encryption, and tells names of runtimes and whatever the application
    /// counts: keep it inside a network that may know that.
    pub fn allow_remote(mut self, is_allowed: bool) -> Self {
        self.is_remote_allowed = is_allowed;
        self
    }

    /// Shows these runtimes only, by name; all of the program unless set. One that does not live
    /// (yet) is not on the page.
    pub fn runtimes<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.runtimes = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Shows the runtimes of every Volt program whose control socket is found where these say,
    /// instead of this program's: what the sidecar `volt-exporter` does, so that an application
    /// opens no port. Each series then has the labels `program` and `pid` besides, and
    /// `volt_program_up` reports which programs answered.
    ///
    /// A program that does not answer within a second is left out of that one page. At most 256 are
    /// asked.
    pub fn discover(mut self, environments: impl IntoIterator<Item = Environment>) -> Self {
        self.discover = Some(environments.into_iter().collect());
        self
    }

    /// Shows the metrics of this recorder, for applications that install one of their own. The
    /// exporter then installs none.
    pub fn application_metrics(mut self, recorder: PrometheusHandle) -> Self {
        self.application = Some(recorder);
        self
    }

    /// Whether the exporter becomes the program's recorder of the `metrics` crate if there is none
    /// yet, so that what the application counts with `metrics::counter!` is on the page.
    /// Default true.
    ///
    /// A program has one recorder, for good: an application that installs its own *after*
    /// [`serve`](Self::serve) fails to, unless this is false. One that installs its own before
    /// `serve` keeps it, whatever is set here; hand its handle to
    /// [`application_metrics`](Self::application_metrics) to have its metrics on this page too.
    /// `process_*` go to whichever recorder the program has.
    pub fn install_recorder(mut self, enable: bool) -> Self {
        self.installs_recorder = enable;
        self
    }

    /// Connections served at once. At least 1; 256 unless set.
    ///
    /// Up to 1,024 further connections wait in the kernel's listen queue (fewer if
    /// `net.core.somaxconn` is smaller). The kernel drops what arrives beyond that, and the
    /// client's TCP sends it again after 0.2 s, then after twice that time, and so on.
    /// If the kernel dropped the request itself, the connection is accepted before its request
    /// arrives again. After 5 s without a request the exporter closes it without an answer.
    /// With 10,000 simultaneous scrapes, 69 answers were empty for that reason, one for each
    /// `read header from client timeout` in the log (target `volt::http`, level DEBUG); no answer
    /// was ever cut in the middle by the exporter.
    pub fn max_connections(mut self, max: usize) -> Self {
        self.max_connections = max;
        self
    }

    /// Pushes the metrics to `collector` besides, for as long as the page is served.
    #[cfg(feature = "otlp")]
    pub fn otlp(mut self, collector: Otlp) -> Self {
        self.otlp = Some(collector);
        self
    }

    /// Listens, and serves on a runtime of the exporter's own. From any thread, in a runtime or
    /// not.
    ///
    /// # Errors
    ///
    /// `listen` is no address, not of this machine, taken, or remote without
    /// [`allow_remote`](Self::allow_remote); `max_connections` is 0; `otlp` is nothing that can
    /// be pushed to; or the operating system gives no thread.
    pub fn serve(self) -> Result<Exporter, ServeError> {
        if self.max_connections == 0 {
            return Err(ServeError::invalid("max_connections", "must be at least 1"));
        }
        #[cfg(feature = "otlp")]
        let target = self.otlp.clone().map(Otlp::check).transpose()?;
        let listener = self.bind()?;
        let application = self.application.or_else(|| self.installs_recorder.then(application::recorder).flatten());
        if application.is_none() && self.installs_recorder {
            tracing::info!(
                "the application has a metrics recorder of its own; to see its metrics on Volt's page too, hand its handle to \
                 volt_exporter::Builder::application_metrics"
            );
        }
        let page = application.clone().into_iter().fold(Page::new(), Page::with_application);
        let source = self.discover.map_or(Source::Own, |environments| Source::Found(Discovery::new(environments)));
        let scope = Scope { page, live: Live::default(), source, runtimes: self.runtimes, last: None };
        let scope = Arc::new(volt::sync::Mutex::new(scope));
        let exporter = Exporter::start(listener, scope.clone(), application, self.max_connections)?;
        #[cfg(feature = "otlp")]
        if let Some(target) = target {
            exporter.spawn("push", otlp::push(scope, target));
        }
        Ok(exporter)
    }

    fn bind(&self) -> Result<TcpListener, ServeError> {
        let invalid = |text: String| ServeError::invalid("listen", text);
        let addresses = match &self.listen {
            Ok(addresses) => addresses,
            Err(error) => return Err(invalid(format!("not an address ({error}): use the form {DEFAULT_ADDRESS}"))),
        };
        if let Some(remote) = addresses.iter().find(|address| !address.ip().is_loopback() && !self.is_remote_allowed) {
            return Err(invalid(format!(
                "other machines can reach {remote}, and the page has no password: listen on 127.0.0.1, or allow \
                 remote access with allow_remote(true) or, for volt-exporter, --allow-remote"
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
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name has none"));
    }
    Ok(addresses)
}
