//! Who dies when.

use std::sync::Arc;
use std::time::Duration;

use crate::chance::Chance;
use crate::fleet::Fleet;
use crate::proxy::Wire;

/// What was done.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) hub: u64,
    pub(crate) runner: u64,
    pub(crate) agent: u64,
    pub(crate) cut: u64,
    pub(crate) stalled: u64,
}

impl Tally {
    /// Processes killed; cables do not count.
    pub(crate) fn kills(&self) -> u64 {
        self.hub + self.runner + self.agent
    }
}

pub(crate) struct Killer {
    fleet: Arc<Fleet>,
    chance: Chance,
    kills: u64,
    pub(crate) tally: Tally,
}

impl Killer {
    pub(crate) fn new(fleet: Arc<Fleet>, chance: Chance, kills: u64) -> Killer {
        Killer { fleet, chance, kills, tally: Tally::default() }
    }

    /// Kills until enough are dead; each part comes back after a while.
    pub(crate) async fn run(&mut self) {
        let mut said = 0;
        while self.tally.kills() < self.kills {
            tokio::time::sleep(self.chance.millis(50, 1_200)).await;
            match self.chance.below(100) {
                0..30 => self.hub().await,
                30..60 => self.runner().await,
                60..88 => {
                    let chance = self.chance.next();
                    self.tally.agent += u64::from(self.fleet.kill_agent(chance));
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
        if self.chance.below(8) == 0 {
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
        let pause = if self.chance.below(10) == 0 { self.chance.millis(500, 3_000) } else { Duration::ZERO };
        tokio::time::sleep(pause).await;
    }

    async fn wire(&mut self, wire: Wire, low: u64, high: u64) {
        self.fleet.proxy.set(wire);
        tokio::time::sleep(self.chance.millis(low, high)).await;
        self.fleet.proxy.set(Wire::Whole);
    }
}
