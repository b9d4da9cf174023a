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
                match state.pause() {
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

/// Pause by a load and a store instead of one transition.
fn pause_in_two_steps(state: &State) -> Pause {
    let now = Word(state.0.load(Ordering::Acquire));
    if now.has(NOTIFIED) {
        return state.pause();
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
    explore(|| pause_model(State::pause));
}

#[test]
fn loom_twin_a_pause_in_two_steps_loses_the_wake_up() {
    assert!(fails(|| pause_model(pause_in_two_steps)));
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
        move || state.pause()
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
        match self.state.complete() {
            Complete::DropOutput => self.set_output(None),
            Complete::Keep => {}
            Complete::WakeJoiner => {
                // SAFETY: Join hand-over: JOIN_WAKER is set, so nobody writes the field.
                let waker = self.waker.with(|slot| unsafe { *slot });
                assert_eq!(waker, Some(1), "the published waker is there");
                self.woken.store(true, Ordering::Release);
                if release(&self.state) {
                    self.set_waker(None);
                }
            }
        }
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
        let drops = self.state.drop_join_interest();
        if drops.output {
            self.set_output(None);
        }
        if drops.waker {
            self.set_waker(None);
        }
    }
}

#[test]
fn loom_a_joiner_is_woken_or_finds_the_output() {
    explore(|| {
        let task = Task::running();
        let completer = thread::spawn({
            let task = task.clone();
            move || task.complete(State::release_join_waker)
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
}

#[test]
fn loom_output_and_waker_are_dropped_once_when_the_handle_goes_beside_completion() {
    explore(|| drop_join_model(State::release_join_waker));
}

#[test]
fn loom_twin_a_completer_that_never_releases_the_waker_leaks_it() {
    assert!(fails(|| drop_join_model(|_| false)));
}

#[test]
fn loom_twin_a_completer_that_drops_the_waker_unasked_races_with_the_handle() {
    assert!(fails(|| drop_join_model(|state| {
        let _ = state.release_join_waker();
        true
    })));
}

#[test]
fn loom_twin_publishing_without_looking_at_completion_leaves_a_joiner_asleep() {
    assert!(fails(|| {
        let task = Task::running();
        let completer = thread::spawn({
            let task = task.clone();
            move || task.complete(State::release_join_waker)
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

fn references_model(drop_reference: fn(&State) -> bool) {
    let state = Arc::new(State::new());
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
        move || state.pause()
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
