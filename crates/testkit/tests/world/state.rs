//! What the hosts of one world share beside its network: what they are to do, and what they were told.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::client::ClientState;
use crate::disk::SimDisk;
use crate::oracle::{Oracle, RecordBodies};
use crate::plan::{HUB, Plan, RUNNERS};
use qd_testkit::seeded_random::SeededRandom;

/// The token of every client.
pub(crate) const TOKEN: &str = "world-token";
pub(crate) const PORT: u16 = 7373;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Clients do what they like, faults come.
    Load,
    /// Everything is healed; clients finish what they began.
    Settle,
}

/// One world.
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) dir: PathBuf,
    pub(crate) phase: Cell<Phase>,
    pub(crate) oracle: RefCell<Oracle>,
    pub(crate) disks: BTreeMap<&'static str, Arc<SimDisk>>,
    pub(crate) clients: RefCell<BTreeMap<&'static str, Rc<ClientState>>>,
    /// Runners that are to open a second link, until they have.
    pub(crate) twins: RefCell<BTreeSet<&'static str>>,
    /// What tells the hub and the runners to stop as they do when a person asks them to.
    pub(crate) stops: RefCell<BTreeMap<&'static str, CancellationToken>>,
    /// How often each host was started, so that each life has its own randomness.
    lives: RefCell<BTreeMap<String, u64>>,
    pub(crate) bodies: RecordBodies,
}

impl World {
    pub(crate) fn new(plan: Plan, dir: PathBuf) -> Rc<World> {
        let disk = |name: &'static str| {
            (name, SimDisk::new(SeededRandom::new(plan.seed, &format!("disk {name}")), plan.disk_us))
        };
        let disks = std::iter::once(HUB).chain(RUNNERS).map(disk).collect();
        Rc::new(World {
            plan,
            dir,
            phase: Cell::new(Phase::Load),
            oracle: RefCell::default(),
            disks,
            clients: RefCell::default(),
            twins: RefCell::default(),
            stops: RefCell::default(),
            lives: RefCell::default(),
            bodies: RecordBodies::default(),
        })
    }

    pub(crate) fn is_settling(&self) -> bool {
        self.phase.get() == Phase::Settle
    }

    pub(crate) fn database(&self, host: &str) -> PathBuf {
        self.dir.join(format!("{host}.db"))
    }

    /// What ends the new life of a host in good order.
    pub(crate) fn new_stop(&self, host: &'static str) -> CancellationToken {
        let stop = CancellationToken::new();
        self.stops.borrow_mut().insert(host, stop.clone());
        stop
    }

    /// The randomness of a host's new life.
    pub(crate) fn new_life(&self, host: &str) -> SeededRandom {
        let mut lives = self.lives.borrow_mut();
        let life = lives.entry(host.to_owned()).or_insert(0);
        *life += 1;
        SeededRandom::new(self.plan.seed, &format!("{host} life {life}"))
    }
}
