//! Ten thousand clients in one process, and what those of busy sessions see.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use memchr::memmem::find;
use tokio::task::JoinHandle;

use crate::client::Client;
use crate::clock::{self, wall_nanoseconds};
use crate::error::Outcome;
use crate::process::Server;

/// Small, so that ten thousand of them fit.
const BUFFER_BYTES: usize = 4 << 10;
/// One event in so many is timed.
const TIMED_EACH: u64 = 16;
const CATCH_UP_MAX: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What the clients of busy sessions saw, all together.
#[derive(Default)]
pub(super) struct SeenEvents {
    pub(super) events: u64,
    pub(super) resyncs: u64,
    pub(super) missing: u64,
    pub(super) behind: u64,
    /// Milliseconds.
    pub(super) latencies: Vec<u64>,
}

/// All clients; the connections close when dropped.
pub(super) struct FleetClients {
    busy: Vec<(usize, Client)>,
    idle: Vec<JoinHandle<()>>,
}

impl Drop for FleetClients {
    fn drop(&mut self) {
        self.idle.iter().for_each(JoinHandle::abort);
    }
}

/// One client's reading.
#[derive(Default)]
struct EventReader {
    seen: SeenEvents,
    last_seq: u64,
    settled: u64,
}

impl EventReader {
    fn frame(&mut self, frame: &[u8]) {
        let head = &frame[..frame.len().min(220)];
        let Some(at) = find(head, b"\"event\":\"") else { return };
        let name = &head[at + 9..];
        if name.starts_with(b"response") {
            return;
        }
        self.seen.events += 1;
        if name.starts_with(b"session.resync") {
            self.seen.resyncs += 1;
            return;
        }
        if name.starts_with(b"agent.idle") {
            self.settled += 1;
        }
        if let Some(seq) = number(&head[..at], b"\"seq\":") {
            // A session's first record tells where we came in.
            if self.last_seq != 0 && seq != self.last_seq + 1 {
                self.seen.missing += 1;
            }
            self.last_seq = seq;
        }
        if self.seen.events.is_multiple_of(TIMED_EACH)
            && let Some(ts) = number(&head[..at], b"\"ts\":")
        {
            self.seen.latencies.push((wall_nanoseconds() / 1_000_000).saturating_sub(ts));
        }
    }
}

fn number(head: &[u8], name: &[u8]) -> Option<u64> {
    let rest = &head[find(head, name)? + name.len()..];
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |value, digit| value * 10 + u64::from(digit - b'0')))
}

impl FleetClients {
    /// Connects and attaches everybody: `busy_count` to the busy sessions, the rest to the others.
    pub(super) async fn attach(
        hub: &Server,
        busy: &[String],
        busy_count: usize,
        rest: &[String],
        count: usize,
    ) -> Outcome<FleetClients> {
        let mut clients_of_fleet = FleetClients { busy: Vec::new(), idle: Vec::new() };
        for number in 0..count {
            let mut client = Client::connect_small(hub, BUFFER_BYTES).await?;
            if number < busy_count {
                let session = number % busy.len();
                client.attach(&busy[session]).await?;
                clients_of_fleet.busy.push((session, client));
            } else {
                client.attach(&rest[number % rest.len()]).await?;
                clients_of_fleet.idle.push(tokio::spawn(read_on(client)));
            }
        }
        Ok(clients_of_fleet)
    }

    /// Lets the busy sessions talk for a while; everybody reads until the last record of its session.
    pub(super) async fn work(&mut self, busy: &[String], time: Duration) -> Outcome<SeenEvents> {
        let until = clock::now() + time;
        let ends: Vec<Arc<AtomicU64>> = busy.iter().map(|_| Arc::default()).collect();
        let mut readers = Vec::new();
        for (number, (session, client)) in std::mem::take(&mut self.busy).into_iter().enumerate() {
            let (name, end) = (busy[session].clone(), Arc::clone(&ends[session]));
            // The first client of each session is the one who asks.
            readers.push(if number < busy.len() {
                tokio::spawn(drive(client, name, until, end))
            } else {
                tokio::spawn(follow(client, until, end))
            });
        }
        let mut all = SeenEvents::default();
        for reader in readers {
            let (client, seen) = reader.await??;
            all.events += seen.events;
            all.resyncs += seen.resyncs;
            all.missing += seen.missing;
            all.behind += seen.behind;
            all.latencies.extend(seen.latencies);
            self.idle.push(tokio::spawn(read_on(client)));
        }
        Ok(all)
    }
}

/// Reads and forgets: heartbeats and pings come to everybody.
async fn read_on(mut client: Client) {
    while client.read(|_| {}).await.is_ok() {}
}

/// Asks again whenever the agent is done, then says which record was the last.
async fn drive(
    mut client: Client,
    session: String,
    until: Instant,
    end: Arc<AtomicU64>,
) -> Outcome<(Client, SeenEvents)> {
    let mut reader = EventReader::default();
    while clock::now() < until {
        client.prompt(Some(&session), "/thinking").await?;
        let turns = reader.settled + 1;
        while reader.settled < turns {
            client.read(|frame| reader.frame(frame)).await?;
        }
    }
    end.store(reader.last_seq, Ordering::Release);
    Ok((client, reader.seen))
}

async fn follow(mut client: Client, until: Instant, end: Arc<AtomicU64>) -> Outcome<(Client, SeenEvents)> {
    let mut reader = EventReader::default();
    let give_up = until + CATCH_UP_MAX;
    loop {
        let last = end.load(Ordering::Acquire);
        if last != 0 && reader.last_seq >= last {
            break;
        }
        if clock::now() > give_up {
            reader.seen.behind = 1;
            break;
        }
        // Reading can be given up at any await and taken up again.
        if let Ok(read) = tokio::time::timeout(LOOK_AGAIN, client.read(|frame| reader.frame(frame))).await {
            read?;
        }
    }
    Ok((client, reader.seen))
}
