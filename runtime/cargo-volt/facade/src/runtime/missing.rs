//! Items of Tokio's unstable API that Volt does not have.
//!
//! They exist so that a program that uses one gets an error that names the replacement. The error
//! comes from functions with a type parameter whose bound no type meets, so that no program can
//! call them. Functions without such a bound, as those of `LogHistogram`, return values that only
//! these functions accept.

use std::convert::Infallible;
use std::time::Duration;

use super::Builder;

/// A bound that no type meets: for the items that Volt has another way for, or none.
macro_rules! missing {
    ($($name:ident: $message:literal, $note:literal;)+) => {$(
        #[doc(hidden)]
        #[diagnostic::on_unimplemented(message = $message, label = "not available on Volt", note = $note)]
        pub trait $name {}
    )+};
}

missing! {
    Seeds: "`rng_seed` and `RngSeed` do not exist on Volt: only the feature `sim` of `volt-runtime` has a seed",
        "for reproducible tests, use a current-thread runtime with a paused clock, and remove the seed";
    Panics: "`unhandled_panic` does not exist on Volt: the panic of a task reaches its `JoinHandle` only",
        "await the `JoinHandle`, or set a panic hook that ends the program";
    Buckets: "`HistogramConfiguration` and `LogHistogram` do not exist on Volt: the buckets are fixed",
        "remove the setting; the numbers of `RuntimeMetrics` and `/metrics` have Volt's buckets";
    Traces: "`Trace` does not exist on Volt: a dump finds out where all tasks wait, without a root",
        "use `Handle::dump` or `volt-console dump`";
}

/// Does not exist on Volt, see the error of its functions.
#[derive(Clone, Debug)]
pub enum RngSeed {}

impl RngSeed {
    /// Does not exist on Volt.
    pub fn from_bytes<T: Seeds>(_bytes: T) -> Self {
        unreachable!("no type meets the bound")
    }
}

/// The reaction of Tokio to a panic in a task. Does not exist on Volt.
#[derive(Debug)]
#[non_exhaustive]
pub enum UnhandledPanic {
    /// The behaviour of Volt.
    Ignore,
    /// Does not exist on Volt.
    #[deprecated = "does not exist on Volt: the panic of a task reaches its `JoinHandle` only"]
    ShutdownRuntime,
}

/// Does not exist on Volt, see the error of its functions.
#[derive(Clone, Debug)]
pub enum HistogramConfiguration {}

impl HistogramConfiguration {
    /// Does not exist on Volt.
    pub fn linear<T: Buckets>(_bucket_width: T, _num_buckets: usize) -> Self {
        unreachable!("no type meets the bound")
    }

    /// Does not exist on Volt.
    pub fn log<T: Buckets>(_configuration: T) -> Self {
        unreachable!("no type meets the bound")
    }
}

/// Does not exist on Volt, see the error of [`HistogramConfiguration::log`], which needs one.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogHistogram(());

/// The result of [`LogHistogram::builder`].
pub type LogHistogramBuilder = LogHistogram;

/// The error of a value that has no effect.
pub type InvalidHistogramConfiguration = Infallible;

impl LogHistogram {
    /// Returns a value that cannot be used.
    pub fn builder() -> Self {
        Self(())
    }

    /// Has no effect.
    pub fn max_error(self, _max_error: f64) -> Self {
        self
    }

    /// Has no effect.
    pub fn precision_exact(self, _p: u32) -> Self {
        self
    }

    /// Has no effect.
    pub fn min_value(self, _duration: Duration) -> Self {
        self
    }

    /// Has no effect.
    pub fn max_value(self, _duration: Duration) -> Self {
        self
    }

    /// Has no effect.
    pub fn max_buckets(&mut self, _max_buckets: usize) -> Result<Self, InvalidHistogramConfiguration> {
        Ok(*self)
    }

    /// Returns a value that cannot be used.
    pub fn build(&self) -> Self {
        *self
    }
}

/// Does not exist on Volt, see the errors of [`Builder`].
#[derive(Clone, Copy, Debug)]
pub enum HistogramScale {
    /// Does not exist on Volt.
    Linear,
    /// Does not exist on Volt.
    Log,
}

impl Builder {
    /// Does not exist on Volt.
    pub fn rng_seed<T: Seeds>(&mut self, _seed: T) -> &mut Self {
        self
    }

    /// Does not exist on Volt.
    pub fn unhandled_panic<T: Panics>(&mut self, _behavior: T) -> &mut Self {
        self
    }

    /// Does not exist on Volt.
    pub fn metrics_poll_time_histogram_configuration<T: Buckets>(&mut self, _configuration: T) -> &mut Self {
        self
    }

    /// Does not exist on Volt.
    pub fn metrics_schedule_latency_histogram_configuration<T: Buckets>(&mut self, _configuration: T) -> &mut Self {
        self
    }

    /// Does not exist on Volt.
    pub fn metrics_poll_count_histogram_scale<T: Buckets>(&mut self, _scale: T) -> &mut Self {
        self
    }

    /// Does not exist on Volt.
    pub fn metrics_poll_count_histogram_resolution<T: Buckets>(&mut self, _resolution: T) -> &mut Self {
        self
    }

    /// Does not exist on Volt.
    pub fn metrics_poll_count_histogram_buckets<T: Buckets>(&mut self, _buckets: T) -> &mut Self {
        self
    }
}

pub mod dump {
    //! Tokio's dumps of tasks. Volt's are of another type.

    use std::future::Future;

    use super::Traces;

    /// The result of `Handle::dump`.
    #[deprecated = "on Volt, `Handle::dump` returns `volt::telemetry::dump::Dump`; `volt-console dump` prints it"]
    pub type Dump = volt::telemetry::dump::Dump;

    /// Does not exist on Volt, see the errors of its functions.
    #[derive(Clone, Debug)]
    pub enum Trace {}

    impl Trace {
        /// Does not exist on Volt.
        pub fn capture<F, R: Traces>(_f: F) -> (R, Trace)
        where
            F: FnOnce() -> R,
        {
            unreachable!("no type meets the bound")
        }

        /// Does not exist on Volt.
        pub fn root<F: Future + Traces>(future: F) -> F {
            future
        }
    }
}
