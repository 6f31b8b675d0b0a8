//! One world from its seed to its end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use rand::SeedableRng;
use turmoil::Sim;

use crate::faults::Faults;
use crate::plan::{Bug, HUB, Plan, RUNNERS};
use crate::state::{Phase, World};
use crate::{checks, client, hosts, trace};

/// The world's wall clock begins here, in unix seconds.
const EPOCH_S: u64 = 1_800_000_000;

/// After healing everything must be well within this.
const SETTLE_MAX: Duration = Duration::from_secs(120);

/// How often the databases are looked at while there is load, and how often we look whether all is well after.
const CHECK_EVERY: Duration = Duration::from_millis(1_000);

/// What a world was like, for summaries.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct WorldSummary {
    pub(crate) seed: u64,
    /// Of every line of the trace; the same seed gives the same.
    pub(crate) hash: String,
    pub(crate) virtual_ms: u64,
    /// How long it took to be well after healing.
    pub(crate) settle_ms: u64,
    pub(crate) counts: BTreeMap<String, u64>,
}

/// Runs the world of this seed; an error is the report of what is wrong. Once per process: randomness and clocks are
/// the process's.
pub(crate) fn run(seed: u64, bug: Option<Bug>) -> Result<WorldSummary, String> {
    mad_turmoil::rand::set_rng(rand::rngs::StdRng::seed_from_u64(seed));
    let _clocks = mad_turmoil::time::SimClocksGuard::init();
    qd_link::clock::simulate(Some(simulated_ms));
    std::panic::set_hook(Box::new(|panic| trace::violate("--", "panics", &panic.to_string())));
    let directory = WorldDirectory::new(seed);
    let world = World::new(Plan::new(seed, bug), directory.0.clone());
    trace::note("--", &world.plan.describe());
    let mut sim = build(&world);
    let settle = live(&mut sim, &world);
    let end = sim.elapsed();
    let _unused = std::panic::take_hook();
    match trace::violation() {
        None => Ok(WorldSummary {
            seed,
            hash: format!("{:016x}", trace::hash()),
            virtual_ms: millis(end),
            settle_ms: millis(settle),
            counts: trace::counts(),
        }),
        Some(violation) => {
            let lines = trace::last_lines().join("\n");
            let replay = format!("cargo xtask world --seed {seed}");
            Err(format!(
                "{lines}\n\nseed {seed} breaks '{}': {}\nreplay: {replay}",
                violation.invariant, violation.detail
            ))
        }
    }
}

fn simulated_ms() -> i64 {
    let elapsed = turmoil::sim_elapsed().unwrap_or_default();
    i64::try_from(EPOCH_S * 1_000 + millis(elapsed)).unwrap_or(i64::MAX)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn build<'a>(world: &Rc<World>) -> Sim<'a> {
    let plan = &world.plan;
    let mut builder = turmoil::Builder::new();
    builder
        .rng_seed(plan.seed)
        .epoch(SystemTime::UNIX_EPOCH + Duration::from_secs(EPOCH_S))
        .simulation_duration(Duration::from_secs(3600))
        .tick_duration(plan.tick)
        .min_message_latency(Duration::ZERO)
        .max_message_latency(plan.latency_max)
        .tcp_capacity(plan.segments_max)
        .enable_random_order();
    let mut sim = builder.build();
    let of = Rc::clone(world);
    sim.host(HUB, move || hosts::hub(Rc::clone(&of)));
    for name in RUNNERS {
        let of = Rc::clone(world);
        sim.host(name, move || hosts::runner(Rc::clone(&of), name));
    }
    for name in plan.clients {
        let of = Rc::clone(world);
        sim.host(*name, move || client::run(Rc::clone(&of), name));
    }
    sim
}

/// Load with faults, then healing; returns how long it took until all was well.
fn live(sim: &mut Sim<'_>, world: &Rc<World>) -> Duration {
    let mut faults = Faults::new(Rc::clone(world));
    let mut check_at = CHECK_EVERY;
    let mut settled_since = None;
    while trace::violation().is_none() {
        let now = sim.elapsed();
        trace::set_now(now);
        if !world.is_settling() && now >= world.plan.load {
            world.phase.set(Phase::Settle);
            faults.heal(sim);
        }
        faults.advance(sim, now);
        if let Err(error) = sim.step() {
            trace::violate("--", "hosts", &error.to_string());
        }
        if now < check_at {
            continue;
        }
        check_at = now + CHECK_EVERY;
        if !world.is_settling() {
            checks::stored(world);
            continue;
        }
        let missing = checks::unsettled(world);
        if missing.is_empty() && settled_since.is_some() {
            // Quiet twice in a row: what is asked again now is answered the same, and nothing moves.
            checks::settled(world);
            return now - world.plan.load;
        }
        settled_since = missing.is_empty().then_some(now);
        if now > world.plan.load + SETTLE_MAX {
            trace::violate("--", "convergence", &missing.join("; "));
        }
    }
    Duration::ZERO
}

/// Where the databases of a world are; in memory where that is possible.
struct WorldDirectory(PathBuf);

impl WorldDirectory {
    fn new(seed: u64) -> WorldDirectory {
        let memory = PathBuf::from("/dev/shm");
        let base = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let path = base.join(format!("qd-world-{}-{seed}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        WorldDirectory(path)
    }
}

impl Drop for WorldDirectory {
    fn drop(&mut self) {
        // Nothing depends on the directory being gone.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
