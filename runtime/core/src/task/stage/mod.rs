//! What the cell of a task contains, in one word: the future, its output, or the reason why there
//! is no output.
//!
//! A task's cell has room for the future or its output, and nothing in that room shows which one it
//! is. This word does. While the task has its future, the word is also of use to observers: it
//! points to the code location where the task was spawned that woke this one.
//!
//! Terms. The *content* is what the cell contains. An *observer* is a thread that lists tasks, for
//! example for a console. The *runner* polls the future, and the *owner of the output* is the
//! thread that takes or drops the output, usually that of the joiner (`state`).
//!
//! One ordinary case. The word of a new task is the spawn location of the task that created it.
//! Each wake-up that submits the task stores another location. At the end of the last poll the
//! runner moves the output into the cell and stores OUTPUT; the owner of the output takes it and
//! stores NOTHING.
//!
//! The race. An observer may read the word at any moment, for example while the last poll panics.
//! The runner then replaces the location by a pointer to the payload of the panic, and the joiner,
//! on a third thread, frees the payload. The observer must never follow that pointer. So the bit
//! that distinguishes the two is in the same word, and the observer loads the word only once. The
//! joiner, in turn, looks for the content as soon as the task is complete. So the runner stores the
//! word before it completes the task.
//!
//! Shape: the lowest bit is clear while the cell contains the future. The word then is a pointer to
//! a `Location`, or null if no task woke this one. If the bit is set, the word is one of the
//! numbers below, or, if the task panicked, a pointer to the payload with that bit set.
//!
//! Protocol. Submit, by the thread that made the task SCHEDULED: store the location, or null, and
//! then enqueue the task. Observe: load the word once; if its lowest bit is clear and it is not
//! null, follow the pointer. End, by the runner after the last poll:
//! 1. drop the future, and put the output, if there is one, in its place. While a destructor of the
//!    future runs, the word is NOTHING;
//! 2. store OUTPUT, CANCELLED or the payload;
//! 3. complete the task, which publishes (1) and (2).
//!
//! Take, by the owner of the output: load the word, store NOTHING, and only then move or drop the
//! output. So a destructor that panics is not called again.
//!
//! Writers: the thread that submits the task, before it is enqueued (*One Notified* of `state`);
//! then the runner (*One runner*); after that the owner of the output (*Join hand-over*). The queue
//! and the task word order them, so Relaxed is enough here. Readers: the writers, and threads that
//! list tasks, at any time.
//!
//! Invariants:
//! * *Future while submitted*: a location is only stored while the cell contains the future. A
//!   thread that submits a task has made it SCHEDULED, and a task with another content is COMPLETE
//!   or in the hands of its last runner.
//! * *One load*: an observer loads the word once. It follows the pointer only if that same value
//!   has a clear bit, and then it is a location, which lives as long as the program.
//!
//! Rejected: a tag beside the future, which takes 8 bytes of nearly every task, and two bits of the
//! task word, which leave no room for the payload and need a read-modify-write when the output is
//! taken.

use std::panic::Location;
use std::ptr::{self, NonNull};

use volt_shim::{AtomicPtr, Ordering};

/// Set if the cell does not contain the future.
const IS_OVER: usize = 1;
const OUTPUT: usize = 1;
const CANCELLED: usize = 3;
const NOTHING: usize = 5;
const _: () = assert!(align_of::<Location<'static>>() > IS_OVER, "the lowest bit of a location is free");

/// The word. See the module documentation.
#[derive(Debug)]
pub(crate) struct Stage(AtomicPtr<()>);

/// The content of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Future,
    Output,
    /// No output: the task was cancelled.
    Cancelled,
    /// No output: the task panicked, with the payload behind this pointer, or was refused. The
    /// owner of the output owns the payload.
    Panicked(NonNull<()>),
    /// The output, or the reason why there was none, was taken or dropped.
    Nothing,
}

impl Stage {
    /// Returns the word of a new task, whose cell contains the future.
    pub(crate) fn new(woken_from: Option<&'static Location<'static>>) -> Self {
        Self(AtomicPtr::new(word_of(woken_from)))
    }

    /// Records where the task was spawned that woke this one. Called by the thread that submits it.
    #[inline]
    pub(crate) fn set_woken_from(&self, location: Option<&'static Location<'static>>) {
        // ORDERING: Relaxed: the queue passes the task on; observers read a location that is
        // immutable.
        self.0.store(word_of(location), Ordering::Relaxed);
    }

    /// Returns where the task was spawned that last woke this one, if a task did and this one still
    /// has its future.
    pub(crate) fn woken_from(&self) -> Option<&'static Location<'static>> {
        // ORDERING: Relaxed: as in `set_woken_from`.
        let word = self.0.load(Ordering::Relaxed);
        if word.addr() & IS_OVER != 0 {
            return None;
        }
        // SAFETY: One load: the bit is clear, so `word_of` made it from a `&'static Location`, or
        // it is null.
        unsafe { word.cast::<Location<'static>>().as_ref() }
    }

    /// Returns what the cell contains. Called by the owner of the content.
    #[inline]
    pub(crate) fn content(&self) -> Content {
        // ORDERING: Relaxed: only owners of the content change its kind, and the queue or the task
        // word orders them.
        let word = self.0.load(Ordering::Relaxed);
        match word.addr() {
            OUTPUT => Content::Output,
            addr if addr & IS_OVER == 0 => Content::Future,
            CANCELLED => Content::Cancelled,
            NOTHING => Content::Nothing,
            _ => NonNull::new(word.map_addr(|addr| addr & !IS_OVER)).map_or(Content::Nothing, Content::Panicked),
        }
    }

    /// Records what the cell contains from now on, in place of the future or after it. Called by
    /// the owner of the content.
    ///
    /// # Panics
    /// Panics if it is the future, which never comes back.
    #[inline]
    pub(crate) fn set(&self, content: Content) {
        let word = match content {
            Content::Future => unreachable!("a cell has one future"),
            Content::Output => ptr::without_provenance_mut(OUTPUT),
            Content::Cancelled => ptr::without_provenance_mut(CANCELLED),
            Content::Nothing => ptr::without_provenance_mut(NOTHING),
            Content::Panicked(payload) => {
                debug_assert!(payload.addr().get() & IS_OVER == 0 && payload.addr().get() > NOTHING);
                payload.as_ptr().map_addr(|addr| addr | IS_OVER)
            }
        };
        // ORDERING: Relaxed: as in `content`.
        self.0.store(word, Ordering::Relaxed);
    }
}

#[inline]
fn word_of(location: Option<&'static Location<'static>>) -> *mut () {
    location.map_or(ptr::null_mut(), |location| ptr::from_ref(location).cast_mut().cast())
}

#[cfg(all(test, loom))]
mod loom_models;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_word_returns_what_was_stored_in_it() {
        let stage = Stage::new(None);
        assert_eq!((stage.content(), stage.woken_from()), (Content::Future, None));
        let here = Location::caller();
        stage.set_woken_from(Some(here));
        assert_eq!((stage.content(), stage.woken_from()), (Content::Future, Some(here)));
        let mut payload = Box::new(0_u64);
        let panicked = Content::Panicked(NonNull::from(payload.as_mut()).cast());
        for content in [Content::Output, Content::Cancelled, panicked, Content::Nothing] {
            stage.set(content);
            assert_eq!((stage.content(), stage.woken_from()), (content, None));
        }
        assert_eq!(size_of::<Stage>(), size_of::<usize>());
    }
}
