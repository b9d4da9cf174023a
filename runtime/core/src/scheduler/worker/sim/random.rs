//! The random numbers of the simulation.

use std::cell::Cell;

/// xorshift64*.
pub(super) struct Random(Cell<u64>);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        // Separates neighbouring seeds, and is never 0.
        Self(Cell::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03 | 1))
    }

    pub(super) fn next(&self) -> u64 {
        let mut x = self.0.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0.set(x);
        x.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(super) fn below(&self, n: usize) -> usize {
        (((self.next() >> 32) * n as u64) >> 32) as usize
    }

    pub(super) fn one_in(&self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(super) fn between(&self, min: u64, max: u64) -> u64 {
        min + self.below((max - min + 1) as usize) as u64
    }

    pub(super) fn pick<T: Copy>(&self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}
