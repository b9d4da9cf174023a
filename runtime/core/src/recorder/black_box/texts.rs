//! The texts of a black box: what addresses and numbers in cells and rings mean.
//!
//! There are two logs. Texts are appended to one of them. When it is full, the other is emptied and
//! used, and the present locations are added again. A reader reads both, so a text is available
//! until the log after the next one begins.
//!
//! A program may be killed between any two stores. So a text is written before the length of the
//! log that includes it, and a log is emptied before it gets a higher generation.

use std::collections::HashSet;
use std::panic::Location;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use volt_telemetry::text;
use volt_telemetry::recording::black_box::{Layout, TEXT_HEAD_BYTES, TEXTS_BYTES, TEXTS_HEAD_WORDS, kind};
use volt_telemetry::recording::flush::MAX_TEXT_BYTES;

use super::mapping::Mapping;
use crate::stats::locations;

/// Words of a log.
const LOG_WORDS: usize = TEXTS_BYTES / 8;

/// The state of the writer.
#[derive(Debug)]
pub(super) struct Texts {
    layout: Layout,
    /// The log that is written, 0 or 1, its generation, and the words in it.
    log: usize,
    generation: u64,
    words: usize,
    /// Addresses of locations that are in this log.
    addresses: HashSet<usize>,
    /// Numbers of locations that are in this log.
    numbers: HashSet<u16>,
    /// How many locations had numbers when they were last added.
    numbered: usize,
}

impl Texts {
    /// Creates the state for logs that are empty.
    pub(super) fn new(layout: Layout) -> Self {
        let (addresses, numbers) = Default::default();
        Self { layout, log: 0, generation: 0, words: TEXTS_HEAD_WORDS, addresses, numbers, numbered: 0 }
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Appends a text.
    pub(super) fn add(&mut self, mapping: &Mapping, kind: u64, number: u64, text: &str) {
        let text = &text.as_bytes()[..text.floor_char_boundary(MAX_TEXT_BYTES)];
        let count = (TEXT_HEAD_BYTES + text.len()).div_ceil(8);
        if self.words + count > LOG_WORDS {
            self.turn(mapping);
        }
        let words = mapping.words(self.layout.texts_at(self.log), LOG_WORDS);
        let (head, rest) = words[self.words..self.words + count].split_at(TEXT_HEAD_BYTES / 8);
        // ORDERING: Relaxed, all; the reader runs after the program has exited, and the kernel
        // keeps what was stored.
        head[0].store(kind | (text.len() as u64) << 8, Ordering::Relaxed);
        head[1].store(number, Ordering::Relaxed);
        store_bytes(rest, text);
        self.words += count;
        // ORDERING: Release; orders it after the text.
        words[1].store((self.words * 8) as u64, Ordering::Release);
    }

    /// Begins the other log.
    fn turn(&mut self, mapping: &Mapping) {
        self.log = 1 - self.log;
        self.generation += 1;
        let words = mapping.words(self.layout.texts_at(self.log), LOG_WORDS);
        // ORDERING: Release, both; the log is empty before it is the newer one.
        words[1].store(0, Ordering::Release);
        words[0].store(self.generation, Ordering::Release);
        self.words = TEXTS_HEAD_WORDS;
        self.addresses.clear();
        self.numbers.clear();
        self.numbered = 0;
    }

    /// Appends the line at the address of a location, unless this log has it.
    pub(super) fn add_address(&mut self, mapping: &Mapping, location: &'static Location<'static>) {
        let address = ptr::from_ref(location).addr();
        if self.addresses.insert(address) {
            self.add(mapping, kind::ADDRESS, address as u64, &text::location(location));
        }
    }

    /// Appends the lines of the numbers that the recorder uses, unless this log has them.
    pub(super) fn add_numbers(&mut self, mapping: &Mapping) {
        let numbered = locations::numbered();
        if numbered == self.numbered {
            return;
        }
        for number in 1..=locations::PLACES as u16 {
            if let Some(location) = locations::of_number(number)
                && self.numbers.insert(number)
            {
                self.add(mapping, kind::LOCATION, number.into(), &text::location(location));
            }
        }
        self.numbered = numbered;
    }
}

/// Stores bytes as 64-bit numbers, and fills the last one with zeros.
pub(super) fn store_bytes(words: &[AtomicU64], bytes: &[u8]) {
    for (word, bytes) in words.iter().zip(bytes.chunks(8)) {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        // ORDERING: Relaxed; the length that is stored after them publishes the bytes.
        word.store(u64::from_le_bytes(whole), Ordering::Relaxed);
    }
}
