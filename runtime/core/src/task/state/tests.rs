//! Tests of the transitions of the task word, one by one.

use super::*;

fn word(state: &State) -> Word {
    Word(state.0.load(Ordering::Relaxed))
}

fn idle() -> State {
    let state = State::new();
    assert_eq!(state.start(), Start::Poll);
    assert_eq!(state.pause(false), Pause::Idle);
    state
}

#[test]
fn a_wake_of_an_idle_task_submits_it_once() {
    let state = idle();
    assert_eq!(state.wake(), Wake::Submit);
    assert_eq!(state.wake(), Wake::Nothing, "it is scheduled already");
    assert_eq!(word(&state).references(), 2);
    assert_eq!(state.start(), Start::Poll);
    assert_eq!(state.pause(false), Pause::Idle, "woken twice in the queue is one poll");
}

#[test]
fn a_task_cancelled_just_before_its_shield_is_polled_again() {
    let state = State::new();
    assert_eq!(state.start(), Start::Poll);
    assert_eq!(state.cancel(), Wake::Nothing);
    state.enter_shield().unwrap();
    assert_eq!(state.pause(false), Pause::Reschedule, "so that it sees that it is cancelled");
    assert_eq!(state.start(), Start::Poll);
    assert_eq!(state.pause(false), Pause::Idle, "once is enough");
    assert_eq!(state.leave_shield(), Wake::Submit, "and now the cancellation is due");
}

#[test]
fn wake_by_value_transfers_or_releases_its_reference() {
    let nothing = WakeOwned::Nothing { was_last_reference: false };
    for keeps_reference in [false, true] {
        let state = idle();
        state.add_reference();
        assert_eq!(state.wake_owned(keeps_reference), WakeOwned::Submit);
        assert_eq!(word(&state).references(), 2 + u64::from(keeps_reference), "the handle's, the Notified's");
        state.add_reference();
        assert_eq!(state.wake_owned(keeps_reference), nothing, "it is scheduled already");
        assert_eq!(word(&state).references(), 2 + u64::from(keeps_reference));
        assert_eq!(state.start(), Start::Poll);
    }

    let state = State::new();
    state.add_reference();
    assert_eq!(state.start(), Start::Poll);
    assert_eq!(state.wake_owned(false), nothing);
    assert_eq!(state.pause(false), Pause::Reschedule);
    assert_eq!(state.start(), Start::Poll);
    assert_eq!(state.drop_join_interest(), DropJoin::Nothing { was_last_reference: false });
    state.add_reference();
    assert_eq!(state.complete(1), Complete::DropOutput);
    assert!(!state.drop_references(1));
    assert_eq!(state.wake_owned(false), WakeOwned::Nothing { was_last_reference: true }, "it is complete");
}

#[test]
fn a_wake_during_the_poll_reschedules() {
    let state = State::new();
    assert_eq!(state.start(), Start::Poll);
    assert_eq!(state.wake(), Wake::Nothing);
    assert_eq!(state.pause(false), Pause::Reschedule);
    assert_eq!(state.start(), Start::Poll);
    assert_eq!(state.pause(false), Pause::Idle, "one wake-up is one poll");
}

#[test]
fn rescheduling_a_self_woken_task_leaves_the_state_unchanged() {
    let state = State::new();
    let before = word(&state);
    assert_eq!(state.start(), Start::Poll);
    assert_eq!(state.pause(true), Pause::Reschedule);
    assert_eq!(word(&state), before);
    assert_eq!(state.start(), Start::Poll);
    assert_eq!(state.wake(), Wake::Nothing);
    assert_eq!(state.pause(true), Pause::Reschedule);
    assert_eq!(state.start(), Start::Poll);
    assert_eq!(state.pause(false), Pause::Idle, "by itself and by another in one poll is one poll more");
    assert_eq!(state.wake(), Wake::Submit);
    assert_eq!(state.start(), Start::Poll);
    assert_eq!(state.cancel(), Wake::Nothing);
    assert_eq!(state.pause(true), Pause::Cancel);
}

#[test]
fn cancel_reaches_idle_scheduled_and_running_tasks() {
    let state = idle();
    assert_eq!(state.cancel(), Wake::Submit);
    assert_eq!(state.start(), Start::Cancel);

    let state = State::new();
    assert_eq!(state.cancel(), Wake::Nothing, "it is in a queue, its turn will come");
    assert_eq!(state.start(), Start::Cancel);

    let state = State::new();
    assert_eq!(state.start(), Start::Poll);
    assert_eq!(state.cancel(), Wake::Nothing);
    assert_eq!(state.pause(false), Pause::Cancel);
    assert_eq!(state.complete(1), Complete::Keep);
    assert_eq!(state.cancel(), Wake::Nothing, "too late");
}

#[test]
fn a_shield_defers_the_cancellation_until_it_is_left() {
    let state = State::new();
    assert_eq!(state.start(), Start::Poll);
    state.enter_shield().unwrap();
    assert_eq!(state.pause(false), Pause::Idle);
    assert_eq!(state.cancel(), Wake::Submit);
    assert_eq!(state.start(), Start::Poll, "polled as usual while shielded");
    assert_eq!(state.pause(false), Pause::Idle);
    assert_eq!(state.wake(), Wake::Submit);
    assert_eq!(state.start(), Start::Poll);
    assert_eq!(state.leave_shield(), Wake::Nothing);
    assert_eq!(state.pause(false), Pause::Cancel);
}

#[test]
fn dropping_a_shield_outside_a_poll_lets_cancellation_proceed() {
    let state = State::new();
    assert_eq!(state.start(), Start::Poll);
    state.enter_shield().unwrap();
    assert_eq!(state.cancel(), Wake::Nothing);
    assert_eq!(state.pause(false), Pause::Reschedule, "so that it can check whether it is cancelled");
    assert_eq!(state.start(), Start::Poll);
    assert_eq!(state.pause(false), Pause::Idle);
    assert_eq!(state.leave_shield(), Wake::Submit);
    assert_eq!(state.start(), Start::Cancel);
    assert_eq!(state.complete(1), Complete::Keep);
}

#[test]
fn a_guard_that_outlives_its_task_changes_nothing() {
    let state = State::new();
    assert_eq!(state.start(), Start::Poll);
    state.enter_shield().unwrap();
    assert_eq!(state.complete(1), Complete::Keep);
    assert_eq!(state.leave_shield(), Wake::Nothing);
    assert_eq!(word(&state).shield_depth(), 0);
}

#[test]
fn the_256th_shield_is_an_error_and_touches_no_neighbour() {
    let state = State::new();
    assert_eq!(state.start(), Start::Poll);
    (0..255).for_each(|_| state.enter_shield().unwrap());
    let before = word(&state);
    assert_eq!(state.enter_shield(), Err(ShieldOverflow));
    assert_eq!(word(&state), before);
}

#[test]
fn millions_of_references_to_one_task_are_legal() {
    let state = State::new();
    let count = if cfg!(miri) { 1_000 } else { 5_000_000 };
    (0..count).for_each(|_| state.add_reference());
    assert_eq!(word(&state).references(), 2 + count);
    assert!(!state.drop_references(count));
    assert_eq!(word(&state), word(&State::new()), "the rest of the word is as it was");
}

/// Set in the child process that is to abort.
#[cfg(not(miri))]
const IN_CHILD: &str = "VOLT_TEST_REFERENCES";

#[test]
#[cfg(all(unix, not(miri)))]
fn one_reference_too_many_aborts_before_the_count_can_wrap() {
    use std::os::unix::process::ExitStatusExt;

    if std::env::var_os(IN_CHILD).is_some() {
        let state = State::new();
        state.0.fetch_add((MAX_REFERENCES - 4) * ONE_REFERENCE, Ordering::Relaxed);
        state.add_reference();
        state.add_reference();
        println!("so far it went on");
        state.add_reference();
        println!("it still goes on");
        return;
    }
    let test = std::thread::current().name().expect("the harness names its threads").to_owned();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    let output = child.args([&test, "--exact", "--nocapture"]).env(IN_CHILD, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.signal(), Some(6), "SIGABRT: {output:?}");
    assert!(text.contains("so far it went on") && !text.contains("it still goes on"), "{text}");
}

#[test]
fn a_task_sees_its_cancellation_and_whether_a_shield_defers_it() {
    let (state, seen) = (State::new(), |is_requested, is_effective| Cancellation { is_requested, is_effective });
    assert_eq!(state.start(), Start::Poll);
    assert_eq!(state.cancellation(), seen(false, false));
    state.enter_shield().unwrap();
    assert_eq!(state.cancel(), Wake::Nothing);
    assert_eq!(state.cancellation(), seen(true, false));
    assert_eq!(state.pause(false), Pause::Reschedule, "it may have checked before");
    assert_eq!(state.start(), Start::Poll);
    assert_eq!(state.cancel(), Wake::Nothing);
    assert_eq!(state.pause(false), Pause::Idle, "it was polled for that already");
    assert_eq!(state.wake(), Wake::Submit);
    assert_eq!(state.start(), Start::Poll);
    assert_eq!(state.leave_shield(), Wake::Nothing);
    assert_eq!(state.cancellation(), seen(true, true));
}

#[test]
fn the_last_reference_is_the_one_that_frees() {
    let state = State::new();
    (0..2).for_each(|_| state.add_reference());
    assert_eq!([1, 1, 2].map(|count| state.drop_references(count)), [false, false, true]);
}

#[test]
fn join_waker_and_output_have_one_owner_at_each_step() {
    let state = State::new();
    state.publish_join_waker().unwrap();
    assert_eq!(state.start(), Start::Poll);
    assert_eq!(state.complete(1), Complete::WakeJoiner);
    assert_eq!(state.drop_join_interest(), DropJoin::Output);
    assert!(state.release_join_waker(1), "the handle left it to the completer");
    assert_eq!(word(&state).references(), 2, "neither has let go of the task");

    let state = State::new();
    state.publish_join_waker().unwrap();
    assert_eq!(state.drop_join_interest(), DropJoin::Waker);

    let state = State::new();
    state.add_reference();
    assert_eq!(state.drop_join_interest(), DropJoin::Nothing { was_last_reference: false });
    assert_eq!(state.start(), Start::Poll);
    assert!(!state.is_unobserved(1), "there is a waker");
    assert_eq!(state.complete(1), Complete::DropOutput);
    assert!(!state.drop_references(1));
}

#[test]
fn references_are_released_with_the_last_step_that_needs_them() {
    let state = State::new();
    state.add_reference();
    assert_eq!(state.start(), Start::Poll);
    assert_eq!(state.complete(2), Complete::Keep);
    assert!(state.is_only_reference());
    assert_eq!(state.drop_join_interest(), DropJoin::OutputAndWaker);

    let state = State::new();
    state.publish_join_waker().unwrap();
    assert_eq!(state.start(), Start::Poll);
    assert_eq!(state.complete(1), Complete::WakeJoiner);
    assert!(!state.is_only_reference());
    assert!(!state.release_join_waker(1));
    assert!(state.is_only_reference());
    assert_eq!(state.drop_join_interest(), DropJoin::OutputAndWaker);

    let state = State::new();
    assert!(!state.is_unobserved(1) && !state.is_unobserved(2), "there is a handle");
    assert_eq!(state.drop_join_interest(), DropJoin::Nothing { was_last_reference: false });
    assert!(state.is_unobserved(1), "no other reference can observe its end");

    let state = State::new();
    assert!(!state.drop_references(1));
    assert_eq!(state.drop_join_interest(), DropJoin::Nothing { was_last_reference: true });
}

#[test]
fn several_wake_ups_in_one_poll_are_one_more_poll() {
    let nothing = || WakeOwned::Nothing { was_last_reference: false };
    let state = State::new();
    (0..2).for_each(|_| state.add_reference());
    assert_eq!(state.start(), Start::Poll);
    assert_eq!([state.wake_owned(false), state.wake_owned(true)], [nothing(), nothing()]);
    assert_eq!(state.pause(false), Pause::Reschedule);
    assert_eq!(word(&state), word(&State::new()), "both have released their references");

    assert_eq!(state.start(), Start::Poll);
    assert_eq!([state.wake(), state.wake()], [Wake::Nothing, Wake::Nothing]);
    assert_eq!(state.pause(false), Pause::Reschedule);
    assert_eq!(state.start(), Start::Poll);
    assert_eq!(state.pause(false), Pause::Idle);
}

#[test]
fn the_first_try_of_a_wake_up_wakes_only_an_idle_task() {
    let state = idle();
    state.add_reference();
    assert!(state.wake_idle());
    assert_eq!(word(&state), word(&State::new()), "the waker's reference is the Notified's");
    assert!(!state.wake_idle(), "it is scheduled already");
    assert_eq!(word(&state), word(&State::new()));
    assert_eq!(state.start(), Start::Poll);
    assert_eq!(state.complete(1), Complete::Keep);
    assert!(!state.wake_idle(), "it is complete");
    assert!(state.is_complete());
}

#[test]
fn a_claim_takes_an_idle_task_and_no_other() {
    let state = idle();
    assert!(state.claim());
    assert_eq!(word(&state), word(&State::new()), "a reference is added for the Notified");
    assert!(!state.claim(), "it is scheduled already");
    assert_eq!(state.start(), Start::Poll);
    assert_eq!(state.complete(1), Complete::Keep);
    assert!(!state.claim(), "it is complete");
}

#[test]
fn a_pause_under_a_shield_releases_the_notifieds_reference() {
    let state = State::new();
    assert_eq!(state.start(), Start::Poll);
    state.enter_shield().unwrap();
    assert_eq!(state.cancel(), Wake::Nothing);
    assert_eq!(state.pause(false), Pause::Reschedule);
    assert_eq!(state.start(), Start::Poll);
    assert_eq!(word(&state).references(), 2);
    assert_eq!(state.pause(false), Pause::Idle);
    assert_eq!(word(&state).references(), 1, "the handle's");
}

#[test]
fn a_join_waker_can_be_replaced_until_the_task_is_complete() {
    let state = State::new();
    assert!(!state.has_join_waker() && !state.is_joined());
    state.publish_join_waker().unwrap();
    assert!(state.has_join_waker() && state.is_joined());
    state.retract_join_waker().unwrap();
    assert!(!state.has_join_waker() && !state.is_joined());
    state.publish_join_waker().unwrap();
    assert_eq!(state.start(), Start::Poll);
    assert!(!state.is_complete());
    assert_eq!(state.complete(1), Complete::WakeJoiner);
    assert!(state.has_join_waker() && !state.is_joined() && state.is_complete());
    assert_eq!((state.publish_join_waker(), state.retract_join_waker()), (Err(IsComplete), Err(IsComplete)));
    assert!(state.has_join_waker(), "it is the completer's now");
}

#[test]
fn reports_count_the_wakers_and_find_a_task_without_any() {
    let state = idle();
    state.add_reference();
    assert!(state.is_idle() && state.is_stranded(), "the references are the reader's and the handle's");
    assert_eq!(state.wakers(), 0);
    (0..2).for_each(|_| state.add_reference());
    assert_eq!((state.is_stranded(), state.wakers()), (false, 2));
    assert_eq!(state.wake(), Wake::Submit);
    assert_eq!((state.is_idle(), state.wakers()), (false, 2), "the Notified is no waker");
    assert_eq!(state.start(), Start::Poll);
    assert!(!state.drop_references(2));
    assert!(!state.is_stranded(), "it is not idle");
    assert_eq!(state.pause(false), Pause::Idle);
    assert!(state.is_stranded());
    assert_eq!(state.drop_join_interest(), DropJoin::Nothing { was_last_reference: false });
    assert!(state.is_stranded(), "without a handle, too");
    state.add_reference();
    assert_eq!((state.is_stranded(), state.wakers()), (false, 1));
}

#[test]
fn only_the_words_of_the_table_are_legal() {
    for lifecycle in 0..=LIFECYCLE {
        for (flags, depth) in (0..16).flat_map(|flags| [0, 1, 0xff].map(|depth| (flags, depth))) {
            let word = Word(ONE_REFERENCE | depth << SHIELD_SHIFT | flags << FLAGS_SHIFT | lifecycle);
            let waker_fits = !word.has(JOIN_WAKER) || word.has(JOIN_INTEREST);
            let is_in_table = match lifecycle {
                IDLE => !word.has(NOTIFIED) && (!word.has(CANCELLED) || depth > 0) && waker_fits,
                SCHEDULED => waker_fits,
                COMPLETE => !word.has(NOTIFIED) && depth == 0,
                _ => false,
            };
            assert_eq!(word.is_legal(), is_in_table, "{word:?}");
        }
    }
}

#[test]
fn the_parts_of_the_word_do_not_overlap() {
    let flags = NOTIFIED | CANCELLED | JOIN_INTEREST | JOIN_WAKER;
    let parts = [LIFECYCLE, 0b1100, flags, SHIELD, u64::MAX << REFERENCES_SHIFT];
    assert_eq!(parts.iter().fold(0, |all, part| all | part), u64::MAX);
    assert_eq!(parts.iter().map(|part| part.count_ones()).sum::<u32>(), 64);
}
