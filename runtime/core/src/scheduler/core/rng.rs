//! Random numbers, by which a worker chooses the victim of a steal: xorshift64+ with the triplet
//! [17, 7, 16], reduced to a range with a negligible bias by Lemire's multiply-shift.
//!
//! Source: Marsaglia, "Xorshift RNGs", 2003; Lemire, "Fast Random Integer Generation in an
//! Interval", ACM TOMACS 29(1), 2019.

/// The generator of one worker.
#[derive(Debug)]
pub(crate) struct FastRand {
    one: u32,
    two: u32,
}

impl FastRand {
    /// Creates a generator whose sequence differs for each `index`; the golden ratio spreads
    /// neighbouring seeds.
    pub(crate) fn new(seed: u64, index: u64) -> Self {
        let mixed = seed.wrapping_add((index + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        // The state must not be all zero.
        Self { one: (mixed >> 32) as u32, two: mixed as u32 | 1 }
    }

    fn next_u32(&mut self) -> u32 {
        let mut s1 = self.one;
        let s0 = self.two;
        s1 ^= s1 << 17;
        s1 = s1 ^ s0 ^ (s1 >> 7) ^ (s0 >> 16);
        self.one = s0;
        self.two = s1;
        s0.wrapping_add(s1)
    }

    /// Returns a number in `0..n`, or 0 for `n = 0`.
    #[inline]
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u64::from(self.next_u32()) * n as u64) >> 32) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_victim_is_drawn_about_as_often() {
        let mut rng = FastRand::new(1, 0);
        let mut drawn = [0u32; 7];
        (0..70_000).for_each(|_| drawn[rng.below(7)] += 1);
        assert!(drawn.iter().all(|count| count.abs_diff(10_000) < 500), "{drawn:?}");
    }

    #[test]
    fn workers_draw_different_sequences() {
        let sequences: Vec<Vec<usize>> = (0..4)
            .map(|index| {
                let mut rng = FastRand::new(9, index);
                (0..8).map(|_| rng.below(1000)).collect()
            })
            .collect();
        assert!(sequences.iter().enumerate().all(|(i, a)| sequences[..i].iter().all(|b| a != b)));
    }
}
