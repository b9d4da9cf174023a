//! A pool of threads for work that blocks: grows with the queue up to a limit, shrinks when idle.
//!
//! Shape: one lock around a queue of jobs and the counts; threads sleep on a condition variable, after a spin if that is worth while (`driver/spin`). A job is a task whose future runs
//! the closure in its one poll, so that handles, ids, panics and aborts are those of all tasks.
//!
//! Protocol. Submit: (1) under the lock, push the job; (2) the thread that spins is called, or an idle thread is promised to it (`idle -= 1`), or
//! a thread is started if there may be one more; (3) notify the promised one. A thread: takes jobs while there are any; then (a) `idle += 1`, (b) waits; (c) woken by promise:
//! goes on; by time-out with no promise: `idle -= 1` and ends. The promise under the lock is what keeps a time-out from racing a job.
//!
//! Spin, of one thread at a time, before (a): (1) under the lock, say so, with a number that is its own; (2) without the lock, look whether that number was called;
//! (3) under the lock again: called, if the number is not there any more, whatever (2) saw: goes on; else take it back, and on with (a). A call is as
//! good as a promise, and costs the caller no system call.
//!
//! Shutdown: under the lock, take the queue and say so; cancel what was in the queue, but leave the *mandatory* jobs there, for which a thread is on its
//! way or awake, since a submit saw to it: what a file was given to write is not to be lost. Each thread that ends wakes whoever shuts the pool down
//! and waits for that in the driver, so that timers and sockets of jobs go on. A thread whose own job
//! shuts the pool down is not waited for, since the job ends only after the shutdown; it ends by itself then, as all of them do.
//!
//! If no thread can be started: jobs wait for those that there are; if there is none, they are refused, with the cause in their error.
//!
//! Bounds: `max_blocking_threads` threads; the queue is as long as callers make it, and its length is published.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use volt_telemetry::recording::event::Waker as By;

use crate::clock;
use crate::config::ParkSpin;
use crate::driver::spin::Habit;
use crate::shim::CachePadded;
use crate::task::cell::Schedule;
use crate::task::current::wake_as;
use crate::task::header::{Header, Notified, Task};
use crate::task::join::Refused;
use crate::troubles::{Trouble, Troubles};

thread_local! {
    /// The pool that this thread takes jobs from. Only compared with, never followed.
    static POOL: Cell<*const Inner> = const { Cell::new(ptr::null()) };
}

/// See the header of this file.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    /// Threads wait here for work.
    work: Condvar,
    /// The last spin that was called: what the thread that spins looks at. Written under the lock.
    called: CachePadded<AtomicU64>,
    settings: Settings,
}

/// How large a pool may get, and how its threads look.
pub(crate) struct Settings {
    pub(crate) max_threads: usize,
    pub(crate) keep_alive: Duration,
    pub(crate) thread_name: String,
    pub(crate) stack_size: Option<usize>,
    /// Whether an idle thread stays awake for a moment; see `driver/spin`.
    pub(crate) spin: ParkSpin,
    /// Where threads that cannot be started are noted down.
    pub(crate) troubles: Arc<Troubles>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Queued>,
    threads: usize,
    idle: usize,
    /// The spin that goes on and was not called, by number. Its thread is not counted as idle.
    spin: Option<u64>,
    spins: u64,
    /// Idle threads that were promised to a job and have not woken up yet.
    promised: usize,
    is_shut_down: bool,
    /// Who is told of each thread that ends, once the pool is shut down.
    waits_for_end: Option<Waker>,
    submitted: u64,
    completed: u64,
    started: u64,
}

struct Queued {
    job: Notified,
    /// To be begun even if the runtime is shut down before.
    is_mandatory: bool,
}

impl Pool {
    pub(crate) fn new(settings: Settings) -> Self {
        Self(Arc::new(Inner {
            state: Mutex::new(State::default()),
            work: Condvar::new(),
            called: CachePadded(AtomicU64::new(0)),
            settings,
        }))
    }

    /// Queues a job and sees to it that a thread comes for it. After shutdown the job is cancelled; one that waits then is cancelled too, unless it
    /// is mandatory.
    pub(crate) fn submit(&self, job: Notified, is_mandatory: bool) {
        let mut state = self.0.lock();
        if state.is_shut_down {
            drop(state);
            job.cancel_now();
            return;
        }
        state.queue.push_back(Queued { job, is_mandatory });
        state.submitted += 1;
        if self.0.call_spinner(&mut state) {
            // Awake, and on its way.
        } else if state.idle > 0 {
            state.idle -= 1;
            state.promised += 1;
            self.0.work.notify_one();
        } else if state.threads < self.0.settings.max_threads {
            state.threads += 1;
            state.started += 1;
            let number = state.started;
            drop(state);
            self.start_thread(number);
        }
    }

    fn start_thread(&self, number: u64) {
        let inner = self.0.clone();
        let mut builder = thread::Builder::new().name(format!("{}-blocking-{number}", inner.settings.thread_name));
        if let Some(bytes) = inner.settings.stack_size {
            builder = builder.stack_size(bytes);
        }
        let Err(error) = builder.spawn(move || inner.run()) else { return };
        self.0.settings.troubles.note(Trouble::NoBlockingThread, &error);
        let mut state = self.0.lock();
        // Of those that there are, one takes the job when it is done with its own.
        let jobs = if state.threads > 1 { VecDeque::new() } else { std::mem::take(&mut state.queue) };
        state.completed += jobs.len() as u64;
        self.0.thread_ended(state);
        jobs.into_iter().for_each(|queued| refuse(queued.job, &error));
    }

    /// Takes no more jobs, and cancels those that have not begun; whoever has `waker` is woken by each thread that ends from now on.
    pub(crate) fn shut_down(&self, waker: Waker) {
        let mut state = self.0.lock();
        state.is_shut_down = true;
        state.waits_for_end = Some(waker);
        let jobs = std::mem::take(&mut state.queue);
        let (mandatory, others): (VecDeque<_>, VecDeque<_>) =
            jobs.into_iter().partition(|queued: &Queued| queued.is_mandatory);
        state.queue = mandatory;
        self.0.call_spinner(&mut state);
        self.0.work.notify_all();
        drop(state);
        others.into_iter().for_each(|queued| queued.job.cancel_now());
    }

    /// Threads that have not ended, this one not counted.
    pub(crate) fn others(&self) -> usize {
        self.0.lock().threads - usize::from(ptr::eq(POOL.get(), Arc::as_ptr(&self.0)))
    }

    /// Whether no job is under way, or waits.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.0.lock();
        state.submitted == state.completed
    }

    pub(crate) fn telemetry(&self) -> volt_telemetry::Blocking {
        let state = self.0.lock();
        volt_telemetry::Blocking {
            threads: state.threads as u64,
            idle_threads: state.idle as u64,
            max_threads: self.0.settings.max_threads as u64,
            queue_len: state.queue.len() as u64,
            submitted: state.submitted,
            completed: state.completed,
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Spin, by whoever has something for a thread: whether one spun, and comes.
    fn call_spinner(&self, state: &mut State) -> bool {
        let spin = state.spin.take();
        if let Some(spin) = spin {
            // ORDERING: Relaxed; a hint: what there is stands under the lock.
            self.called.store(spin, Ordering::Relaxed);
        }
        spin.is_some()
    }

    fn run(&self) {
        POOL.set(self);
        let mut habit = Habit::new();
        wake_as(By::Blocking);
        let mut state = self.lock();
        loop {
            while let Some(Queued { job, .. }) = state.queue.pop_front() {
                drop(state);
                // A panic of the job's is in its output by now; what it ended with is the handle's business.
                let _ended = job.run(0);
                state = self.lock();
                state.completed += 1;
            }
            if state.is_shut_down {
                break;
            }
            if state.spin.is_none() && habit.is_worth(self.settings.spin) {
                // Spin (1)
                state.spins += 1;
                let own = state.spins;
                state.spin = Some(own);
                drop(state);
                // Spin (2)
                // ORDERING: Relaxed; as in `call_spinner`. It only rises: who was called before another began sees that too.
                let _spun = habit.spin(self.settings.spin, || self.called.load(Ordering::Relaxed) >= own);
                // Spin (3)
                state = self.lock();
                if state.spin != Some(own) {
                    continue;
                }
                state.spin = None;
            }
            state.idle += 1;
            let idle_at = Instant::now();
            let mut deadline = idle_at.checked_add(self.settings.keep_alive);
            let is_promised = loop {
                if state.promised > 0 {
                    state.promised -= 1;
                    break true;
                }
                let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
                if state.is_shut_down || left == Some(Duration::ZERO) {
                    state.idle -= 1;
                    break false;
                }
                // A keep-alive beyond the clock's range is a wait of a day, again and again.
                let left = left.unwrap_or(Duration::from_secs(86_400));
                deadline = deadline.or_else(|| Instant::now().checked_add(self.settings.keep_alive));
                state = self.work.wait_timeout(state, left).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
            };
            habit.note_sleep(clock::saturating_ns(idle_at.elapsed()), is_promised);
            if !is_promised && state.queue.is_empty() {
                break;
            }
        }
        // Not counted any more, while destructors of this thread's may still shut the pool down.
        POOL.set(ptr::null());
        self.thread_ended(state);
    }

    /// One thread fewer.
    fn thread_ended(&self, mut state: MutexGuard<'_, State>) {
        state.threads -= 1;
        let waker = state.waits_for_end.clone();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

thread_local! {
    /// Why the job that this thread runs is not to be begun.
    static REFUSAL: Cell<Option<Refused>> = const { Cell::new(None) };
}

/// Ends a job that no thread can be had for, with `error` as the cause.
fn refuse(job: Notified, error: &io::Error) {
    REFUSAL.set(Some(Refused::new(format!("no thread could be started for blocking work: {error}"))));
    let _ended = job.run(0);
    // It is there still if the job had been aborted.
    REFUSAL.take();
}

/// Blocking jobs are never woken and belong to no registry.
pub(crate) struct BlockingSchedule;

impl Schedule for BlockingSchedule {
    const IS_COUNTED: bool = false;

    fn schedule(&self, _task: Notified) {
        unreachable!("a blocking job ends in its first poll, so nothing can wake it");
    }

    /// The pool cancels what is in its queue itself.
    fn is_closing(&self) -> bool {
        false
    }

    fn keep(&self, _task: &Task) {
        unreachable!("a blocking job ends in its first poll, so it never waits");
    }

    fn release(&self, _task: &Header) -> Option<Task> {
        None
    }
}

/// The future of a blocking job: calls the closure in its one poll.
pub(crate) struct Job<F>(Option<F>);

impl<F> Job<F> {
    pub(crate) fn new(f: F) -> Self {
        Self(Some(f))
    }
}

/// The closure is only moved out, never pinned.
impl<F> Unpin for Job<F> {}

impl<F: FnOnce() -> R, R> Future for Job<F> {
    type Output = R;

    fn poll(mut self: std::pin::Pin<&mut Self>, _cx: &mut std::task::Context<'_>) -> std::task::Poll<R> {
        let f = self.0.take().expect("a blocking job is polled once");
        if let Some(refused) = REFUSAL.take() {
            drop(f);
            // No panic: nobody's hook is called, and the error of the job's handle is no panic's.
            std::panic::resume_unwind(Box::new(refused));
        }
        std::task::Poll::Ready(f())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::task::cell::new_task;
    use crate::task::id::Id;
    use crate::task::join::JoinHandle;
    use std::panic::Location;
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;
    use std::task::{Context, Poll, Wake};

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A pool whose threads cannot be started.
    fn without_threads() -> Pool {
        Pool::new(Settings {
            max_threads: 1,
            keep_alive: Duration::MAX,
            thread_name: "none".to_owned(),
            // More than any machine has.
            stack_size: Some(1 << 60),
            spin: ParkSpin::Off,
            troubles: Arc::new(Troubles::new("test", true)),
        })
    }

    fn submit(pool: &Pool) -> JoinHandle<()> {
        let job = Job::new(|| unreachable!("no thread can be started"));
        let (notified, join) = new_task(job, BlockingSchedule, Id::next(), Location::caller(), None);
        pool.submit(notified, false);
        join
    }

    #[test]
    fn a_shutdown_waits_for_no_thread_that_could_not_be_started() {
        let pool = without_threads();
        // As `submit` leaves it.
        pool.0.lock().threads = 1;
        let told = Arc::new(Count::default());
        pool.shut_down(told.clone().into());
        assert_eq!((pool.others(), told.0.load(Ordering::Relaxed)), (1, 0));
        pool.start_thread(1);
        assert_eq!((pool.others(), told.0.load(Ordering::Relaxed)), (0, 1));
    }

    #[test]
    fn a_job_without_a_thread_fails_with_the_cause() {
        let pool = without_threads();
        let Poll::Ready(Err(error)) = pin!(submit(&pool)).poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("it is refused at once")
        };
        assert!(error.is_cancelled() && !error.is_panic());
        assert!(pool.is_idle(), "a refused job is over");
        let text = io::Error::from(error).to_string();
        assert!(text.contains("no thread could be started for blocking work: ") && text.contains("os error"), "{text}");
    }

    #[test]
    fn threads_that_cannot_be_started_are_reported_with_their_number() {
        let pool = without_threads();
        (0..201).for_each(|_| drop(submit(&pool)));
        let (error, times) = pool.0.settings.troubles.take(Trouble::NoBlockingThread, 0).unwrap();
        assert_eq!(times, 201);
        assert!(error.contains("os error"), "{error}");
    }
}
