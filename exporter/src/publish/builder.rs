//! The settings of a publisher, and their check.

use std::time::Duration;

use super::error::PublishError;
use super::published::Settings;
use super::publisher::Publisher;
use super::series::Histograms;

/// The default time between two publications: that between two flushes of statsd.
const INTERVAL: Duration = Duration::from_secs(10);
/// The shortest time between two publications, so that a wrong unit does not occupy a processor.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// Publishes Volt's metrics at each `interval` into the recorder of the crate `metrics` that the
/// program has installed, until the returned [`Publisher`] is dropped.
///
/// Use it if the application has its own recorder, for example for statsd, for OpenTelemetry or for
/// its own Prometheus page. To serve a page instead, use [`serve`](crate::serve). A program can do
/// both. The recorder of `serve` itself accepts none of these metrics, because they are on its page
/// already.
///
/// Every metric of [`volt_diagnosis::catalog`] has the same name, labels, unit and description as
/// on the page of `serve`:
///
/// | metric | in the recorder |
/// |---|---|
/// | a counter | a counter |
/// | a counter of seconds | a gauge with the total, because counters of `metrics` are whole numbers |
/// | a gauge | a gauge |
/// | a histogram | gauges for its buckets, sum and count, as Prometheus has them: see [`Histograms`] |
///
/// The recorder may be installed before or after this call. If it is installed later, its counters
/// nevertheless contain everything since each runtime started. Without a recorder, nothing is
/// published.
///
/// `metrics` cannot remove a series. When a runtime ends, its gauges are set to 0, and its counters
/// and totals keep their last value. To remove these series, set the idle timeout of your recorder
/// to several intervals, for example with `PrometheusBuilder::idle_timeout`. Current series are
/// updated at each interval, even if their value is the same.
///
/// Use [`Publisher::builder`] for more settings.
///
/// # Errors
///
/// The same as those of [`PublisherBuilder::start`].
///
/// ```
/// use std::time::Duration;
/// use metrics_exporter_prometheus::PrometheusBuilder;
///
/// // The application's own recorder.
/// let recorder = PrometheusBuilder::new().install_recorder()?;
/// let runtime = volt::Builder::new_multi_thread().worker_threads(1).name("shop").build()?;
///
/// let publisher = volt_exporter::publish_to_recorder(Duration::from_secs(10))?;
/// runtime.block_on(async { volt::spawn(async {}).await })?;
/// drop(publisher); // publishes for the last time
///
/// let page = recorder.render();
/// assert!(page.contains("volt_tasks_spawned_total{runtime=\"shop\"} 1\n"), "{page}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn publish_to_recorder(interval: Duration) -> Result<Publisher, PublishError> {
    Publisher::builder().interval(interval).start()
}

impl Publisher {
    /// Returns a builder with the default settings.
    pub fn builder() -> PublisherBuilder {
        PublisherBuilder { interval: INTERVAL, settings: Settings::default() }
    }
}

/// The settings of a [`Publisher`], made by [`Publisher::builder`].
#[derive(Clone, Debug)]
pub struct PublisherBuilder {
    interval: Duration,
    settings: Settings,
}

impl PublisherBuilder {
    /// Sets the time between two publications. Must be at least 10 ms. Default: 10 s.
    ///
    /// The first publication is immediate.
    pub fn interval(self, interval: Duration) -> Self {
        Self { interval, ..self }
    }

    /// Publishes only the runtimes with these names. Default: all runtimes of the program.
    pub fn runtimes<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.settings.runtimes = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Sets what is published of a histogram. Default: [`Histograms::Buckets`].
    pub fn histograms(mut self, histograms: Histograms) -> Self {
        self.settings.histograms = histograms;
        self
    }

    /// Starts the thread that publishes.
    ///
    /// Can be called from any thread, inside or outside a runtime.
    ///
    /// # Errors
    ///
    /// Returns an error if `interval` is shorter than 10 ms, if the program already has a
    /// [`Publisher`], or if the operating system cannot start a thread. A publisher that was
    /// dropped inside a runtime exists until it has published for the last time. A forked child can
    /// start its own publisher, even if its parent has one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use volt_exporter::{Histograms, Publisher};
    ///
    /// let _publisher = Publisher::builder()
    ///     .interval(Duration::from_secs(60))
    ///     .runtimes(["main"])
    ///     .histograms(Histograms::Quantiles)
    ///     .start()?;
    /// assert!(volt_exporter::publish_to_recorder(Duration::from_secs(60)).unwrap_err().is_already_publishing());
    /// # Ok::<(), volt_exporter::PublishError>(())
    /// ```
    pub fn start(self) -> Result<Publisher, PublishError> {
        if self.interval < INTERVAL_MIN {
            let text = format!("{:?} is too short: use at least {} ms", self.interval, INTERVAL_MIN.as_millis());
            return Err(PublishError::interval(text));
        }
        Publisher::start(self.interval, self.settings)
    }
}
