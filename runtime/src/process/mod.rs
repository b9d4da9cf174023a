//! Asynchronous child processes.
//!
//! [`Command`] starts a program as a child process, and [`Child`] waits until it exits. The
//! standard library starts the process. The driver waits for its exit. On Linux it uses a process
//! descriptor (`pidfd_open`, since Linux 5.3). On other systems, and if a sandbox forbids that
//! call, it uses SIGCHLD.
//!
//! No child remains a zombie. If a `Child` is dropped before its exit was seen, a task of the
//! runtime waits for it in the background. If that runtime has been shut down, the child is checked
//! whenever this program starts another one. Children that are left when the program exits are
//! inherited by the system's first process.
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

mod watch;

mod orphans;
mod stdio;

mod child;
mod command;

pub use child::Child;
pub use command::Command;
pub use stdio::{ChildStderr, ChildStdin, ChildStdout};
