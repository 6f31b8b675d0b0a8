//! The settings of the pi-server face. What the command line and the file of settings say lies over these defaults.

use std::time::Duration;

/// How the pi-server face runs, with the defaults of every bound.
#[derive(Debug, Clone)]
pub struct PiServerConfig {
    /// Said in `server_ready`.
    pub server_version: String,
    /// Said in `server_ready`: `websocket`, and `stdio` where there is one.
    pub transports: Vec<String>,
    /// Everybody who can reach the listener may do everything. For loopback only; the caller checks that.
    pub insecure_no_auth: bool,
    /// Commands a minute in one bucket of one principal; 0 for no limit.
    pub rate_per_minute: u32,
    /// Commands a minute of one principal; 0 for no limit.
    pub global_rate_per_minute: u32,
    /// Answers to dialogs a minute for one session of one principal; 0 for no limit.
    pub ui_rate_per_minute: u32,
    /// The greatest message a client may send; a greater one is refused and the connection stays.
    pub message_bytes_max: usize,
    /// Connections of this face.
    pub connections_max: usize,
    /// Commands of one connection that wait for their answer.
    pub pending_max: usize,
    /// Outcomes kept for replay.
    pub outcomes_max: usize,
    /// Bytes of outcomes kept for replay.
    pub outcome_bytes_max: usize,
    /// Commands of everybody that wait for their answer.
    pub in_flight_max: usize,
    /// Those of one principal.
    pub in_flight_per_principal_max: usize,
    /// How long an idempotency key is remembered.
    pub key_life: Duration,
    /// How long a command waits for all that it depends on.
    pub dependency_wait: Duration,
    /// The time limit of work: prompts, compaction, shell commands.
    pub work_timeout: Duration,
    /// The time limit of reads and aborts.
    pub read_timeout: Duration,
    /// Above so many bytes that a client has not read, broadcasts and events are dropped and counted.
    pub backlog_bytes_max: usize,
    /// Sessions that have an agent; `create_session` and `load_session` are refused above. Runners have limits of
    /// their own.
    pub sessions_max: usize,
    /// How long work under way gets when the hub stops; said in `server_shutdown`. All of a stop takes less than ten
    /// seconds, so this is not much.
    pub shutdown_timeout: Duration,
}

impl Default for PiServerConfig {
    fn default() -> Self {
        Self {
            server_version: env!("CARGO_PKG_VERSION").to_owned(),
            transports: vec!["websocket".to_owned()],
            insecure_no_auth: false,
            rate_per_minute: 100,
            global_rate_per_minute: 1000,
            ui_rate_per_minute: 60,
            message_bytes_max: 10 << 20,
            connections_max: 1000,
            pending_max: 100,
            outcomes_max: 10_000,
            outcome_bytes_max: 64 << 20,
            in_flight_max: 10_000,
            in_flight_per_principal_max: 5_000,
            key_life: Duration::from_secs(600),
            dependency_wait: Duration::from_secs(30),
            work_timeout: Duration::from_secs(300),
            read_timeout: Duration::from_secs(30),
            backlog_bytes_max: 1 << 20,
            sessions_max: 100,
            shutdown_timeout: Duration::from_secs(4),
        }
    }
}
