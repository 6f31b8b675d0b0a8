//! The machines of the fleet: a real hub and real runners on simulated network and disks.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use qd_hub::{HubConfig, LoginCodes, OwnerToken, serve};
use qd_link::memory::LinkEnd;
use qd_link::runner::{HubConnector, RunnerDialer};
use qd_link::socket::SocketOptions;
use qd_link::url::ServerUrl;
use qd_runner::process::GuardCommand;
use qd_runner::{Runner, RunnerConfig, Uplink};
use qd_store::{HubStore, RunnerRow, RunnerStore, StoreExecution, StoreOptions};
use qd_wire::link::{HelloSession, LinkLine, RunnerHello};
use sha2::{Digest, Sha256};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use turmoil::net::TcpListener;

use crate::checks;
use crate::net::{SimDial, SimListener};
use crate::plan::{Bug, HUB, RUNNERS};
use crate::state::{PORT, TOKEN, World};
use crate::trace;

/// How long a second link waits for the hub.
const WELCOME_MAX: Duration = Duration::from_secs(3);
/// Records of each session that a second link sends again.
const TWIN_LINES: u64 = 3;

/// The hub, until it crashes.
pub(crate) async fn hub(world: Rc<World>) -> turmoil::Result {
    trace::note(HUB, "starts");
    let store = HubStore::open(&world.database(HUB), store_options(&world, HUB))?;
    for runner_id in RUNNERS {
        if store.runner(runner_id).await?.is_none() {
            store.put_runner(runner_row(runner_id)).await?;
        }
    }
    let listener = SimListener(TcpListener::bind(("0.0.0.0", PORT)).await?);
    let mut config = HubConfig::new(OwnerToken::new(TOKEN), LoginCodes::default());
    config.allowed_hosts = vec![HUB.to_owned()];
    config.planted_bug = world.plan.bug.and_then(Bug::of_hub);
    config.limits.ping_after = world.plan.ping;
    config.limits.ring_bytes_max = world.plan.ring_bytes;
    let stop = world.new_stop(HUB);
    serve(config, listener, store.clone(), None, stop.clone()).await?;
    store.close().await;
    ended(HUB, &stop)
}

/// A runner, until it crashes.
pub(crate) async fn runner(world: Rc<World>, name: &'static str) -> turmoil::Result {
    trace::note(name, "starts");
    let store = RunnerStore::open(&world.database(name), store_options(&world, name))?;
    let dialer = Arc::new(dialer(&world, name)?);
    let uplink = Uplink::Dial(Arc::clone(&dialer) as Arc<dyn HubConnector>);
    let stop = world.new_stop(name);
    let runner = Runner::start(runner_config(&world, name), store, uplink, stop.clone()).await?;
    let twins = tokio::task::spawn_local(open_twins(world, name, dialer));
    runner.join().await;
    twins.abort();
    ended(name, &stop)
}

fn ended(host: &str, stop: &CancellationToken) -> turmoil::Result {
    trace::note(host, "stopped");
    if stop.is_cancelled() {
        Ok(())
    } else {
        Err(format!("{host} stopped although nobody asked it to").into())
    }
}

/// Opens a second link when it is told to, as a copy of the runner would, and lets it go after a while.
async fn open_twins(world: Rc<World>, name: &'static str, dialer: Arc<RunnerDialer>) {
    let mut random = world.new_life(&format!("{name} twins"));
    loop {
        sleep(Duration::from_millis(100)).await;
        if !world.twins.borrow_mut().remove(name) {
            continue;
        }
        let link = match dialer.connect().await {
            Ok(link) => link,
            Err(failure) => {
                trace::note(name, &format!("no second link: {failure}"));
                continue;
            }
        };
        trace::note(name, "second link");
        say_it_all_again(&world, name, link, random.millis(0, 1_500)).await;
        trace::note(name, "second link gone");
    }
}

/// Says hello and sends the last records once more, as a runner does that has not heard of their acks.
async fn say_it_all_again(world: &World, name: &str, mut link: LinkEnd, stay: Duration) {
    let path = world.database(name);
    let sessions = checks::runner_sessions(&path).into_iter().map(|session| HelloSession {
        session_id: session.session_id,
        last_seq: session.last_seq,
        state: None,
    });
    let hello = LinkLine::Hello(RunnerHello {
        runner_id: name.to_owned(),
        hostname: name.to_owned(),
        harnesses: vec!["demo".to_owned()],
        max_sessions: 64,
        version: "world".to_owned(),
        os: "sim".to_owned(),
        sessions: sessions.collect(),
        compression: Vec::new(),
    });
    let mut line = serde_json::to_vec(&hello).unwrap_or_default();
    line.push(b'\n');
    let welcome = async {
        link.sender.send(Bytes::from(line)).await.ok()?;
        link.receiver.recv().await
    };
    // A link that ends before its welcome was replaced in its turn, or cut.
    let Ok(Some(_welcome)) = timeout(WELCOME_MAX, welcome).await else { return };
    let block = checks::last_lines(&path, TWIN_LINES);
    if !block.is_empty() {
        // The same.
        let _sent = timeout(WELCOME_MAX, link.sender.send(Bytes::from(block))).await;
    }
    sleep(stay).await;
}

fn store_options(world: &World, name: &str) -> StoreOptions {
    let disk = Arc::clone(&world.disks[name]);
    StoreOptions { execution: StoreExecution::Inline(disk), ..StoreOptions::default() }
}

/// The key of a runner; a secret only in life.
fn key(name: &str) -> String {
    format!("key-of-{name}-0123456789abcdefghijklmnopqrs")
}

fn runner_row(name: &str) -> RunnerRow {
    RunnerRow {
        runner_id: name.to_owned(),
        key_hash: Sha256::digest(key(name).as_bytes()).to_vec(),
        hostname: name.to_owned(),
        harnesses_json: "[\"demo\"]".to_owned(),
        max_sessions: 64,
        joined_at: qd_link::clock::now_ms(),
        ..RunnerRow::default()
    }
}

fn dialer(world: &World, name: &'static str) -> turmoil::Result<RunnerDialer> {
    let url = ServerUrl::parse(&format!("http://hub:{PORT}"))?;
    let mut dialer = RunnerDialer::new(url, name, Arc::new(move || vec![key(name)]));
    dialer.allow_plain = true;
    dialer.dial = Arc::new(SimDial);
    dialer.options = SocketOptions {
        ping_interval: world.plan.ping,
        silence_max: world.plan.silence,
        ..SocketOptions::default()
    };
    Ok(dialer)
}

fn runner_config(world: &World, name: &str) -> RunnerConfig {
    let guard = GuardCommand { program: "/bin/false".into(), args: Vec::new() };
    RunnerConfig {
        hostname: name.to_owned(),
        version: "world".to_owned(),
        max_sessions: 64,
        spool_bytes_max: world.plan.spool_bytes,
        planted_bug: world.plan.bug.and_then(Bug::of_runner),
        ..RunnerConfig::new(name, world.dir.join(name), guard)
    }
}
