//! Prints how fast the driver of terminals reads a flood, beside a plain reader of the same terminal; and how long an
//! echo takes. Run it with `cargo run --release -p qd-runner --example pty_throughput`.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program to be read by people")]
#![allow(clippy::disallowed_methods, reason = "it measures real time")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use bytes::Bytes;
use qd_runner::driver::{AgentProgress, Driver, StartRequest};
use qd_runner::process::{CloseMode, Environment, GuardCommand, ProcessConfig, SpawnSpec, Terminal};
use qd_runner::{Runner, RunnerConfig, Uplink};
use qd_store::{RunnerStore, StoreOptions};
use qd_wire::command::SessionConfig;
use qd_wire::run::RunConfig;
use tokio_util::sync::CancellationToken;

const FLOOD: [&str; 3] = ["seq", "1", "2000000"];
const FLOOD_BYTES: usize = 16_888_896;
const ROUNDS: usize = 5;
const ECHOES: usize = 2000;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|word| word == "guard") {
        return qd_runner::guard::main(args);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for _ in 0..ROUNDS {
            let plain = plain_reader().await;
            let (driver, pieces) = driver_flood().await;
            println!(
                "plain {:7.1} MB/s   driver {:7.1} MB/s   ({:.2} of it, {pieces} pieces)",
                rate(plain),
                rate(driver),
                plain.as_secs_f64() / driver.as_secs_f64()
            );
        }
        echoes().await;
        for _ in 0..ROUNDS {
            let plain = plain_reader().await;
            let runner = runner_flood().await;
            println!(
                "plain {:7.1} MB/s   runner {:7.1} MB/s   ({:.2} of it; stored, and sent to a hub in memory)",
                rate(plain),
                rate(runner),
                plain.as_secs_f64() / runner.as_secs_f64()
            );
        }
    });
    ExitCode::SUCCESS
}

fn rate(took: Duration) -> f64 {
    FLOOD_BYTES as f64 / 1e6 / took.as_secs_f64()
}

/// As fast as the kernel gives it: a thread that reads and counts.
async fn plain_reader() -> Duration {
    let terminal = Terminal::open(80, 24).unwrap();
    let began = Instant::now();
    let spawn = SpawnSpec {
        program: FLOOD.map(Into::into).to_vec(),
        cwd: "/".into(),
        environment: Environment::default(),
        guard: GuardCommand::current().unwrap(),
        config: ProcessConfig::default(),
    };
    let process = spawn.start_in(&terminal).await.unwrap();
    let count = tokio::task::spawn_blocking(move || {
        use rustix::event::{PollFd, PollFlags, poll};
        let (mut buffer, mut count) = (vec![0; 65536], 0);
        loop {
            match terminal.read(&mut buffer) {
                Ok(0) => return count,
                Ok(read) => count += read,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    poll(&mut [PollFd::new(&terminal, PollFlags::IN)], None).unwrap();
                }
                Err(_) => return count,
            }
        }
    });
    let count = count.await.unwrap();
    let took = began.elapsed();
    process.exited().await;
    assert_eq!(count, FLOOD_BYTES);
    took
}

async fn driver_flood() -> (Duration, usize) {
    let began = Instant::now();
    let mut driver = start(&FLOOD).await;
    let (mut count, mut pieces) = (0, 0);
    let mut took = began.elapsed();
    loop {
        match driver.next(&mut Vec::new()).await {
            AgentProgress::Output(texts) => {
                pieces += texts.len();
                count += texts.iter().map(String::len).sum::<usize>();
                took = began.elapsed();
            }
            AgentProgress::Exited(_) => break,
            AgentProgress::Events | AgentProgress::Gone { .. } => {}
        }
    }
    assert_eq!(count, FLOOD_BYTES);
    (took, pieces)
}

async fn echoes() {
    let mut driver = start(&["cat"]).await;
    let mut times = Vec::new();
    for _ in 0..ECHOES {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let began = Instant::now();
        driver.handle().terminal().unwrap().write("x").unwrap();
        driver.next(&mut Vec::new()).await;
        times.push(began.elapsed());
        // The line must not grow beyond what a terminal takes.
        if times.len().is_multiple_of(1000) {
            driver.handle().terminal().unwrap().write("\n").unwrap();
            driver.next(&mut Vec::new()).await;
        }
        // A quiet terminal, as between the keys of a person.
        tokio::time::sleep(Duration::from_millis(11)).await;
    }
    times.sort();
    println!(
        "echo p50 {:?}   p99 {:?}   max {:?}",
        times[ECHOES / 2],
        times[ECHOES * 99 / 100],
        times[ECHOES - 1]
    );
    driver.close(CloseMode::Graceful).await;
}

/// The whole runner: records, store, link.
async fn runner_flood() -> Duration {
    let folder = tempfile::tempdir().unwrap();
    let store = RunnerStore::open(&folder.path().join("runner.db"), StoreOptions::default()).unwrap();
    let (ours, mut hub) = qd_link::memory::pair();
    let shutdown = CancellationToken::new();
    let mut config = config();
    config.data_dir = folder.path().to_owned();
    let start = Runner::start(config, store, Uplink::Memory(ours), shutdown.clone());
    let greet = async {
        hub.receiver.recv().await.unwrap();
        let welcome = "{\"type\":\"runner.welcome\",\"runner_id\":\"bench\"}\n";
        hub.sender.send(Bytes::from_static(welcome.as_bytes())).await.unwrap();
    };
    let (runner, ()) = tokio::join!(start, greet);
    let began = Instant::now();
    let create = serde_json::json!({"type": "command", "id": "1", "cmd": "session.create", "session_id": "s",
        "config": {"harness": "pty", "cwd": "/", "run": {"argv": FLOOD}}});
    hub.sender.send(Bytes::from(format!("{create}\n"))).await.unwrap();
    let mut texts = Vec::new();
    'all: loop {
        let block = hub.receiver.recv().await.unwrap();
        let mut last = None;
        for line in block.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            if memchr::memmem::find(line, b"\"event\":\"run.exited\"").is_some() {
                break 'all;
            }
            if memchr::memmem::find(&line[..line.len().min(200)], b"\"event\":\"run.output\"").is_some() {
                last = Some(line);
                texts.push(block.slice_ref(line));
            }
        }
        if let Some(line) = last {
            let head = &line[..line.len().min(200)];
            let at = memchr::memmem::find(head, b"\"seq\":").unwrap() + 6;
            let seq: String =
                head[at..].iter().take_while(|b| b.is_ascii_digit()).map(|b| *b as char).collect();
            let ack = format!("{{\"type\":\"ack\",\"session_id\":\"s\",\"seq\":{seq}}}\n");
            hub.sender.send(Bytes::from(ack)).await.unwrap();
        }
    }
    let took = began.elapsed();
    let mut count = 0;
    for line in texts {
        let line: serde_json::Value = serde_json::from_slice(&line).unwrap();
        count += line["text"].as_str().unwrap().len();
    }
    assert_eq!(count, FLOOD_BYTES);
    shutdown.cancel();
    tokio::join!(runner.unwrap().join(), async { while hub.receiver.recv().await.is_some() {} });
    took
}

async fn start(argv: &[&str]) -> Driver {
    let run =
        RunConfig { argv: argv.iter().map(|word| (*word).to_owned()).collect(), ..RunConfig::default() };
    let request = StartRequest {
        session_id: "bench".into(),
        config: SessionConfig { harness: "pty".into(), run: Some(run), ..SessionConfig::default() },
        cwd: "/".into(),
        native_session_id: None,
        native_session_file: None,
        is_native_file_written: false,
        bridge: false,
    };
    qd_runner::driver::start(&config(), request).await.unwrap()
}

fn config() -> RunnerConfig {
    RunnerConfig::new("bench", "/tmp".into(), GuardCommand::current().unwrap())
}
