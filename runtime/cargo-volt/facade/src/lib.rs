//! The API of the crate `tokio` on the Volt runtime.
//!
//! A program that `cargo volt` builds has this crate in place of `tokio`, in its own code and in
//! every library that it uses. Most items are Volt's, which have Tokio's names and signatures; the
//! modules here adapt the rest. The I/O traits, most of their helpers, and the macros need no
//! runtime. They come from the project's version of Tokio, or from the version with which Volt was
//! tested if that is newer.
//!
//! Every item is here, whichever of Tokio's features are enabled. The features select the attribute
//! macros, as Tokio's do. With `test-util`, the clock of a current-thread runtime can be paused.

pub mod runtime;
pub mod task;

pub mod fs {
    //! Files. See `volt::fs`.
    pub use volt::fs::*;
}

pub mod io {
    //! I/O traits and helpers, most of which are Tokio's, and standard streams. See `volt::io`.
    pub use volt::io::*;
}

pub mod net {
    //! Sockets. See `volt::net`.
    pub use volt::net::*;
}

pub mod process {
    //! Child processes. See `volt::process`.
    pub use volt::process::*;
}

pub mod signal {
    //! Signals of the operating system. See `volt::signal`.
    pub use volt::signal::*;
}

pub mod sync {
    //! Channels and locks. See `volt::sync`.
    pub use volt::sync::*;
}

pub mod time {
    //! Timers. See `volt::time`.
    pub use volt::time::*;
}

/// Where Tokio documents that streams are in the crate `tokio-stream`.
pub mod stream {}

#[doc(hidden)]
pub mod macros {
    pub use parts::macros::support;
}

pub use parts::{join, pin, try_join};
#[doc(hidden)]
#[cfg(feature = "macros")]
pub use parts::{select_priv_clean_pattern, select_priv_declare_output_enum};
pub use task::spawn;
pub use volt::{select, task_local};

#[cfg(all(feature = "macros", feature = "rt-multi-thread"))]
pub use tokio_macros::{main, test};
#[cfg(all(feature = "macros", not(feature = "rt")))]
pub use tokio_macros::{main_fail as main, test_fail as test};
#[cfg(all(feature = "macros", feature = "rt", not(feature = "rt-multi-thread")))]
pub use tokio_macros::{main_rt as main, test_rt as test};
