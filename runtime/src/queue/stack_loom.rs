//! loom models of the stack, and of the stack with one step done wrong. Built like those of the ring.
//!
//! Stacks have 2 or 4 slots, and begin just before the indices wrap. loom checks each access to a slot: two at once of which one writes, or a read
//! of what was not published, fail the model, as does an item that is lost or comes out twice.

use loom::thread;

use super::*;
use crate::shim::explore::{breaks, holds};

/// First index of every stack here: wraps within the model.
const FIRST: u16 = u16::MAX - 1;

/// The steps of the protocol that a fault can replace.
trait Steps: 'static {
    fn push(producer: &mut Producer<u32>, item: u32) -> Result<(), u32> {
        producer.push(item)
    }

    fn pop_newest(producer: &mut Producer<u32>) -> Option<u32> {
        producer.pop_newest()
    }

    fn pop_oldest(producer: &mut Producer<u32>) -> Option<u32> {
        producer.pop_oldest()
    }

    fn steal(stealer: &Stealer<u32>, into: &mut ring::Producer<u32>) -> Steal<u32> {
        stealer.steal_into(into)
    }
}

struct AsBuilt;

impl Steps for AsBuilt {}

/// What the threads of a model took out.
#[derive(Default)]
struct Out(Vec<u32>);

impl Out {
    /// Steals once, and empties the ring that the rest went into.
    fn steal<S: Steps>(&mut self, from: &Stealer<u32>) {
        let (mut own, _) = ring::ring(4);
        if let Steal::Taken { next, .. } = S::steal(from, &mut own) {
            self.0.push(next);
        }
        self.0.extend(std::iter::from_fn(|| own.pop()));
    }

    /// Each of the items 0 to `count - 1` came out once.
    fn is_complete(mut self, count: u32) {
        self.0.sort_unstable();
        assert_eq!(self.0, (0..count).collect::<Vec<_>>(), "an item was lost or came out twice");
    }
}

fn joined(threads: impl IntoIterator<Item = thread::JoinHandle<Out>>) -> Out {
    Out(threads.into_iter().flat_map(|thread| thread.join().unwrap().0).collect())
}

/// What the owner does in a model.
#[derive(Clone, Copy)]
enum Act {
    Push,
    Newest,
    Oldest,
}

use Act::{Newest, Oldest, Push};

/// The owner of a stack of `capacity`, with `first` items in it, does what `acts` says, and takes out what is left; `thieves` steal once each.
fn model<S: Steps>(capacity: usize, first: u32, acts: &'static [Act], thieves: usize) {
    let (mut owner, stealer) = stack_from(capacity, FIRST);
    let stealer = Arc::new(stealer);
    (0..first).for_each(|item| owner.push(item).unwrap());
    let count = first + acts.iter().filter(|act| matches!(act, Push)).count() as u32;
    let threads: Vec<_> = (0..thieves)
        .map(|_| {
            let stealer = stealer.clone();
            thread::spawn(move || {
                let mut out = Out::default();
                out.steal::<S>(&stealer);
                out
            })
        })
        .collect();
    let (mut out, mut next) = (Out::default(), first);
    for act in acts {
        match act {
            Push => {
                out.0.extend(S::push(&mut owner, next).err());
                next += 1;
            }
            Newest => out.0.extend(S::pop_newest(&mut owner)),
            Oldest => out.0.extend(S::pop_oldest(&mut owner)),
        }
    }
    out.0.extend(std::iter::from_fn(|| S::pop_newest(&mut owner)));
    out.0.extend(joined(threads).0);
    out.is_complete(count);
}

/// Down to the last one, and up again.
const DOWN_AND_UP: &[Act] = &[Newest, Newest, Push, Newest];
/// Round the slots.
const ROUND: &[Act] = &[Oldest, Push, Push, Newest];
/// At both ends.
const BOTH_ENDS: &[Act] = &[Newest, Oldest, Push];

#[test]
fn the_last_item_goes_to_the_owner_or_to_the_thief() {
    holds(None, || model::<AsBuilt>(4, 2, DOWN_AND_UP, 1));
    holds(None, || model::<AsBuilt>(4, 3, DOWN_AND_UP, 1));
}

#[test]
fn a_stack_that_goes_round_under_a_thief_loses_nothing() {
    holds(None, || model::<AsBuilt>(2, 2, ROUND, 1));
}

#[test]
fn two_thieves_and_an_owner_at_both_ends_share_without_loss() {
    holds(None, || model::<AsBuilt>(4, 3, BOTH_ENDS, 2));
}

/// A steal in which each step can be replaced: `claim`, `release`.
fn steal_by(
    from: &Stealer<u32>,
    into: &mut ring::Producer<u32>,
    claim: impl FnOnce(&Shared<u32>, Ends, Ends) -> bool,
    release: impl FnOnce(&Shared<u32>, Ends),
) -> Steal<u32> {
    let ends = from.shared.look(Ordering::Relaxed);
    if ends.len() == 0 {
        return Steal::Empty;
    }
    if ends.has_thief() {
        return Steal::Lost;
    }
    let count = ends.len().div_ceil(2).min(into.free() + 1);
    let claimed = Ends { real: ends.real.wrapping_add(count as u16), ..ends };
    if !claim(&from.shared, ends, claimed) {
        return Steal::Lost;
    }
    // SAFETY: none; the models show whether it is CLAIMED and FILLED.
    let next = unsafe { from.shared.read(ends.real) };
    for offset in 1..count as u16 {
        // SAFETY: none, as above.
        into.push(unsafe { from.shared.read(ends.real.wrapping_add(offset)) }).expect("there is room");
    }
    release(&from.shared, claimed);
    Steal::Taken { next, count }
}

fn swap(shared: &Shared<u32>, from: Ends, to: Ends, success: Ordering) -> bool {
    shared.ends.compare_exchange(from.pack(), to.pack(), success, Ordering::Relaxed).is_ok()
}

fn claim(shared: &Shared<u32>, from: Ends, to: Ends) -> bool {
    swap(shared, from, to, Ordering::Acquire)
}

fn release(shared: &Shared<u32>, _: Ends) {
    shared.release();
}

/// The replaceable steal with nothing replaced: it is the same as the one in `stack.rs`.
struct Copied;

impl Steps for Copied {
    fn steal(from: &Stealer<u32>, into: &mut ring::Producer<u32>) -> Steal<u32> {
        steal_by(from, into, claim, release)
    }
}

#[test]
fn the_steal_that_the_faults_are_put_into_is_sound() {
    holds(None, || model::<Copied>(4, 3, DOWN_AND_UP, 1));
    holds(None, || model::<Copied>(2, 2, ROUND, 1));
    holds(None, || model::<Copied>(4, 3, BOTH_ENDS, 2));
}

/// The thief compares the heads alone, as where the tail is a word of its own: the owner has popped down to below what it claims.
struct ComparesNoTail;

impl Steps for ComparesNoTail {
    fn steal(from: &Stealer<u32>, into: &mut ring::Producer<u32>) -> Steal<u32> {
        let heads_only = |shared: &Shared<u32>, ends: Ends, claimed: Ends| {
            let now = shared.look(Ordering::Relaxed);
            (now.steal, now.real) == (ends.steal, ends.real) && claim(shared, now, Ends { tail: now.tail, ..claimed })
        };
        steal_by(from, into, heads_only, release)
    }
}

#[test]
fn a_thief_that_does_not_compare_the_tail_is_found() {
    breaks("Causality violation", None, || model::<ComparesNoTail>(4, 2, DOWN_AND_UP, 1));
}

/// Reads the slots, then claims them.
struct ReadsBeforeClaim;

impl Steps for ReadsBeforeClaim {
    fn steal(from: &Stealer<u32>, into: &mut ring::Producer<u32>) -> Steal<u32> {
        let early = |shared: &Shared<u32>, ends: Ends, claimed: Ends| {
            // SAFETY: none: not claimed yet, which is the fault.
            let _ = unsafe { shared.read(ends.real) };
            claim(shared, ends, claimed)
        };
        steal_by(from, into, early, release)
    }
}

#[test]
fn reading_before_the_claim_is_found() {
    breaks("Causality violation", None, || model::<ReadsBeforeClaim>(4, 2, DOWN_AND_UP, 1));
}

/// Claims with a Relaxed swap: the slots are not seen written.
struct ClaimsRelaxed;

impl Steps for ClaimsRelaxed {
    fn steal(from: &Stealer<u32>, into: &mut ring::Producer<u32>) -> Steal<u32> {
        steal_by(from, into, |shared, ends, claimed| swap(shared, ends, claimed, Ordering::Relaxed), release)
    }
}

#[test]
fn a_relaxed_claim_is_found() {
    breaks("Causality violation", None, || model::<ClaimsRelaxed>(4, 0, &[Push, Push], 1));
}

/// Claims by a store.
struct ClaimsByStore;

impl Steps for ClaimsByStore {
    fn steal(from: &Stealer<u32>, into: &mut ring::Producer<u32>) -> Steal<u32> {
        let store = |shared: &Shared<u32>, _: Ends, claimed: Ends| {
            shared.ends.load(Ordering::Acquire);
            shared.ends.store(claimed.pack(), Ordering::Release);
            true
        };
        steal_by(from, into, store, release)
    }
}

#[test]
fn claiming_by_a_store_is_found() {
    breaks("a steal ended twice", None, || model::<ClaimsByStore>(4, 3, DOWN_AND_UP, 1));
}

/// Claims by moving both heads: the owner takes the slots for free while they are read.
struct ClaimsBothHeads;

impl Steps for ClaimsBothHeads {
    fn steal(from: &Stealer<u32>, into: &mut ring::Producer<u32>) -> Steal<u32> {
        let both = |shared: &Shared<u32>, ends: Ends, claimed: Ends| {
            claim(shared, ends, Ends { steal: claimed.real, ..claimed })
        };
        steal_by(from, into, both, |_, _| {})
    }
}

#[test]
fn claiming_with_both_heads_is_found() {
    breaks("Causality violation", None, || model::<ClaimsBothHeads>(2, 2, ROUND, 1));
}

/// Releases by a store of what it claimed, not by a loop: what the owner did meanwhile is undone.
struct ReleasesByStore;

impl Steps for ReleasesByStore {
    fn steal(from: &Stealer<u32>, into: &mut ring::Producer<u32>) -> Steal<u32> {
        let store = |shared: &Shared<u32>, claimed: Ends| {
            shared.ends.store(Ends { steal: claimed.real, ..claimed }.pack(), Ordering::Release);
        };
        steal_by(from, into, claim, store)
    }
}

#[test]
fn releasing_by_a_store_is_found() {
    breaks("lost or came out twice", None, || model::<ReleasesByStore>(4, 3, DOWN_AND_UP, 1));
}

/// Releases with a Relaxed swap: the owner writes slots that, for all it knows, are still being read.
struct ReleasesRelaxed;

impl Steps for ReleasesRelaxed {
    fn steal(from: &Stealer<u32>, into: &mut ring::Producer<u32>) -> Steal<u32> {
        let relaxed = |shared: &Shared<u32>, _: Ends| {
            shared.claim(Ordering::Relaxed, |ends| Some(Ends { steal: ends.real, ..ends }));
        };
        steal_by(from, into, claim, relaxed)
    }
}

#[test]
fn a_relaxed_release_is_found() {
    breaks("Causality violation", None, || model::<ReleasesRelaxed>(2, 2, ROUND, 1));
}

/// The owner pops the newest with a store, as the bottom of a Chase–Lev deque.
struct PopsByStore;

impl Steps for PopsByStore {
    fn pop_newest(producer: &mut Producer<u32>) -> Option<u32> {
        let ends = producer.shared.look(Ordering::Acquire);
        if ends.len() == 0 {
            return None;
        }
        let tail = ends.tail.wrapping_sub(1);
        producer.shared.ends.store(Ends { tail, ..ends }.pack(), Ordering::Release);
        // SAFETY: none: not CLAIMED, which is the fault.
        Some(unsafe { producer.shared.read(tail) })
    }
}

#[test]
fn popping_the_newest_by_a_store_is_found() {
    breaks("lost or came out twice", None, || model::<PopsByStore>(4, 2, DOWN_AND_UP, 1));
}

/// Pop takes `steal` along although a thief is at work.
struct PopsBothHeads;

impl Steps for PopsBothHeads {
    fn pop_oldest(producer: &mut Producer<u32>) -> Option<u32> {
        let before = producer.shared.claim(Ordering::Acquire, |ends| {
            let real = ends.real.wrapping_add(1);
            (ends.len() > 0).then_some(Ends { steal: real, real, ..ends })
        })?;
        // SAFETY: CLAIMED and FILLED; the fault is what it says about the thief.
        Some(unsafe { producer.shared.read(before.real) })
    }
}

#[test]
fn a_pop_of_the_oldest_that_ends_the_thiefs_steal_is_found() {
    breaks("Causality violation", None, || model::<PopsBothHeads>(2, 2, ROUND, 1));
}

/// Push counts the room from `real`.
struct RoomFromReal;

impl Steps for RoomFromReal {
    fn push(producer: &mut Producer<u32>, item: u32) -> Result<(), u32> {
        if producer.len() == producer.shared.slots.len() {
            return Err(item);
        }
        // SAFETY: none: not ROOM, which is the fault.
        unsafe { producer.shared.write(producer.shared.look(Ordering::Relaxed).tail, item) };
        producer.shared.ends.fetch_add(1 << TAIL, Ordering::Release);
        Ok(())
    }
}

#[test]
fn room_counted_from_the_real_head_is_found() {
    breaks("Causality violation", None, || model::<RoomFromReal>(2, 2, ROUND, 1));
}

/// Push moves the tail with a Relaxed addition: the thief reads a slot that it does not see written.
struct PushesRelaxed;

impl Steps for PushesRelaxed {
    fn push(producer: &mut Producer<u32>, item: u32) -> Result<(), u32> {
        let ends = producer.shared.look(Ordering::Acquire);
        // SAFETY: ROOM: the model has enough; SOLE-PRODUCER.
        unsafe { producer.shared.write(ends.tail, item) };
        producer.shared.ends.fetch_add(1 << TAIL, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn a_push_that_publishes_nothing_is_found() {
    breaks("Causality violation", None, || model::<PushesRelaxed>(4, 0, &[Push, Push], 1));
}

/// Push moves the tail with a store: what a thief has claimed meanwhile is undone.
struct PushesByStore;

impl Steps for PushesByStore {
    fn push(producer: &mut Producer<u32>, item: u32) -> Result<(), u32> {
        let ends = producer.shared.look(Ordering::Acquire);
        // SAFETY: ROOM: the model has enough; SOLE-PRODUCER.
        unsafe { producer.shared.write(ends.tail, item) };
        producer.shared.ends.store(Ends { tail: ends.tail.wrapping_add(1), ..ends }.pack(), Ordering::Release);
        Ok(())
    }
}

#[test]
fn pushing_by_a_store_is_found() {
    breaks("lost or came out twice", None, || model::<PushesByStore>(4, 1, &[Push], 1));
}
