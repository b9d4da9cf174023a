//! Asynchronous handling of operating system signals.
//!
//! [`ctrl_c`] waits for Ctrl-C. The module [`unix`] handles all other signals.
//!
//! ```no_run
//! # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
//! # runtime.block_on(async {
//! volt::signal::ctrl_c().await?;
//! println!("good bye");
//! # Ok::<(), std::io::Error>(())
//! # }).unwrap();
//! ```

pub mod unix;

use std::io;

/// Waits until the program receives Ctrl-C (SIGINT).
///
/// The first call disables the default action of SIGINT for good: from then on, Ctrl-C does not
/// terminate the program, even while no task waits for it. To terminate on a second Ctrl-C, call
/// this function again and exit when it completes.
///
/// # Errors
/// Returns an error if the signal handler cannot be registered, or if the runtime has been shut
/// down.
///
/// # Panics
/// Panics if the future is polled outside the context of a runtime.
///
/// # Cancel safety
/// This function is cancel safe. A signal that arrives between two calls is reported by the second
/// one.
pub async fn ctrl_c() -> io::Result<()> {
    let mut interrupts = unix::signal(unix::SignalKind::interrupt())?;
    interrupts.recv().await.ok_or_else(|| io::Error::other("the runtime was shut down"))
}
