//! The threads of the blocking pool and the queue that they work on: which thread comes for a job.
//!
//! For a newcomer. A job goes into a queue, and a thread has to come for it: one that is idle, or a
//! new one. An idle thread that nothing comes for ends after a while. The race is between that end
//! and a job: if a thread were only woken, it could time out at the same moment, and the job would
//! be left. So a submit *promises* an idle thread to the job, under the lock, and a thread that was
//! promised does not end.
//!
//! Shape: one lock around a queue and the counts; threads sleep on a condition variable, after a
//! spin if that is worth while (`driver/spin`).
//!
//! Submit, by anybody, under the lock:
//! 1. The job is pushed.
//! 2. The thread that spins is called; else an idle thread is promised (`idle -= 1`); else a thread
//!    is counted, if there may be one more, and the caller starts it.
//! 3. The promised thread is notified.
//!
//! Work, by a thread, under the lock but for the jobs and (2):
//! 1. It takes jobs while there are any. If the crew is shut down then, it ends.
//! 2. It spins, if that is worth while, and no other thread does: Spin.
//! 3. It is idle (`idle += 1`), and waits.
//! 4. Promised, it goes on with (1). Timed out, or shut down, with no promise: `idle -= 1`, and it
//!    ends, unless there is a job.
//!
//! Spin, of one thread at a time:
//! 1. Under the lock, it says that it spins, with a number of its own.
//! 2. Without the lock, it checks whether that number was called.
//! 3. Under the lock again: the number is not there any more, so it was called, whatever (2) saw.
//!    It goes on with Work (1). Else it takes the number back, and goes on with Work (3). A call is
//!    as good as a promise, and costs the caller no system call.
//!
//! Shut down, under the lock: it is said, the one that spins is called, and all that wait are
//! notified. Jobs that have to be begun nevertheless stay in the queue: a submit saw to it that a
//! thread is on its way for them, or awake.
//!
//! Invariants:
//! * COMES: while a job is in the queue, a thread is awake, was called or promised, or is about to
//!   start.
//! * PROMISED: a thread is idle or promised, and a promise is for one job: two jobs get two
//!   threads, as far as there may be so many. So jobs that wait for each other do not wait for
//!   ever.
//! * ENDS: after a shutdown every thread ends, and none waits.
//!
//! The models are in `loom_models`.

use std::collections::VecDeque;
use std::task::Waker;

use volt_shim::{AtomicU64, CachePadded, Condvar, Mutex, MutexGuard, Ordering};

#[cfg(all(test, loom))]
mod loom_models;

/// See the header of this file.
pub(super) struct Crew<J> {
    state: Mutex<State<J>>,
    /// Threads wait here for work.
    pub(super) work: Condvar,
    /// The last spin that was called, which the thread that spins checks. Written under the lock.
    called: CachePadded<AtomicU64>,
    max_threads: usize,
}

pub(super) struct State<J> {
    pub(super) queue: VecDeque<J>,
    /// Threads that have not ended, those that are about to start included.
    pub(super) threads: usize,
    pub(super) idle: usize,
    /// The spin that goes on and was not called, by number. Its thread is not counted as idle.
    spin: Option<u64>,
    spins: u64,
    /// Idle threads that were promised to a job and have not woken up yet.
    promised: usize,
    is_shut_down: bool,
    /// Woken by each thread that ends, once the crew is shut down.
    waits_for_end: Option<Waker>,
    pub(super) submitted: u64,
    pub(super) completed: u64,
    started: u64,
}

/// What [`Crew::submit`] leaves to do.
#[must_use = "a thread that was counted is to be started"]
pub(super) enum Submitted<J> {
    /// Nothing: a thread comes.
    Comes,
    /// To start a thread, the one with this number.
    Start(u64),
    /// To end the job: the crew is shut down.
    Refused(J),
}

/// How a thread waits. Of one thread.
pub(super) trait Waits<J> {
    /// Whether a spin is worth while.
    fn is_spin_worth(&self) -> bool;

    /// Spin (2). Returns whether the call was seen.
    fn spin(&mut self, is_called: impl Fn() -> bool) -> bool;

    /// Work (3): the thread is idle from now on.
    fn begin_idle(&mut self);

    /// Whether the thread has been idle for long enough.
    fn is_over(&mut self) -> bool;

    /// Waits for work, for as long as it may be idle at most.
    fn wait<'a>(&mut self, crew: &'a Crew<J>, state: MutexGuard<'a, State<J>>) -> MutexGuard<'a, State<J>>;

    /// Work (4).
    fn end_idle(&mut self, is_promised: bool);

    // The steps that a model can do wrong.

    /// Spin (3): whether the spin `own` was called, whatever (2) has seen.
    fn was_called(&self, state: &State<J>, own: u64, _has_seen: bool) -> bool {
        state.spin != Some(own)
    }

    /// Work (4): takes a promise, if there is one.
    fn take_promise(&self, state: &mut State<J>) -> bool {
        let is_promised = state.promised > 0;
        state.promised -= usize::from(is_promised);
        is_promised
    }
}

impl<J> Crew<J> {
    pub(super) fn new(max_threads: usize) -> Self {
        let state = State {
            queue: VecDeque::new(),
            threads: 0,
            idle: 0,
            spin: None,
            spins: 0,
            promised: 0,
            is_shut_down: false,
            waits_for_end: None,
            submitted: 0,
            completed: 0,
            started: 0,
        };
        Self { state: Mutex::new(state), work: Condvar::new(), called: CachePadded(AtomicU64::new(0)), max_threads }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock()
    }

    pub(super) fn max_threads(&self) -> usize {
        self.max_threads
    }

    /// Submit.
    pub(super) fn submit(&self, job: J) -> Submitted<J> {
        let mut state = self.lock();
        if state.is_shut_down {
            return Submitted::Refused(job);
        }
        // Submit (1)
        state.queue.push_back(job);
        state.submitted += 1;
        // Submit (2)
        if self.call_spinner(&mut state) {
            Submitted::Comes
        } else if state.idle > 0 {
            state.idle -= 1;
            state.promised += 1;
            // Submit (3)
            self.work.notify_one();
            Submitted::Comes
        } else if state.threads < self.max_threads {
            state.threads += 1;
            state.started += 1;
            Submitted::Start(state.started)
        } else {
            Submitted::Comes
        }
    }

    /// Work, until the thread is to end. Returns with the lock held: the caller counts the thread
    /// out before it gives it up.
    ///
    /// `run` is called without the lock, once for each job.
    pub(super) fn work(&self, waits: &mut impl Waits<J>, mut run: impl FnMut(J)) -> MutexGuard<'_, State<J>> {
        let mut state = self.lock();
        loop {
            // Work (1)
            while let Some(job) = state.queue.pop_front() {
                drop(state);
                run(job);
                state = self.lock();
                state.completed += 1;
            }
            if state.is_shut_down {
                return state;
            }
            // Work (2)
            if state.spin.is_none() && waits.is_spin_worth() {
                // Spin (1)
                state.spins += 1;
                let own = state.spins;
                state.spin = Some(own);
                drop(state);
                // Spin (2)
                // ORDERING: Relaxed; as in `call_spinner`. It only rises: the thread that was
                // called before another began to spin sees that too.
                let has_seen = waits.spin(|| self.called.load(Ordering::Relaxed) >= own);
                // Spin (3)
                state = self.lock();
                if waits.was_called(&state, own, has_seen) {
                    continue;
                }
                state.spin = None;
            }
            // Work (3)
            state.idle += 1;
            waits.begin_idle();
            let is_promised;
            (state, is_promised) = self.wait(waits, state);
            waits.end_idle(is_promised);
            // Work (4)
            if !is_promised && state.queue.is_empty() {
                return state;
            }
        }
    }

    /// Work (3) and (4): waits for a promise. Returns whether there was one.
    fn wait<'a>(
        &'a self,
        waits: &mut impl Waits<J>,
        mut state: MutexGuard<'a, State<J>>,
    ) -> (MutexGuard<'a, State<J>>, bool) {
        loop {
            if waits.take_promise(&mut state) {
                return (state, true);
            }
            if state.is_shut_down || waits.is_over() {
                debug_assert!(state.idle > 0, "PROMISED: a thread that was promised gives up");
                state.idle -= 1;
                return (state, false);
            }
            state = waits.wait(self, state);
        }
    }

    /// One thread fewer; wakes whoever shuts the crew down, if that goes on.
    pub(super) fn thread_ended(&self, mut state: MutexGuard<'_, State<J>>) {
        state.threads -= 1;
        let waker = state.waits_for_end.clone();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Shut down. The caller takes the jobs that are not to be begun any more. `waker` is woken by
    /// each thread that ends from now on.
    pub(super) fn shut_down(&self, state: &mut State<J>, waker: Waker) {
        state.is_shut_down = true;
        state.waits_for_end = Some(waker);
        self.call_spinner(state);
        self.work.notify_all();
    }

    /// Spin, by whoever has something for a thread: whether one spun, and comes.
    fn call_spinner(&self, state: &mut State<J>) -> bool {
        let spin = state.spin.take();
        if let Some(spin) = spin {
            // ORDERING: Relaxed; a hint: what there is stands under the lock.
            self.called.store(spin, Ordering::Relaxed);
        }
        spin.is_some()
    }
}
