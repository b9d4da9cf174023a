//! Tests of the tape, by the code that uses it: a waker whose clones note where they were made.

use std::task::{RawWaker, RawWakerVTable, Waker};

use super::*;
use crate::reader::tape::{Recorded, Tape};

/// The line where [`registers`] clones the waker.
const CLONES_LINE: u32 = line!() + 7;
/// The line where [`registers_again`] does.
const AGAIN_LINE: u32 = line!() + 11;

/// A future that is registered at what it waits for.
#[inline(never)]
fn registers(waker: &Waker) {
    drop(waker.clone());
    black_box(CLONES_LINE);
}

#[inline(never)]
fn registers_again(waker: &Waker) {
    drop(waker.clone());
    black_box(AGAIN_LINE);
}

/// Returns a waker whose clones note the stack on the tape that records.
fn noting() -> Waker {
    const fn vtable() -> &'static RawWakerVTable {
        const VTABLE: RawWakerVTable = RawWakerVTable::new(
            |data| {
                Tape::note();
                RawWaker::new(data, &VTABLE)
            },
            |_| {},
            |_| {},
            |_| {},
        );
        &VTABLE
    }
    // SAFETY: the functions of the table do not use the data.
    unsafe { Waker::from_raw(RawWaker::new(ptr::null(), vtable())) }
}

fn recorded(f: &mut dyn FnMut(&Waker)) -> Recorded {
    let (mut tape, waker) = (Tape::new(), noting());
    tape.record(&mut || f(&waker));
    tape.take()
}

/// Checks that the stack leads from `function`, at `line`, to the recording.
fn assert_leads(stack: &RawStack, function: &str, line: u32) {
    let resolved = Resolver::new().resolve(stack, Some(Tape::marker()));
    let clones = names(&resolved, function);
    assert_eq!(clones.and_then(|frame| frame.line), Some(line), "{resolved:#?}");
    let last = resolved.frames.last().and_then(|frame| frame.function.as_deref());
    assert!(last.is_some_and(|name| name.ends_with("::record")), "{resolved:#?}");
    assert_eq!((resolved.error, resolved.is_lost), (None, false), "{:#?}", resolved.frames);
}

#[test]
fn a_clones_stack_leads_to_the_function_that_cloned() {
    let recorded = recorded(&mut |waker| registers(waker));
    let [stack] = &recorded.stacks[..] else { panic!("one clone: {recorded:?}") };
    assert_leads(stack, "::registers", CLONES_LINE);
    assert_eq!(recorded.left_out, 0);
}

#[test]
fn several_clones_are_recorded_in_their_order() {
    let recorded = recorded(&mut |waker| {
        registers_again(waker);
        registers(waker);
        registers_again(waker);
    });
    let [first, second, third] = &recorded.stacks[..] else { panic!("three clones: {recorded:?}") };
    assert_leads(first, "::registers_again", AGAIN_LINE);
    assert_leads(second, "::registers", CLONES_LINE);
    assert_leads(third, "::registers_again", AGAIN_LINE);
}

#[test]
fn more_clones_than_fit_are_counted() {
    let recorded = recorded(&mut |waker| (0..100).for_each(|_| registers(waker)));
    assert_eq!((recorded.stacks.len(), recorded.left_out), (64, 36));
    assert_leads(&recorded.stacks[63], "::registers", CLONES_LINE);
}

#[test]
fn clones_outside_of_a_recording_are_not_recorded() {
    let (mut tape, waker) = (Tape::new(), noting());
    registers(&waker);
    tape.record(&mut || {});
    registers(&waker);
    assert_eq!(tape.take().stacks.len(), 0);
    // An inner recording on the same thread has its own tape, and the outer one continues after it.
    let mut inner = Tape::new();
    tape.record(&mut || {
        inner.record(&mut || registers(&waker));
        registers_again(&waker);
    });
    let (outer, inner) = (tape.take(), inner.take());
    let [outer] = &outer.stacks[..] else { panic!("one clone: {outer:?}") };
    let [inner] = &inner.stacks[..] else { panic!("one clone: {inner:?}") };
    assert_leads(outer, "::registers_again", AGAIN_LINE);
    assert_leads(inner, "::registers", CLONES_LINE);
}
