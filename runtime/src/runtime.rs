//! Runtimes: building them, entering them, and reading their metrics.
//!
//! These are the names under which programs know these items from Tokio. The ones that most
//! programs use are also at the root of the crate, such as [`volt::Builder`](crate::Builder).

pub use volt_core::{
    builder::Builder,
    context::{EnterGuard, TryCurrentError},
    error::BuildError,
    handle::Handle,
    identity::{Id, RuntimeFlavor},
    metrics::RuntimeMetrics,
    runtime::Runtime,
};
