//! Captures stacks of the calling thread, at chosen moments of one call.
//!
//! The task dump polls a waiting task, and needs the location in the code where it suspends. A
//! future that suspends clones the waker that it was polled with. So the dump passes a waker whose
//! `clone` calls [`Tape::note`], and polls inside [`Tape::record`]. The stack from `record` to
//! `note` contains the chain of futures down to the one that waits.
//!
//! # One ordinary case
//!
//! A worker calls `record` with a closure that polls. A mutex deep inside clones the waker: `note`
//! reads the registers and copies the stack, from the stack pointer up to the frame of `record`.
//! When the closure has returned, the worker takes the copies, and another thread unwinds and
//! resolves them.
//!
//! # Shape
//!
//! A tape has a buffer of [`WORDS_MAX`] words, into which the stacks are copied one after the
//! other. A thread-local points to the tape that records on this thread.
//!
//! Writer and reader: the thread that records.
//!
//! # Invariants
//!
//! * *Only while recording*: the thread-local is set only inside `record`, which borrows the tape
//!   exclusively, and is reset when `record` is left.
//! * *No lock, no allocation*: `note` runs inside of `Waker::clone`, which libraries call under
//!   their locks. It only copies into the buffer.
//! * *In bounds*: memory is copied only between the stack pointer and the frame of `record`, if
//!   both are on this thread's own stack. On another stack (a coroutine's), nothing is copied but
//!   the registers.
//!
//! # Rejected alternatives
//!
//! Unwinding in `note`: it takes ten times longer than the copy, in a worker and under the locks of
//! libraries, and needs the loader's lock.

use std::cell::Cell;
use std::hint::black_box;
use std::ops::Range;
use std::ptr;

use super::page::{copy_words, own_stack};
use super::raw::{Part, RawStack, Registers};
use super::unwind::Marker;

/// Number of words of all stacks of one recording: 512 KiB.
const WORDS_MAX: usize = 64 * 1024;
/// Number of words of one stack: 128 KiB. A chain of futures in a build without optimization seldom
/// needs more.
const STACK_WORDS_MAX: usize = 16 * 1024;
/// Number of stacks of one recording. A `join_all` of 30 futures has 30.
const STACKS_MAX: usize = 64;

thread_local! {
    /// The tape that records on this thread, or null.
    static RECORDING: Cell<*mut Tape> = const { Cell::new(ptr::null_mut()) };
}

/// Captures stacks of the calling thread. See the module documentation.
#[derive(Debug)]
pub struct Tape {
    words: Box<[u64]>,
    /// The number of words in use.
    used: usize,
    stacks: Vec<Noted>,
    /// The bounds of this thread's stack, as far as they are known.
    own: Range<usize>,
    /// The end of the frames to copy: an address in the frame of `record`.
    bound: usize,
    left_out: usize,
}

/// A stack in the buffer.
#[derive(Debug)]
struct Noted {
    registers: Registers,
    base: usize,
    words: Range<usize>,
    is_cut: bool,
    is_foreign: bool,
}

/// The stacks of a recording.
#[derive(Debug, Default)]
pub struct Recorded {
    /// The stacks, in the order of the notes.
    pub stacks: Vec<RawStack>,
    /// The number of notes without a stack, because there were too many.
    pub left_out: usize,
}

impl Default for Tape {
    fn default() -> Self {
        Self::new()
    }
}

impl Tape {
    /// Creates a tape. Allocates its buffer.
    pub fn new() -> Self {
        Self {
            words: vec![0; WORDS_MAX].into_boxed_slice(),
            used: 0,
            stacks: Vec::with_capacity(STACKS_MAX),
            own: 0..0,
            bound: 0,
            left_out: 0,
        }
    }

    /// Returns the marker of [`record`](Self::record), at which the recorded stacks end.
    pub fn marker() -> Marker {
        Marker::function(Self::record as *const ())
    }

    /// Calls `f`. Each [`note`](Self::note) on this thread meanwhile records the stack, unless it
    /// is inside of another tape's recording.
    ///
    /// Not inlined, so that stacks can be cut off here.
    #[inline(never)]
    pub fn record(&mut self, f: &mut dyn FnMut()) {
        struct Reset(*mut Tape);
        impl Drop for Reset {
            fn drop(&mut self) {
                RECORDING.set(self.0);
            }
        }
        let frame = 0_usize;
        self.bound = black_box(&raw const frame).addr();
        self.own = own_stack().unwrap_or_default();
        let _reset = Reset(RECORDING.replace(self));
        f();
        black_box(&frame);
    }

    /// Records the stack of the calling thread, if a tape records on it.
    #[inline(never)]
    pub fn note() {
        let Ok(tape) = RECORDING.try_with(Cell::get) else { return };
        // SAFETY: *Only while recording*: `record`, in an outer frame of this thread, borrows the
        // tape exclusively, and does not use it until `f` has returned. `copy` calls no foreign
        // code, so there is no second reference.
        if let Some(tape) = unsafe { tape.as_mut() } {
            tape.copy(registers_here());
        }
    }

    /// Counts as left out what would have been noted on this thread, if a tape records on it.
    pub fn leave_out() {
        let Ok(tape) = RECORDING.try_with(Cell::get) else { return };
        // SAFETY: *Only while recording*: see `note`.
        if let Some(tape) = unsafe { tape.as_mut() } {
            tape.left_out += 1;
        }
    }

    fn copy(&mut self, registers: Registers) {
        if self.stacks.len() == STACKS_MAX {
            self.left_out += 1;
            return;
        }
        let sp = registers.sp as usize;
        let is_foreign = !self.own.contains(&sp) || !(sp..self.own.end).contains(&self.bound);
        let base = sp.next_multiple_of(8);
        let whole = if is_foreign { 0 } else { self.bound.saturating_sub(base).div_ceil(8) };
        let count = whole.min(STACK_WORDS_MAX).min(self.words.len() - self.used);
        let words = self.used..self.used + count;
        // SAFETY: *In bounds*: these words are in frames of this thread between here and `record`.
        // The buffer has room for them.
        unsafe {
            copy_words(ptr::with_exposed_provenance(base), self.words[words.clone()].as_mut_ptr(), count);
        }
        self.used = words.end;
        self.stacks.push(Noted { registers, base, words, is_cut: count < whole, is_foreign });
    }

    /// Returns the stacks recorded since the last call.
    pub fn take(&mut self) -> Recorded {
        let raw = |noted: &Noted| RawStack {
            registers: noted.registers,
            parts: vec![Part { base: noted.base as u64, words: self.words[noted.words.clone()].into() }],
            is_cut: noted.is_cut,
            is_foreign: noted.is_foreign,
        };
        let recorded = Recorded { stacks: self.stacks.iter().map(raw).collect(), left_out: self.left_out };
        self.stacks.clear();
        (self.used, self.left_out) = (0, 0);
        recorded
    }
}

/// Returns the registers of the function that this is inlined into. Always inlined: its frame must
/// exist while the stack is copied.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn registers_here() -> Registers {
    let (ip, sp, fp): (u64, u64, u64);
    // SAFETY: reads registers only.
    unsafe {
        std::arch::asm!(
            "lea {ip}, [rip]",
            "mov {sp}, rsp",
            "mov {fp}, rbp",
            ip = out(reg) ip,
            sp = out(reg) sp,
            fp = out(reg) fp,
            options(nostack, nomem, preserves_flags),
        );
    }
    Registers { ip, sp, fp, lr: 0 }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn registers_here() -> Registers {
    let (ip, sp, fp, lr): (u64, u64, u64, u64);
    // SAFETY: reads registers only.
    unsafe {
        std::arch::asm!(
            "adr {ip}, .",
            "mov {sp}, sp",
            "mov {fp}, x29",
            "mov {lr}, x30",
            ip = out(reg) ip,
            sp = out(reg) sp,
            fp = out(reg) fp,
            lr = out(reg) lr,
            options(nostack, nomem, preserves_flags),
        );
    }
    Registers { ip, sp, fp, lr }
}
