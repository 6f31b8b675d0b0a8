//! Who dies when.

use std::sync::Arc;
use std::time::Duration;

use crate::fleet::Fleet;
use crate::proxy::Wire;
use qd_testkit::seeded_random::SeededRandom;

/// What was done.
#[derive(Default)]
pub(crate) struct KillCounts {
    pub(crate) hub: u64,
    pub(crate) runner: u64,
    pub(crate) agent: u64,
    pub(crate) cut: u64,
    pub(crate) stalled: u64,
}

impl KillCounts {
    /// Processes killed; cables do not count.
    pub(crate) fn kills(&self) -> u64 {
        self.hub + self.runner + self.agent
    }
}

pub(crate) struct Killer {
    fleet: Arc<Fleet>,
    random: SeededRandom,
    kills: u64,
    pub(crate) tally: KillCounts,
}

impl Killer {
    pub(crate) fn new(fleet: Arc<Fleet>, random: SeededRandom, kills: u64) -> Killer {
        Killer { fleet, random, kills, tally: KillCounts::default() }
    }

    /// Kills until enough are dead; each part comes back after a while.
    pub(crate) async fn run(&mut self) {
        let mut said = 0;
        while self.tally.kills() < self.kills {
            tokio::time::sleep(self.random.millis(50, 1_200)).await;
            match self.random.below(100) {
                0..30 => self.hub().await,
                30..60 => self.runner().await,
                60..88 => {
                    let random = self.random.next();
                    self.tally.agent += u64::from(self.fleet.kill_agent(random));
                }
                88..96 => {
                    self.tally.cut += 1;
                    self.wire(Wire::Cut, 50, 2_000).await;
                }
                _ => {
                    self.tally.stalled += 1;
                    self.wire(Wire::Stalled, 500, 4_000).await;
                }
            }
            if self.tally.kills() / 50 > said {
                said = self.tally.kills() / 50;
                println!("chaos: {} of {} kills", self.tally.kills(), self.kills);
            }
        }
    }

    /// Everything runs again.
    pub(crate) async fn heal(&mut self) {
        self.fleet.proxy.set(Wire::Whole);
        self.fleet.start_hub().await;
        self.fleet.start_runner().await;
    }

    async fn hub(&mut self) {
        self.tally.hub += 1;
        self.fleet.kill_hub().await;
        self.pause_down().await;
        // Sometimes both are down, and the runner comes first.
        if self.random.below(8) == 0 {
            self.runner().await;
        }
        self.fleet.start_hub().await;
    }

    async fn runner(&mut self) {
        self.tally.runner += 1;
        self.fleet.kill_runner().await;
        self.pause_down().await;
        self.fleet.start_runner().await;
    }

    async fn pause_down(&mut self) {
        let pause = if self.random.below(10) == 0 { self.random.millis(500, 3_000) } else { Duration::ZERO };
        tokio::time::sleep(pause).await;
    }

    async fn wire(&mut self, wire: Wire, low: u64, high: u64) {
        self.fleet.proxy.set(wire);
        tokio::time::sleep(self.random.millis(low, high)).await;
        self.fleet.proxy.set(Wire::Whole);
    }
}
