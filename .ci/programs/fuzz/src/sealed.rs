//! Files with numbers and checksums that are right, and contents that are the fuzzer's.
//!
//! A fuzzer cannot find a checksum, nor a byte in the second MiB of a file that is mostly empty. An
//! input of the targets `recording` and `black_box` therefore begins with a byte that selects its
//! form. If that is even, the rest is the file. If it is odd, the rest is a list of parts, and the
//! functions here build the file from it, with the checksums.
//!
//! A part of a recording is a frame: kind u8 │ time u8, since the previous frame │ length u16 │
//! body. A part of a black box is a patch: section u8 │ offset u16 │ length u16 │ bytes, in a file
//! of zeros. Integers are little-endian.

use volt_telemetry::recording::black_box::{
    HEAD_BYTES, IDENTITY_AT, Layout, MAGIC, SAMPLE_BYTES, SAMPLE_HEAD_WORDS, TEXTS_BYTES, VERSION, checksum,
    ring_bytes, word,
};

/// The first bytes of a recording, as in `volt_recording::frame`.
const PREAMBLE: &[u8; 16] = b"volt-rec\x01\0\0\0\0\0\0\0";
/// The header of a frame: length, kind, time in two words, number, checksum.
const HEADER_BYTES: usize = 24;
/// Patches of a black box behind this are left out.
const BLACK_BOX_BYTES_MAX: usize = 4 << 20;
/// The sections of a black box before its rings.
const SECTIONS: u8 = 7;
/// This many zeros end a patch that [`unsealed_black_box`] makes.
const GAP_MAX: usize = 16;

/// Takes the first bytes of a list of parts.
fn take<'a>(from: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = from.split_at_checked(count)?;
    *from = rest;
    Some(taken)
}

fn u16_of(bytes: &[u8]) -> usize {
    usize::from(u16::from_le_bytes([bytes[0], bytes[1]]))
}

/// Builds a recording from an input.
pub fn recording(input: &[u8]) -> Vec<u8> {
    let Some((first, mut rest)) = input.split_first() else { return Vec::new() };
    if first % 2 == 0 {
        return rest.to_vec();
    }
    let mut file = PREAMBLE.to_vec();
    let (mut at_ns, mut number) = (0_u64, 0_u32);
    while let Some(head) = take(&mut rest, 4) {
        let length = u16_of(&head[2..]).min(rest.len());
        let body = take(&mut rest, length).unwrap_or_default();
        at_ns += u64::from(head[1]);
        let begin = file.len();
        file.extend_from_slice(&(body.len() as u32).to_le_bytes());
        file.extend_from_slice(&u32::from(head[0]).to_le_bytes());
        file.extend_from_slice(&at_ns.to_le_bytes());
        file.extend_from_slice(&number.to_le_bytes());
        let mut sum = crc32fast::Hasher::new();
        sum.update(&file[begin..]);
        sum.update(body);
        file.extend_from_slice(&sum.finalize().to_le_bytes());
        file.extend_from_slice(body);
        number += 1;
    }
    file
}

/// Builds a black box from an input.
pub fn black_box(input: &[u8]) -> Vec<u8> {
    let Some((first, mut rest)) = input.split_first() else { return Vec::new() };
    if first % 2 == 0 {
        return rest.to_vec();
    }
    let mut file = vec![0; HEAD_BYTES];
    put(&mut file, word::MAGIC, MAGIC);
    put(&mut file, word::VERSION, VERSION);
    while let Some(head) = take(&mut rest, 5) {
        let length = u16_of(&head[3..]).min(rest.len());
        let bytes = take(&mut rest, length).unwrap_or_default();
        let Some(begin) = section(head[0], &file).checked_add(u16_of(&head[1..])) else { continue };
        let end = begin.saturating_add(bytes.len());
        if end > BLACK_BOX_BYTES_MAX {
            continue;
        }
        file.resize(file.len().max(end), 0);
        file[begin..end].copy_from_slice(bytes);
    }
    let identity = IDENTITY_AT..IDENTITY_AT.saturating_add(get(&file, word::IDENTITY_BYTES) as usize);
    if let Some(identity) = file.get(identity).map(checksum) {
        put(&mut file, word::IDENTITY_CHECKSUM, identity);
    }
    for index in [0, 1] {
        let at = layout(&file).sample_at(index);
        let begin = at + SAMPLE_HEAD_WORDS * 8;
        let end = begin.saturating_add(get(&file, at / 8 + 1) as usize);
        if let Some(sum) = file.get(begin..end).map(checksum) {
            put(&mut file, at / 8 + 2, sum);
        }
    }
    file
}

/// Returns the input from which [`recording`] builds a file with the frames of this one.
pub fn unsealed_recording(file: &[u8]) -> Vec<u8> {
    let mut input = vec![1];
    let mut rest = file.get(PREAMBLE.len()..).unwrap_or_default();
    while let Some(header) = take(&mut rest, HEADER_BYTES) {
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let Some(body) = take(&mut rest, length) else { break };
        // A frame that is too long for an input, such as a snapshot, is left out.
        if let Ok(length) = u16::try_from(body.len()) {
            input.extend_from_slice(&[header[4], 1]);
            input.extend_from_slice(&length.to_le_bytes());
            input.extend_from_slice(body);
        }
    }
    input
}

/// Returns the input from which [`black_box`] builds a file like this one: at most 64 KiB of each
/// section and of the first ring.
pub fn unsealed_black_box(file: &[u8]) -> Vec<u8> {
    let layout = layout(file);
    let mut input = vec![1];
    for number in 0..=SECTIONS {
        let begin = section(number, file);
        let length = match number {
            0 => IDENTITY_AT,
            1 => HEAD_BYTES - IDENTITY_AT,
            2 | 3 => TEXTS_BYTES,
            4 | 5 => SAMPLE_BYTES,
            6 => layout.ring_at(0) - layout.cells_at(0),
            _ => ring_bytes(layout.ring_records),
        };
        let bytes = file.get(begin..(begin + length.min(usize::from(u16::MAX))).min(file.len())).unwrap_or_default();
        let mut at = 0;
        while let Some(from) = bytes[at..].iter().position(|byte| *byte != 0).map(|zeros| at + zeros) {
            let mut until = from;
            while let Some(next) = bytes[until..].iter().take(GAP_MAX).position(|byte| *byte != 0) {
                until += next + 1;
            }
            input.push(number);
            input.extend_from_slice(&(from as u16).to_le_bytes());
            input.extend_from_slice(&((until - from) as u16).to_le_bytes());
            input.extend_from_slice(&bytes[from..until]);
            at = until;
        }
    }
    input
}

/// Returns where a section of a black box begins: 0 and 1 are the head, 2 and 3 the texts, 4 and 5
/// the samples, 6 the cells, and the rest are rings.
fn section(number: u8, file: &[u8]) -> usize {
    let layout = layout(file);
    match number {
        0 => 0,
        1 => IDENTITY_AT,
        2 | 3 => layout.texts_at(usize::from(number) - 2),
        4 | 5 => layout.sample_at(usize::from(number) - 4),
        6 => layout.cells_at(0),
        ring => layout.ring_at(usize::from(ring - SECTIONS)),
    }
}

/// Returns the layout by the numbers in the head, as far as they are in their bounds.
fn layout(file: &[u8]) -> Layout {
    let bounded = |index: usize| get(file, index).min(1 << 20) as usize;
    Layout { workers: bounded(word::WORKERS), spares: bounded(word::SPARES), ring_records: bounded(word::RING_RECORDS) }
}

fn get(file: &[u8], index: usize) -> u64 {
    file.as_chunks::<8>().0.get(index).map_or(0, |word| u64::from_le_bytes(*word))
}

fn put(file: &mut [u8], index: usize, value: u64) {
    if let Some(word) = file.as_chunks_mut::<8>().0.get_mut(index) {
        *word = value.to_le_bytes();
    }
}
