//! Runs a test once for each of many seeds.

use std::any::Any;
use std::env;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use volt_telemetry::text::counted;

use crate::Builder;

/// The environment variable with the only seed that [`check`] is to run.
const VARIABLE: &str = "VOLT_SEED";

/// A run of a test that failed. Returned by [`first_failure`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    seed: u64,
    passed: u64,
    fingerprint: u64,
    message: String,
}

impl Failure {
    /// Returns the seed of the run.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns how many seeds were run before, all of which passed.
    pub fn passed(&self) -> u64 {
        self.passed
    }

    /// Returns the hash of the order of polls until the test failed; see
    /// [`Handle::schedule_fingerprint`](crate::Handle::schedule_fingerprint).
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Returns the message of the panic.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, passed, fingerprint, message } = self;
        write!(f, "seed {seed} fails")?;
        if *passed > 0 {
            write!(f, ", after {} without a failure", counted(*passed, "seed"))?;
        }
        write!(f, ": {message}\nschedule {fingerprint:016x}")
    }
}

/// Runs `test` once for each seed, and panics at the first seed with which it fails.
///
/// Each run has a new runtime with the [seed](crate::Builder::seed), and calls `test` inside it. A
/// run fails if the future of `test` panics, if no task can ever be woken again, or if the runtime
/// reaches its [`poll_limit`](crate::Builder::poll_limit). A panic in a spawned task is returned by
/// its `JoinHandle`, as in every runtime, so a test awaits its tasks and unwraps their results.
///
/// If the environment variable `VOLT_SEED` contains a seed, only that one is run, whatever `seeds`
/// contains. The failed run is then not repeated, and the message contains no command.
///
/// # Panics
/// Panics if a run fails. The message contains the seed, the message of the failure, the hash of
/// the order of polls, and a command that replays the run. To find out whether the order is the
/// same each time, the failed run is repeated once. If it differs, the message contains `NOT the
/// same in a second run`: the test depends on something that [the seed does not
/// control](crate::Builder::seed).
///
/// Also panics if `VOLT_SEED` is not a number.
///
/// ```
/// use volt::sync::mpsc;
///
/// volt::sim::check(0..100, || async {
///     let (sender, mut receiver) = mpsc::channel(1);
///     let task = volt::spawn(async move { sender.send(42).await });
///     assert_eq!(receiver.recv().await, Some(42));
///     task.await.unwrap().unwrap();
/// });
/// ```
#[track_caller]
pub fn check<F, Fut>(seeds: impl IntoIterator<Item = u64>, test: F)
where
    F: Fn() -> Fut,
    Fut: Future<Output = ()>,
{
    if let Some(seed) = wanted_seed() {
        if let Some(failure) = first_failure([seed], test) {
            panic!("{failure}");
        }
        return;
    }
    let Some(failure) = first_failure(seeds, &test) else { return };
    let again = first_failure([failure.seed], &test);
    let verdict = match again {
        Some(again) if again.fingerprint == failure.fingerprint => "the same in a second run",
        _ => "NOT the same in a second run: the test depends on something that the seed does not control",
    };
    let name = thread::current().name().filter(|name| *name != "main").map(|name| format!(" -- --exact {name}"));
    panic!("{failure}, {verdict}\nreplay it with: {VARIABLE}={} cargo test{}", failure.seed, name.unwrap_or_default());
}

/// Runs `test` once for each seed, and returns the first run that fails, or `None` if all pass.
///
/// Like [`check`], but does not panic, and ignores `VOLT_SEED`. For tests that expect a failure,
/// and for programs that run many seeds.
///
/// # Panics
/// Panics if the runtime of a seed cannot be built.
///
/// ```
/// let failure = volt::sim::first_failure(0..100, || async {
///     assert!(volt::sim::below(10) < 9, "a nine");
/// });
/// let failure = failure.expect("100 seeds draw a nine");
/// assert_eq!(failure.message(), "a nine");
/// ```
pub fn first_failure<F, Fut>(seeds: impl IntoIterator<Item = u64>, test: F) -> Option<Failure>
where
    F: Fn() -> Fut,
    Fut: Future<Output = ()>,
{
    (0..).zip(seeds).find_map(|(passed, seed)| {
        let runtime = match Builder::new_current_thread().name("sim").seed(seed).build() {
            Ok(runtime) => runtime,
            Err(error) => panic!("the runtime of seed {seed} could not be built: {error}"),
        };
        let run = catch_unwind(AssertUnwindSafe(|| runtime.block_on(async { test().await })));
        let fingerprint = runtime.handle().schedule_fingerprint().unwrap_or_default();
        let message = message_of(&*run.err()?);
        Some(Failure { seed, passed, fingerprint, message })
    })
}

/// Returns the seed that `VOLT_SEED` contains.
#[track_caller]
fn wanted_seed() -> Option<u64> {
    let text = env::var_os(VARIABLE)?;
    let seed = text.to_str().and_then(|text| text.trim().parse().ok());
    Some(seed.unwrap_or_else(|| panic!("{VARIABLE} is {text:?}: give a number from 0 to {}", u64::MAX)))
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without a message".to_owned())
}
