//! What is left to chance.

use super::super::QueueLimits;

/// A source of small choices, drawn from one number.
pub(super) struct Choices(pub(super) u64);

impl Choices {
    pub(super) fn below(&mut self, count: usize) -> usize {
        // SplitMix64: neighbouring numbers make unrelated choices.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % count as u64) as usize
    }

    pub(super) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub(super) fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

/// Small bounds, so that they are reached.
pub(super) fn limits(choices: &mut Choices) -> QueueLimits {
    QueueLimits {
        lane_max: choices.of(&[2, 100, 100]),
        shell_lane_max: choices.of(&[1, 100, 100]),
        parked_max: choices.of(&[1, 100, 100]),
        prompts_max: choices.of(&[1, 100, 100]),
        edits_max: choices.of(&[0, 1, 100]),
        given_up_max: choices.of(&[1, 100, 100]),
        dependency_wait_ms: 300,
        prompt_wait_ms: 100,
    }
}
