//! How one world is: chosen by its seed, before anything happens.

use std::time::Duration;

use qd_runner::SPOOL_BYTES_MAX_DEFAULT;

use qd_testkit::seeded_random::SeededRandom;

pub(crate) const HUB: &str = "hub";
pub(crate) const RUNNERS: [&str; 3] = ["r1", "r2", "r3"];
const CLIENTS: [&str; 4] = ["c1", "c2", "c3", "c4"];

/// A promise that this world breaks on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    Hub(qd_hub::PlantedBug),
    Runner(qd_runner::PlantedBug),
}

impl Bug {
    pub(crate) fn named(name: &str) -> Option<Bug> {
        match name {
            "ack" => Some(Bug::Hub(qd_hub::PlantedBug::AckBeforeCommit)),
            "dedupe" => Some(Bug::Hub(qd_hub::PlantedBug::ResendWithoutDedupe)),
            "accepted" => Some(Bug::Runner(qd_runner::PlantedBug::AcceptedNotStored)),
            _ => None,
        }
    }

    pub(crate) fn of_hub(self) -> Option<qd_hub::PlantedBug> {
        match self {
            Bug::Hub(bug) => Some(bug),
            Bug::Runner(_) => None,
        }
    }

    pub(crate) fn of_runner(self) -> Option<qd_runner::PlantedBug> {
        match self {
            Bug::Hub(_) => None,
            Bug::Runner(bug) => Some(bug),
        }
    }
}

/// The size of a world and how bad it is.
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) bug: Option<Bug>,
    /// How long there is load and trouble.
    pub(crate) load: Duration,
    pub(crate) clients: &'static [&'static str],
    pub(crate) sessions_max: usize,
    /// The longest pause of a client between two things it does.
    pub(crate) think_ms: u64,
    /// What one step of the simulation is.
    pub(crate) tick: Duration,
    pub(crate) latency_max: Duration,
    /// Segments that may be under way on one connection.
    pub(crate) segments_max: usize,
    /// The average time between two faults.
    pub(crate) fault_gap_ms: u64,
    /// The longest a fault stays.
    pub(crate) fault_ms: u64,
    /// How much of each kind.
    pub(crate) weights: Vec<(u64, Fault)>,
    pub(crate) disk_us: u64,
    pub(crate) slow_disk_ms: u64,
    /// What the hub keeps for clients that are slow; little makes resyncs.
    pub(crate) ring_bytes: usize,
    /// Records a runner may hold before it refuses new prompts.
    pub(crate) spool_bytes: u64,
    /// How often the sides of a link say that they live, and how long they believe the other does.
    pub(crate) ping: Duration,
    pub(crate) silence: Duration,
}

/// What can go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Partition,
    OneWay,
    Hold,
    Latency,
    HubCrash,
    RunnerCrash,
    ClientCrash,
    SlowHubDisk,
    SlowRunnerDisk,
    /// The hub or a runner is stopped in good order and started again.
    Restart,
    /// A second copy of a runner's link while the first lives.
    Twin,
}

const FAULTS: [(u64, Fault); 11] = [
    (8, Fault::Partition),
    (5, Fault::OneWay),
    (4, Fault::Hold),
    (3, Fault::Latency),
    (6, Fault::HubCrash),
    (6, Fault::RunnerCrash),
    (3, Fault::ClientCrash),
    (5, Fault::SlowHubDisk),
    (3, Fault::SlowRunnerDisk),
    (3, Fault::Restart),
    (2, Fault::Twin),
];

impl Plan {
    pub(crate) fn new(seed: u64, bug: Option<Bug>) -> Plan {
        let mut random = SeededRandom::new(seed, "plan");
        let clients = usize::try_from(*random.pick(&[2u64, 2, 3, 4])).unwrap_or(2);
        // Each world has its own favourites, and some have none of a kind.
        let weights = FAULTS.map(|(weight, fault)| (weight * random.between(0, 3), fault));
        let is_gentle = random.percent(10);
        Plan {
            seed,
            bug,
            load: random.millis(5_000, 10_000),
            clients: &CLIENTS[..clients],
            sessions_max: usize::try_from(random.between(2, 6)).unwrap_or(2),
            think_ms: *random.pick(&[250, 500, 1_000]),
            tick: Duration::from_millis(*random.pick(&[5, 10, 20])),
            latency_max: Duration::from_millis(*random.pick(&[1, 20, 100, 250])),
            segments_max: usize::try_from(*random.pick(&[64u64, 256, 1024])).unwrap_or(64),
            fault_gap_ms: if is_gentle { 60_000 } else { *random.pick(&[200, 400, 800, 1_500]) },
            fault_ms: *random.pick(&[300, 1_000, 3_000, 8_000]),
            weights: weights.to_vec(),
            disk_us: *random.pick(&[0, 1_000, 5_000, 20_000]),
            slow_disk_ms: *random.pick(&[50, 300, 1_500]),
            ring_bytes: *random.pick(&[4 << 10, 64 << 10, 1 << 20]),
            spool_bytes: *random.pick(&[4 << 10, SPOOL_BYTES_MAX_DEFAULT, SPOOL_BYTES_MAX_DEFAULT]),
            ping: Duration::from_millis(*random.pick(&[300, 1_000, 7_000])),
            silence: Duration::ZERO,
        }
        .with_silence()
    }

    fn with_silence(mut self) -> Plan {
        self.silence = self.ping * 3;
        self
    }

    pub(crate) fn describe(&self) -> String {
        format!(
            "load {:?}, {} clients, {} sessions, think {} ms, tick {:?}, latency {:?}, segments {}, faults every \
             {} ms for {} ms, disk {} us, slow {} ms, ring {}, spool {}, ping {:?}",
            self.load,
            self.clients.len(),
            self.sessions_max,
            self.think_ms,
            self.tick,
            self.latency_max,
            self.segments_max,
            self.fault_gap_ms,
            self.fault_ms,
            self.disk_us,
            self.slow_disk_ms,
            self.ring_bytes,
            self.spool_bytes,
            self.ping,
        )
    }
}
