//! The sentinel's thread: one for all runtimes of the program.
//!
//! A program may have hundreds of runtimes, and a test suite creates and drops them all the time.
//! So a runtime that is built enters a list, and the thread starts with the first runtime. A
//! runtime that is idle, or never runs a task, costs nothing more: the sentinel suspends its checks
//! until a worker resumes them (`suspension`). The *rounds* of a runtime are the state that the
//! sentinel keeps of it from one check to the next ([`Rounds`]).
//!
//! An ordinary case: runtimes A and B are in the list. The checks of B are suspended, and the
//! thread checks A every 10 ms. A shuts down: once its workers have exited, the thread that shuts
//! it down takes its rounds and removes it from the list. The sentinel's thread then sleeps until a
//! worker of B resumes the checks.
//!
//! The race: a runtime leaves while the sentinel checks it, and the check starts a spare worker
//! that the shutdown does not wait for. So a check and step (1) of `Leave` exclude each other.
//!
//! Protocol. `Enter`, when a runtime is built, before its workers start: under the lock of the
//! list, add the runtime, and start the thread if none runs. `Leave`, when all workers of a runtime
//! have exited, by the thread that shuts it down:
//! 1. under the lock of the runtime's rounds, take them, so that no check follows; this waits for a
//!    check that is under way;
//! 2. under the lock of the list, remove the runtime. If it was the last one, and the thread sleeps
//!    without a time-out, end that sleep.
//!
//! From (1) on the sentinel starts no spare worker. If a shutdown ended before its workers did, no
//! thread waits for them: the last worker sets `is_over` and wakes the sentinel, whose thread takes
//! these steps.
//!
//! The thread takes a *turn* whenever it wakes up: it checks each runtime whose checks are not
//! suspended and whose check is due, and sleeps until the next one is due. The locks are taken one
//! after the other, never together; a check runs under that of its rounds. Without a runtime the
//! thread lingers for `LINGER`, since another one often follows, and then ends under the lock of
//! the list, so that `Enter` finds either a thread that continues or none.
//!
//! Invariants:
//! * *No runtime delays the checks of another by much*: a check takes microseconds. It takes up to
//!   `STACK_TIMEOUT` when it copies the stack of a stuck poll, and as long as the system takes to
//!   start a spare's thread. A user's function that names threads must not block.
//! * *A pause is a pause for all*: the thread that was delayed (`lateness`) checks every runtime
//!   whose checks are not suspended, and excuses the polls of all of them.
//! * *A panic ends the checks of one runtime*, the one in whose check it occurred.
//! * *A forked child starts with nothing*: it has its own list and its own thread.

use std::io;
use std::ops::ControlFlow;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use volt_stacks::fork::Home;

use super::lateness::{Lateness, Pause, Turn};
use super::reader::Reader;
use super::{QUIET_CHECKS, Rounds};
use crate::clock;
use crate::scheduler::shared::Shared;
use crate::scheduler::watch::suspension::Alarm;
use crate::task::contain::contain;

/// The name of the sentinel's thread.
const THREAD_NAME: &str = "volt-sentinel";
/// How long the thread waits for another runtime after the last one has left.
const LINGER: Duration = Duration::from_secs(1);

/// The runtimes of a program, and the state of the thread that checks them.
struct Program {
    alarm: Arc<Alarm>,
    state: Mutex<State>,
    home: Home,
}

#[derive(Default)]
struct State {
    watched: Vec<Arc<Watched>>,
    /// How many runtimes have ever entered.
    entered: u64,
    is_running: bool,
    /// The thread sleeps without a time-out, or is about to.
    is_asleep: bool,
}

/// A runtime in the list.
pub(crate) struct Watched {
    shared: Arc<Shared>,
    interval: Duration,
    place: Mutex<Place>,
}

/// The checks of a runtime in the list.
enum Place {
    /// No check was needed so far.
    New,
    Checked {
        rounds: Box<Rounds>,
        due_at_ns: u64,
    },
    Left,
}

/// Returns the alarm that wakes the sentinel's thread of this program.
pub(crate) fn alarm() -> Arc<Alarm> {
    Program::current().alarm.clone()
}

/// Enters a runtime.
///
/// # Errors
/// Returns an error if the thread cannot be started.
pub(crate) fn enter(shared: &Arc<Shared>, interval: Duration) -> io::Result<Arc<Watched>> {
    let program = Program::current();
    let watched = Arc::new(Watched { shared: shared.clone(), interval, place: Mutex::new(Place::New) });
    let mut state = program.lock();
    if !state.is_running {
        thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(|| program.run())?;
        state.is_running = true;
    }
    state.watched.push(watched.clone());
    state.entered += 1;
    Ok(watched)
}

impl Program {
    /// Returns the list of this program.
    fn current() -> &'static Self {
        /// Never freed, so that references to it stay valid forever. A forked child replaces its
        /// parent's by its own.
        static CURRENT: AtomicPtr<Program> = AtomicPtr::new(ptr::null_mut());
        // ORDERING: Acquire; pairs with the Release of the exchange below, which publishes it.
        let mut found = CURRENT.load(Ordering::Acquire);
        loop {
            // SAFETY: null, or from `Box::into_raw` below and never freed once it is stored here.
            if let Some(program) = unsafe { found.as_ref() }.filter(|program| program.home.is_here()) {
                return program;
            }
            let own = Self { alarm: Arc::new(Alarm::new()), state: Mutex::default(), home: Home::here() };
            let own = Box::into_raw(Box::new(own));
            // ORDERING: AcqRel; see above. Acquire also on failure, since the found value is used.
            match CURRENT.compare_exchange(found, own, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => found = own,
                Err(other) => {
                    // SAFETY: from `Box::into_raw` above, and no other thread has seen it.
                    drop(unsafe { Box::from_raw(own) });
                    found = other;
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The main function of the sentinel's thread.
    fn run(&self) {
        let mut lateness = Lateness::new();
        // The turn before this one, unless it ended with a sleep without a time-out.
        let mut last: Option<Turn> = None;
        // While it lingers: until when, and how many runtimes had entered before.
        let mut lingers: Option<(u64, u64)> = None;
        let mut turn = Vec::new();
        self.alarm.run(|| {
            let began_at_ns = clock::check();
            let pause = last.and_then(|turn| lateness.pause(turn, began_at_ns));
            let awake = |watched: &&Arc<Watched>| !watched.shared.sentinel.suspension.is_suspended();
            {
                let mut state = self.lock();
                state.is_asleep = false;
                turn.extend(state.watched.iter().filter(awake).cloned());
            }
            let (mut due_at_ns, mut waited) = (u64::MAX, Duration::ZERO);
            for watched in turn.drain(..) {
                // It may be the last reference to the runtime, which then drops values of the user.
                contain(|| due_at_ns = due_at_ns.min(watched.check(began_at_ns, pause, &mut waited)));
                contain(|| drop(watched));
            }
            let mut state = self.lock();
            let now_ns = clock::now_ns();
            if due_at_ns == u64::MAX && state.watched.is_empty() {
                let until_ns = match lingers {
                    Some((until_ns, entered)) if entered == state.entered => until_ns,
                    _ => now_ns.saturating_add(clock::saturating_ns(LINGER)),
                };
                if until_ns <= now_ns {
                    state.is_running = false;
                    return ControlFlow::Break(());
                }
                lingers = Some((until_ns, state.entered));
                due_at_ns = until_ns;
            }
            let sleep = (due_at_ns < u64::MAX).then(|| Duration::from_nanos(due_at_ns.saturating_sub(now_ns)));
            last = sleep.map(|sleep| Turn { began_at_ns, waited, slept_at_ns: now_ns, sleep });
            state.is_asleep = sleep.is_none();
            drop(state);
            ControlFlow::Continue(sleep)
        });
    }

    /// Leave (2).
    fn remove(&self, watched: &Watched) {
        let mut state = self.lock();
        let at = state.watched.iter().position(|other| ptr::eq(&raw const **other, watched));
        let removed = at.map(|at| state.watched.swap_remove(at));
        let is_to_be_rung = state.watched.is_empty() && std::mem::take(&mut state.is_asleep);
        drop(state);
        drop(removed);
        if is_to_be_rung {
            self.alarm.ring();
        }
    }
}

impl Watched {
    fn lock(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks the runtime if that is due, by the sentinel's thread. Returns when the next check is
    /// due; `u64::MAX` if none is due before the checks are resumed. Adds the time for which the
    /// check waited for stacks to `waited`.
    fn check(&self, now_ns: u64, pause: Option<Pause>, waited: &mut Duration) -> u64 {
        let (shared, mut place) = (&self.shared, self.lock());
        if matches!(*place, Place::Left) {
            return u64::MAX;
        }
        if shared.sentinel.is_over() {
            drop(place);
            // This thread waits for no subscriber: neither for the end of the reader, nor to log
            // failures itself. If no reader can be started, they are lost.
            let mut rounds = self.take();
            let _are_logged = self.have_rest_logged(&mut rounds);
            return u64::MAX;
        }
        if matches!(*place, Place::New) {
            *place = Place::Checked { rounds: Box::new(Rounds::new(shared, self.interval)), due_at_ns: now_ns };
        }
        let Place::Checked { rounds, due_at_ns } = &mut *place else { unreachable!("made above") };
        if now_ns < *due_at_ns && pause.is_none() {
            return *due_at_ns;
        }
        let mut next = None;
        contain(|| {
            next = Some(rounds.check(now_ns, pause));
            *waited += rounds.stalls.take_waited();
        });
        let Some(next) = next else {
            // `Self::leave` logs the failures that are recorded already.
            *place = Place::Left;
            shared.failures().leave();
            return u64::MAX;
        };
        if rounds.quiet_checks >= QUIET_CHECKS
            && !rounds.must_keep_checking(now_ns)
            && shared.sentinel.suspension.begin(&shared.workers.idle, || shared.workers.are_at_rest())
        {
            // The first check after the suspension is made as soon as it ends.
            *due_at_ns = now_ns;
            // `Sentinel::end` finds either this suspension, or it came before and is seen here.
            return if shared.sentinel.is_over() { now_ns } else { u64::MAX };
        }
        *due_at_ns = now_ns.saturating_add(clock::saturating_ns(next));
        *due_at_ns
    }

    /// Leave, by the thread that shuts the runtime down. Returns the thread that resolves stacks,
    /// which has to be ended, if it was started.
    pub(crate) fn leave(&self) -> Option<Reader> {
        let mut rounds = self.take();
        if !self.have_rest_logged(&mut rounds) {
            // No worker is left that would have to wait for this thread.
            self.shared.failures().log_rest();
        }
        rounds?.stalls.into_reader()
    }

    /// Leave. Returns the rounds, unless there was no check, or a panic has ended the checks.
    fn take(&self) -> Option<Box<Rounds>> {
        // Leave (1)
        let place = std::mem::replace(&mut *self.lock(), Place::Left);
        // Leave (2)
        Program::current().remove(self);
        self.shared.failures().leave();
        match place {
            Place::Checked { rounds, .. } => Some(rounds),
            Place::New | Place::Left => None,
        }
    }

    /// Has the failures that are left logged by the thread that resolves stacks. Returns `false` if
    /// that thread could not be started.
    fn have_rest_logged(&self, rounds: &mut Option<Box<Rounds>>) -> bool {
        let has_none = !self.shared.failures().has_news();
        let new = || Box::new(Rounds::new(&self.shared, self.interval));
        has_none || rounds.get_or_insert_with(new).stalls.have_failures_logged()
    }
}

#[cfg(all(test, target_os = "linux", not(any(loom, miri))))]
mod tests {
    use super::*;
    use crate::builder::Builder;
    use crate::runtime::Runtime;

    fn runtime() -> Runtime {
        Builder::new_current_thread().control_socket(false).build().unwrap()
    }

    fn is_watched(shared: &Arc<Shared>) -> bool {
        Program::current().lock().watched.iter().any(|watched| Arc::ptr_eq(&watched.shared, shared))
    }

    #[test]
    fn a_runtime_without_tasks_is_in_the_list_and_not_checked() {
        let runtime = runtime();
        let shared = runtime.handle().shared().clone();
        assert!(is_watched(&shared) && shared.sentinel.suspension.is_suspended());
        drop(runtime);
        assert!(!is_watched(&shared));
        assert_eq!((shared.snapshot().sentinel.checks, Arc::strong_count(&shared)), (0, 1));
    }

    #[test]
    fn a_runtime_is_checked_from_its_first_task_on() {
        let (first, second) = (runtime(), runtime());
        let checks = |runtime: &Runtime| runtime.handle().snapshot().sentinel.checks;
        second.block_on(async {
            while checks(&second) < 3 {
                crate::task::control::yield_now::yield_now().await;
            }
        });
        assert_eq!(checks(&first), 0, "the first one is idle");
    }

    #[test]
    fn an_abandoned_runtime_is_removed_after_its_worker_ends() {
        let runtime = Builder::new_multi_thread().worker_threads(1).control_socket(false).build().unwrap();
        let shared = runtime.handle().shared().clone();
        let (open, is_open) = std::sync::mpsc::channel::<()>();
        let (entered, has_entered) = std::sync::mpsc::channel();
        drop(runtime.spawn(async move {
            entered.send(()).unwrap();
            assert!(is_open.recv().is_err(), "nothing is sent");
        }));
        has_entered.recv().unwrap();
        runtime.shutdown_background();
        assert!(is_watched(&shared), "its worker still runs");
        drop(open);
        while is_watched(&shared) {
            thread::yield_now();
        }
    }

    #[test]
    fn an_idle_abandoned_runtime_leaves_the_list() {
        for _ in 0..100 {
            let runtime = Builder::new_multi_thread().worker_threads(2).control_socket(false).build().unwrap();
            let shared = runtime.handle().shared().clone();
            runtime.shutdown_background();
            while is_watched(&shared) {
                thread::yield_now();
            }
        }
    }
}
