//! The memory that a signal handler copies its thread's registers and stack into. The copy of the
//! stack starts at the stack pointer.
//!
//! The requester allocates a [`Page`] in advance, because a handler must not allocate. The handler
//! of the requested thread fills it (`Page::take`), and the requester then turns it into a
//! [`RawStack`].
//!
//! # Shape
//!
//! One buffer has room for two parts: the stack that the thread runs on, and the top of the
//! thread's own stack if it runs on its alternate signal stack. The second part is needed because
//! the code that was interrupted by a handler on the alternate stack is on the own stack.
//!
//! Writers: the requester writes `own` before the request; the requested thread writes everything
//! else. Reader: the requester, after the answer.
//!
//! # Invariant
//!
//! IN-BOUNDS: memory is read only from the stack pointer up to the end of the stack that contains
//! it. That is the thread's own stack, whose bounds the thread determined at its registration, or
//! its alternate stack, whose bounds the kernel provides. If the stack pointer is in neither (a
//! coroutine's stack), only registers are copied.
//!
//! # Rejected alternatives
//!
//! * A copy by `memcpy`: it is a data race as soon as another thread writes to this stack through a
//!   reference. Inline assembly copies instead. The compiler does not see these reads, and they
//!   return whatever the machine has there.
//! * `process_vm_readv`: it cannot fault, but costs a walk through page tables, and some containers
//!   forbid it.

use std::cell::OnceCell;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;

use super::raw::{Part, RawStack, Registers};

/// Number of stack words that are copied: 64 KiB. A poll that sleeps or computes is seldom deeper
/// than 10 KiB.
const WORDS_MAX: usize = 8192;
/// Limit for an alternate stack, so that there is room for the thread's own stack too.
const ALTERNATE_WORDS_MAX: usize = WORDS_MAX / 2;

/// The memory that the handler writes.
pub(super) struct Page {
    /// The bounds of the thread's own stack, written by the requester.
    pub(super) own: Range<usize>,
    registers: Registers,
    /// Start address and number of words of each part. The parts follow one another in `words`.
    parts: [(usize, usize); 2],
    is_cut: bool,
    is_foreign: bool,
    words: Box<[u64]>,
}

impl Page {
    pub(super) fn blank() -> Self {
        Self {
            own: 0..0,
            registers: Registers::default(),
            parts: [(0, 0); 2],
            is_cut: false,
            is_foreign: false,
            words: vec![0; WORDS_MAX].into_boxed_slice(),
        }
    }

    /// Fills the page, except for `own`. Called by the handler.
    pub(super) fn take(&mut self, context: &libc::ucontext_t) {
        self.registers = registers(context);
        self.parts = [(0, 0); 2];
        (self.is_cut, self.is_foreign) = (false, false);
        let sp = self.registers.sp as usize;
        let alternate = context.uc_stack.ss_sp as usize;
        let alternate = alternate..alternate.saturating_add(context.uc_stack.ss_size);
        if self.own.contains(&sp) {
            self.copy(0, 0, sp..self.own.end, WORDS_MAX);
        } else if alternate.contains(&sp) {
            self.copy(0, 0, sp..alternate.end, ALTERNATE_WORDS_MAX);
            // Only unwinding can determine where on its own stack the thread was interrupted;
            // usually near the top.
            let from = self.own.end.saturating_sub((WORDS_MAX - ALTERNATE_WORDS_MAX) * 8).max(self.own.start);
            self.copy(1, self.parts[0].1, from..self.own.end, WORDS_MAX - ALTERNATE_WORDS_MAX);
        } else {
            self.is_foreign = true;
        }
    }

    /// Copies `memory`, or its first `words_max` words, as part `part`, behind the `at` words that
    /// are already there.
    fn copy(&mut self, part: usize, at: usize, memory: Range<usize>, words_max: usize) {
        let base = memory.start.next_multiple_of(8);
        let whole = memory.end.saturating_sub(base) / 8;
        let count = whole.min(words_max).min(self.words.len().saturating_sub(at));
        if let Some(to) = self.words.get_mut(at..at + count) {
            // SAFETY: IN-BOUNDS: these are words of a stack that this thread runs on, or of its own
            // stack below a handler; `to` has room for them.
            unsafe { copy_words(ptr::with_exposed_provenance(base), to.as_mut_ptr(), count) };
            self.parts[part] = (base, count);
            self.is_cut |= count < whole;
        }
    }

    /// Converts the page to a raw stack. Called by the requester.
    pub(super) fn raw(&self) -> RawStack {
        let mut at = 0;
        let parts = self.parts.iter().filter(|(_, count)| *count > 0).map(|&(base, count)| {
            at += count;
            Part { base: base as u64, words: self.words[at - count..at].into() }
        });
        let parts = parts.collect();
        RawStack { registers: self.registers, parts, is_cut: self.is_cut, is_foreign: self.is_foreign }
    }
}

#[cfg(target_arch = "x86_64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let register = |index: libc::c_int| context.uc_mcontext.gregs[index as usize] as u64;
    Registers { ip: register(libc::REG_RIP), sp: register(libc::REG_RSP), fp: register(libc::REG_RBP), lr: 0 }
}

#[cfg(target_arch = "aarch64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let machine = &context.uc_mcontext;
    Registers { ip: machine.pc, sp: machine.sp, fp: machine.regs[29], lr: machine.regs[30] }
}

/// Copies `count` words by inline assembly, whose reads the compiler does not see: other threads
/// may write to the source concurrently.
///
/// # Safety
/// `from` must be valid for reads and `to` for writes of `count` words, and they must not overlap.
pub(super) unsafe fn copy_words(from: *const u64, to: *mut u64, count: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: by this function's contract; the direction flag is clear, as at the start of every
    // function.
    unsafe {
        std::arch::asm!(
            "rep movsq",
            inout("rsi") from => _,
            inout("rdi") to => _,
            inout("rcx") count => _,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: by this function's contract.
    unsafe {
        std::arch::asm!(
            "2:",
            "cbz {count}, 3f",
            "ldr {word}, [{from}], #8",
            "str {word}, [{to}], #8",
            "sub {count}, {count}, #1",
            "b 2b",
            "3:",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            count = inout(reg) count => _,
            word = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// Returns the bounds of the calling thread's stack. Each thread keeps them after the first call,
/// since they do not change: for the main thread, the C library reads them from a file of the
/// kernel, which takes longer than the start of a runtime.
///
/// # Errors
/// Returns an error if the C library does not provide them, or if the thread has destroyed its
/// thread-locals.
pub(super) fn own_stack() -> io::Result<Range<usize>> {
    thread_local!(static OWN: OnceCell<Range<usize>> = const { OnceCell::new() });
    let found = OWN.try_with(|own| match own.get() {
        Some(stack) => Ok(stack.clone()),
        None => find_own_stack().inspect(|stack| own.set(stack.clone()).expect("it was not set")),
    });
    found.map_err(io::Error::other)?
}

fn find_own_stack() -> io::Result<Range<usize>> {
    let mut attributes = MaybeUninit::uninit();
    // SAFETY: always sound; returns the calling thread.
    let this = unsafe { libc::pthread_self() };
    // SAFETY: the thread is running, and `attributes` has the right type.
    let failed = unsafe { libc::pthread_getattr_np(this, attributes.as_mut_ptr()) };
    if failed != 0 {
        return Err(io::Error::from_raw_os_error(failed));
    }
    let (mut start, mut len, mut guard_len) = (ptr::null_mut(), 0, 0);
    // SAFETY: the attributes were written.
    let failed = unsafe { libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut start, &raw mut len) };
    // SAFETY: likewise.
    let guard_failed = unsafe { libc::pthread_attr_getguardsize(attributes.as_ptr(), &raw mut guard_len) };
    // SAFETY: they were initialized, and are not used afterwards.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    if failed != 0 || guard_failed != 0 {
        return Err(io::Error::from_raw_os_error(failed.max(guard_failed)));
    }
    let start = start.expose_provenance();
    // Some C libraries include the guard pages in the stack.
    Ok(start.saturating_add(guard_len).min(start + len)..start + len)
}
