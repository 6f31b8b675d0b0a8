//! What is left to chance.

use super::super::{AdmissionLimits, rate};

/// A source of small choices, drawn from one number.
pub(super) struct Choices(pub(super) u64);

impl Choices {
    pub(super) fn below(&mut self, count: u64) -> usize {
        // SplitMix64: neighbouring numbers make unrelated choices.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % count) as usize
    }

    pub(super) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub(super) fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64)]
    }
}

pub(super) fn limits(choices: &mut Choices) -> AdmissionLimits {
    AdmissionLimits {
        outcomes_max: choices.of(&[4, 12, 1000, 1000]),
        outcome_bytes_max: choices.of(&[400, 1_600, 100_000, 100_000]),
        in_flight_max: choices.of(&[5, 100, 100, 100]),
        in_flight_per_principal_max: choices.of(&[4, 100, 100, 100, 100, 100]),
        key_ttl_ms: 150,
        dependency_wait_ms: 100,
        rate: rate::RateLimits {
            per_minute: choices.of(&[0, 0, 5]),
            global_per_minute: choices.of(&[0, 0, 12]),
            ui_per_minute: choices.of(&[0, 1]),
        },
    }
}
