//! Runtimes. See `volt::runtime`.

mod local;
mod multi;

mod builder;
#[cfg(tokio_unstable)]
mod missing;

pub use builder::Builder;
pub use local::LocalRuntime;
#[cfg(tokio_unstable)]
pub(crate) use missing::Panics;
#[cfg(tokio_unstable)]
#[allow(deprecated, reason = "the users of the name get the warning")]
pub use missing::dump::Dump;
#[cfg(tokio_unstable)]
pub use missing::{
    HistogramConfiguration, HistogramScale, InvalidHistogramConfiguration, LogHistogram, LogHistogramBuilder, RngSeed,
    UnhandledPanic, dump,
};
pub use multi::Runtime;
#[cfg(tokio_unstable)]
pub use volt::runtime::TaskMeta;
pub use volt::runtime::{
    EnterGuard, Handle, Id, LocalOptions, RuntimeFlavor, RuntimeMetrics, TryCurrentError, is_rt_shutdown_err,
    worker_index,
};
