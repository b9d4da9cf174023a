//! loom models of the stage: an observer reads the word while the task ends and its output is
//! taken.

use loom::sync::Arc;
use loom::thread;
use volt_explore::{breaks, holds};

use super::*;
use crate::task::state::{Complete, Pause, Start, State, Wake};

struct Task {
    state: State,
    stage: Stage,
}

/// Returns the address of the location that an observer follows, or 0.
fn read(stage: &Stage) -> usize {
    stage.woken_from().map_or(0, |location| ptr::from_ref(location).addr())
}

/// As [`read`], without a check of the lowest bit.
fn read_unchecked(stage: &Stage) -> usize {
    stage.0.load(Ordering::Relaxed).addr() & !IS_OVER
}

/// Ends a poll that panicked, as the runner does.
fn end(task: &Task, payload: Content) {
    task.stage.set(payload);
    assert_eq!(task.state.complete(1), Complete::Keep);
}

/// Completes the task before its stage is recorded.
fn end_too_early(task: &Task, payload: Content) {
    assert_eq!(task.state.complete(1), Complete::Keep);
    task.stage.set(payload);
}

/// A task is woken and panics in its poll, beside its joiner, which takes the payload, and an
/// observer, which follows the location.
fn panic_model(end: fn(&Task, Content), read: fn(&Stage) -> usize) {
    let spawned: &'static Location<'static> = Location::caller();
    let task = Arc::new(Task { state: State::new(), stage: Stage::new(None) });
    assert_eq!(task.state.start(), Start::Poll);
    assert_eq!(task.state.pause(false), Pause::Idle);
    // No location has this address, and nothing follows it.
    let payload = || Content::Panicked(NonNull::new(ptr::without_provenance_mut(NOTHING + IS_OVER)).expect("not 0"));
    let observer = thread::spawn({
        let task = task.clone();
        move || read(&task.stage)
    });
    let joiner = thread::spawn({
        let task = task.clone();
        move || {
            let is_complete = task.state.is_complete();
            if is_complete {
                assert_eq!(task.stage.content(), payload(), "the joiner finds the payload");
                task.stage.set(Content::Nothing);
            }
            is_complete
        }
    });
    assert_eq!(task.state.wake(), Wake::Submit);
    task.stage.set_woken_from(Some(spawned));
    assert_eq!(task.state.start(), Start::Poll);
    assert_eq!(task.stage.content(), Content::Future);
    end(&task, payload());
    let has_joined = joiner.join().unwrap();
    let seen = observer.join().unwrap();
    let is_location = seen == 0 || seen == ptr::from_ref(spawned).addr();
    assert!(is_location, "an observer follows nothing but a location");
    assert_eq!(task.stage.content(), if has_joined { Content::Nothing } else { payload() });
}

#[test]
fn loom_an_observer_of_an_ending_task_follows_only_a_location() {
    holds(None, || panic_model(end, read));
}

#[test]
fn loom_twin_an_observer_without_a_check_follows_a_payload() {
    breaks("an observer follows nothing but a location", None, || panic_model(end, read_unchecked));
}

#[test]
fn loom_twin_a_stage_recorded_after_completion_is_not_found() {
    breaks("the joiner finds the payload", None, || panic_model(end_too_early, read));
}
