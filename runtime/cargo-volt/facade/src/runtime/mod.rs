//! Runtimes. See `volt::runtime`.

mod builder;
mod local;
mod multi;

pub use builder::Builder;
pub use local::LocalRuntime;
pub use multi::Runtime;
#[cfg(tokio_unstable)]
pub use volt::runtime::TaskMeta;
pub use volt::runtime::{
    EnterGuard, Handle, Id, LocalOptions, RuntimeFlavor, RuntimeMetrics, TryCurrentError, is_rt_shutdown_err,
    worker_index,
};
