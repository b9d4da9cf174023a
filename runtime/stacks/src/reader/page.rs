//! What a thread writes down of itself in its signal handler: registers, and its stack from the
//! stack pointer on.
//!
//! Shape: one piece of memory, made beforehand, for two parts: the stack that the thread runs on;
//! and, if that is its alternate one, the top of its own as well, since what the handler there
//! interrupted is on that.
//!
//! Who writes: `own`, the requester, before it asks; everything else, the thread that is asked. Who
//! reads: the requester, when it is answered.
//!
//! Invariant IN-BOUNDS: memory is read from the stack pointer up to the end of the stack that it
//! lies in: the thread's own, as the thread said when it registered, or its alternate one, as the
//! kernel says. In neither (a coroutine's), nothing is read but registers.
//!
//! Rejected: a copy by `memcpy`, which is a data race as soon as another thread writes to this
//! stack through a reference: the copy is made by instructions that the language does not see, and
//! what they bring is what the machine had there. `process_vm_readv`, which cannot fault, but costs
//! a walk through page tables, and is forbidden in some containers.

use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;

use super::raw::{Part, RawStack, Registers};

/// Words of stack that are copied: 64 KiB. A poll that sleeps or computes is seldom deeper than 10
/// KiB.
const WORDS_MAX: usize = 8192;
/// Of these, at most so many of an alternate stack, so that the thread's own has room too.
const ALTERNATE_WORDS_MAX: usize = WORDS_MAX / 2;

/// What the handler writes.
pub(super) struct Page {
    /// The thread's own stack; set by the requester.
    pub(super) own: Range<usize>,
    registers: Registers,
    /// How many words were copied from where, one part behind the other in `words`.
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

    /// Written by the handler: everything but `own`.
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
            // Where on its own stack it was interrupted, only unwinding can tell; somewhere at the
            // top, as a rule.
            let from = self.own.end.saturating_sub((WORDS_MAX - ALTERNATE_WORDS_MAX) * 8).max(self.own.start);
            self.copy(1, self.parts[0].1, from..self.own.end, WORDS_MAX - ALTERNATE_WORDS_MAX);
        } else {
            self.is_foreign = true;
        }
    }

    /// Copies `memory`, or the first `words_max` words of it, as part `part`, to where `at` words
    /// are already.
    fn copy(&mut self, part: usize, at: usize, memory: Range<usize>, words_max: usize) {
        let base = memory.start.next_multiple_of(8);
        let whole = memory.end.saturating_sub(base) / 8;
        let count = whole.min(words_max).min(self.words.len().saturating_sub(at));
        if let Some(to) = self.words.get_mut(at..at + count) {
            // SAFETY: IN-BOUNDS: these are words of a stack that this very thread runs on, or has
            // under it; `to` has room for them.
            unsafe { copy_words(ptr::with_exposed_provenance(base), to.as_mut_ptr(), count) };
            self.parts[part] = (base, count);
            self.is_cut |= count < whole;
        }
    }

    /// Read by the requester.
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

/// Copies `count` words, by instructions that the language does not see: other threads may write to
/// what is read.
///
/// # Safety
/// `from` can be read and `to` be written for so many words, and they do not overlap.
unsafe fn copy_words(from: *const u64, to: *mut u64, count: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: by this function's contract; the direction flag is clear, as at every function's
    // start.
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

/// Where this thread's stack is.
///
/// # Errors
/// The C library does not say.
pub(super) fn own_stack() -> io::Result<Range<usize>> {
    let mut attributes = MaybeUninit::uninit();
    // SAFETY: this very thread.
    let this = unsafe { libc::pthread_self() };
    // SAFETY: of a thread that runs; written to memory of its type.
    let failed = unsafe { libc::pthread_getattr_np(this, attributes.as_mut_ptr()) };
    if failed != 0 {
        return Err(io::Error::from_raw_os_error(failed));
    }
    let (mut start, mut len, mut guard_len) = (ptr::null_mut(), 0, 0);
    // SAFETY: the attributes were written.
    let failed = unsafe { libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut start, &raw mut len) };
    // SAFETY: likewise.
    let guard_failed = unsafe { libc::pthread_attr_getguardsize(attributes.as_ptr(), &raw mut guard_len) };
    // SAFETY: they were, and are not used any more.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    if failed != 0 || guard_failed != 0 {
        return Err(io::Error::from_raw_os_error(failed.max(guard_failed)));
    }
    let start = start.expose_provenance();
    // Some C libraries count the guard pages as part of the stack.
    Ok(start.saturating_add(guard_len).min(start + len)..start + len)
}
