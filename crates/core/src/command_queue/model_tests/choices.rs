//! Small bounds, so that they are reached.

use super::super::QueueLimits;
use crate::choices::Choices;

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
