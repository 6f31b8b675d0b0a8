//! Random sequences of commands against a small model of sections 7 to 11: the same is done in the same order with
//! the same outcomes, and everything that is accepted is finished exactly once.

mod bounds;
mod choices;
mod command;
mod kinds;
mod model;
mod sessions;
mod world;

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::RngAlgorithm;

use super::PiServerSubmission;
use crate::choices::Choices;
use choices::limits;
use kinds::KINDS;
use world::World;

/// Sequences in all; `QD_ADMISSION_SEQUENCES` asks for more.
const SEQUENCES: u32 = 100_000;

/// The sequences are shared out among this many tests, which run at the same time.
const SHARES: u32 = 4;

/// What happened in some sequences, and how often.
type Seen = BTreeMap<&'static str, usize>;

fn no_fault(_: &mut PiServerSubmission) {}

/// One sequence, with bounds of its own.
fn play(bounds: u64, choices: &[u64], fault: fn(&mut PiServerSubmission)) -> Result<Seen, String> {
    let mut world = World::new(limits(&mut Choices(bounds)), fault);
    for choice in choices {
        world.act(Choices(*choice))?;
    }
    world.wind_down()?;
    Ok(world.seen)
}

fn config() -> ProptestConfig {
    let sequences = std::env::var("QD_ADMISSION_SEQUENCES").ok().and_then(|text| text.parse().ok());
    ProptestConfig {
        cases: sequences.unwrap_or(SEQUENCES) / SHARES,
        // Nobody is to be surprised by these numbers, and better ones take an eighth of the time.
        rng_algorithm: RngAlgorithm::XorShift,
        ..ProptestConfig::default()
    }
}

macro_rules! shares {
    ($($name:ident)*) => {
        proptest! {
            #![proptest_config(config())]
            $(
                #[test]
                fn $name(bounds: u64, choices in prop::collection::vec(any::<u64>(), 10..40)) {
                    if let Err(complaint) = play(bounds, &choices, no_fault) {
                        prop_assert!(false, "{complaint}");
                    }
                }
            )*
        }
    };
}

shares! { random_sequences_share_1 random_sequences_share_2 random_sequences_share_3 random_sequences_share_4 }

/// How many of some sequences go wrong with a fault, and what happened in the others.
fn played(fault: fn(&mut PiServerSubmission)) -> (usize, Seen) {
    let mut choices = Choices(1);
    let mut wrong = 0;
    let mut all = Seen::new();
    for bounds in 0..2000 {
        let sequence: Vec<u64> = (0..40).map(|_| choices.below(usize::MAX) as u64).collect();
        match play(bounds, &sequence, fault) {
            Ok(seen) => seen.into_iter().for_each(|(what, count)| *all.entry(what).or_default() += count),
            Err(_) => wrong += 1,
        }
    }
    (wrong, all)
}

/// A model that never gets anywhere would agree with anything.
#[test]
fn the_sequences_are_about_everything() {
    let (wrong, seen) = played(no_fault);
    assert_eq!(wrong, 0);
    let others = ["success", "replayed", "timed out", "taken up", "taken up elsewhere", "waited, then done"];
    for what in KINDS.iter().map(|(kind, _)| *kind).chain(others) {
        assert!(seen.get(what).is_some_and(|count| *count >= 10), "too little of {what}: {seen:?}");
    }
    assert!(seen["success"] >= 3000, "{seen:?}");
    assert!(!seen.contains_key("another error"), "{seen:?}");
}

/// As if replay did not look at what a command means.
#[test]
fn a_replay_without_fingerprints_is_found() {
    assert!(played(|submission| submission.fingerprint = [0; 32]).0 > 20);
}

/// As if commands of one session did not wait for each other.
#[test]
fn a_broken_lane_is_found() {
    let no_lane = |submission: &mut PiServerSubmission| {
        let alone = format!("{}-{}", submission.session_id.take().unwrap_or_default(), submission.token);
        submission.session_id = Some(alone);
        submission.names_session = false;
        submission.key = None;
    };
    assert!(played(no_lane).0 > 20);
}

/// As if ids of different principals were the same.
#[test]
fn a_shared_namespace_is_found() {
    assert!(played(|submission| submission.principal = "p".into()).0 > 20);
}

/// As if time did not run while a command waits.
#[test]
fn a_missing_timeout_is_found() {
    assert!(played(|submission| submission.timeout_ms = None).0 > 20);
}

/// As if nobody waited for dependencies.
#[test]
fn an_ignored_dependency_is_found() {
    assert!(played(|submission| submission.depends_on.clear()).0 > 20);
}
