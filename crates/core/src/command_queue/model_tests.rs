//! Random histories of a session against a naive model of its queue: the same is done in the same order, and every
//! command gets exactly one answer.

mod choices;
mod command;
mod faults;
mod kinds;
mod model;
mod promises;
mod world;

use std::collections::BTreeMap;

use crate::choices::Choices;
use faults::Fault;
use world::World;

/// Histories in all; `QD_QUEUE_HISTORIES` asks for more.
const HISTORIES: u64 = 100_000;

/// The histories are shared out among this many tests, which run at the same time.
const SHARES: u64 = 4;

/// Histories that are played with each planted fault.
const FAULTY_HISTORIES: u64 = 2_000;

/// What happened in some histories, and how often.
type Seen = BTreeMap<&'static str, usize>;

/// One history.
fn play(seed: u64, fault: Fault) -> Result<Seen, String> {
    let mut choices = Choices(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let mut world = World::new(&mut choices, fault);
    for _ in 0..10 + choices.below(25) {
        world.act(&mut choices)?;
    }
    world.wind_down(&mut choices)?;
    Ok(world.seen)
}

fn play_share(share: u64) {
    let histories = std::env::var("QD_QUEUE_HISTORIES").ok().and_then(|text| text.parse().ok());
    for seed in (share..histories.unwrap_or(HISTORIES)).step_by(SHARES as usize) {
        if let Err(complaint) = play(seed, Fault::None) {
            panic!("history {seed}: {complaint}");
        }
    }
}

#[test]
fn random_histories_share_1() {
    play_share(0);
}

#[test]
fn random_histories_share_2() {
    play_share(1);
}

#[test]
fn random_histories_share_3() {
    play_share(2);
}

#[test]
fn random_histories_share_4() {
    play_share(3);
}

/// A model that never gets anywhere would agree with anything.
#[test]
fn the_histories_are_about_everything() {
    let mut all = Seen::new();
    for seed in 0..FAULTY_HISTORIES {
        for (what, count) in play(seed, Fault::None).unwrap() {
            *all.entry(what).or_default() += count;
        }
    }
    for what in kinds::KINDS {
        assert!(all.get(what).is_some_and(|count| *count >= 5), "too little of {what}: {all:?}");
    }
}

/// How many histories go wrong with a fault, and the first complaint.
fn found(fault: Fault) -> (usize, String) {
    let complaints: Vec<String> = (0..FAULTY_HISTORIES).filter_map(|seed| play(seed, fault).err()).collect();
    (complaints.len(), complaints.into_iter().next().unwrap_or_default())
}

/// Each planted fault is found in at least one history of a hundred, so that 100,000 cannot miss it.
#[test]
fn every_planted_fault_is_found() {
    for fault in Fault::PLANTED {
        let (count, complaint) = found(*fault);
        println!("{fault:?}: found in {count} of {FAULTY_HISTORIES} histories; {complaint}");
        assert!(count as u64 >= FAULTY_HISTORIES / 100, "{fault:?} was found {count} times only");
    }
}
