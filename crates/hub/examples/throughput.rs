//! What the hub's part costs: events from the link to clients in another process.
//!
//! `cargo run --release -p qd-hub --example throughput`
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a measurement that cannot go on should stop")]

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

use bytes::Bytes;
use qd_hub::{HubConfig, LocalRunner, LoginCodes, OwnerToken, serve};
use qd_link::memory::{LinkEnd, LinkSender, pair};
use qd_store::{HubStore, StoreOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const EVENT: &str = r#"{"type":"event","session_id":"s1","runner_id":"local","ts":1738764000000,"event":"stream.text_delta","message_id":"m_0123456789ab","delta":"some words of a model, fourty or so bytes","content_index":0,"offset":123456}"#;
const EVENTS_PER_BLOCK: usize = 64;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if arguments.get(1).is_some_and(|mode| mode == "clients") {
        runtime.worker_threads(1);
        let runtime = runtime.enable_all().build().unwrap();
        runtime.block_on(clients(
            &arguments[2],
            arguments[3].parse().unwrap(),
            arguments[4].parse().unwrap(),
        ));
        return;
    }
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        // First, while the process is fresh: later it would fill memory freed by the other measurements.
        idle(1000).await;
        for (clients, events) in [(1, 4_000_000), (1, 4_000_000), (100, 100_000), (100, 100_000)] {
            measure(clients, events).await;
        }
        records(200_000).await;
        commands(200_000).await;
    });
}

async fn start(directory: &std::path::Path) -> (std::net::SocketAddr, LinkEnd, CancellationToken) {
    let store = HubStore::open(&directory.join("hub.db"), StoreOptions::default()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (hub_end, link) = pair();
    let shutdown = CancellationToken::new();
    let config = HubConfig::new(OwnerToken::new("t"), LoginCodes::default());
    let local = Some(LocalRunner { runner_id: "local".to_owned(), link: hub_end });
    tokio::spawn(serve(config, listener, store, local, shutdown.clone()));
    let hello = r#"{"type":"runner.hello","runner_id":"local","hostname":"h","harnesses":[],"max_sessions":1,"version":"1","os":"linux"}"#;
    let created = r#"{"type":"event","session_id":"s1","runner_id":"local","ts":1,"seq":1,"event":"session.created","resumed":false,"harness":"demo"}"#;
    link.sender.send(Bytes::from(format!("{hello}\n{created}\n"))).await.unwrap();
    (address, link, shutdown)
}

/// A process with clients that are attached, and what it prints next.
fn spawn_clients(
    address: std::net::SocketAddr,
    clients: usize,
    events: usize,
) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["clients", &address.to_string(), &clients.to_string(), &events.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(tokio::task::block_in_place(|| lines.next().unwrap().unwrap()), "ready");
    (child, lines)
}

/// Answers every attach until the link is gone.
async fn answer_attaches(mut link: LinkEnd) {
    while let Some(block) = link.receiver.recv().await {
        for line in std::str::from_utf8(&block).unwrap().lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            if line["type"] == "command" {
                if line.get("client_command_id").is_none() {
                    eprintln!("a client fell behind");
                }
                let answer = format!(
                    r#"{{"type":"response","id":{},"session_id":"s1","runner_id":"local","ts":1,"cmd":"session.attach","success":true,"data":{{"resume":"ok","seq":1,"state":{{}},"pending_input":[]}}}}"#,
                    line["id"]
                );
                link.sender.send(Bytes::from(answer + "\n")).await.unwrap();
            }
        }
    }
}

async fn measure(clients: usize, events: usize) {
    let directory = tempfile::tempdir().unwrap();
    let (address, link, shutdown) = start(directory.path()).await;
    let sender: LinkSender = link.sender.clone();
    let script = tokio::spawn(answer_attaches(link));
    let (mut child, mut lines) = spawn_clients(address, clients, events);

    let block = Bytes::from(format!("{EVENT}\n").repeat(EVENTS_PER_BLOCK));
    let (began, cpu) = (Instant::now(), cpu_seconds());
    for _ in 0..events / EVENTS_PER_BLOCK {
        sender.send(block.clone()).await.unwrap();
    }
    assert_eq!(tokio::task::block_in_place(|| lines.next().unwrap().unwrap()), "done");
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let deliveries = (events * clients) as f64;
    println!(
        "{clients:>4} clients, {events} events of {} bytes: {:.0} events/s, {:.0} deliveries/s, {:.3} us of CPU a delivery",
        EVENT.len(),
        events as f64 / seconds,
        deliveries / seconds,
        cpu / deliveries * 1e6
    );
    child.wait().unwrap();
    shutdown.cancel();
    script.abort();
}

/// Records that are stored and acked, while nobody listens.
async fn records(count: usize) {
    let directory = tempfile::tempdir().unwrap();
    let (_, mut link, shutdown) = start(directory.path()).await;
    let began = Instant::now();
    let sender = link.sender.clone();
    tokio::spawn(async move {
        for first in (0..count).step_by(EVENTS_PER_BLOCK) {
            let lines: String = (first..count.min(first + EVENTS_PER_BLOCK))
                .map(|number| {
                    EVENT.replace(
                        "\"event\":\"stream.text_delta\"",
                        &format!("\"seq\":{},\"event\":\"tool.end\"", number + 2),
                    ) + "\n"
                })
                .collect();
            sender.send(Bytes::from(lines)).await.unwrap();
        }
    });
    let last = format!("\"seq\":{}}}", count + 1);
    while let Some(block) = link.receiver.recv().await {
        if std::str::from_utf8(&block).unwrap().contains(&last) {
            break;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let store = HubStore::open(&directory.path().join("hub.db"), StoreOptions::default()).unwrap();
    let rest = store.records_after("s1", count as u64 - 1, 10, 1 << 20).await.unwrap();
    assert_eq!(rest.len(), 2, "acked but not stored");
    println!("{count} records with ack: {:.0} records/s", count as f64 / seconds);
    shutdown.cancel();
}

/// Reads answered by the runner, 32 in flight on one connection.
async fn commands(count: usize) {
    let directory = tempfile::tempdir().unwrap();
    let (address, link, shutdown) = start(directory.path()).await;
    let script = tokio::spawn(answer_reads(link));
    let mut stream = connect(&address.to_string()).await;
    let (mut reader, mut writer) = stream.split();
    let text = br#"{"channel":"agent","id":"a1234","session_id":"s1","cmd":"get_state"}"#;
    let mut frame = vec![0x81, 0x80 | text.len() as u8, 0, 0, 0, 0];
    frame.extend_from_slice(text);
    let began = Instant::now();
    writer.write_all(&frame.repeat(32)).await.unwrap();
    let (mut sent, mut seen, mut buffer) = (32, 0, vec![0; 64 << 10]);
    while seen < count {
        let length = reader.read(&mut buffer).await.unwrap();
        assert!(length > 0, "the hub hung up");
        // Each answer has the id once; one that is cut by the end of the buffer is not counted twice.
        let answers = buffer[..length].windows(4).filter(|window| *window == b"a123").count();
        seen += answers;
        let more = answers.min(count.saturating_sub(sent));
        sent += more;
        writer.write_all(&frame.repeat(more)).await.unwrap();
        if sent >= count && seen + 32 >= count {
            break;
        }
    }
    println!(
        "{count} reads of the runner, 32 in flight: {:.0} commands/s",
        count as f64 / began.elapsed().as_secs_f64()
    );
    shutdown.cancel();
    script.abort();
}

async fn answer_reads(mut link: LinkEnd) {
    while let Some(block) = link.receiver.recv().await {
        let mut out = String::new();
        for line in std::str::from_utf8(&block).unwrap().lines() {
            if let Some(rest) = line.strip_prefix("{\"type\":\"command\",\"id\":") {
                let id = rest.split(',').next().unwrap();
                out.push_str(&format!(
                    "{{\"type\":\"response\",\"id\":{id},\"session_id\":\"s1\",\"runner_id\":\"local\",\"ts\":1,\"cmd\":\"get_state\",\"success\":true,\"data\":{{}}}}\n"
                ));
            }
        }
        if !out.is_empty() {
            link.sender.send(Bytes::from(out)).await.unwrap();
        }
    }
}

async fn idle(clients: usize) {
    let directory = tempfile::tempdir().unwrap();
    let (address, link, _shutdown) = start(directory.path()).await;
    let script = tokio::spawn(answer_attaches(link));
    let (mut warm, _) = spawn_clients(address, 100, 1_000_000);
    let before = resident_kib();
    let (mut many, _) = spawn_clients(address, clients, 1_000_000);
    let after = resident_kib();
    println!("{clients} attached clients: {:.1} KiB resident each", (after - before) as f64 / clients as f64);
    for child in [&mut warm, &mut many] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    script.abort();
}

/// Connects, attaches, and reads until every client has had all events.
async fn clients(address: &str, count: usize, events: usize) {
    let mut streams = Vec::new();
    for _ in 0..count {
        let mut stream = connect(address).await;
        let attach = br#"{"channel":"agent","id":"a","session_id":"s1","cmd":"session.attach","after":1}"#;
        let mut frame = vec![0x81, 0x80 | attach.len() as u8, 0, 0, 0, 0];
        frame.extend_from_slice(attach);
        stream.write_all(&frame).await.unwrap();
        read_until(&mut stream, b"\"resume\":\"ok\"").await;
        streams.push(stream);
    }
    println!("ready");
    let frame_bytes = EVENT.len() + 3 + 4;
    let wanted = events / EVENTS_PER_BLOCK * EVENTS_PER_BLOCK * frame_bytes;
    let readers = streams.into_iter().map(|mut stream| {
        tokio::spawn(async move {
            let mut buffer = vec![0; 256 << 10];
            let mut seen = 0;
            while seen < wanted {
                let length = stream.read(&mut buffer).await.unwrap();
                assert!(length > 0, "the hub hung up");
                seen += length;
            }
        })
    });
    for reader in readers.collect::<Vec<_>>() {
        reader.await.unwrap();
    }
    println!("done");
}

/// A WebSocket that has had its first frame.
async fn connect(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET /ws/mux?token=t HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    read_until(&mut stream, b"connected").await;
    stream
}

/// Reads until the text has come. What comes after it is a ping at most, since nothing streams yet.
async fn read_until(stream: &mut TcpStream, text: &[u8]) {
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    while !seen.windows(text.len()).any(|window| window == text) {
        let length = stream.read(&mut buffer).await.unwrap();
        assert!(length > 0, "the hub hung up");
        seen.extend_from_slice(&buffer[..length]);
    }
}

/// User and system time of this process.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    ticks as f64 / 100.0
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
