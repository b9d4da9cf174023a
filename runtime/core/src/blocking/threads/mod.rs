//! The threads of the blocking pool and their job queue: the protocol that provides a thread for
//! each job.
//!
//! A job is pushed into the queue, and a thread must take it: an idle one, or a new one. A thread
//! that stays idle for a while exits. In the ordinary case an idle thread is notified, takes the
//! job, runs it, and is idle again.
//!
//! The race is between the exit of an idle thread and a new job. If the thread were only notified,
//! its wait could time out at the same moment, and the job would be left without a thread.
//! Therefore a submit *promises* an idle thread to the job, under the lock, and a promised thread
//! does not exit.
//!
//! Shape: one lock around a queue and the counts. Threads sleep on a condition variable. Before
//! that, one of them may *spin* for a moment (`driver/spin`), so that it can be reached without a
//! system call; a submit *calls* the spinning thread by storing its number.
//!
//! Submit, by any thread, under the lock:
//! 1. The job is pushed.
//! 2. If a thread spins, it is called. Otherwise, if a thread is idle, it is promised
//!    (`idle -= 1`). Otherwise, if the limit allows another thread, it is counted, and the caller
//!    starts it.
//! 3. A promised thread is notified.
//!
//! Work, by a thread of the pool, under the lock except during jobs and (2):
//! 1. It takes and runs jobs while there are any. If the pool is shut down after that, the thread
//!    exits.
//! 2. It spins, if that is worthwhile and no other thread spins: see Spin.
//! 3. It is idle (`idle += 1`), and waits.
//! 4. If it was promised, it continues with (1). If its wait timed out or the pool is shut down,
//!    without a promise: `idle -= 1`, and it exits unless there is a job.
//!
//! Spin, by one thread at a time:
//! 1. Under the lock, the thread stores a new number, which marks it as spinning.
//! 2. Without the lock, it checks whether that number was called.
//! 3. It takes the lock again. If the number was removed, the thread was called, whatever it saw in
//!    (2), and continues with Work (1). Otherwise it removes the number and continues with Work
//!    (3). A call is as binding as a promise, and costs the caller no system call.
//!
//! Shut down, under the lock: the pool is marked, the spinning thread is called, and all waiting
//! threads are notified. Jobs that must be started in spite of that stay in the queue: the submit
//! made sure that a thread is awake or on its way for them. Among them are as many jobs, the oldest
//! ones, as threads are *on their way*: were called, promised or started for a job, and have not
//! taken the lock since. So a job for which there was a thread runs, even if the thread is slow.
//!
//! Leave, by a thread that calls the program back before it exits, under the lock except during the
//! callback:
//! 1. It stops counting as a thread that runs jobs, in the same step in which Work returns.
//! 2. It calls the program. A job that comes now gets another thread.
//! 3. It counts as exited.
//!
//! Invariants:
//! * COMES: while a job is in the queue, a thread is awake, was called or promised, or is about to
//!   start.
//! * PROMISED: a thread is either idle or promised, and a promise is for one job. Two jobs get two
//!   threads, if the limit allows, so jobs that wait for each other do not deadlock.
//! * ENDS: after a shutdown every thread exits, and no thread waits.
//!
//! The models are in `loom_models`.

use std::collections::VecDeque;
use std::task::Waker;

use volt_shim::{AtomicU64, CachePadded, Condvar, Mutex, MutexGuard, Ordering};

#[cfg(all(test, loom))]
mod loom_models;

/// The threads of a blocking pool, and their queue. See the module documentation.
pub(super) struct Threads<J> {
    state: Mutex<State<J>>,
    /// The condition variable on which threads wait for work.
    pub(super) work: Condvar,
    /// The number of the last spin that was called. The spinning thread reads it; it is written
    /// under the lock.
    called: CachePadded<AtomicU64>,
    max_threads: usize,
}

pub(super) struct State<J> {
    pub(super) queue: VecDeque<J>,
    /// The threads that run jobs, including those about to start.
    pub(super) threads: usize,
    /// The threads that have left, but have not exited yet.
    pub(super) leaving: usize,
    pub(super) idle: usize,
    /// The number of the current spin, if it was not called. Its thread does not count as idle.
    spin: Option<u64>,
    spins: u64,
    /// Idle threads that were promised to a job and have not woken up yet.
    promised: usize,
    /// Threads that were started for a job and have not begun to work.
    pub(super) starting: usize,
    /// Calls of spinning threads that these have not seen yet.
    calls: usize,
    is_shut_down: bool,
    /// Woken by each thread that exits after the pool was shut down.
    waits_for_end: Option<Waker>,
    pub(super) submitted: u64,
    pub(super) completed: u64,
    started: u64,
}

/// The action that the caller of [`Threads::submit`] has to take.
#[must_use = "a thread that was counted is to be started"]
pub(super) enum Submitted<J> {
    /// Nothing: a thread will take the job.
    Comes,
    /// Start a thread, which gets this number.
    Start(u64),
    /// End the job: the pool is shut down.
    Refused(J),
}

/// How one thread waits: its timing, and the steps that a model replaces.
pub(super) trait Waits<J> {
    /// Returns whether a spin is worthwhile.
    fn is_spin_worth(&self) -> bool;

    /// Performs Spin (2). Returns whether it saw the call.
    fn spin(&mut self, is_called: impl Fn() -> bool) -> bool;

    /// Performs Work (3): the thread is idle from now on.
    fn begin_idle(&mut self);

    /// Returns whether the thread has been idle for long enough to exit.
    fn is_over(&mut self) -> bool;

    /// Waits for work, at most for the remaining idle time.
    fn wait<'a>(&mut self, threads: &'a Threads<J>, state: MutexGuard<'a, State<J>>) -> MutexGuard<'a, State<J>>;

    /// Ends the idle time: Work (4).
    fn end_idle(&mut self, is_promised: bool);

    // The steps that a model can replace by incorrect ones.

    /// Performs Spin (3): returns whether the spin `own` was called, whatever (2) saw.
    fn was_called(&self, state: &State<J>, own: u64, _has_seen: bool) -> bool {
        state.spin != Some(own)
    }

    /// Performs Work (4): takes a promise if there is one, and returns whether there was.
    fn take_promise(&self, state: &mut State<J>) -> bool {
        let is_promised = state.promised > 0;
        state.promised -= usize::from(is_promised);
        is_promised
    }
}

impl<J> Threads<J> {
    pub(super) fn new(max_threads: usize) -> Self {
        let state = State {
            queue: VecDeque::new(),
            threads: 0,
            leaving: 0,
            idle: 0,
            spin: None,
            spins: 0,
            promised: 0,
            starting: 0,
            calls: 0,
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

    /// Performs Submit.
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
            state.starting += 1;
            state.started += 1;
            Submitted::Start(state.started)
        } else {
            Submitted::Comes
        }
    }

    /// Performs Work until the thread has to exit. Returns with the lock held: the caller passes it
    /// to [`thread_ended`](Self::thread_ended), so that no other thread sees a state in between.
    ///
    /// `run` is called without the lock, once for each job.
    pub(super) fn work(&self, waits: &mut impl Waits<J>, mut run: impl FnMut(J)) -> MutexGuard<'_, State<J>> {
        let mut state = self.lock();
        state.starting -= 1;
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
                // ORDERING: Relaxed, as in `call_spinner`. The number only rises, so a thread that
                // was called before another one started to spin still sees its call.
                let has_seen = waits.spin(|| self.called.load(Ordering::Relaxed) >= own);
                // Spin (3)
                state = self.lock();
                if waits.was_called(&state, own, has_seen) {
                    state.calls = state.calls.saturating_sub(1);
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

    /// Performs Work (3) and (4): waits for a promise. Returns whether there was one.
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

    /// Counts a thread as exited, and wakes the thread that shuts the pool down, if there is one.
    pub(super) fn thread_ended(&self, mut state: MutexGuard<'_, State<J>>) {
        state.threads -= 1;
        self.report_end(state);
    }

    /// Returns how many threads are on their way to a job, each to another one.
    pub(super) fn on_their_way(state: &State<J>) -> usize {
        state.starting + state.promised + state.calls
    }

    /// Counts a thread as exited that could not be started.
    pub(super) fn thread_not_started(&self, mut state: MutexGuard<'_, State<J>>) {
        state.starting -= 1;
        self.thread_ended(state);
    }

    /// Returns how many threads have not exited.
    pub(super) fn present(state: &State<J>) -> usize {
        state.threads + state.leaving
    }

    /// Performs Leave (1), instead of [`thread_ended`](Self::thread_ended). A shutdown still waits
    /// for the thread, until it calls [`has_left`](Self::has_left).
    pub(super) fn leave(&self, mut state: MutexGuard<'_, State<J>>) {
        state.threads -= 1;
        state.leaving += 1;
    }

    /// Performs Leave (3).
    pub(super) fn has_left(&self) {
        let mut state = self.lock();
        state.leaving -= 1;
        self.report_end(state);
    }

    /// Wakes the thread that shuts the pool down, if there is one.
    fn report_end(&self, state: MutexGuard<'_, State<J>>) {
        let waker = state.waits_for_end.clone();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Performs Shut down. The caller removes the jobs that are not to be started any more. `waker`
    /// is woken by each thread that exits from now on.
    pub(super) fn shut_down(&self, state: &mut State<J>, waker: Waker) {
        state.is_shut_down = true;
        state.waits_for_end = Some(waker);
        self.call_spinner(state);
        // A thread that starts later finds the mark. Without threads, the system call is saved.
        if state.threads > 0 {
            self.work.notify_all();
        }
    }

    /// Calls the spinning thread, if there is one. Returns whether it did; the thread will then
    /// check for work.
    fn call_spinner(&self, state: &mut State<J>) -> bool {
        let spin = state.spin.take();
        if let Some(spin) = spin {
            // ORDERING: Relaxed: a hint; the state that it announces is under the lock.
            self.called.store(spin, Ordering::Relaxed);
            state.calls += 1;
        }
        spin.is_some()
    }
}
