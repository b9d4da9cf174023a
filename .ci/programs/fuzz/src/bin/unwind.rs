//! Unwind tables, and copies of stacks: a table may be damaged, and a stack may be captured in any
//! state.
#![no_main]

use fuzz_targets::libraries::caught;
use fuzz_targets::memory::bounded;
use libfuzzer_sys::fuzz_target;

/// The layout of an input: length of the header u16 │ length of the frames u16 │ header │ frames │
/// five numbers u64 │ words of the stack u64. The highest bit of the second byte also marks a stack
/// that was cut.
const HEAD_BYTES: usize = 4;

fuzz_target!(|bytes: &[u8]| {
    let Some((lengths, rest)) = bytes.split_at_checked(HEAD_BYTES) else { return };
    let length = |at: usize| usize::from(u16::from_le_bytes([lengths[at], lengths[at + 1]]));
    let (header, rest) = rest.split_at(length(0).min(rest.len()));
    let (frames, rest) = rest.split_at(length(2).min(rest.len()));
    let words: Vec<u64> = rest.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let Some((numbers, stack)) = words.split_first_chunk::<5>() else { return };
    bounded(64 * bytes.len() + (1 << 20), || {
        caught(|| volt_stacks::fuzzing::unwind(header, frames, *numbers, stack, lengths[1] >= 0x80));
    });
});
