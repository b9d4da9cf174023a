//! Child processes.
//!
//! The standard library starts them; the driver waits for their end: on Linux by a descriptor of
//! the process (`pidfd_open`, since 5.3), on other systems, and where a sandbox refuses that, by
//! SIGCHLD.
//!
//! No zombies: a child that is dropped before its end was seen is waited for by a task of the
//! runtime's, which ends with the child; one whose runtime was shut down meanwhile is waited for
//! whenever this process starts another child. (At the end of the process the system's first
//! process inherits them.)
//!
//! ```
//! use volt::process::Command;
//!
//! # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
//! # runtime.block_on(async {
//! let output = Command::new("echo").arg("hello").output().await?;
//! assert!(output.status.success());
//! assert_eq!(output.stdout, b"hello\n");
//! # Ok::<(), std::io::Error>(())
//! # }).unwrap();
//! ```

mod child;
mod command;
mod orphans;
mod stdio;
mod watch;

pub use child::Child;
pub use command::Command;
pub use stdio::{ChildStderr, ChildStdin, ChildStdout};
