//! A copied stack: registers, and the memory from the stack pointer on. [`page`](super::page) and
//! [`tape`](super::tape) create it, and [`unwind`](super::unwind) reads it.

/// The registers that unwinding starts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Registers {
    /// The address of the next instruction.
    pub(super) ip: u64,
    pub(super) sp: u64,
    /// The frame pointer, or another value if the compiler uses its register otherwise.
    pub(super) fp: u64,
    /// The link register, on architectures that have one.
    pub(super) lr: u64,
}

/// Consecutive words of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    /// The address of the first word; a multiple of 8.
    pub(super) base: u64,
    pub(super) words: Box<[u64]>,
}

/// The stack of a thread at one moment.
#[derive(Clone, Debug)]
pub struct RawStack {
    pub(super) registers: Registers,
    /// The stack that the thread ran on, and the top of the thread's own stack if that is a
    /// different one.
    pub(super) parts: Vec<Part>,
    /// Whether the stack is longer than the copy.
    pub(super) is_cut: bool,
    /// Whether the thread ran on a stack whose bounds are not known, so that nothing of it was
    /// copied.
    pub(super) is_foreign: bool,
}

impl RawStack {
    /// Returns the word at `address`, if it was copied.
    pub(super) fn read(&self, address: u64) -> Option<u64> {
        self.parts.iter().find_map(|part| {
            let offset = address.checked_sub(part.base).filter(|offset| offset % 8 == 0)?;
            part.words.get(usize::try_from(offset / 8).ok()?).copied()
        })
    }
}
