//! What goes wrong and when. Every link of a world has the hub at one end, so a link is named by its other end.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use turmoil::Sim;

use crate::checks;
use crate::plan::{Fault, HUB, RUNNERS};
use crate::state::World;
use crate::trace;
use qd_testkit::seeded_random::SeededRandom;

/// How a fault ends.
#[derive(Debug, Clone, Copy)]
enum FaultRepair {
    Repair(&'static str),
    RepairOneWay { from: &'static str, to: &'static str },
    Release(&'static str),
    Restart(&'static str),
    Disk(&'static str),
    Latency(&'static str),
}

/// The faults of one world.
pub(crate) struct Faults {
    world: Rc<World>,
    random: SeededRandom,
    next_at: Duration,
    cures: BTreeMap<(Duration, u64), FaultRepair>,
    number: u64,
    /// Links that have a fault already, and hosts that are down.
    busy: BTreeSet<&'static str>,
    down: BTreeSet<&'static str>,
}

impl Faults {
    pub(crate) fn new(world: Rc<World>) -> Faults {
        let mut random = SeededRandom::new(world.plan.seed, "faults");
        // First there is something to break.
        let next_at = random.millis(500, 2_000);
        Faults {
            world,
            random,
            next_at,
            cures: BTreeMap::new(),
            number: 0,
            busy: BTreeSet::new(),
            down: BTreeSet::new(),
        }
    }

    /// Does what is due.
    pub(crate) fn advance(&mut self, sim: &mut Sim<'_>, now: Duration) {
        while let Some(entry) = self.cures.first_entry()
            && entry.key().0 <= now
        {
            let cure = entry.remove();
            self.cure(sim, cure);
        }
        if !self.world.is_settling() && now >= self.next_at {
            let gap = self.world.plan.fault_gap_ms;
            self.next_at = now + self.random.millis(gap / 4, gap * 7 / 4);
            self.strike(sim, now);
        }
    }

    /// Ends every fault at once.
    pub(crate) fn heal(&mut self, sim: &mut Sim<'_>) {
        for cure in std::mem::take(&mut self.cures).into_values() {
            self.cure(sim, cure);
        }
        trace::note("--", "everything is healed");
    }

    fn strike(&mut self, sim: &mut Sim<'_>, now: Duration) {
        let fault = self.random.weighted(&self.world.plan.weights);
        match fault {
            Fault::Partition | Fault::OneWay | Fault::Hold | Fault::Latency => {
                self.strike_link(sim, now, fault);
            }
            Fault::HubCrash => self.crash(sim, now, HUB),
            Fault::RunnerCrash => {
                let runner = *self.random.pick(&RUNNERS);
                self.crash(sim, now, runner);
            }
            Fault::ClientCrash => {
                let client = *self.random.pick(self.world.plan.clients);
                self.crash(sim, now, client);
            }
            Fault::SlowHubDisk => self.slow_disk(now, HUB),
            Fault::SlowRunnerDisk => {
                let runner = *self.random.pick(&RUNNERS);
                self.slow_disk(now, runner);
            }
            Fault::Restart => self.stop(now),
            Fault::Twin => {
                let runner = *self.random.pick(&RUNNERS);
                if !self.down.contains(runner) {
                    trace::count("fault: second link");
                    self.world.twins.borrow_mut().insert(runner);
                }
            }
        }
    }

    fn strike_link(&mut self, sim: &mut Sim<'_>, now: Duration, fault: Fault) {
        let mut others: Vec<&'static str> = RUNNERS.to_vec();
        others.extend(self.world.plan.clients);
        let other = *self.random.pick(&others);
        if !self.busy.insert(other) {
            return;
        }
        let cure = match fault {
            Fault::OneWay => {
                let (from, to) = if self.random.percent(50) { (HUB, other) } else { (other, HUB) };
                trace::count("fault: one-way cut");
                trace::note("--", &format!("cut from {from} to {to}"));
                sim.partition_oneway(from, to);
                FaultRepair::RepairOneWay { from, to }
            }
            Fault::Hold => {
                trace::count("fault: held messages");
                trace::note("--", &format!("hold {HUB} and {other}"));
                sim.hold(HUB, other);
                FaultRepair::Release(other)
            }
            Fault::Latency => {
                let latency = self.random.millis(50, 1_500);
                trace::count("fault: latency");
                trace::note("--", &format!("latency of {other} up to {latency:?}"));
                sim.set_link_max_message_latency(HUB, other, latency);
                FaultRepair::Latency(other)
            }
            _ => {
                trace::count("fault: cut");
                trace::note("--", &format!("cut {HUB} and {other}"));
                sim.partition(HUB, other);
                FaultRepair::Repair(other)
            }
        };
        self.later(now, cure);
    }

    fn crash(&mut self, sim: &mut Sim<'_>, now: Duration, host: &'static str) {
        if !self.down.insert(host) {
            return;
        }
        // A process that dies closes its connections; a machine that dies does not say so to anybody.
        let is_silent = self.random.percent(40);
        trace::count(match host {
            HUB => "fault: hub crash",
            _ if RUNNERS.contains(&host) => "fault: runner crash",
            _ => "fault: client crash",
        });
        trace::note("--", &format!("crash of {host}{}", if is_silent { ", silent" } else { "" }));
        let links = self.whole_links(host);
        if is_silent {
            links.iter().for_each(|other| sim.partition(HUB, *other));
        }
        sim.crash(host);
        if is_silent {
            links.iter().for_each(|other| sim.repair(HUB, *other));
        }
        self.world.clients.borrow_mut().remove(host);
        checks::stored(&self.world);
        self.later(now, FaultRepair::Restart(host));
    }

    /// Stops the hub or a runner in good order; if it takes too long it is killed.
    fn stop(&mut self, now: Duration) {
        let host = *self.random.pick(&[HUB, RUNNERS[0], RUNNERS[1], RUNNERS[2]]);
        let stop = self.world.stops.borrow().get(host).cloned();
        if let Some(stop) = stop
            && self.down.insert(host)
        {
            trace::count("fault: restart");
            trace::note("--", &format!("{host} is told to stop"));
            stop.cancel();
            self.later(now, FaultRepair::Restart(host));
        }
    }

    /// The links of a host that have no fault.
    fn whole_links(&self, host: &'static str) -> Vec<&'static str> {
        let mut others: Vec<&'static str> = RUNNERS.to_vec();
        others.extend(self.world.plan.clients);
        others.retain(|other| (host == HUB || host == *other) && !self.busy.contains(other));
        others
    }

    fn slow_disk(&mut self, now: Duration, host: &'static str) {
        let most = self.world.plan.slow_disk_ms;
        let delay = self.random.millis(most / 4, most);
        trace::count("fault: slow disk");
        trace::note("--", &format!("disk of {host} takes {delay:?}"));
        self.world.disks[host].slow_down(delay);
        self.later(now, FaultRepair::Disk(host));
    }

    fn later(&mut self, now: Duration, cure: FaultRepair) {
        let most = self.world.plan.fault_ms;
        self.number += 1;
        let at = now + self.random.millis(most / 10, most);
        self.cures.insert((at, self.number), cure);
    }

    fn cure(&mut self, sim: &mut Sim<'_>, cure: FaultRepair) {
        trace::note("--", &format!("{cure:?}"));
        match cure {
            FaultRepair::Repair(other) => {
                sim.repair(HUB, other);
                self.busy.remove(other);
            }
            FaultRepair::RepairOneWay { from, to } => {
                sim.repair_oneway(from, to);
                self.busy.remove(if from == HUB { to } else { from });
            }
            FaultRepair::Release(other) => {
                sim.release(HUB, other);
                self.busy.remove(other);
            }
            FaultRepair::Latency(other) => {
                sim.set_link_max_message_latency(HUB, other, self.world.plan.latency_max);
                self.busy.remove(other);
            }
            FaultRepair::Restart(host) => {
                self.down.remove(host);
                sim.bounce(host);
            }
            FaultRepair::Disk(host) => self.world.disks[host].slow_down(Duration::ZERO),
        }
    }
}
