//! Spare workers: threads that go on duty beside a worker that is stuck, or that has said that it will block.
//!
//! Shape: a slot for each, with queues of its own. While a spare is off duty its core lies here, and its thread, if it has one, sleeps on the
//! slot's parker. The handshake stands in `staff`; its steps are named here where they are taken.
//!
//! Who writes: whoever calls a spare, and the spare's own thread. A core is taken by the thread that is on duty with it, and laid back by it
//! before the slot may be called again: so it is there for whoever is called, and the lock is never waited for.
//!
//! Bound: `max_spare_workers` threads. One that has slept for `SPARE_KEEP_ALIVE` ends.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle as JoinThread;
use std::{io, mem};

use super::core::Core;
use super::shared::Shared;
use super::staff::Called;
use super::worker::Worker;
use crate::config::SPARE_KEEP_ALIVE;
use crate::driver::parker::Slept;
use crate::troubles::Trouble;

/// Starts a thread with the runtime's settings that runs [`Shared::run_spare`] for this slot.
pub(crate) type StartThread = fn(&Arc<Shared>, usize) -> io::Result<JoinThread<()>>;

/// See the header of this file.
pub(crate) struct Spares {
    start_thread: StartThread,
    /// Of slots that are off duty; the first is that of the first spare.
    cores: Mutex<Vec<Option<Core>>>,
    threads: Mutex<Vec<JoinThread<()>>>,
    calls: AtomicU64,
    failures: AtomicU64,
}

impl Spares {
    pub(crate) fn new(start_thread: StartThread, cores: Vec<Core>) -> Self {
        Self {
            start_thread,
            cores: Mutex::new(cores.into_iter().map(Some).collect()),
            threads: Mutex::default(),
            calls: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        }
    }

    /// Times that a spare went on duty, and times that no thread could be started for one.
    pub(crate) fn counts(&self) -> (u64, u64) {
        // ORDERING: Relaxed; only counted.
        (self.calls.load(Ordering::Relaxed), self.failures.load(Ordering::Relaxed))
    }

    /// The threads that were started so far, to be joined.
    pub(crate) fn take_threads(&self) -> Vec<JoinThread<()>> {
        mem::take(&mut *lock(&self.threads))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Shared {
    /// Puts a spare on duty. `false` = there is none left, or no thread to be had.
    pub(crate) fn call_spare(self: &Arc<Self>) -> bool {
        let Some(called) = self.staff.call() else { return false };
        // Call (3)
        match called {
            Called::Token(slot) => {
                self.give_token(slot);
                true
            }
            Called::Thread(slot) => self.start_spare(slot),
        }
    }

    fn start_spare(self: &Arc<Self>, slot: usize) -> bool {
        self.worker_starts();
        match (self.spares.start_thread)(self, slot) {
            Ok(thread) => {
                let mut threads = lock(&self.spares.threads);
                // Those that have ended by themselves are not kept for the end.
                threads.retain(|thread| !thread.is_finished());
                threads.push(thread);
                true
            }
            Err(error) => {
                self.staff.call_failed(slot);
                self.worker_ended();
                // ORDERING: Relaxed; only counted.
                self.spares.failures.fetch_add(1, Ordering::Relaxed);
                self.note_trouble(Trouble::NoSpare, &error);
                false
            }
        }
    }

    /// Those that sleep off duty come, and see what there is to see: that the runtime ends.
    pub(super) fn wake_spares(&self) {
        while let Some(slot) = self.staff.call_sleeper() {
            self.give_token(slot);
        }
    }

    /// The thread of a spare that was called.
    pub(crate) fn run_spare(self: Arc<Self>, slot: usize) {
        /// Says that the thread has ended, whatever ended it.
        struct Ended<'a>(&'a Shared);
        impl Drop for Ended<'_> {
            fn drop(&mut self) {
                self.0.worker_ended();
            }
        }
        let _ended = Ended(&self);
        let place = slot - self.config.workers;
        loop {
            let core = lock(&self.spares.cores)[place].take().expect("whoever is off duty has laid its core back");
            let worker = Worker::new(self.clone(), slot, core);
            // ORDERING: Relaxed; only counted.
            self.spares.calls.fetch_add(1, Ordering::Relaxed);
            let goes_off = worker.run_as_spare();
            lock(&self.spares.cores)[place] = Some(worker.into_core());
            if !goes_off {
                return;
            }
            // Leave (4)
            self.staff.go_off(slot);
            if !self.sleep_off_duty(slot) {
                return;
            }
        }
    }

    /// Leave (5): whether the spare was called.
    fn sleep_off_duty(&self, slot: usize) -> bool {
        let parker = &self.remotes[slot].parker;
        // Whoever ends the runtime calls after it has said so; I look whether it has said so after I may be called.
        self.idle.fence();
        if self.is_done() && self.staff.go(slot) {
            return false;
        }
        loop {
            let slept = parker.sleep(Some(SPARE_KEEP_ALIVE));
            if parker.take_token() {
                return true;
            }
            if slept == Slept::TimedOut && self.staff.go(slot) {
                return false;
            }
        }
    }
}
