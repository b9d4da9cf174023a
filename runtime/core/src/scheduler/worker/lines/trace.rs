//! Counts the cache lines that move between threads in a trace of memory accesses.
//!
//! A line *moves* if a thread uses it that has no valid copy, and another thread has one. That is
//! the case if another thread has written the line since, or if it is written and others have
//! copies. Each move is one transfer between the caches of two processors. A read of a line that no
//! operation has written is not counted, because a thread does that once.
//!
//! The trace is that of valgrind's tool `lackey`: one line of text per instruction and per access.
//! The traced program stores to *marks*, bytes at known addresses, when an operation begins and
//! ends. Everything between two operations is ignored.
//!
//! An ordinary case: worker 0 writes a line in an operation, and worker 1 reads it in another one.
//! The line moves once. Both have copies now. When worker 1 reads it again, it does not move. When
//! worker 0 writes it again, it moves, and the copy of worker 1 is no longer valid.
//!
//! Not counted: the cost of a move, which depends on the machine and on how many threads want the
//! line at that moment; failed compare-and-swaps and waits for locks, because one operation runs at
//! a time.

use std::collections::HashMap;
use std::ops::Range;

/// The length of a cache line, bytes.
pub(super) const LINE: usize = 64;
/// The most threads: one bit each in a line's set of copies.
const THREADS_MAX: usize = u128::BITS as usize;
/// The number of marks.
pub(super) const MARKS: usize = THREADS_MAX + 64;

/// A moment that the traced program announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// A thread begins an operation.
    Begin(usize),
    /// The operation ends.
    End,
    /// The operations that follow are counted for this case, from the next `Count` on.
    Case(usize),
    Count,
}

impl Mark {
    /// Returns the number of the mark.
    pub(super) fn index(self) -> usize {
        match self {
            Self::Begin(thread) => thread,
            Self::End => THREADS_MAX,
            Self::Count => THREADS_MAX + 1,
            Self::Case(case) => THREADS_MAX + 2 + case,
        }
    }

    fn at(index: usize) -> Self {
        const AFTER: usize = THREADS_MAX + 1;
        match index {
            0..THREADS_MAX => Self::Begin(index),
            THREADS_MAX => Self::End,
            AFTER => Self::Count,
            _ => Self::Case(index - AFTER - 1),
        }
    }
}

/// The state of a line.
#[derive(Debug, Default)]
struct Line {
    /// The threads that have valid copies, one bit each.
    copies: u128,
    /// Whether an operation has written it.
    is_written: bool,
}

/// The counts of one case.
#[derive(Debug, Default)]
pub(super) struct Count {
    pub(super) moves: u64,
    pub(super) instructions: u64,
    /// The moves of each line, by its number: its address divided by [`LINE`].
    pub(super) by_line: HashMap<usize, u64>,
}

/// See the header of this file.
pub(super) struct Trace {
    /// The addresses of the marks, each on its own line.
    marks: Range<usize>,
    /// Addresses that belong to the measurement itself.
    ignored: Range<usize>,
    lines: HashMap<usize, Line>,
    thread: Option<usize>,
    case: usize,
    is_counting: bool,
    pub(super) cases: Vec<Count>,
}

impl Trace {
    /// `marks`: the address of the first mark.
    pub(super) fn new(marks: usize, ignored: Range<usize>, cases: usize) -> Self {
        Self {
            marks: marks..marks + MARKS * LINE,
            ignored,
            lines: HashMap::new(),
            thread: None,
            case: 0,
            is_counting: false,
            cases: std::iter::repeat_with(Count::default).take(cases).collect(),
        }
    }

    /// Reads one line of the trace. Valgrind's own messages are not part of it.
    pub(super) fn read(&mut self, text: &[u8]) {
        let is_write = match text {
            [b'I', b' ', ..] => {
                if self.is_counting && self.thread.is_some() {
                    self.cases[self.case].instructions += 1;
                }
                return;
            }
            [b' ', b'L', b' ', ..] => false,
            [b' ', b'S' | b'M', b' ', ..] => true,
            _ => return,
        };
        let Some((address, bytes)) = access_of(&text[3..]) else { return };
        if self.marks.contains(&address) {
            if is_write {
                self.mark(Mark::at((address - self.marks.start) / LINE));
            }
        } else if let Some(thread) = self.thread
            && !self.ignored.contains(&address)
        {
            (address / LINE..=(address + bytes - 1) / LINE).for_each(|line| self.access(thread, line, is_write));
        }
    }

    fn mark(&mut self, mark: Mark) {
        match mark {
            Mark::Begin(thread) => self.thread = Some(thread),
            Mark::End => self.thread = None,
            Mark::Count => self.is_counting = true,
            Mark::Case(case) => (self.case, self.is_counting) = (case, false),
        }
    }

    fn access(&mut self, thread: usize, line: usize, is_write: bool) {
        let mine = 1 << thread;
        let state = self.lines.entry(line).or_default();
        let has_copy = state.copies & mine != 0;
        let have_others = state.copies & !mine != 0;
        let is_moved = have_others && (is_write || (!has_copy && state.is_written));
        state.copies = if is_write { mine } else { state.copies | mine };
        state.is_written |= is_write;
        if is_moved && self.is_counting {
            let count = &mut self.cases[self.case];
            count.moves += 1;
            *count.by_line.entry(line).or_default() += 1;
        }
    }
}

/// Returns the address and the length of an access, from a text such as `04025a10,8`.
fn access_of(text: &[u8]) -> Option<(usize, usize)> {
    let (address, bytes) = str::from_utf8(text).ok()?.trim_end().split_once(',')?;
    Some((usize::from_str_radix(address, 16).ok()?, bytes.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: usize = 0x1000;

    /// Returns the trace of the given operations in one case: the thread, the kind of its access,
    /// and the address.
    fn trace_of(accesses: &[(usize, &str, usize)]) -> Trace {
        let mut trace = Trace::new(BASE, 0x9000..0x9040, 1);
        let mark = |mark: Mark| format!(" S {:08x},1", BASE + mark.index() * LINE);
        [Mark::Case(0), Mark::Count].into_iter().for_each(|announced| trace.read(mark(announced).as_bytes()));
        for (thread, kind, address) in accesses {
            trace.read(mark(Mark::Begin(*thread)).as_bytes());
            trace.read(b"I  00400000,3\n");
            trace.read(format!(" {kind} {address:08x},8\n").as_bytes());
            trace.read(mark(Mark::End).as_bytes());
            trace.read(format!(" M {address:08x},8\n").as_bytes());
        }
        trace
    }

    fn moves(accesses: &[(usize, &str, usize)]) -> u64 {
        trace_of(accesses).cases[0].moves
    }

    #[test]
    fn a_line_moves_to_a_thread_without_a_valid_copy() {
        let line = 0x8000;
        assert_eq!(moves(&[(0, "S", line), (0, "L", line), (0, "M", line)]), 0, "one thread");
        assert_eq!(moves(&[(0, "L", line), (1, "L", line)]), 0, "no thread has written it");
        assert_eq!(moves(&[(0, "L", line), (1, "L", line), (1, "S", line)]), 1);
        assert_eq!(moves(&[(0, "S", line), (1, "L", line), (1, "L", line)]), 1, "it has a copy from then on");
        assert_eq!(moves(&[(0, "S", line), (1, "L", line), (0, "L", line)]), 1, "both have copies");
        assert_eq!(moves(&[(0, "S", line), (1, "L", line), (0, "S", line)]), 2, "the copy must go");
        assert_eq!(moves(&[(0, "S", line), (1, "L", line), (0, "S", line), (1, "L", line)]), 3);
        assert_eq!(moves(&[(0, "M", line), (1, "M", line + 56)]), 1, "false sharing");
        assert_eq!(moves(&[(0, "M", line), (1, "M", line + 64)]), 0, "its own line");
        assert_eq!(moves(&[(0, "M", line), (1, "M", line - 4)]), 1, "an access to two lines");
    }

    #[test]
    fn only_operations_are_counted() {
        let trace = trace_of(&[(0, "S", 0x9008), (1, "S", 0x9008), (0, "S", 0x8000), (1, "S", 0x8000)]);
        assert_eq!((trace.cases[0].moves, trace.cases[0].instructions), (1, 4), "the other line is ignored");
        assert_eq!(trace.cases[0].by_line, HashMap::from([(0x8000 / LINE, 1)]));
    }

    #[test]
    fn each_mark_has_its_own_number() {
        let marks =
            [Mark::Begin(0), Mark::Begin(THREADS_MAX - 1), Mark::End, Mark::Count, Mark::Case(0), Mark::Case(9)];
        marks.into_iter().for_each(|mark| assert_eq!(Mark::at(mark.index()), mark));
    }
}
