//! The pool of threads for blocking work. It starts threads as jobs arrive, up to a limit, and
//! stops idle ones.
//!
//! `threads` is the protocol by which a thread takes each job, and by which all threads exit at the
//! end. A job is a task whose future calls the closure in its only poll. So handles, ids, panics
//! and aborts work as for all tasks.
//!
//! Shutdown: under the lock, the queue is emptied and the pool is marked as shut down. Queued jobs
//! are cancelled, with two exceptions, which stay in the queue. A job for which a thread is on its
//! way counts as started. *Mandatory* jobs are always run: data that was written to a file must not
//! be lost. The submit made sure that a thread is awake or on its way for them. Each thread that
//! exits wakes the thread that shuts the pool down, which waits in the driver, so that timers and
//! sockets of jobs still work. If a job of the pool itself shuts the pool down, the shutdown does
//! not wait for the thread of that job, which cannot end before. That thread exits later like the
//! others.
//!
//! If no thread can be started, jobs wait for the existing ones. If there are none, the jobs are
//! refused, with the cause in their error.
//!
//! Bounds: `max_blocking_threads` threads. The queue is unbounded, and its length is exported.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::ptr;
use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use volt_shim::{Condvar, MutexGuard as Guard};
use volt_telemetry::recording::event::Waker as By;

use crate::blocking::threads::{State, Submitted, Threads, Waits};
use crate::clock;
use crate::config::ParkSpin;
use crate::config::hooks::{self, Hooks};
use crate::driver::spin::Habit;
use crate::failures::{Failure, Failures};
use crate::task::current::wake_as;
use crate::task::header::{Header, Notified, Task};
use crate::task::join::Refused;
use crate::task::schedule::Schedule;

thread_local! {
    /// The pool whose jobs this thread runs. Only compared, never dereferenced.
    static POOL: Cell<*const Inner> = const { Cell::new(ptr::null()) };
}

/// The handle of a pool. See the module documentation.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Inner>);

struct Inner {
    threads: Threads<Queued>,
    settings: Settings,
}

/// The limits of a pool, and the configuration of its threads.
pub(crate) struct Settings {
    pub(crate) max_threads: usize,
    pub(crate) keep_alive: Duration,
    pub(crate) thread_name: String,
    /// The program's callbacks at the start and the end of a thread.
    pub(crate) hooks: Hooks,
    pub(crate) stack_size: Option<usize>,
    /// Whether an idle thread spins for a moment; see `driver/spin`.
    pub(crate) spin: ParkSpin,
    /// Where failures to start a thread are recorded.
    pub(crate) failures: Arc<Failures>,
}

struct Queued {
    job: Notified,
    /// Whether the job is run even if the runtime is shut down before it has started.
    is_mandatory: bool,
}

impl Pool {
    pub(crate) fn new(settings: Settings) -> Self {
        let threads = Threads::new(settings.max_threads);
        Self(Arc::new(Inner { threads, settings }))
    }

    /// Queues a job, and ensures that a thread runs it. After a shutdown the job is cancelled. Jobs
    /// that wait for a busy thread at the shutdown are cancelled, too, unless they are mandatory.
    pub(crate) fn submit(&self, job: Notified, is_mandatory: bool) {
        match self.0.threads.submit(Queued { job, is_mandatory }) {
            Submitted::Comes => {}
            Submitted::Start(number) => self.start_thread(number),
            Submitted::Refused(queued) => queued.job.cancel_now(),
        }
    }

    fn start_thread(&self, number: u64) {
        let inner = self.0.clone();
        let default = || format!("{}-blocking-{number}", inner.settings.thread_name);
        let mut builder = thread::Builder::new().name(inner.settings.hooks.thread_name(default));
        if let Some(bytes) = inner.settings.stack_size {
            builder = builder.stack_size(bytes);
        }
        let Err(error) = builder.spawn(move || inner.run()) else { return };
        self.0.settings.failures.note(Failure::NoBlockingThread, &error);
        let mut state = self.0.threads.lock();
        // If there are other threads, one of them takes the job after its current one.
        let jobs = if state.threads > 1 { VecDeque::new() } else { std::mem::take(&mut state.queue) };
        state.completed += jobs.len() as u64;
        self.0.threads.thread_not_started(state);
        jobs.into_iter().for_each(|queued| refuse(queued.job, &error));
    }

    /// Refuses jobs from now on, and cancels those for which there is no thread yet. `waker` is
    /// woken by each thread that exits from now on.
    pub(crate) fn shut_down(&self, waker: Waker) {
        let mut state = self.0.threads.lock();
        let mut jobs = std::mem::take(&mut state.queue);
        let started = Threads::on_their_way(&state).min(jobs.len());
        let rest = jobs.split_off(started);
        let (mandatory, others): (VecDeque<_>, VecDeque<_>) =
            rest.into_iter().partition(|queued: &Queued| queued.is_mandatory);
        jobs.extend(mandatory);
        state.queue = jobs;
        self.0.threads.shut_down(&mut state, waker);
        drop(state);
        others.into_iter().for_each(|queued| queued.job.cancel_now());
    }

    /// Returns the number of threads that have not exited, without the calling one.
    pub(crate) fn others(&self) -> usize {
        let state = self.0.threads.lock();
        Threads::present(&state) - usize::from(ptr::eq(POOL.get(), Arc::as_ptr(&self.0)))
    }

    /// Returns whether no job is running or queued.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.0.threads.lock();
        state.submitted == state.completed
    }

    pub(crate) fn telemetry(&self) -> volt_telemetry::Blocking {
        let state = self.0.threads.lock();
        volt_telemetry::Blocking {
            threads: state.threads as u64,
            idle_threads: state.idle as u64,
            max_threads: self.0.threads.max_threads() as u64,
            queue_len: state.queue.len() as u64,
            submitted: state.submitted,
            completed: state.completed,
        }
    }
}

impl Inner {
    fn run(&self) {
        POOL.set(self);
        wake_as(By::Blocking);
        hooks::call(self.settings.hooks.start.as_ref());
        let mut waits = Idling {
            settings: &self.settings,
            habit: Habit::new(),
            idle_at: Instant::now(),
            keep_alive: KeepAlive::default(),
        };
        // A panic of the job is already stored in its output, and its handle reports how it ended.
        let state = self.threads.work(&mut waits, |queued| _ = queued.job.run(0));
        if let Some(stop) = &self.settings.hooks.stop {
            // Leave (1) to (3): no job relies on this thread any more, but a shutdown waits for it.
            self.threads.leave(state);
            hooks::call(Some(stop));
            POOL.set(ptr::null());
            self.threads.has_left();
            return;
        }
        // The thread does not count any more, but its destructors may still shut the pool down.
        POOL.set(ptr::null());
        self.threads.thread_ended(state);
    }
}

/// How a thread of the pool waits for jobs.
struct Idling<'p> {
    settings: &'p Settings,
    habit: Habit,
    idle_at: Instant,
    keep_alive: KeepAlive,
}

impl Waits<Queued> for Idling<'_> {
    fn is_spin_worth(&self) -> bool {
        self.habit.is_worth(self.settings.spin)
    }

    fn spin(&mut self, is_called: impl Fn() -> bool) -> bool {
        self.habit.spin(self.settings.spin, is_called) == Some(true)
    }

    fn begin_idle(&mut self) {
        self.idle_at = Instant::now();
        self.keep_alive = KeepAlive::begin(self.settings.keep_alive, self.idle_at);
    }

    fn is_over(&mut self) -> bool {
        self.keep_alive.is_over()
    }

    fn wait<'a>(&mut self, threads: &'a Threads<Queued>, state: Guard<'a, State<Queued>>) -> Guard<'a, State<Queued>> {
        self.keep_alive.wait(self.settings.keep_alive, &threads.work, state)
    }

    fn end_idle(&mut self, is_promised: bool) {
        self.habit.note_sleep(clock::saturating_ns(self.idle_at.elapsed()), is_promised);
    }
}

/// Until when a thread may be idle; `None` if that is beyond the clock's range.
#[derive(Default)]
struct KeepAlive(Option<Instant>);

impl KeepAlive {
    fn begin(keep_alive: Duration, now: Instant) -> Self {
        Self(now.checked_add(keep_alive))
    }

    fn left(&self) -> Option<Duration> {
        self.0.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    fn is_over(&self) -> bool {
        self.left() == Some(Duration::ZERO)
    }

    fn wait<'a, T>(&mut self, keep_alive: Duration, condition: &Condvar, guard: Guard<'a, T>) -> Guard<'a, T> {
        // If the keep-alive is beyond the clock's range, the thread waits for a day at a time.
        let left = self.left().unwrap_or(Duration::from_secs(86_400));
        self.0 = self.0.or_else(|| Instant::now().checked_add(keep_alive));
        condition.wait_timeout(guard, left).unwrap_or_else(|poisoned| poisoned.into_inner()).0
    }
}

thread_local! {
    /// Why the job that this thread cancels was refused. Read when its result is stored.
    static REFUSAL: Cell<Option<Refused>> = const { Cell::new(None) };
}

/// Ends a job for which no thread could be started, with `error` as the cause.
fn refuse(job: Notified, error: &io::Error) {
    let refused = Refused::new(format!("no thread could be started for blocking work: {error}"));
    // A thread that is exiting may submit jobs and shut down, too, from destructors of
    // thread-locals. Then the job is cancelled without a cause.
    let _ = REFUSAL.try_with(|refusal| refusal.set(Some(refused)));
    job.cancel_now();
}

/// The scheduler of blocking jobs. They are never woken and are not in the registry.
pub(crate) struct BlockingSchedule;

impl Schedule for BlockingSchedule {
    const IS_COUNTED: bool = false;

    fn schedule(&self, _task: Notified) {
        unreachable!("a blocking job ends in its first poll, so nothing can wake it");
    }

    /// The pool itself cancels the jobs in its queue.
    fn is_closing(&self) -> bool {
        false
    }

    fn keep(&self, _task: &Task) {
        unreachable!("a blocking job ends in its first poll, so it never waits");
    }

    fn release(&self, _task: &Header) -> Option<Task> {
        None
    }

    fn take_refusal(&self) -> Option<Refused> {
        REFUSAL.try_with(Cell::take).ok().flatten()
    }
}

/// The future of a blocking job: it calls the closure in its only poll.
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
        std::task::Poll::Ready(f())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::task::cell::new_task;
    use crate::task::id::Id;
    use crate::task::join::JoinHandle;
    use crate::task::trace::{Kind, extra};
    use std::panic::Location;
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Wake};

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns a pool whose threads cannot be started.
    fn without_threads() -> Pool {
        Pool::new(Settings {
            max_threads: 1,
            keep_alive: Duration::MAX,
            thread_name: "none".to_owned(),
            hooks: Hooks::default(),
            // More than any machine has.
            stack_size: Some(1 << 60),
            spin: ParkSpin::Off,
            failures: Arc::new(Failures::new("test", true)),
        })
    }

    fn submit(pool: &Pool) -> JoinHandle<()> {
        let job = Job::new(|| unreachable!("no thread can be started"));
        let (notified, join) = new_task(job, BlockingSchedule, Id::next(), Location::caller(), None);
        pool.submit(notified, false);
        join
    }

    #[test]
    fn a_shutdown_keeps_the_jobs_that_have_a_thread() {
        let pool = without_threads();
        let mut queue = VecDeque::new();
        let mut joins = Vec::new();
        for _ in 0..3 {
            let (job, join) = new_task(Job::new(|| ()), BlockingSchedule, Id::next(), Location::caller(), None);
            queue.push_back(Queued { job, is_mandatory: false });
            joins.push(join);
        }
        // The state after three submits, if two threads may run.
        let mut state = pool.0.threads.lock();
        (state.queue, state.threads, state.starting) = (queue, 2, 2);
        drop(state);
        pool.shut_down(Waker::noop().clone());
        assert_eq!(joins.iter().map(JoinHandle::is_finished).collect::<Vec<_>>(), [false, false, true]);
    }

    #[test]
    fn a_shutdown_waits_for_no_thread_that_could_not_be_started() {
        let pool = without_threads();
        // The state after a `submit` that counted a thread.
        let mut state = pool.0.threads.lock();
        (state.threads, state.starting) = (1, 1);
        drop(state);
        let ended = Arc::new(Count::default());
        pool.shut_down(ended.clone().into());
        assert_eq!((pool.others(), ended.0.load(Ordering::Relaxed)), (1, 0));
        pool.start_thread(1);
        assert_eq!((pool.others(), ended.0.load(Ordering::Relaxed)), (0, 1));
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

    /// A refusal by unwinding would abort a program that is built with `panic = "abort"`.
    #[test]
    fn a_refusal_does_not_unwind() {
        /// Records whether a task's span is left by unwinding.
        struct Spans(Arc<AtomicUsize>);
        impl tracing::Subscriber for Spans {
            fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
                true
            }
            fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
                tracing::span::Id::from_u64(1)
            }
            fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
            fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
            fn event(&self, _: &tracing::Event<'_>) {}
            fn enter(&self, _: &tracing::span::Id) {}
            fn exit(&self, _: &tracing::span::Id) {
                let left = if thread::panicking() { 1_000 } else { 1 };
                self.0.fetch_add(left, Ordering::Relaxed);
            }
        }
        let left = Arc::new(AtomicUsize::new(0));
        tracing::subscriber::with_default(Spans(left.clone()), || {
            let pool = without_threads();
            let id = Id::next();
            let extra = extra(id, Some("job"), Location::caller(), Kind::Blocking, false);
            assert!(extra.is_some(), "without a span the test tests nothing");
            let job = Job::new(|| unreachable!("no thread can be started"));
            let (notified, join) = new_task(job, BlockingSchedule, id, Location::caller(), extra);
            pool.submit(notified, false);
            let joined: JoinHandle<()> = join;
            assert!(joined.is_finished());
        });
        let left = left.load(Ordering::Relaxed);
        assert!((1..1_000).contains(&left), "a span was left by an unwind: {left}");
    }

    /// The refusal must not leak to a job that the destructor of the refused job cancels.
    #[test]
    fn a_job_cancelled_by_a_refused_one_is_not_refused() {
        let (notified, mut inner) = new_task(Job::new(|| ()), BlockingSchedule, Id::next(), Location::caller(), None);
        struct Cancels(Option<Notified>);
        impl Drop for Cancels {
            fn drop(&mut self) {
                self.0.take().into_iter().for_each(Notified::cancel_now);
            }
        }
        let pool = without_threads();
        let cancels = Cancels(Some(notified));
        let job = Job::new(move || drop(cancels));
        let (notified, mut outer) = new_task(job, BlockingSchedule, Id::next(), Location::caller(), None);
        pool.submit(notified, false);
        let text = |join: &mut JoinHandle<()>| match pin!(join).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Err(error)) => error.to_string(),
            other => panic!("{other:?}"),
        };
        assert!(text(&mut outer).contains("no thread could be started"));
        assert!(text(&mut inner).ends_with("was cancelled"));
    }

    #[test]
    fn blocking_thread_start_failures_are_counted_and_reported() {
        let pool = without_threads();
        (0..201).for_each(|_| drop(submit(&pool)));
        let (error, times) = pool.0.settings.failures.take(Failure::NoBlockingThread, 0).unwrap();
        assert_eq!(times, 201);
        assert!(error.contains("os error"), "{error}");
    }
}
