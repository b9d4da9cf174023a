//! The parts of every symptom: a runtime, threads outside it, and an end flag.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use volt::Handle;

/// The number of workers, unless the symptom needs another.
pub(crate) const WORKERS: usize = 2;

/// A runtime with a problem, or its healthy counterpart.
pub(crate) struct Scene {
    pub(crate) runtime: Handle,
    /// Whether to cause the problem; otherwise it is the counterpart.
    pub(crate) has_symptom: bool,
    end: End,
    outside: Vec<JoinHandle<()>>,
}

/// Whether the run is over.
#[derive(Clone, Default)]
pub(crate) struct End(Arc<AtomicBool>);

impl End {
    pub(crate) fn has_come(&self) -> bool {
        // ORDERING: Relaxed; the flag alone is the message.
        self.0.load(Ordering::Relaxed)
    }
}

impl Scene {
    pub(crate) fn new(runtime: Handle, has_symptom: bool) -> Self {
        Self { runtime, has_symptom, end: End::default(), outside: Vec::new() }
    }

    pub(crate) fn end_flag(&self) -> End {
        self.end.clone()
    }

    /// Starts a thread outside the runtime that calls `turn` again and again.
    pub(crate) fn outside(&mut self, mut turn: impl FnMut(&Handle) + Send + 'static) {
        let (runtime, end) = (self.runtime.clone(), self.end_flag());
        self.outside.push(thread::spawn(move || {
            while !end.has_come() {
                turn(&runtime);
            }
        }));
    }

    /// Spawns tasks that initially belong to one worker. Each computes for `time` per poll until
    /// the end.
    pub(crate) fn crowd(&self, count: usize, time: Duration) {
        let end = self.end_flag();
        drop(self.runtime.spawn(async move {
            for _ in 0..count {
                drop(volt::spawn(in_turns(time, end.clone())));
            }
        }));
    }

    /// Ends the run, and waits for the threads.
    pub(crate) fn end(self) {
        // ORDERING: Relaxed; the flag alone is the message.
        self.end.0.store(true, Ordering::Relaxed);
        for thread in self.outside {
            // If the thread panicked, its message is on stderr.
            let _ = thread.join();
        }
    }
}

/// Computes for `time` per poll until the end.
pub(crate) async fn in_turns(time: Duration, end: End) {
    while !end.has_come() {
        compute(time);
        volt::task::yield_now().await;
    }
}

/// Keeps the processor busy for `time`.
pub(crate) fn compute(time: Duration) {
    let (began, mut sum) = (Instant::now(), 0_u64);
    while began.elapsed() < time {
        for n in 0..100_u64 {
            sum = black_box(sum.wrapping_mul(31).wrapping_add(n));
        }
    }
}
