//! A stack as it was copied: registers, and the memory from the stack pointer on. What
//! [`capture`](super::capture) takes and [`unwind`](super::unwind) reads.

/// What unwinding starts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Registers {
    /// The next instruction.
    pub(super) ip: u64,
    pub(super) sp: u64,
    /// The frame pointer, or whatever the register for it is used for.
    pub(super) fp: u64,
    /// The link register, where there is one.
    pub(super) lr: u64,
}

/// Consecutive words of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    /// Where the first word was; a multiple of 8.
    pub(super) base: u64,
    pub(super) words: Box<[u64]>,
}

/// The stack of a thread at one moment.
#[derive(Clone, Debug)]
pub struct RawStack {
    pub(super) registers: Registers,
    /// The stack that the thread ran on; and the top of its own, if that is another.
    pub(super) parts: Vec<Part>,
    /// Whether there was more of it than is copied.
    pub(super) is_cut: bool,
    /// Whether it ran on a stack whose bounds nobody knows, so that nothing of it is copied.
    pub(super) is_foreign: bool,
}

impl RawStack {
    /// The word at `address`, if it was copied.
    pub(super) fn read(&self, address: u64) -> Option<u64> {
        self.parts.iter().find_map(|part| {
            let offset = address.checked_sub(part.base).filter(|offset| offset % 8 == 0)?;
            part.words.get(usize::try_from(offset / 8).ok()?).copied()
        })
    }
}
