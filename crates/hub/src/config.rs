//! What the caller of `serve` decides, with the defaults of every bound.

use std::path::PathBuf;
use std::time::Duration;

use crate::access::authenticate::OwnerToken;
use crate::access::login::LoginCodes;
use crate::connection::MailboxBounds;
use crate::faces::FaceSettings;
use crate::server::assets::AppFile;
use crate::server::tls::HubTls;

/// Thirty days: a phone that is used now and then stays logged in.
const LOGIN_LIFE_DEFAULT: Duration = Duration::from_secs(720 * 3600);
/// Long enough to look into what somebody has noticed late.
const AUDIT_LIFE_DEFAULT: Duration = Duration::from_secs(90 * 24 * 3600);

/// How a hub runs.
#[derive(Clone)]
pub struct HubConfig {
    /// The version shown to clients.
    pub server_version: String,
    pub owner_token: OwnerToken,
    /// Kept by the caller too, who issues codes from it.
    pub login_codes: LoginCodes,
    /// Names beside the loopback ones under which clients may ask for us (`Host`), without port.
    pub allowed_hosts: Vec<String>,
    /// A login that is not used for this long is over.
    pub login_life: Duration,
    /// What is known of who did what is kept for this long; `None` for ever.
    pub audit_life: Option<Duration>,
    /// Serve TLS with this certificate; without it, plain.
    pub tls: Option<HubTls>,
    /// Where the log is written; without it nobody can read it over HTTP.
    pub log_path: Option<PathBuf>,
    /// The browser app; without it there is a page that says how to build it.
    pub app: &'static [AppFile],
    pub limits: Limits,
    pub faces: FaceSettings,
    /// A fault the simulated world has to find; never set outside its tests.
    #[cfg(feature = "planted-bugs")]
    #[doc(hidden)]
    pub planted_bug: Option<PlantedBug>,
}

/// Faults that are built in on purpose, so that the simulated world can prove it finds such.
#[cfg(feature = "planted-bugs")]
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedBug {
    /// Records are acked when they are read, before the store has them.
    AckBeforeCommit,
    /// A record that was seen already counts as new.
    ResendWithoutDedupe,
}

impl HubConfig {
    /// Defaults for everything but the secrets.
    pub fn new(owner_token: OwnerToken, login_codes: LoginCodes) -> Self {
        Self {
            server_version: env!("CARGO_PKG_VERSION").to_owned(),
            owner_token,
            login_codes,
            allowed_hosts: Vec::new(),
            login_life: LOGIN_LIFE_DEFAULT,
            audit_life: Some(AUDIT_LIFE_DEFAULT),
            tls: None,
            log_path: None,
            app: &[],
            limits: Limits::default(),
            faces: FaceSettings::default(),
            #[cfg(feature = "planted-bugs")]
            planted_bug: None,
        }
    }
}

/// Every bound of the hub that may be changed.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Events of one session kept for subscribers that have not taken them yet.
    pub ring_bytes_max: usize,
    /// The greatest message a client may send.
    pub message_bytes_max: usize,
    /// Commands of one connection that wait for their answer.
    pub in_flight_max: usize,
    /// Sessions one connection may follow, those it is about to follow included.
    pub attachments_max: usize,
    /// WebSocket connections of all clients together.
    pub connections_max: usize,
    /// HTTP connections of a listener whose request is not authenticated: idle, half sent, shaking hands, or of
    /// somebody unknown. Beyond it the one that has been idle longest is closed for a newcomer.
    pub unauthenticated_max: usize,
    /// The same for those of one address. Half of all, since everybody behind a local proxy has one address.
    pub unauthenticated_per_address_max: usize,
    /// HTTP connections of a listener whose request is authenticated, which nobody takes from them.
    pub authenticated_max: usize,
    /// A peer that takes nothing of what is written for this long is disconnected, whatever the connection carries.
    pub write_stall_max: Duration,
    /// Bytes that may wait for a client that takes none of them for `stall_max`.
    pub held_bytes_max: usize,
    pub stall_max: Duration,
    /// A silent client is pinged after this, and dropped when it stays silent as long again.
    pub ping_after: Duration,
    /// A connected runner that says nothing for this long, not even a heartbeat, is shown as unhealthy.
    pub runner_silence_max: Duration,
    /// How long clients get to take their last frames when the hub stops.
    pub shutdown_grace: Duration,
    /// Replaces the time limit of every command that has one. For tests.
    pub command_timeout: Option<Duration>,
}

impl Limits {
    pub(crate) fn mail_bounds(&self) -> MailboxBounds {
        MailboxBounds { held_bytes_max: self.held_bytes_max, stall_max: self.stall_max }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ring_bytes_max: 1 << 20,
            message_bytes_max: 32 << 20,
            in_flight_max: 1024,
            attachments_max: 1024,
            connections_max: 16_384,
            unauthenticated_max: 512,
            unauthenticated_per_address_max: 256,
            authenticated_max: 512,
            write_stall_max: Duration::from_secs(30),
            held_bytes_max: 64 << 20,
            stall_max: Duration::from_secs(10),
            ping_after: Duration::from_secs(20),
            runner_silence_max: Duration::from_secs(30),
            shutdown_grace: Duration::from_secs(4),
            command_timeout: None,
        }
    }
}
