//! Models of the task word: what `state.rs` promises, in every interleaving. Run as CONTRIBUTING.md says.
//!
//! Each model has a twin in which the step that it is about is done wrong; the twin must fail.

use super::*;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;
use loom::thread;

/// How many executions a model took; one would mean that nothing was interleaved.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    let executions = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = executions.clone();
    loom::model(move || {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        model();
    });
    let executions = executions.load(std::sync::atomic::Ordering::Relaxed);
    println!("{executions} executions");
    assert!(executions > 1, "the model interleaved nothing");
}

/// Whether loom finds a fault in the model.
fn fails(model: impl Fn() + Sync + Send + 'static) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| loom::model(model))).is_err()
}

/// A waker that returns early when a plain load says "not idle": the fault of tokio #7622.
fn wake_with_early_return(state: &State) -> Wake {
    if Word(state.0.load(Ordering::Relaxed)).lifecycle() == IDLE || !Word(state.0.load(Ordering::Relaxed)).has(NOTIFIED)
    {
        return state.wake();
    }
    Wake::Nothing
}

/// A waker writes, wakes; another wakes too. Some poll after the last wake-up must see what both wrote.
fn wake_model(wake: fn(&State) -> Wake) {
    let state = Arc::new(State::new());
    // Relaxed on purpose: only the task word orders them.
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
    explore(|| wake_model(State::wake));
}

#[test]
fn loom_twin_an_early_return_on_a_plain_load_loses_a_wake_up() {
    assert!(fails(|| wake_model(wake_with_early_return)));
}

/// A waker that goes with its wake-up, its reference handed to the `Notified` if it submits the task.
fn wake_owned(state: &State) -> Wake {
    match state.wake_owned(false) {
        WakeOwned::Submit => Wake::Submit,
        WakeOwned::Nothing { was_last_reference } => {
            assert!(!was_last_reference, "there is a handle");
            Wake::Nothing
        }
    }
}

/// As `wake_model`, by wakers that hold references; afterwards the handle's is the only one that is left.
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
fn loom_wakers_that_go_with_their_wake_up_lose_no_wake_up_and_no_reference() {
    explore(|| {
        wake_model(|state| {
            state.add_reference();
            wake_owned(state)
        })
    });
    explore(|| wake_owned_model(wake_owned));
}

#[test]
fn loom_twin_a_waker_that_goes_with_its_wake_up_and_does_not_say_so_leaks_the_task() {
    assert!(fails(|| wake_owned_model(State::wake)));
}

/// Pause by a load and a store instead of one transition.
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
    explore(|| pause_model(|state| state.pause(false)));
}

#[test]
fn loom_twin_a_pause_in_two_steps_loses_the_wake_up() {
    assert!(fails(|| pause_model(pause_in_two_steps)));
}

/// A start that takes note of a wake-up without acquiring it.
fn start_without_acquiring(state: &State) -> Start {
    state.0.fetch_and(!NOTIFIED, Ordering::Relaxed);
    Start::Poll
}

/// A waker writes and wakes a task that is in a queue, about to be polled, or being polled, and that wakes itself in its first poll: the last
/// poll sees what was written.
fn start_model(start: fn(&State) -> Start) {
    let (state, written) = (Arc::new(State::new()), Arc::new(AtomicBool::new(false)));
    let waker = thread::spawn({
        let (state, written) = (state.clone(), written.clone());
        move || {
            // Relaxed on purpose: only the task word orders them.
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
fn loom_a_wake_beside_the_start_of_a_poll_is_seen_by_it_or_leads_to_another() {
    explore(|| start_model(State::start));
}

#[test]
fn loom_twin_a_start_that_does_not_acquire_the_wake_up_loses_it() {
    assert!(fails(|| start_model(start_without_acquiring)));
}

/// The end of a poll in which the task woke itself, without a look whether it is to be cancelled; nor does the next start look.
fn pause_and_start_without_a_look(_state: &State) -> bool {
    false
}

fn pause_and_start(state: &State) -> bool {
    state.pause(true) == Pause::Cancel || state.start() == Start::Cancel
}

/// A task that wakes itself in each poll but the last is cancelled meanwhile: it ends, at once or by the `Notified` that this adds.
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
    explore(|| cancel_of_a_yielding_task_model(pause_and_start, |state| state.pause(false)));
}

/// Only wake-ups are looked for at the end of a poll.
fn pause_without_cancellation(state: &State) -> Pause {
    state.transition(|now| (Word(now.0 - ONE_REFERENCE & !LIFECYCLE & !CANCELLED), Pause::Idle))
}

#[test]
fn loom_twin_polls_that_never_look_for_a_cancellation_lose_it() {
    assert!(fails(|| cancel_of_a_yielding_task_model(pause_and_start_without_a_look, pause_without_cancellation)));
}

/// Cancelling only sets the flag, as the source does.
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
    explore(|| cancel_model(State::cancel));
}

#[test]
fn loom_twin_a_cancel_that_only_sets_the_flag_leaves_the_task_idle() {
    assert!(fails(|| cancel_model(cancel_flag_only)));
}

/// The join waker field and the output, watched by loom.
struct Task {
    state: State,
    waker: UnsafeCell<Option<u32>>,
    output: UnsafeCell<Option<u32>>,
    woken: AtomicBool,
    freed: AtomicBool,
}

// SAFETY: Join hand-over: the word decides who may touch the cells; loom checks that it does.
unsafe impl Sync for Task {}
// SAFETY: plain data.
unsafe impl Send for Task {}

impl Task {
    fn running() -> Arc<Task> {
        let task = Task {
            state: State::new(),
            waker: UnsafeCell::new(None),
            output: UnsafeCell::new(None),
            woken: AtomicBool::new(false),
            freed: AtomicBool::new(false),
        };
        assert_eq!(task.state.start(), Start::Poll);
        Arc::new(task)
    }

    fn set_waker(&self, waker: Option<u32>) {
        // SAFETY: Join hand-over: callers own the field.
        self.waker.with_mut(|slot| unsafe { *slot = waker });
    }

    fn set_output(&self, output: Option<u32>) {
        // SAFETY: One runner / Join hand-over: callers own the output.
        self.output.with_mut(|slot| unsafe { *slot = output });
    }

    fn take_output(&self) -> Option<u32> {
        // SAFETY: Join hand-over: the task is complete and the caller is the JoinHandle.
        self.output.with_mut(|slot| unsafe { (*slot).take() })
    }

    fn complete(&self, release: fn(&State) -> bool) {
        self.set_output(Some(7));
        if self.state.is_unobserved(1) {
            self.set_output(None);
            return self.free();
        }
        match self.state.complete(1) {
            Complete::DropOutput => {
                self.set_output(None);
                self.drop_reference();
            }
            Complete::Keep => {}
            Complete::WakeJoiner => {
                // SAFETY: Join hand-over: JOIN_WAKER is set, so nobody writes the field.
                let waker = self.waker.with(|slot| unsafe { *slot });
                assert_eq!(waker, Some(1), "the published waker is there");
                self.woken.store(true, Ordering::Release);
                if release(&self.state) {
                    self.set_waker(None);
                    self.drop_reference();
                }
            }
        }
    }

    /// The owner has done with the task; the last one frees it.
    fn drop_reference(&self) {
        if self.state.is_only_reference() || self.state.drop_references(1) {
            self.free();
        }
    }

    /// Nobody uses the task any more, or loom says so.
    fn free(&self) {
        assert!(!self.freed.swap(true, Ordering::Relaxed), "freed once");
        self.waker.with_mut(|_| ());
        self.output.with_mut(|_| ());
    }

    /// One poll of the JoinHandle; None = Pending.
    fn poll_join(&self) -> Option<u32> {
        if self.state.is_complete() {
            return self.take_output();
        }
        self.set_waker(Some(1));
        if self.state.publish_join_waker() == Err(IsComplete) {
            self.set_waker(None);
            return self.take_output();
        }
        None
    }

    fn drop_join(&self) {
        match self.state.drop_join_interest() {
            DropJoin::OutputAndWaker => {
                self.set_output(None);
                self.set_waker(None);
                self.drop_reference();
            }
            DropJoin::Output => {
                self.set_output(None);
                self.drop_reference();
            }
            DropJoin::Waker => {
                self.set_waker(None);
                self.drop_reference();
            }
            DropJoin::Nothing { was_last_reference } => {
                if was_last_reference {
                    self.free();
                }
            }
        }
    }
}

#[test]
fn loom_a_joiner_is_woken_or_finds_the_output() {
    explore(|| {
        let task = Task::running();
        let completer = thread::spawn({
            let task = task.clone();
            move || task.complete(release_one)
        });
        let joiner = thread::spawn({
            let task = task.clone();
            move || task.poll_join()
        });
        completer.join().unwrap();
        match joiner.join().unwrap() {
            Some(output) => assert_eq!(output, 7),
            None => {
                assert!(task.woken.load(Ordering::Acquire), "a pending joiner is woken");
                assert_eq!(task.take_output(), Some(7));
            }
        }
    });
}

fn release_one(state: &State) -> bool {
    state.release_join_waker(1)
}

fn drop_join_model(release: fn(&State) -> bool) {
    let task = Task::running();
    assert_eq!(task.poll_join(), None);
    let completer = thread::spawn({
        let task = task.clone();
        move || task.complete(release)
    });
    let dropper = thread::spawn({
        let task = task.clone();
        move || task.drop_join()
    });
    completer.join().unwrap();
    dropper.join().unwrap();
    // SAFETY: both actors have ended.
    assert_eq!(task.output.with(|slot| unsafe { *slot }), None, "the output is dropped");
    // SAFETY: both actors have ended.
    assert_eq!(task.waker.with(|slot| unsafe { *slot }), None, "the waker is dropped");
    assert!(task.freed.load(Ordering::Relaxed), "and the task is freed");
}

#[test]
fn loom_output_and_waker_are_dropped_once_when_the_handle_goes_beside_completion() {
    explore(|| drop_join_model(release_one));
}

#[test]
fn loom_twin_a_completer_that_never_releases_the_waker_leaks_it() {
    assert!(fails(|| drop_join_model(|_| false)));
}

#[test]
fn loom_twin_a_completer_that_drops_the_waker_unasked_races_with_the_handle() {
    assert!(fails(|| drop_join_model(|state| {
        let _ = state.release_join_waker(1);
        true
    })));
}

#[test]
fn loom_twin_publishing_without_looking_at_completion_leaves_a_joiner_asleep() {
    assert!(fails(|| {
        let task = Task::running();
        let completer = thread::spawn({
            let task = task.clone();
            move || task.complete(release_one)
        });
        let joiner = thread::spawn({
            let task = task.clone();
            move || {
                if task.state.is_complete() {
                    return true;
                }
                task.set_waker(Some(1));
                task.state.0.fetch_or(JOIN_WAKER, Ordering::AcqRel);
                false
            }
        });
        completer.join().unwrap();
        let found = joiner.join().unwrap();
        assert!(found || task.woken.load(Ordering::Acquire), "a pending joiner is woken");
    }));
}

/// A handle that was never polled goes beside completion; whoever is last looks whether it is by `is_last`, without giving its reference up.
fn detach_model(is_last: fn(&State) -> bool) {
    let task = Task::running();
    let completer = thread::spawn({
        let task = task.clone();
        move || task.complete(release_one)
    });
    let dropper = thread::spawn({
        let task = task.clone();
        move || match task.state.drop_join_interest() {
            DropJoin::OutputAndWaker if is_last(&task.state) => task.free(),
            DropJoin::Nothing { was_last_reference: false } => {}
            drops => unreachable!("the completer releases its reference with completion: {drops:?}"),
        }
    });
    completer.join().unwrap();
    dropper.join().unwrap();
    assert!(task.freed.load(Ordering::Relaxed), "the task is freed");
}

#[test]
fn loom_a_task_whose_handle_goes_beside_completion_is_freed_once_after_all_uses() {
    explore(|| detach_model(State::is_only_reference));
}

#[test]
fn loom_twin_a_look_for_other_references_that_acquires_nothing_frees_beside_a_use() {
    assert!(fails(|| {
        let task = Task::running();
        let other = thread::spawn({
            let task = task.clone();
            move || {
                task.set_output(Some(7));
                if task.state.drop_references(1) {
                    task.free();
                }
            }
        });
        if Word(task.state.0.load(Ordering::Relaxed)).references() == 1 || task.state.drop_references(1) {
            task.free();
        }
        other.join().unwrap();
    }));
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
                // SAFETY: a reference is held: nobody writes before the last is dropped.
                cell.0.with(|value| assert_eq!(unsafe { *value }, 0));
                let is_last = drop_reference(&state);
                if is_last {
                    // SAFETY: the last reference is gone.
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
    explore(|| references_model(|state| state.drop_references(1)));
}

#[test]
fn loom_twin_a_relaxed_drop_frees_beside_a_use() {
    assert!(fails(|| references_model(|state| {
        Word(state.0.fetch_sub(ONE_REFERENCE, Ordering::Relaxed)).references() == 1
    })));
}

/// A shield that is left as the source leaves it: the depth goes down, and nobody looks whether a cancellation waited.
fn leave_without_a_look(state: &State) -> Wake {
    state.0.fetch_sub(ONE_SHIELD, Ordering::AcqRel);
    Wake::Nothing
}

/// A guard is dropped by another thread beside a cancellation and the end of the poll: whichever comes last ends the task.
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
        move || state.pause(false)
    });
    let submitted = [canceller.join().unwrap(), leaver.join().unwrap()];
    let paused = runner.join().unwrap();
    let submits = submitted.iter().filter(|wake| **wake == Wake::Submit).count();
    assert!(submits <= 1, "One Notified");
    let ends = paused == Pause::Cancel || (submits == 1 && state.start() == Start::Cancel);
    assert!(ends, "the cancellation takes effect when the shield is gone");
}

#[test]
fn loom_a_shield_left_beside_a_cancellation_and_the_end_of_a_poll_lets_the_task_end() {
    explore(|| shield_model(State::leave_shield));
}

#[test]
fn loom_twin_a_shield_left_without_a_look_leaves_a_cancelled_task_idle() {
    assert!(fails(|| shield_model(leave_without_a_look)));
}
