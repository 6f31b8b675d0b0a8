//! Decisions that can be repeated: the same seed and the same name give the same row of numbers.

use std::time::Duration;

/// A row of numbers that depends on nothing but its seed.
#[derive(Clone)]
pub struct SeededRandom(u64);

impl SeededRandom {
    /// The row of this seed that belongs to `name`; rows of different names have nothing to do with each other.
    pub fn new(seed: u64, name: &str) -> SeededRandom {
        let mut random = SeededRandom(seed ^ 0x9e37_79b9_7f4a_7c15);
        for byte in name.bytes() {
            random.0 = random.next() ^ u64::from(byte);
        }
        random
    }

    /// SplitMix64.
    #[allow(clippy::should_implement_trait, reason = "the row never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// Bytes of any value.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| (self.next() >> 32) as u8).collect()
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// Whether something happens that happens so many times in a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    /// A time from `low` to `high` milliseconds.
    pub fn millis(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_millis(self.between(low, high))
    }

    /// One of a list that is not empty.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        let position = usize::try_from(self.next() % list.len() as u64).unwrap_or(0);
        &list[position]
    }

    /// One of a list of (weight, thing).
    pub fn weighted<T: Copy>(&mut self, list: &[(u64, T)]) -> T {
        let sum: u64 = list.iter().map(|(weight, _)| weight).sum();
        let mut point = self.next() % sum.max(1);
        for (weight, thing) in list {
            if point < *weight {
                return *thing;
            }
            point -= weight;
        }
        list[0].1
    }
}
