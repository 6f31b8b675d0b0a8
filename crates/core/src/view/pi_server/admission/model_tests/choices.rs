//! Small bounds, so that they are reached.

use super::super::{AdmissionLimits, rate};
use crate::choices::Choices;

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
