//! Signals of the operating system, as events.
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

/// Waits for Ctrl-C (SIGINT).
///
/// From the first call on Ctrl-C ends the program no more, even while nobody waits: whoever wants
/// the second one to do so calls this again and ends it.
///
/// # Errors
/// What the system says when the signal is asked for; the runtime was shut down.
///
/// # Panics
/// Outside a runtime.
///
/// # Cancel safety
/// A signal that comes between two calls is not seen by the second: keep a [`Signal`](unix::Signal)
/// where that counts.
pub async fn ctrl_c() -> io::Result<()> {
    let mut interrupts = unix::signal(unix::SignalKind::interrupt())?;
    interrupts.recv().await.ok_or_else(|| io::Error::other("the runtime was shut down"))
}
