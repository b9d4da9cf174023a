//! loom models of the LIFO slot, and of the slot with one incorrect step. They are built like those
//! of the ring.

use loom::thread;
use volt_explore::{breaks, holds};
use volt_shim::UnsafeCell;

use super::*;

/// A number whose accesses loom checks: reading one that was not published fails the model. Items
/// are never freed, so a fault has no other effect.
struct Item(&'static UnsafeCell<u32>);

// SAFETY: an item stands for an owning pointer; loom checks each access.
unsafe impl Send for Item {}

impl Item {
    fn new(number: u32) -> Self {
        let item = Self(Box::leak(Box::new(UnsafeCell::new(0))));
        // SAFETY: the first access; no other thread has the item yet.
        item.0.with_mut(|cell| unsafe { cell.write(number) });
        item
    }

    fn number(self) -> u32 {
        // SAFETY: ONE-OWNER; loom checks it.
        self.0.with(|cell| unsafe { cell.read() })
    }
}

impl RawPointer for Item {
    fn into_raw(self) -> NonNull<()> {
        NonNull::from(self.0).cast()
    }

    unsafe fn from_raw(raw: NonNull<()>) -> Self {
        // SAFETY: by this function's contract the pointer came from `into_raw`, which made it from
        // a `&'static`.
        Self(unsafe { raw.cast().as_ref() })
    }
}

type Slot = LifoSlot<Item>;

/// The steps that a fault can replace.
trait Steps: 'static {
    fn put(slot: &Slot, item: Item) -> Option<Item> {
        slot.put(item)
    }

    fn take(slot: &Slot) -> Option<Item> {
        slot.take()
    }
}

struct AsBuilt;

impl Steps for AsBuilt {}

/// The owner puts three items and takes once; two thieves take.
fn owner_and_two_thieves<S: Steps>() {
    let slot = volt_shim::Arc::new(Slot::new());
    let threads = [0, 1, 2].map(|actor| {
        let slot = slot.clone();
        thread::spawn(move || {
            let mut out = Vec::new();
            if actor == 0 {
                out.extend((0..3).filter_map(|number| S::put(&slot, Item::new(number))).map(Item::number));
            }
            out.extend(S::take(&slot).map(Item::number));
            out
        })
    });
    let mut out: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    out.extend(S::take(&slot).map(Item::number));
    out.sort_unstable();
    assert_eq!(out, [0, 1, 2], "an item was lost or came out twice");
}

#[test]
fn every_item_comes_out_once() {
    holds(None, owner_and_two_thieves::<AsBuilt>);
}

/// Puts with a load and a store: a take between the two is undone.
struct PutsByStore;

impl Steps for PutsByStore {
    fn put(slot: &Slot, item: Item) -> Option<Item> {
        let former = slot.pointer.load(Ordering::Acquire);
        slot.pointer.store(item.into_raw().as_ptr(), Ordering::Release);
        Slot::owned(former)
    }
}

#[test]
fn putting_by_a_store_is_found() {
    breaks("lost or came out twice", None, owner_and_two_thieves::<PutsByStore>);
}

/// Takes with a load and a store: two threads take the same item.
struct TakesByStore;

impl Steps for TakesByStore {
    fn take(slot: &Slot) -> Option<Item> {
        let pointer = slot.pointer.load(Ordering::Acquire);
        slot.pointer.store(ptr::null_mut(), Ordering::Release);
        Slot::owned(pointer)
    }
}

#[test]
fn taking_by_a_store_is_found() {
    breaks("lost or came out twice", None, owner_and_two_thieves::<TakesByStore>);
}

/// Puts without publishing the data behind the pointer.
struct PutsRelaxed;

impl Steps for PutsRelaxed {
    fn put(slot: &Slot, item: Item) -> Option<Item> {
        Slot::owned(slot.pointer.swap(item.into_raw().as_ptr(), Ordering::Acquire))
    }
}

#[test]
fn putting_relaxed_is_found() {
    breaks("Causality violation", None, owner_and_two_thieves::<PutsRelaxed>);
}

/// Takes without acquiring that data.
struct TakesRelaxed;

impl Steps for TakesRelaxed {
    fn take(slot: &Slot) -> Option<Item> {
        Slot::owned(slot.pointer.swap(ptr::null_mut(), Ordering::Relaxed))
    }
}

#[test]
fn taking_relaxed_is_found() {
    breaks("Causality violation", None, owner_and_two_thieves::<TakesRelaxed>);
}
