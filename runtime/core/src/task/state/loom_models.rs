//! loom models of the task word: they check the invariants of the parent module in every
//! interleaving.
//!
//! The hand-over of the output and the join waker is the shipped code of `handover`, run on cells
//! that loom checks. Each model has a twin in which the step under test is incorrect. The twin must
//! fail with the message of the assertion that it breaks, or with loom's report of an access that
//! is not ordered (`Causality violation`).

use std::marker::PhantomData;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32};
use loom::thread;
use volt_explore::{breaks, holds};

use super::*;
use crate::task::handover::{self, Joined};

/// A waker that returns early if plain loads find a task that is scheduled and was woken since: the
/// fault of tokio #7622.
fn wake_with_early_return(state: &State) -> Wake {
    if Word(state.0.load(Ordering::Relaxed)).lifecycle() == IDLE || !Word(state.0.load(Ordering::Relaxed)).has(NOTIFIED)
    {
        return state.wake();
    }
    Wake::Nothing
}

/// Two wakers each write a value and wake the task. A poll after the last wake-up must see both
/// values.
fn wake_model(wake: fn(&State) -> Wake) {
    let state = Arc::new(State::new());
    // Relaxed on purpose: only the task word orders these writes.
    let written = [Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false))];
    assert_eq!(state.start(), Start::Poll);
    let wakers: Vec<_> = written
        .iter()
        .map(|flag| {
            let (state, flag) = (state.clone(), flag.clone());
            thread::spawn(move || {
                flag.store(true, Ordering::Relaxed);
                wake(&state) == Wake::Submit
            })
        })
        .collect();
    let runner = thread::spawn({
        let (state, written) = (state.clone(), written.clone());
        move || {
            loop {
                let seen = [written[0].load(Ordering::Relaxed), written[1].load(Ordering::Relaxed)];
                match state.pause(false) {
                    Pause::Reschedule => assert_eq!(state.start(), Start::Poll),
                    Pause::Idle => return seen,
                    Pause::Cancel => unreachable!(),
                }
            }
        }
    });
    let mut seen = runner.join().unwrap();
    let submitted = wakers.into_iter().map(|waker| waker.join().unwrap()).filter(|submit| *submit).count();
    assert!(submitted <= 1, "One Notified");
    if submitted == 1 {
        assert_eq!(state.start(), Start::Poll);
        seen = [written[0].load(Ordering::Relaxed), written[1].load(Ordering::Relaxed)];
    }
    assert_eq!(seen, [true, true], "the last poll saw what both wakers had written");
}

#[test]
fn loom_no_wake_up_is_lost() {
    holds(None, || wake_model(State::wake));
}

#[test]
fn loom_twin_an_early_return_on_a_plain_load_loses_a_wake_up() {
    breaks("the last poll saw what both wakers had written", None, || wake_model(wake_with_early_return));
}

/// Wakes with a waker that is consumed. Its reference becomes the `Notified`'s if it submits the
/// task.
fn wake_owned(state: &State) -> Wake {
    match state.wake_owned(false) {
        WakeOwned::Submit => Wake::Submit,
        WakeOwned::Nothing { was_last_reference } => {
            assert!(!was_last_reference, "there is a handle");
            Wake::Nothing
        }
    }
}

/// As `wake_model`, with wakers that own references. Afterwards only the handle's reference is
/// left.
fn wake_owned_model(wake: fn(&State) -> Wake) {
    let state = Arc::new(State::new());
    assert_eq!(state.start(), Start::Poll);
    (0..2).for_each(|_| state.add_reference());
    let wakers = [0, 1].map(|_| {
        let state = state.clone();
        thread::spawn(move || wake(&state) == Wake::Submit)
    });
    let runner = thread::spawn({
        let state = state.clone();
        move || {
            while state.pause(false) == Pause::Reschedule {
                assert_eq!(state.start(), Start::Poll);
            }
        }
    });
    runner.join().unwrap();
    if wakers.map(|waker| waker.join().unwrap()).contains(&true) {
        assert_eq!(state.start(), Start::Poll);
        assert_eq!(state.pause(false), Pause::Idle);
    }
    assert_eq!(
        Word(state.0.load(Ordering::Relaxed)).references(),
        1,
        "each waker's reference was handed on or released"
    );
}

#[test]
fn loom_wake_by_value_loses_no_wake_and_no_reference() {
    holds(None, || {
        wake_model(|state| {
            state.add_reference();
            wake_owned(state)
        })
    });
    holds(Some(2), || wake_owned_model(wake_owned));
}

/// Wakes as a thread of the task's own scheduler does: one try, then the general case.
fn wake_here(state: &State) -> Wake {
    if state.wake_idle() { Wake::Submit } else { wake_owned(state) }
}

#[test]
fn loom_a_wake_with_a_first_try_loses_no_wake_and_no_reference() {
    holds(Some(2), || {
        wake_model(|state| {
            state.add_reference();
            wake_here(state)
        })
    });
    holds(Some(2), || wake_owned_model(wake_here));
}

/// A first try that loads and then stores.
fn wake_idle_in_two_steps(state: &State) -> Wake {
    let now = Word(state.0.load(Ordering::Acquire));
    if now.lifecycle() != IDLE {
        return wake_owned(state);
    }
    state.0.store(now.with_lifecycle(SCHEDULED).0, Ordering::Release);
    Wake::Submit
}

#[test]
fn loom_twin_a_first_try_in_two_steps_submits_twice() {
    breaks("One Notified", None, || {
        wake_model(|state| {
            state.add_reference();
            wake_idle_in_two_steps(state)
        })
    });
}

#[test]
fn loom_twin_wake_by_value_without_transfer_leaks_the_task() {
    breaks("each waker's reference was handed on or released", Some(2), || wake_owned_model(State::wake));
}

/// A pause that loads and then stores, instead of making one transition.
fn pause_in_two_steps(state: &State) -> Pause {
    let now = Word(state.0.load(Ordering::Acquire));
    if now.has(NOTIFIED) {
        return state.pause(false);
    }
    state.0.store(Word(now.0 - ONE_REFERENCE).with_lifecycle(IDLE).0, Ordering::Release);
    Pause::Idle
}

fn pause_model(pause: fn(&State) -> Pause) {
    let state = Arc::new(State::new());
    assert_eq!(state.start(), Start::Poll);
    let waker = thread::spawn({
        let state = state.clone();
        move || state.wake()
    });
    let runner = thread::spawn({
        let state = state.clone();
        move || pause(&state)
    });
    let (wake, pause) = (waker.join().unwrap(), runner.join().unwrap());
    let polled_again = wake == Wake::Submit || pause == Pause::Reschedule;
    assert!(polled_again, "a wake-up beside the end of a poll leads to another poll");
    assert!(!(wake == Wake::Submit && pause == Pause::Reschedule), "One Notified");
}

#[test]
fn loom_a_wake_beside_the_end_of_a_poll_reschedules_once() {
    holds(None, || pause_model(|state| state.pause(false)));
}

#[test]
fn loom_twin_a_pause_in_two_steps_loses_the_wake_up() {
    breaks("leads to another poll", None, || pause_model(pause_in_two_steps));
}

/// A start that clears a wake-up without an Acquire.
fn start_without_acquiring(state: &State) -> Start {
    state.0.fetch_and(!NOTIFIED, Ordering::Relaxed);
    Start::Poll
}

/// A waker writes a value and wakes a task that is in a queue, about to be polled, or being polled.
/// The task wakes itself in its first poll. The last poll must see the value.
fn start_model(start: fn(&State) -> Start) {
    let (state, written) = (Arc::new(State::new()), Arc::new(AtomicBool::new(false)));
    let waker = thread::spawn({
        let (state, written) = (state.clone(), written.clone());
        move || {
            // Relaxed on purpose: only the task word orders this write.
            written.store(true, Ordering::Relaxed);
            state.wake() == Wake::Submit
        }
    });
    let runner = thread::spawn({
        let (state, written) = (state.clone(), written.clone());
        move || {
            let mut wakes_itself = true;
            loop {
                assert_eq!(start(&state), Start::Poll);
                let seen = written.load(Ordering::Relaxed);
                match state.pause(std::mem::take(&mut wakes_itself)) {
                    Pause::Reschedule => {}
                    Pause::Idle => return seen,
                    Pause::Cancel => unreachable!(),
                }
            }
        }
    });
    let (submitted, seen) = (waker.join().unwrap(), runner.join().unwrap());
    assert!(submitted || seen, "the last poll saw what the waker had written");
}

#[test]
fn loom_a_wake_at_the_start_of_a_poll_is_seen_or_reschedules() {
    holds(None, || start_model(State::start));
}

#[test]
fn loom_twin_a_start_that_does_not_acquire_the_wake_up_loses_it() {
    breaks("the last poll saw what the waker had written", None, || start_model(start_without_acquiring));
}

/// Ends a poll in which the task woke itself, without checking for a cancellation. The next start
/// does not check either.
fn pause_and_start_without_a_check(_state: &State) -> bool {
    false
}

fn pause_and_start(state: &State) -> bool {
    state.pause(true) == Pause::Cancel || state.start() == Start::Cancel
}

/// A task that wakes itself in each poll but the last is cancelled concurrently. It must end,
/// either in one of these polls or through the `Notified` that the cancellation adds.
fn cancel_of_a_yielding_task_model(pause_and_start: fn(&State) -> bool, pause: fn(&State) -> Pause) {
    let state = Arc::new(State::new());
    assert_eq!(state.start(), Start::Poll);
    let canceller = thread::spawn({
        let state = state.clone();
        move || state.cancel()
    });
    let runner = thread::spawn({
        let state = state.clone();
        move || pause_and_start(&state) || pause_and_start(&state) || pause(&state) == Pause::Cancel
    });
    let (cancelled, ended) = (canceller.join().unwrap(), runner.join().unwrap());
    let ends = match cancelled {
        Wake::Submit => !ended && state.start() == Start::Cancel,
        Wake::Nothing => ended,
    };
    assert!(ends, "a cancelled task is dropped, whichever came first");
}

#[test]
fn loom_cancel_beside_polls_that_wake_their_own_task_drops_it() {
    holds(None, || cancel_of_a_yielding_task_model(pause_and_start, |state| state.pause(false)));
}

/// A pause that checks nothing, and clears a cancellation.
fn pause_without_cancellation(state: &State) -> Pause {
    state.transition(|now| (Word(now.0 - ONE_REFERENCE & !LIFECYCLE & !CANCELLED), Pause::Idle))
}

#[test]
fn loom_twin_polls_that_never_check_for_a_cancellation_lose_it() {
    breaks("a cancelled task is dropped", None, || {
        cancel_of_a_yielding_task_model(pause_and_start_without_a_check, pause_without_cancellation)
    });
}

/// A cancellation that only sets the flag.
fn cancel_flag_only(state: &State) -> Wake {
    state.0.fetch_or(CANCELLED, Ordering::AcqRel);
    Wake::Nothing
}

fn cancel_model(cancel: fn(&State) -> Wake) {
    let state = Arc::new(State::new());
    assert_eq!(state.start(), Start::Poll);
    let canceller = thread::spawn({
        let state = state.clone();
        move || cancel(&state)
    });
    let runner = thread::spawn({
        let state = state.clone();
        move || state.pause(false)
    });
    let (cancelled, paused) = (canceller.join().unwrap(), runner.join().unwrap());
    let ends = match (cancelled, paused) {
        (Wake::Submit, Pause::Idle) => state.start() == Start::Cancel,
        (Wake::Nothing, Pause::Cancel) => true,
        _ => false,
    };
    assert!(ends, "a cancelled task is dropped, whichever came first");
}

#[test]
fn loom_cancel_beside_the_end_of_a_poll_drops_the_task() {
    holds(None, || cancel_model(State::cancel));
}

#[test]
fn loom_twin_a_cancel_that_only_sets_a_flag_leaves_tasks_idle() {
    breaks("a cancelled task is dropped", None, || cancel_model(cancel_flag_only));
}

/// A task whose join waker and output are checked by loom.
struct Task {
    state: State,
    waker: UnsafeCell<Option<u32>>,
    output: UnsafeCell<Option<u32>>,
    /// Data that any owner of a reference may use.
    rest: UnsafeCell<()>,
    /// The last waker that was woken.
    woken: AtomicU32,
    freed: AtomicBool,
}

// SAFETY: Join hand-over: the word decides which thread may touch the cells. loom checks that.
unsafe impl Sync for Task {}
// SAFETY: plain data.
unsafe impl Send for Task {}

/// The steps of `handover` that a fault can replace.
trait Steps: Copy + 'static {
    fn retract(state: &State) -> Result<(), IsComplete> {
        state.retract_join_waker()
    }

    fn publish(state: &State) -> Result<(), IsComplete> {
        state.publish_join_waker()
    }

    fn release(state: &State, references: u64) -> bool {
        state.release_join_waker(references)
    }

    fn is_only_reference(state: &State) -> bool {
        state.is_only_reference()
    }
}

#[derive(Clone, Copy)]
struct AsBuilt;

impl Steps for AsBuilt {}

/// The argument of the functions of `handover`.
#[derive(Clone, Copy)]
struct Pointer<'t, S>(&'t Task, PhantomData<S>);

impl<S: Steps> Joined for Pointer<'_, S> {
    type Waker = u32;

    unsafe fn state<'a>(self) -> &'a State
    where
        Self: 'a,
    {
        &self.0.state
    }

    unsafe fn does_as_well(self, waker: &u32) -> bool {
        // SAFETY: Join hand-over: by contract no thread writes the field.
        self.0.waker.with(|held| unsafe { *held }) == Some(*waker)
    }

    unsafe fn set_join_waker(self, waker: Option<&u32>) {
        // SAFETY: Join hand-over: by contract the caller owns the field.
        self.0.waker.with_mut(|held| unsafe { *held = waker.copied() });
    }

    unsafe fn wake_joiner(self) {
        // SAFETY: Join hand-over: by contract no thread writes the field.
        let waker = self.0.waker.with(|held| unsafe { *held });
        self.0.woken.store(waker.expect("a published waker is there"), Ordering::Release);
    }

    unsafe fn drop_output(self) {
        self.0.set_output(None);
    }

    unsafe fn retract_join_waker(self) -> Result<(), IsComplete> {
        S::retract(&self.0.state)
    }

    unsafe fn publish_join_waker(self) -> Result<(), IsComplete> {
        S::publish(&self.0.state)
    }

    unsafe fn release_join_waker(self, references: u64) -> bool {
        S::release(&self.0.state, references)
    }

    unsafe fn is_only_reference(self) -> bool {
        S::is_only_reference(&self.0.state)
    }
}

impl Task {
    /// Returns a task that is being polled, whose runner will release `references`.
    fn running(references: u64) -> Arc<Task> {
        let task = Task {
            state: State::new(),
            waker: UnsafeCell::new(None),
            output: UnsafeCell::new(None),
            rest: UnsafeCell::new(()),
            woken: AtomicU32::new(0),
            freed: AtomicBool::new(false),
        };
        (1..references).for_each(|_| task.state.add_reference());
        assert_eq!(task.state.start(), Start::Poll);
        Arc::new(task)
    }

    fn set_output(&self, output: Option<u32>) {
        // SAFETY: One runner / Join hand-over: callers own the output.
        self.output.with_mut(|slot| unsafe { *slot = output });
    }

    fn take_output(&self) -> Option<u32> {
        // SAFETY: Join hand-over: the task is complete and the caller is the JoinHandle.
        self.output.with_mut(|slot| unsafe { (*slot).take() })
    }

    fn complete<S: Steps>(&self, references: u64) {
        self.set_output(Some(7));
        // SAFETY: each model has one thread as the task's runner and one as its handle.
        let is_last = unsafe { handover::complete(Pointer::<S>(self, PhantomData), references) };
        if is_last {
            self.free();
        }
    }

    /// One poll of the JoinHandle; None = Pending.
    fn poll_join<S: Steps>(&self, waker: u32) -> Option<u32> {
        // SAFETY: as in `complete`.
        let is_complete = unsafe { handover::poll_join(Pointer::<S>(self, PhantomData), &waker) };
        is_complete.then(|| self.take_output().expect("the output is in place"))
    }

    fn drop_join<S: Steps>(&self) {
        // SAFETY: as in `complete`.
        let is_last = unsafe { handover::drop_join(Pointer::<S>(self, PhantomData)) };
        if is_last {
            self.free();
        }
    }

    /// Frees the task, including its output and waker. loom fails if another thread still uses it.
    fn free(&self) {
        assert!(!self.freed.swap(true, Ordering::Relaxed), "freed once");
        // SAFETY: the last reference was dropped.
        self.waker.with_mut(|slot| unsafe { *slot = None });
        self.set_output(None);
        self.rest.with_mut(|_| ());
    }
}

/// The task completes while its JoinHandle is polled with waker 2. If `is_second`, the handle was
/// polled with waker 1 before.
fn join_model<S: Steps>(is_second: bool) {
    let task = Task::running(1);
    if is_second {
        assert_eq!(task.poll_join::<S>(1), None);
    }
    let completer = thread::spawn({
        let task = task.clone();
        move || task.complete::<S>(1)
    });
    let joiner = thread::spawn({
        let task = task.clone();
        move || task.poll_join::<S>(2)
    });
    completer.join().unwrap();
    match joiner.join().unwrap() {
        Some(output) => assert_eq!(output, 7),
        None => {
            assert_eq!(task.woken.load(Ordering::Acquire), 2, "a pending joiner is woken by its last waker");
            assert_eq!(task.take_output(), Some(7));
        }
    }
}

#[test]
fn loom_a_joiner_is_woken_or_finds_the_output() {
    holds(None, || join_model::<AsBuilt>(false));
}

#[test]
fn loom_a_joiner_that_changes_its_waker_is_woken_by_the_last() {
    holds(None, || join_model::<AsBuilt>(true));
}

#[test]
fn loom_twin_publishing_unchecked_leaves_a_joiner_asleep() {
    #[derive(Clone, Copy)]
    struct PublishesBlindly;
    impl Steps for PublishesBlindly {
        fn publish(state: &State) -> Result<(), IsComplete> {
            state.0.fetch_or(JOIN_WAKER, Ordering::AcqRel);
            Ok(())
        }
    }
    breaks("a pending joiner is woken by its last waker", None, || join_model::<PublishesBlindly>(false));
}

#[test]
fn loom_twin_an_unretracted_waker_is_woken_while_replaced() {
    #[derive(Clone, Copy)]
    struct RetractsNothing;
    impl Steps for RetractsNothing {
        fn retract(_: &State) -> Result<(), IsComplete> {
            Ok(())
        }
    }
    breaks("Causality violation", None, || join_model::<RetractsNothing>(true));
}

/// The task completes while its JoinHandle, polled or not, is dropped.
fn drop_join_model<S: Steps>(is_polled: bool, references: u64) {
    let task = Task::running(references);
    if is_polled {
        assert_eq!(task.poll_join::<S>(1), None);
    }
    let completer = thread::spawn({
        let task = task.clone();
        move || task.complete::<S>(references)
    });
    let dropper = thread::spawn({
        let task = task.clone();
        move || task.drop_join::<S>()
    });
    completer.join().unwrap();
    dropper.join().unwrap();
    assert!(task.freed.load(Ordering::Relaxed), "the task is freed");
    // SAFETY: both threads have exited.
    assert_eq!(task.output.with(|slot| unsafe { *slot }), None, "the output is dropped");
    // SAFETY: both threads have exited.
    assert_eq!(task.waker.with(|slot| unsafe { *slot }), None, "the waker is dropped");
}

#[test]
fn loom_output_and_waker_drop_once_beside_a_handle_drop() {
    // With the runner's reference only, and with the scheduler's in addition.
    holds(None, || drop_join_model::<AsBuilt>(true, 1));
    holds(None, || drop_join_model::<AsBuilt>(true, 2));
}

#[test]
fn loom_a_task_is_freed_once_if_its_handle_drops_at_completion() {
    holds(None, || drop_join_model::<AsBuilt>(false, 1));
    holds(None, || drop_join_model::<AsBuilt>(false, 2));
}

#[test]
fn loom_twin_a_completer_that_never_releases_the_waker_leaks_it() {
    #[derive(Clone, Copy)]
    struct NeverReleases;
    impl Steps for NeverReleases {
        fn release(_: &State, _: u64) -> bool {
            false
        }
    }
    breaks("the task is freed", None, || drop_join_model::<NeverReleases>(true, 1));
}

#[test]
fn loom_twin_an_unconditional_waker_drop_races_with_the_handle() {
    #[derive(Clone, Copy)]
    struct DropsUnasked;
    impl Steps for DropsUnasked {
        fn release(state: &State, _: u64) -> bool {
            let _is_handle_gone = state.release_join_waker(0);
            true
        }
    }
    breaks("Causality violation", None, || drop_join_model::<DropsUnasked>(true, 1));
}

/// Checks for the last reference without an Acquire of what the other owners did.
#[derive(Clone, Copy)]
struct ChecksWithoutAcquiring;

impl Steps for ChecksWithoutAcquiring {
    fn is_only_reference(state: &State) -> bool {
        Word(state.0.load(Ordering::Relaxed)).references() == 1
    }
}

/// Another owner uses the task and releases its reference, while the JoinHandle of the complete
/// task is dropped.
fn last_use_model<S: Steps>() {
    let task = Task::running(1);
    task.state.add_reference();
    task.complete::<S>(1);
    let other = thread::spawn({
        let task = task.clone();
        move || {
            task.rest.with(|_| ());
            if task.state.drop_references(1) {
                task.free();
            }
        }
    });
    let dropper = thread::spawn({
        let task = task.clone();
        move || task.drop_join::<S>()
    });
    other.join().unwrap();
    dropper.join().unwrap();
    assert!(task.freed.load(Ordering::Relaxed), "the task is freed");
}

#[test]
fn loom_the_last_of_two_owners_frees_after_the_others_use() {
    holds(None, last_use_model::<AsBuilt>);
}

#[test]
fn loom_twin_a_last_reference_found_without_acquire_frees_early() {
    breaks("Causality violation", None, last_use_model::<ChecksWithoutAcquiring>);
}

fn references_model(drop_reference: fn(&State) -> bool) {
    let state = Arc::new(State::new());
    state.add_reference();
    let cell = Arc::new(UnsafeCell::new(0u32));
    struct Shared(Arc<UnsafeCell<u32>>);
    // SAFETY: the last reference owns the cell; loom checks it.
    unsafe impl Send for Shared {}
    let owners: Vec<_> = (0..3)
        .map(|_| {
            let (state, cell) = (state.clone(), Shared(cell.clone()));
            thread::spawn(move || {
                let cell = cell;
                // SAFETY: this thread owns a reference: no thread writes before the last one is
                // dropped.
                cell.0.with(|value| assert_eq!(unsafe { *value }, 0));
                let is_last = drop_reference(&state);
                if is_last {
                    // SAFETY: the last reference was dropped.
                    cell.0.with_mut(|value| unsafe { *value = 1 });
                }
                is_last
            })
        })
        .collect();
    let freed = owners.into_iter().map(|owner| owner.join().unwrap()).filter(|is_last| *is_last).count();
    assert_eq!(freed, 1, "freed once");
}

#[test]
fn loom_the_last_reference_frees_after_all_uses() {
    holds(None, || references_model(|state| state.drop_references(1)));
}

#[test]
fn loom_twin_a_relaxed_drop_frees_beside_a_use() {
    breaks("Causality violation", None, || {
        references_model(|state| Word(state.0.fetch_sub(ONE_REFERENCE, Ordering::Relaxed)).references() == 1)
    });
}

/// Leaves a shield by decrementing the depth only, without checking for a deferred cancellation.
fn leave_without_a_check(state: &State) -> Wake {
    state.0.fetch_sub(ONE_SHIELD, Ordering::AcqRel);
    Wake::Nothing
}

/// A guard is dropped by another thread, concurrently with a cancellation and the end of the poll.
/// The last of the three must end the task.
fn shield_model(leave: fn(&State) -> Wake) {
    let state = Arc::new(State::new());
    assert_eq!(state.start(), Start::Poll);
    state.enter_shield().unwrap();
    let canceller = thread::spawn({
        let state = state.clone();
        move || state.cancel()
    });
    let leaver = thread::spawn({
        let state = state.clone();
        move || leave(&state)
    });
    let runner = thread::spawn({
        let state = state.clone();
        move || {
            loop {
                match state.pause(false) {
                    Pause::Reschedule if state.start() == Start::Poll => {}
                    Pause::Reschedule | Pause::Cancel => return Pause::Cancel,
                    Pause::Idle => return Pause::Idle,
                }
            }
        }
    });
    let submitted = [canceller.join().unwrap(), leaver.join().unwrap()];
    let paused = runner.join().unwrap();
    let submits = submitted.iter().filter(|wake| **wake == Wake::Submit).count();
    assert!(submits <= 1, "One Notified");
    let ends = paused == Pause::Cancel || (submits == 1 && state.start() == Start::Cancel);
    assert!(ends, "the cancellation takes effect when the task has left the shield");
}

#[test]
fn loom_a_task_ends_if_its_shield_drops_beside_a_cancel() {
    holds(None, || shield_model(State::leave_shield));
}

#[test]
fn loom_twin_a_shield_left_unchecked_leaves_a_task_idle() {
    breaks("the cancellation takes effect when the task has left the shield", None, || {
        shield_model(leave_without_a_check)
    });
}

/// A cancellation of a running task that only sets the flag, even if the task is shielded.
fn cancel_without_another_poll(state: &State) -> Wake {
    state.transition(|now| match now.lifecycle() {
        IDLE => (Word((now.0 | CANCELLED) + ONE_REFERENCE).with_lifecycle(SCHEDULED), Wake::Submit),
        _ => (Word(now.0 | CANCELLED), Wake::Nothing),
    })
}

/// A shielded task that checks for a cancellation in each poll is cancelled at the end of a poll.
/// It must see the cancellation in its last poll.
fn last_poll_model(cancel: fn(&State) -> Wake) {
    let state = Arc::new(State::new());
    assert_eq!(state.start(), Start::Poll);
    state.enter_shield().unwrap();
    let canceller = thread::spawn({
        let state = state.clone();
        move || cancel(&state)
    });
    let runner = thread::spawn({
        let state = state.clone();
        move || {
            loop {
                let seen = state.cancellation();
                match state.pause(false) {
                    Pause::Reschedule => assert_eq!(state.start(), Start::Poll, "it is shielded"),
                    Pause::Idle => return seen,
                    Pause::Cancel => unreachable!("it is shielded"),
                }
            }
        }
    });
    let is_submitted = canceller.join().unwrap() == Wake::Submit;
    let mut seen = runner.join().unwrap();
    if is_submitted {
        assert_eq!(state.start(), Start::Poll, "it is shielded");
        seen = state.cancellation();
    }
    assert!(seen.is_requested && !seen.is_effective, "a shielded task sees that it is cancelled");
}

#[test]
fn loom_a_shielded_task_observes_a_cancel_at_the_end_of_a_poll() {
    holds(None, || last_poll_model(State::cancel));
}

#[test]
fn loom_twin_a_cancel_without_a_new_poll_is_missed_in_a_shield() {
    breaks("a shielded task sees that it is cancelled", None, || last_poll_model(cancel_without_another_poll));
}

/// A thread's record of a poll, as in `current`.
#[derive(Default)]
struct Notes {
    is_current: bool,
    has_woken_itself: bool,
}

impl Notes {
    /// Wakes the task as its own waker does, on the thread that polls it.
    fn wake_own(&mut self, state: &State) {
        if self.is_current {
            self.has_woken_itself = true;
        } else {
            assert_eq!(state.wake(), Wake::Nothing, "it runs");
        }
    }

    /// Ends the poll and reads its record in one step: *Read once it is over*.
    fn leave(&mut self) -> bool {
        std::mem::take(self).has_woken_itself
    }
}

/// The end of a poll: calls the function, which stands for a subscriber, and ends the record of the
/// poll. Returns the argument of `pause`.
type EndPoll = fn(&mut Notes, &State, &dyn Fn(&mut Notes, &State)) -> bool;

/// A subscriber writes a value and wakes the task when the poll's span is left, concurrently with
/// another waker. The last poll must see both values.
fn subscriber_model(end_poll: EndPoll) {
    let state = Arc::new(State::new());
    // Relaxed on purpose: only the task word orders these writes.
    let written = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
    let waker = thread::spawn({
        let (state, written) = (state.clone(), written.clone());
        move || {
            written[0].store(true, Ordering::Relaxed);
            state.wake() == Wake::Submit
        }
    });
    let runner = thread::spawn({
        let (state, written) = (state.clone(), written.clone());
        move || {
            let mut is_first = true;
            loop {
                assert_eq!(state.start(), Start::Poll);
                let mut notes = Notes { is_current: true, ..Notes::default() };
                let seen = [0, 1].map(|index: usize| written[index].load(Ordering::Relaxed));
                let subscriber = |notes: &mut Notes, state: &State| {
                    written[1].store(true, Ordering::Relaxed);
                    notes.wake_own(state);
                };
                let has_woken_itself = if std::mem::take(&mut is_first) {
                    end_poll(&mut notes, &state, &subscriber)
                } else {
                    notes.leave()
                };
                match state.pause(has_woken_itself) {
                    Pause::Reschedule => {}
                    Pause::Idle => return seen,
                    Pause::Cancel => unreachable!(),
                }
            }
        }
    });
    let is_submitted = waker.join().unwrap();
    let mut seen = runner.join().unwrap();
    if is_submitted {
        assert_eq!(state.start(), Start::Poll);
        seen = [0, 1].map(|index: usize| written[index].load(Ordering::Relaxed));
    }
    assert_eq!(seen, [true, true], "the last poll saw what both wakers had written");
}

#[test]
fn loom_a_wake_by_a_subscriber_beside_one_by_another_is_kept() {
    holds(None, || {
        subscriber_model(|notes, state, subscriber| {
            subscriber(notes, state);
            notes.leave()
        });
    });
}

#[test]
fn loom_a_wake_after_the_notes_were_read_is_kept() {
    holds(None, || {
        subscriber_model(|notes, state, subscriber| {
            let has_woken_itself = notes.leave();
            subscriber(notes, state);
            has_woken_itself
        });
    });
}

#[test]
fn loom_twin_notes_read_before_they_end_lose_a_wake_up() {
    breaks("the last poll saw what both wakers had written", None, || {
        subscriber_model(|notes, state, subscriber| {
            let has_woken_itself = notes.has_woken_itself;
            subscriber(notes, state);
            notes.leave();
            has_woken_itself
        });
    });
}

/// A claim in two steps, between which the task may be woken.
fn claim_in_two_steps(state: &State) -> bool {
    let now = Word(state.0.load(Ordering::Relaxed));
    if now.lifecycle() != IDLE {
        return false;
    }
    state.0.store(Word(now.0 + ONE_REFERENCE).with_lifecycle(SCHEDULED).0, Ordering::Relaxed);
    true
}

/// A task that waits is claimed for a dump, beside a wake-up. The one that made it SCHEDULED is its
/// only runner, and a poll after the wake-up sees what the waker wrote.
fn claim_model(claim: fn(&State) -> bool) {
    let state = Arc::new(State::new());
    assert_eq!(state.start(), Start::Poll);
    assert_eq!(state.pause(false), Pause::Idle);
    // Relaxed on purpose: only the task word orders these.
    let (written, has_seen) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let is_running = Arc::new(AtomicBool::new(false));
    let run = {
        let (state, written, has_seen) = (state.clone(), written.clone(), has_seen.clone());
        move || {
            assert!(!is_running.swap(true, Ordering::Relaxed), "One runner");
            loop {
                assert_eq!(state.start(), Start::Poll);
                has_seen.store(written.load(Ordering::Relaxed), Ordering::Relaxed);
                is_running.store(false, Ordering::Relaxed);
                match state.pause(false) {
                    Pause::Reschedule => assert!(!is_running.swap(true, Ordering::Relaxed), "One runner"),
                    Pause::Idle => return,
                    Pause::Cancel => unreachable!(),
                }
            }
        }
    };
    let dump = thread::spawn({
        let (state, run) = (state.clone(), run.clone());
        move || {
            if claim(&state) {
                run();
            }
        }
    });
    written.store(true, Ordering::Relaxed);
    if state.wake() == Wake::Submit {
        run();
    }
    dump.join().unwrap();
    assert!(has_seen.load(Ordering::Relaxed), "the last poll saw what the waker had written");
    assert_eq!(Word(state.0.load(Ordering::Relaxed)).references(), 1, "each runner released its reference");
}

#[test]
fn loom_a_claim_beside_a_wake_up_has_one_runner_and_loses_none() {
    holds(None, || claim_model(State::claim));
}

#[test]
fn loom_twin_a_claim_in_two_steps_has_two_runners() {
    breaks("One runner", None, || claim_model(claim_in_two_steps));
}
