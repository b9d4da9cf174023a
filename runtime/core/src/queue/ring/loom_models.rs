//! loom models of the ring, and of the ring with one incorrect step.
//!
//! loom is a model checker. It runs a small program with several threads again and again, in every
//! interleaving and with every result of a load that the memory orderings permit.
//!
//! Each model is generic over [`Steps`]. [`AsBuilt`] takes every step from the ring itself. Each
//! fault replaces one step by an incorrect one, which its name describes, and the model must detect
//! it. Rings have 2 or 4 slots, and their indices start just before the wrap. loom checks each
//! access to a slot: a model fails on concurrent accesses of which one is a write, and on a read of
//! an item that was not published. It also fails if an item is lost or comes out twice.

use loom::thread;
use volt_explore::{breaks, holds};

use super::*;

/// First index of every ring in these models, so that it wraps within the model.
const FIRST: u32 = u32::MAX - 1;

/// The steps of the protocol that a fault can replace.
trait Steps: 'static {
    fn push(producer: &mut Producer<u32>, item: u32) -> Result<(), u32> {
        producer.push(item)
    }

    fn pop(producer: &mut Producer<u32>) -> Option<u32> {
        producer.pop()
    }

    fn take_half(producer: &mut Producer<u32>) -> Vec<u32> {
        producer.take_half().into_iter().flatten().collect()
    }

    fn steal(stealer: &Stealer<u32>, into: &mut Producer<u32>) -> Steal<u32> {
        stealer.steal_into(into)
    }
}

struct AsBuilt;

impl Steps for AsBuilt {}

/// The items that the threads of a model took out of its rings, and those that remained inside.
#[derive(Default)]
struct Out(Vec<u32>);

impl Out {
    fn steal<S: Steps>(&mut self, from: &Stealer<u32>, into: &mut Producer<u32>) {
        if let Steal::Taken { next, .. } = S::steal(from, into) {
            self.0.push(next);
        }
    }

    fn drain<S: Steps>(&mut self, from: &mut Producer<u32>) {
        self.0.extend(std::iter::from_fn(|| S::pop(from)));
    }

    /// Checks that each of the items 0 to `count - 1` came out exactly once.
    fn is_complete(mut self, count: u32) {
        self.0.sort_unstable();
        assert_eq!(self.0, (0..count).collect::<Vec<_>>(), "an item was lost or came out twice");
    }
}

fn joined(threads: impl IntoIterator<Item = thread::JoinHandle<Out>>) -> Out {
    Out(threads.into_iter().flat_map(|thread| thread.join().unwrap().0).collect())
}

/// The owner pushes `items` into a ring of `capacity`. It pops when the ring is full, and pops the
/// rest at the end. A thief steals `steals` times.
fn owner_and_thief<S: Steps>(capacity: usize, items: u32, steals: usize) {
    let (mut owner, stealer) = ring_from(capacity, FIRST);
    let (mut thief, _) = ring_from(4, FIRST);
    let threads = [
        thread::spawn(move || {
            let mut out = Out::default();
            for item in 0..items {
                while S::push(&mut owner, item).is_err() {
                    match S::pop(&mut owner) {
                        Some(item) => out.0.push(item),
                        None => thread::yield_now(),
                    }
                }
            }
            out.drain::<S>(&mut owner);
            out
        }),
        thread::spawn(move || {
            let mut out = Out::default();
            for _ in 0..steals {
                out.steal::<S>(&stealer, &mut thief);
            }
            out.drain::<S>(&mut thief);
            out
        }),
    ];
    joined(threads).is_complete(items);
}

/// The owner pushes and pops until the indices have advanced by twice the capacity, while a thief
/// steals once.
fn once_round<S: Steps>() {
    let (mut owner, stealer) = ring_from(2, FIRST);
    owner.push(0).unwrap();
    let threads = [
        thread::spawn(move || {
            let mut out = Out::default();
            for item in 1..=4 {
                out.0.extend(S::pop(&mut owner));
                out.0.extend(S::push(&mut owner, item).err());
            }
            out.drain::<S>(&mut owner);
            out
        }),
        thread::spawn(move || {
            let (mut own, _) = ring_from(2, FIRST);
            let mut out = Out::default();
            out.steal::<S>(&stealer, &mut own);
            out.drain::<S>(&mut own);
            out
        }),
    ];
    joined(threads).is_complete(5);
}

/// The owner pops while two thieves steal at the same time.
fn owner_and_two_thieves<S: Steps>() {
    let (mut owner, stealer) = ring_from(4, FIRST);
    (0..3).for_each(|item| owner.push(item).unwrap());
    let thief = |stealer: Stealer<u32>| {
        thread::spawn(move || {
            let (mut own, _) = ring_from(2, FIRST);
            let mut out = Out::default();
            out.steal::<S>(&stealer, &mut own);
            out.drain::<S>(&mut own);
            out
        })
    };
    let threads = [
        thief(stealer.clone()),
        thief(stealer),
        thread::spawn(move || {
            let mut out = Out::default();
            out.0.extend(S::pop(&mut owner));
            out.drain::<S>(&mut owner);
            out
        }),
    ];
    joined(threads).is_complete(3);
}

/// A second thief steals from the ring of a thief that is stealing. The first thief must not
/// overwrite the slots that the second one reads.
fn chain_of_thieves<S: Steps>() {
    let (mut first, from_first) = ring_from(4, FIRST);
    let (mut middle, from_middle) = ring_from(2, FIRST);
    (0..3).for_each(|item| first.push(item).unwrap());
    (3..5).for_each(|item| middle.push(item).unwrap());
    let threads = [
        thread::spawn(move || {
            let mut out = Out::default();
            out.0.extend(S::pop(&mut middle));
            out.steal::<S>(&from_first, &mut middle);
            out.drain::<S>(&mut middle);
            out
        }),
        thread::spawn(move || {
            let (mut own, _) = ring_from(2, FIRST);
            let mut out = Out::default();
            out.steal::<S>(&from_middle, &mut own);
            out.drain::<S>(&mut own);
            out
        }),
        thread::spawn(move || Out(std::iter::from_fn(|| S::pop(&mut first)).collect())),
    ];
    joined(threads).is_complete(5);
}

/// The owner's ring overflows while a thief steals.
fn overflow_and_thief<S: Steps>() {
    let (mut owner, stealer) = ring_from(2, FIRST);
    (0..2).for_each(|item| owner.push(item).unwrap());
    let threads = [
        thread::spawn(move || {
            let mut out = Out::default();
            let mut pending = Some(2);
            while let Some(item) = pending {
                pending = S::push(&mut owner, item).err();
                if pending.is_some() {
                    let half = S::take_half(&mut owner);
                    // A thief is active, or took an item first: the pending item goes elsewhere.
                    if half.is_empty() {
                        out.0.extend(pending.take());
                    }
                    out.0.extend(half);
                }
            }
            out.drain::<S>(&mut owner);
            out
        }),
        thread::spawn(move || {
            let (mut own, _) = ring_from(2, FIRST);
            let mut out = Out::default();
            out.steal::<S>(&stealer, &mut own);
            out.drain::<S>(&mut own);
            out
        }),
    ];
    joined(threads).is_complete(3);
}

/// Another thread reads the length while the owner pushes and pops.
fn lengths<S: Steps>() {
    let (mut owner, stealer) = ring_from(2, FIRST);
    let watched = stealer.clone();
    let threads = [
        thread::spawn(move || {
            (0..3).for_each(|item| {
                let _ = S::push(&mut owner, item);
                let _ = S::pop(&mut owner);
            });
            Out::default()
        }),
        thread::spawn(move || {
            let (heads, tail) = watched.shared.load();
            assert!(tail.wrapping_sub(heads.real) <= 4, "TAIL-NOT-OLDER: {} behind {}", tail, heads.real);
            assert!(watched.len() <= 2);
            Out::default()
        }),
    ];
    joined(threads).is_complete(0);
    drop(stealer);
}

#[test]
fn an_item_goes_to_the_owner_or_to_the_thief() {
    holds(None, || owner_and_thief::<AsBuilt>(4, 4, 2));
}

#[test]
fn a_ring_that_wraps_around_under_a_thief_loses_nothing() {
    holds(None, || owner_and_thief::<AsBuilt>(2, 4, 2));
}

#[test]
fn two_thieves_and_the_owner_share_without_loss() {
    holds(None, owner_and_two_thieves::<AsBuilt>);
}

#[test]
fn a_thief_that_is_stolen_from_loses_nothing() {
    holds(None, chain_of_thieves::<AsBuilt>);
}

#[test]
fn an_overflow_beside_a_thief_loses_nothing() {
    holds(None, overflow_and_thief::<AsBuilt>);
}

#[test]
fn a_length_is_never_negative() {
    holds(None, lengths::<AsBuilt>);
}

/// A copy of [`Stealer::steal_into`], three steps of which can be replaced: `room` (counts the room
/// in the thief's own ring), `claim` and `release`.
fn steal_by(
    from: &Stealer<u32>,
    into: &mut Producer<u32>,
    room: impl FnOnce(&Producer<u32>) -> usize,
    claim: impl FnOnce(&Shared<u32>, Heads, Heads) -> bool,
    release: impl FnOnce(&Shared<u32>, Heads),
) -> Steal<u32> {
    let (heads, tail) = from.shared.load();
    let available = tail.wrapping_sub(heads.real);
    if available == 0 {
        return Steal::Empty;
    }
    if heads.has_thief() {
        return Steal::Lost;
    }
    let count = (available - available / 2).min(room(into) as u32 + 1);
    let claimed = Heads { steal: heads.steal, real: heads.real.wrapping_add(count) };
    if !claim(&from.shared, heads, claimed) {
        return Steal::Lost;
    }
    // SAFETY: none; the model checks that the slot is CLAIMED and FILLED.
    let next = unsafe { from.shared.read(heads.real) };
    for offset in 1..count {
        // SAFETY: none, as above.
        let item = unsafe { from.shared.read(heads.real.wrapping_add(offset)) };
        // SAFETY: none; the model checks that there is ROOM.
        unsafe { into.shared.write(into.tail.wrapping_add(offset - 1), item) };
    }
    release(&from.shared, claimed);
    if count > 1 {
        into.publish_tail(into.tail.wrapping_add(count - 1));
    }
    Steal::Taken { next, count: count as usize }
}

fn swap(shared: &Shared<u32>, from: Heads, to: Heads, success: Ordering) -> bool {
    shared.heads.compare_exchange(from.pack(), to.pack(), success, Ordering::Relaxed).is_ok()
}

fn claim(shared: &Shared<u32>, from: Heads, to: Heads) -> bool {
    swap(shared, from, to, Ordering::Release)
}

/// The replaceable steal with no step replaced. It is equivalent to the ring's own.
struct Copied;

impl Steps for Copied {
    fn steal(from: &Stealer<u32>, into: &mut Producer<u32>) -> Steal<u32> {
        steal_by(from, into, Producer::free, claim, |shared, _| shared.release())
    }
}

#[test]
fn the_steal_that_the_faults_are_put_into_is_sound() {
    holds(None, || owner_and_thief::<Copied>(2, 4, 2));
    holds(Some(2), owner_and_two_thieves::<Copied>);
    holds(Some(2), chain_of_thieves::<Copied>);
}

/// Reads the slots before it claims them.
struct ReadsBeforeClaim;

impl Steps for ReadsBeforeClaim {
    fn steal(from: &Stealer<u32>, into: &mut Producer<u32>) -> Steal<u32> {
        let early = |shared: &Shared<u32>, heads: Heads, claimed: Heads| {
            // SAFETY: none: the slot is not claimed yet, which is the fault.
            let _ = unsafe { shared.read(heads.real) };
            claim(shared, heads, claimed)
        };
        steal_by(from, into, Producer::free, early, |shared, _| shared.release())
    }
}

#[test]
fn reading_before_the_claim_is_found() {
    breaks("Causality violation", None, || owner_and_thief::<ReadsBeforeClaim>(2, 4, 2));
}

/// Claims by moving both heads: the owner treats the slots as free while the thief reads them.
struct ClaimsBothHeads;

impl Steps for ClaimsBothHeads {
    fn steal(from: &Stealer<u32>, into: &mut Producer<u32>) -> Steal<u32> {
        let both = |shared: &Shared<u32>, heads: Heads, claimed: Heads| {
            claim(shared, heads, Heads { steal: claimed.real, real: claimed.real })
        };
        steal_by(from, into, Producer::free, both, |_, _| {})
    }
}

#[test]
fn claiming_with_both_heads_is_found() {
    breaks("Causality violation", None, || owner_and_thief::<ClaimsBothHeads>(2, 4, 2));
}

/// Claims with a store instead of a compare-and-swap.
struct ClaimsByStore;

impl Steps for ClaimsByStore {
    fn steal(from: &Stealer<u32>, into: &mut Producer<u32>) -> Steal<u32> {
        let store = |shared: &Shared<u32>, _: Heads, claimed: Heads| {
            shared.heads.store(claimed.pack(), Ordering::Release);
            true
        };
        steal_by(from, into, Producer::free, store, |shared, _| shared.release())
    }
}

#[test]
fn claiming_by_a_store_is_found() {
    breaks("a steal ended twice", None, || owner_and_thief::<ClaimsByStore>(4, 4, 2));
}

/// Releases with a store of the heads that it claimed, not with a loop: items that the owner popped
/// in the meantime reappear.
struct ReleasesByStore;

impl Steps for ReleasesByStore {
    fn steal(from: &Stealer<u32>, into: &mut Producer<u32>) -> Steal<u32> {
        let store = |shared: &Shared<u32>, claimed: Heads| {
            let released = Heads { steal: claimed.real, real: claimed.real };
            shared.heads.store(released.pack(), Ordering::Release);
        };
        steal_by(from, into, Producer::free, claim, store)
    }
}

#[test]
fn releasing_by_a_store_is_found() {
    breaks("lost or came out twice", Some(2), owner_and_two_thieves::<ReleasesByStore>);
}

/// Releases with a Relaxed swap: the owner overwrites slots although the thief's reads need not
/// have happened before.
struct ReleasesRelaxed;

impl Steps for ReleasesRelaxed {
    fn steal(from: &Stealer<u32>, into: &mut Producer<u32>) -> Steal<u32> {
        let relaxed = |shared: &Shared<u32>, _: Heads| {
            let mut heads = Heads::unpack(shared.heads.load(Ordering::Relaxed));
            while !swap(shared, heads, Heads { steal: heads.real, real: heads.real }, Ordering::Relaxed) {
                heads = Heads::unpack(shared.heads.load(Ordering::Relaxed));
            }
        };
        steal_by(from, into, Producer::free, claim, relaxed)
    }
}

#[test]
fn a_relaxed_release_is_found() {
    breaks("Causality violation", None, || owner_and_thief::<ReleasesRelaxed>(2, 4, 2));
}

/// Indices of two bits, twice the capacity: a suspended thief takes heads that have wrapped around
/// for unchanged ones.
struct TwoBitIndices;

impl Steps for TwoBitIndices {
    fn steal(from: &Stealer<u32>, into: &mut Producer<u32>) -> Steal<u32> {
        let low_bits = |shared: &Shared<u32>, heads: Heads, claimed: Heads| {
            let now = Heads::unpack(shared.heads.load(Ordering::Relaxed));
            let is_same = |one: u32, other: u32| one & 3 == other & 3;
            let moved = claimed.real.wrapping_sub(heads.real);
            is_same(now.steal, heads.steal)
                && is_same(now.real, heads.real)
                && claim(shared, now, Heads { steal: now.steal, real: now.real.wrapping_add(moved) })
        };
        steal_by(from, into, Producer::free, low_bits, |shared, _| shared.release())
    }
}

#[test]
fn too_small_an_index_space_is_found() {
    breaks("Causality violation", Some(1), once_round::<TwoBitIndices>);
}

#[test]
fn wrapping_equally_often_with_full_indices_is_sound() {
    holds(None, once_round::<AsBuilt>);
}

/// The thief counts the room in its own ring from `real`, although another thief still reads there.
struct ThiefsRoomFromReal;

impl Steps for ThiefsRoomFromReal {
    fn steal(from: &Stealer<u32>, into: &mut Producer<u32>) -> Steal<u32> {
        let room = |own: &Producer<u32>| own.shared.slots.len() - own.len();
        steal_by(from, into, room, claim, |shared, _| shared.release())
    }
}

#[test]
fn a_thief_that_counts_its_own_room_from_the_real_head_is_found() {
    breaks("Causality violation", Some(2), chain_of_thieves::<ThiefsRoomFromReal>);
}

/// Push counts the room from `real`.
struct RoomFromReal;

impl Steps for RoomFromReal {
    fn push(producer: &mut Producer<u32>, item: u32) -> Result<(), u32> {
        let (heads, _) = producer.shared.load();
        if producer.tail.wrapping_sub(heads.real) == producer.shared.capacity() {
            return Err(item);
        }
        // SAFETY: none: there is no ROOM, which is the fault.
        unsafe { producer.shared.write(producer.tail, item) };
        producer.publish_tail(producer.tail.wrapping_add(1));
        Ok(())
    }
}

#[test]
fn room_counted_from_the_real_head_is_found() {
    breaks("Causality violation", None, || owner_and_thief::<RoomFromReal>(2, 4, 2));
}

/// Push publishes the tail with a Relaxed store: the thief reads a slot without synchronizing with
/// the write.
struct TailRelaxed;

impl Steps for TailRelaxed {
    fn push(producer: &mut Producer<u32>, item: u32) -> Result<(), u32> {
        if producer.free() == 0 {
            return Err(item);
        }
        // SAFETY: ROOM, from `free`; SOLE-PRODUCER.
        unsafe { producer.shared.write(producer.tail, item) };
        producer.tail = producer.tail.wrapping_add(1);
        producer.shared.tail.store(producer.tail, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn a_tail_published_relaxed_is_found() {
    breaks("Causality violation", None, || owner_and_thief::<TailRelaxed>(4, 4, 2));
}

/// Pop claims with a store.
struct PopsByStore;

impl Steps for PopsByStore {
    fn pop(producer: &mut Producer<u32>) -> Option<u32> {
        let heads = Heads::unpack(producer.shared.heads.load(Ordering::Acquire));
        if heads.real == producer.tail {
            return None;
        }
        producer.shared.heads.store(heads.advanced(1).pack(), Ordering::Release);
        // SAFETY: none: the slot is not CLAIMED, which is the fault.
        Some(unsafe { producer.shared.read(heads.real) })
    }
}

#[test]
fn popping_by_a_store_is_found() {
    breaks("lost or came out twice", None, || owner_and_thief::<PopsByStore>(4, 4, 2));
}

/// Pop moves `steal`, too, although a thief is active.
struct PopsBothHeads;

impl Steps for PopsBothHeads {
    fn pop(producer: &mut Producer<u32>) -> Option<u32> {
        let heads = Heads::unpack(producer.shared.heads.load(Ordering::Acquire));
        if heads.real == producer.tail {
            return None;
        }
        let real = heads.real.wrapping_add(1);
        if !claim(&producer.shared, heads, Heads { steal: real, real }) {
            return Self::pop(producer);
        }
        // SAFETY: CLAIMED and FILLED; the fault is the moved `steal`.
        Some(unsafe { producer.shared.read(heads.real) })
    }
}

#[test]
fn a_pop_that_ends_the_thiefs_steal_is_found() {
    breaks("a steal ended twice", None, || owner_and_thief::<PopsBothHeads>(2, 4, 2));
}

/// Pop claims with a Relaxed swap: another thread sees the new head and an old tail.
struct PopsRelaxed;

impl Steps for PopsRelaxed {
    fn pop(producer: &mut Producer<u32>) -> Option<u32> {
        let heads = Heads::unpack(producer.shared.heads.load(Ordering::Relaxed));
        if heads.real == producer.tail {
            return None;
        }
        if !swap(&producer.shared, heads, heads.advanced(1), Ordering::Relaxed) {
            return Self::pop(producer);
        }
        // SAFETY: CLAIMED and FILLED; the fault is in what other threads see.
        Some(unsafe { producer.shared.read(heads.real) })
    }
}

#[test]
fn a_pop_that_publishes_no_tail_is_found() {
    breaks("TAIL-NOT-OLDER", None, lengths::<PopsRelaxed>);
}

/// The overflow claims although a thief is active.
struct OverflowIgnoresThief;

impl Steps for OverflowIgnoresThief {
    fn take_half(producer: &mut Producer<u32>) -> Vec<u32> {
        let heads = Heads::unpack(producer.shared.heads.load(Ordering::Acquire));
        let count = producer.tail.wrapping_sub(heads.real).min(producer.shared.capacity() / 2);
        let real = heads.real.wrapping_add(count);
        if count == 0 || !claim(&producer.shared, heads, Heads { steal: real, real }) {
            return Vec::new();
        }
        // SAFETY: CLAIMED and FILLED; the fault is the moved `steal`.
        (0..count).map(|offset| unsafe { producer.shared.read(heads.real.wrapping_add(offset)) }).collect()
    }
}

#[test]
fn an_overflow_that_ends_the_thiefs_steal_is_found() {
    breaks("Causality violation", None, overflow_and_thief::<OverflowIgnoresThief>);
}

/// The overflow claims with a store.
struct OverflowByStore;

impl Steps for OverflowByStore {
    fn take_half(producer: &mut Producer<u32>) -> Vec<u32> {
        let heads = Heads::unpack(producer.shared.heads.load(Ordering::Acquire));
        let count = producer.tail.wrapping_sub(heads.real).min(producer.shared.capacity() / 2);
        if count == 0 || heads.has_thief() {
            return Vec::new();
        }
        producer.shared.heads.store(heads.advanced(count).pack(), Ordering::Release);
        // SAFETY: none: the slots are not CLAIMED, which is the fault.
        (0..count).map(|offset| unsafe { producer.shared.read(heads.real.wrapping_add(offset)) }).collect()
    }
}

#[test]
fn an_overflow_by_a_store_is_found() {
    breaks("lost or came out twice", None, overflow_and_thief::<OverflowByStore>);
}
