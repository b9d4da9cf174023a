//! The thread that publishes, and the guard that stops it.
//!
//! A thread, not a task: it publishes even while every worker of the application is stuck, and a
//! recorder that blocks delays no task.
//!
//! # Shape
//!
//! A program has one [`Published`], which contains what its recorder has received. The thread of
//! the current publisher has it, and returns it when it ends, so that the next publisher continues
//! there. While a thread has it, no other publisher can start.
//!
//! A child that is forked meanwhile has no such thread, and the [`Published`] is never returned in
//! it. So the state contains the pid of the program with the thread: the child starts with a new
//! [`Published`], and its copy of the guard does nothing.
//!
//! # Protocol of an end
//!
//! 1. The guard is dropped, which closes the channel `stop`.
//! 2. The thread notices that instead of the next interval. It publishes for the last time, so that
//!    counts since the last interval are not lost, and returns the `Published`.
//! 3. It closes the channel `ended`, for which the guard waits outside a runtime.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{mem, process, thread};

use super::error::PublishError;
use super::published::{Published, Settings};

/// The pause between two batches of updates.
const PAUSE: Duration = Duration::from_millis(1);
/// How long dropping a publisher waits for its last publication, which takes milliseconds unless
/// the recorder blocks.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// The numbers that the recorder of this program has received, unless a thread has it.
static PUBLISHED: Mutex<State> = Mutex::new(State::New);

enum State {
    /// Nothing was published yet.
    New,
    Idle(Published),
    /// A thread of the program with this pid has it. That is another program in a forked child.
    Publishing(u32),
}

/// Publishes metrics into the recorder of the program until it is dropped: see
/// [`publish_to_recorder`](crate::publish_to_recorder).
///
/// Dropping it publishes for the last time. Outside a runtime, the drop waits for that for at most
/// 5 s. Inside a runtime it does not wait, since it must not block.
///
/// If the recorder panics, publishing stops, and the log has an error.
///
/// # Fork
///
/// A child that was forked from the program does not publish until it starts its own publisher.
/// Dropping the child's copy of the parent's publisher does nothing there. The child's copy of the
/// recorder keeps the parent's series, with the values that they had at the fork.
///
/// ```
/// let publisher = volt_exporter::Publisher::builder().runtimes(["main"]).start()?;
/// // … the program, for as long as it lives
/// drop(publisher);
/// # Ok::<(), volt_exporter::PublishError>(())
/// ```
#[derive(Debug)]
#[must_use = "metrics are published only while this lives"]
pub struct Publisher {
    /// The program that has the thread.
    pid: u32,
    /// Taken on drop.
    channels: Option<Channels>,
}

/// The guard's sides of its two channels. Nothing is sent.
#[derive(Debug)]
struct Channels {
    stop: Sender<()>,
    ended: Receiver<()>,
}

impl Publisher {
    pub(super) fn start(interval: Duration, settings: Settings) -> Result<Self, PublishError> {
        let lease = Lease::take().ok_or_else(PublishError::publishing)?;
        let (stop, stopped) = channel();
        let (end, ended) = channel::<()>();
        let run = move || {
            run(interval, &settings, lease, &stopped);
            drop(end);
        };
        thread::Builder::new().name("volt-publish".into()).spawn(run).map_err(PublishError::thread)?;
        Ok(Self { pid: process::id(), channels: Some(Channels { stop, ended }) })
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let Some(channels) = self.channels.take() else { return };
        if self.pid != process::id() {
            // The thread stayed in the parent. It may have locked the channels when the program
            // forked, and closing them would then block forever.
            mem::forget(channels);
            return;
        }
        let Channels { stop, ended } = channels;
        drop(stop);
        // Async code must not block.
        if volt::Handle::try_current().is_err() {
            // Both a timeout and the closed channel end the wait.
            let _ended = ended.recv_timeout(SHUTDOWN_TIMEOUT);
        }
    }
}

fn run(interval: Duration, settings: &Settings, mut lease: Lease, stopped: &Receiver<()>) {
    loop {
        lease.publish(settings);
        match stopped.recv_timeout(interval) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    lease.publish(settings);
}

/// The [`Published`] of the program, in the thread that uses it. Returned when dropped.
struct Lease(Published);

impl Lease {
    /// Returns `None` while another thread of this program has it.
    fn take() -> Option<Self> {
        let mut state = state();
        let program = process::id();
        match mem::replace(&mut *state, State::Publishing(program)) {
            State::Publishing(pid) if pid == program => None,
            State::New | State::Publishing(_) => Some(Self(Published::default())),
            State::Idle(published) => Some(Self(published)),
        }
    }

    fn publish(&mut self, settings: &Settings) {
        let program = volt::observe::program();
        metrics::with_recorder(|recorder| {
            self.0.publish(&program, settings, recorder, &mut || thread::sleep(PAUSE));
        });
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if thread::panicking() {
            tracing::error!("stopped publishing metrics after a panic, probably in the recorder");
        }
        *state() = State::Idle(mem::take(&mut self.0));
    }
}

fn state() -> MutexGuard<'static, State> {
    PUBLISHED.lock().unwrap_or_else(PoisonError::into_inner)
}
