//! Random numbers from a seed: the same seed gives the same run, on every machine.

/// A SplitMix64 generator.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The same seed gives the same numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below the bound. The tiny bias of the remainder does not matter here.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// From `low` to `high`, both included.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True this often in a thousand.
    pub fn permille(&mut self, chance: u64) -> bool {
        self.below(1000) < chance
    }

    /// An index into something of this length.
    ///
    /// # Panics
    /// When the length is 0.
    pub fn index(&mut self, length: usize) -> usize {
        let length = u64::try_from(length).expect("lengths are small");
        usize::try_from(self.below(length)).expect("it is below a length")
    }

    /// One of them.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }
}
