//! The methods of a handle that affect the calling thread: they make the runtime current, or wait
//! for a future or a blocking job.
//!
//! `volt::spawn`, timers and sockets need a *current* runtime on their thread (`context`). Here are
//! the ways to get one: `enter` for a scope, and `block_on` while a future is polled. A thread in
//! `block_on` of a current-thread runtime may become its worker (`scheduler/shared_core`). In any
//! other case it polls only its own future, and sleeps on a parker in between.

use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};

use crate::blocking::pool::{BlockingSchedule, Job};
use crate::clock;
use crate::config::ParkSpin;
use crate::context::{self, EnterGuard, TryCurrentError, Within};
use crate::coop;
use crate::driver::parker::{Parker, Unparked};
use crate::driver::spin::Habit;
use crate::handle::Handle;
use crate::scheduler::core::Core;
use crate::scheduler::shared_core::SharedCore;
use crate::scheduler::worker::Worker;
use crate::scheduler::worker::main_future::Main;
use crate::task::cell::new_task;
use crate::task::id::Id;
use crate::task::join::JoinHandle;
use crate::task::trace::{Kind, extra};

impl Handle {
    /// Returns the handle of the current runtime.
    ///
    /// The current runtime is the one whose task or `block_on` runs on this thread, or the one that
    /// this thread has [entered](Self::enter) last.
    ///
    /// # Panics
    /// Panics if called outside a runtime; see [`try_current`](Self::try_current).
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// runtime.block_on(async {
    ///     let handle = volt::Handle::current();
    ///     let task = handle.spawn(async { 6 * 7 });
    ///     assert_eq!(task.await.unwrap(), 42);
    /// });
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    #[track_caller]
    pub fn current() -> Handle {
        Handle::clone(&context::handle())
    }

    /// Returns the handle of the current runtime.
    ///
    /// # Errors
    /// Fails outside a runtime, and in destructors of thread-locals at the end of a thread. The
    /// error distinguishes the two.
    ///
    /// ```
    /// # use volt_core as volt;
    /// assert!(volt::Handle::try_current().unwrap_err().is_missing_context());
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// let _entered = runtime.enter();
    /// assert_eq!(volt::Handle::try_current().unwrap().id(), runtime.handle().id());
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn try_current() -> Result<Handle, TryCurrentError> {
        context::current().map(|handle| Handle::clone(&handle))
    }

    /// Makes this runtime current on this thread while the guard lives, so that `volt::spawn`,
    /// timers and sockets use it.
    ///
    /// Use it to spawn tasks or to create sockets on a thread outside the runtime. The guard cannot
    /// be sent to another thread, so it cannot be held across an `.await` in a task.
    ///
    /// # Panics
    /// Panics in destructors of thread-locals at the end of a thread.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// let task = {
    ///     let _entered = runtime.handle().enter();
    ///     volt::spawn(async { 6 * 7 })
    /// };
    /// assert_eq!(runtime.block_on(task).unwrap(), 42);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn enter(&self) -> EnterGuard<'_> {
        context::enter(self)
    }

    /// Runs a blocking closure on a thread where blocking is allowed; see
    /// `volt::task::spawn_blocking`.
    ///
    /// # Panics
    /// Panics in a child process that was forked from the runtime's program.
    #[track_caller]
    pub fn spawn_blocking<F, R>(&self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.spawn_blocking_at(f, None, Location::caller())
    }

    /// For the crate `volt`: [`spawn_blocking`](Self::spawn_blocking) with a name and a spawn
    /// location.
    #[doc(hidden)]
    #[track_caller]
    pub fn spawn_blocking_at<F, R>(
        &self,
        f: F,
        name: Option<&str>,
        location: &'static Location<'static>,
    ) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.submit_blocking(f, name, location, false)
    }

    /// For the crate `volt`: [`spawn_blocking`](Self::spawn_blocking) for a job that is run even if
    /// the runtime is shut down before the job has started.
    #[doc(hidden)]
    #[track_caller]
    pub fn spawn_mandatory_blocking<F, R>(&self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.submit_blocking(f, None, Location::caller(), true)
    }

    #[track_caller]
    fn submit_blocking<F, R>(
        &self,
        f: F,
        name: Option<&str>,
        location: &'static Location<'static>,
        is_mandatory: bool,
    ) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.shared().identity.home.expect_here();
        if self.shared().seeded.is_some() {
            return self.spawn_blocking_as_task(f, name, location, is_mandatory);
        }
        let handle = self.clone();
        let job = Job::new(move || {
            let _entered = handle.enter();
            f()
        });
        let id = Id::next();
        let extra = extra(id, name, location, Kind::Blocking, self.shared().config.inherit_spans);
        let (notified, join) = new_task(job, BlockingSchedule, id, location, extra);
        self.shared().blocking.submit(notified, is_mandatory);
        join
    }

    /// For a runtime with a seed: runs `f` in the only poll of a task, so that the seed determines
    /// when it runs. A mandatory job is called immediately, since the shutdown cancels tasks.
    #[cold]
    fn spawn_blocking_as_task<F, R>(
        &self,
        f: F,
        name: Option<&str>,
        location: &'static Location<'static>,
        is_mandatory: bool,
    ) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        if is_mandatory {
            // As on a thread for blocking work, a panic belongs to the job and not to its caller.
            let output = catch_unwind(AssertUnwindSafe(f));
            return self.spawn_at(async move { output.unwrap_or_else(|panic| resume_unwind(panic)) }, name, location);
        }
        self.spawn_at(async move { f() }, name, location)
    }

    /// Runs a future on this thread and returns its output. The tasks that it spawns run on the
    /// workers, which also drive its timers and sockets. In a [current-thread
    /// runtime](crate::builder::Builder::new_current_thread), tasks, timers and sockets make
    /// progress only while another thread is in
    /// [`Runtime::block_on`](crate::runtime::Runtime::block_on).
    ///
    /// # Panics
    /// Panics if called inside a task or another `block_on`, where it would block a worker; in a
    /// child process that was forked from the runtime's program; and if the future panics.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// let answer = runtime.handle().block_on(async { 6 * 7 });
    /// assert_eq!(answer, 42);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        block_on(self, future)
    }

    /// For the runtime: as [`block_on`](Self::block_on), and runs the tasks of a current-thread
    /// runtime.
    #[track_caller]
    pub(crate) fn block_on_and_run<F: Future>(&self, future: F) -> F::Output {
        match &self.shared().workers.shared_core {
            Some(shared_core) => block_on_as_worker(self, shared_core, future),
            None => block_on(self, future),
        }
    }
}

/// The panic message of [`Handle::block_on`] in a runtime with a seed.
const BLOCK_ON_WITH_SEED: &str = "Handle::block_on polls a future on a thread that the seed of the runtime does not control: use \
                                  Runtime::block_on";

/// See [`Runtime::block_on`](crate::runtime::Runtime::block_on).
#[track_caller]
fn block_on_as_worker<F: Future>(handle: &Handle, shared_core: &SharedCore<Core>, future: F) -> F::Output {
    check_block_on(handle);
    let location = Location::caller();
    let output = context::in_block_on(handle, Within::BlockOnOfTasks, || {
        let shared = handle.shared();
        let main = Main::new(shared, location);
        let test_clock = shared.workers.driver.test_clock.as_ref();
        // On a paused clock, a thread that waits for the core counts as one in `block_on`.
        let mut outsider = test_clock.map(|clock| clock.add_outsider(&main.parker));
        let registered = shared.readers.main_futures.register(location, Waker::from(main.clone()));
        let mut future = pin!(future);
        let mut output = None;
        // A panic is passed on after the core was put back.
        let mut poll = || {
            let poll = || registered.poll(future.as_mut());
            output = match catch_unwind(AssertUnwindSafe(poll)) {
                Ok(Poll::Pending) => None,
                Ok(Poll::Ready(output)) => Some(Ok(output)),
                Err(panic) => Some(Err(panic)),
            };
            output.is_some()
        };
        loop {
            if let Some(core) = shared_core.take(&main.parker) {
                // From here on it is the worker.
                drop(outsider.take());
                let mut worker = Worker::new(shared.clone(), 0, core);
                worker.run_in_block_on(&main, &mut poll);
                shared_core.put_back(worker.into_core());
                break;
            }
            if main.take_woken() && coop::limited(shared.config.coop_budget, &mut poll) {
                shared_core.withdraw(&main.parker);
                break;
            }
            wait_for(&main.parker, shared.config.park_spin);
        }
        output.unwrap_or_else(|| {
            let reason = shared.seeded.as_ref().and_then(|seeded| seeded.take_stopped());
            panic!("{}", reason.expect("without an output, only a runtime with a seed ends the loop"))
        })
    });
    output.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Wakes the thread of a `block_on`.
struct ThreadWaker(Arc<Parker>);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let unparked = self.0.unpark();
        debug_assert_eq!(unparked, Unparked::Done, "this thread never sleeps in a driver");
    }
}

/// See [`Handle::block_on`].
#[track_caller]
fn block_on<F: Future>(handle: &Handle, future: F) -> F::Output {
    check_block_on(handle);
    let location = Location::caller();
    assert!(handle.shared().seeded.is_none(), "{BLOCK_ON_WITH_SEED}");
    context::in_block_on(handle, Within::BlockOn, || {
        let thread = Arc::new(ThreadWaker(Arc::new(Parker::new())));
        let test_clock = handle.shared().workers.driver.test_clock.as_ref();
        let _outsider = test_clock.map(|clock| clock.add_outsider(&thread.0));
        let registered = handle.shared().readers.main_futures.register(location, Waker::from(thread.clone()));
        let config = &handle.shared().config;
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(output) = coop::limited(config.coop_budget, || registered.poll(future.as_mut())) {
                return output;
            }
            wait_for(&thread.0, config.park_spin);
        }
    })
}

#[track_caller]
fn check_block_on(handle: &Handle) {
    handle.shared().identity.home.expect_here();
    // The beginning is Tokio's message, for which programs search.
    assert!(
        !context::is_async(),
        "Cannot start a runtime from within a runtime. This happens because a function (like `block_on`) attempted to block \
         the current thread while the thread is being used to drive asynchronous tasks. If you are in an async function, use \
         `.await` on the future instead of blocking on it. Otherwise, call the function in `spawn_blocking` or `block_in_place`."
    );
}

thread_local! {
    /// Whether this thread spins in `block_on` before it sleeps. Kept between calls, which are
    /// often short.
    static SPIN: RefCell<Habit> = const { RefCell::new(Habit::new()) };
}

/// Waits for the token of a wake-up: spins for a moment if that is worthwhile, and then sleeps.
fn wait_for(parker: &Parker, spin: ParkSpin) {
    if parker.take_token() {
        return;
    }
    SPIN.with_borrow_mut(|habit| {
        if habit.is_worth(spin) && habit.spin(spin, || parker.has_token()) == Some(true) {
            let had_token = parker.take_token();
            debug_assert!(had_token, "TOKEN-STAYS");
            return;
        }
        let began_ns = clock::now_ns();
        parker.wait_token();
        habit.note_sleep(clock::now_ns().saturating_sub(began_ns), true);
    });
}
