//! Hello and welcome: each side says what it has.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use qd_link::memory::{LinkEnd, LinkReceiver};
use qd_wire::data::SessionState;
use qd_wire::link::{HelloSession, LinkLine, RunnerHello, RunnerWelcome};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{LinkEndReason, UplinkTask, note_refused_session};
use crate::hub_delivery::HubLink;
use crate::session::{RunnerContext, SessionInput};

/// How long the hub may take to say welcome.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(10);

/// How long all sessions together may take to say how they stand; a busy one goes without.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(1);

/// The packing of blocks we understand.
pub(super) const DEFLATE: &str = "deflate";

/// A link after its welcome.
pub(crate) struct WelcomedLink {
    pub(super) link: HubLink,
    pub(super) receiver: LinkReceiver,
    /// What came in one block with the welcome.
    pub(super) rest: Bytes,
}

impl UplinkTask {
    /// `compression` is what may be agreed on.
    pub(super) async fn handshake(
        &self,
        link: LinkEnd,
        compression: &[&str],
    ) -> Result<WelcomedLink, LinkEndReason> {
        let LinkEnd { sender, mut receiver } = link;
        let hello = self.hello(compression).await;
        let exchange = async {
            if sender.send(hello).await.is_err() {
                return None;
            }
            receiver.recv().await
        };
        let answer = tokio::time::timeout(WELCOME_TIMEOUT, exchange).await;
        let lost =
            |reason: &str| LinkEndReason::Lost(format!("the hub did not welcome the runner: {reason}"));
        let block = answer.map_err(|_| lost("it did not answer"))?;
        let block = block.ok_or_else(|| lost(&receiver.close_reason()))?;
        let length = memchr::memchr(b'\n', &block).map_or(block.len(), |end| end + 1);
        let welcome = match serde_json::from_slice(block[..length].trim_ascii_end()) {
            Ok(LinkLine::Welcome(welcome)) => welcome,
            Ok(LinkLine::Refused { reason, code }) => return Err(LinkEndReason::Refused(reason, code)),
            _ => return Err(lost("its first line was something else")),
        };
        if welcome.compression.as_deref().is_some_and(|agreed| compression.contains(&agreed)) {
            sender.set_compression(true);
        }
        let origin = self.shared.hub_delivery.new_origin();
        let link = HubLink { origin, sender, cut: CancellationToken::new() };
        self.start_using(&link, &welcome);
        self.announce_next_key(origin);
        Ok(WelcomedLink { link, receiver, rest: block.slice(length..) })
    }

    async fn hello(&self, compression: &[&str]) -> Bytes {
        let config = &self.shared.config;
        let mut states = describe_all(&self.shared).await;
        let sessions = self.shared.hub_delivery.sessions().into_iter().map(|(session_id, last_seq)| {
            let state = states.remove(&session_id);
            HelloSession { session_id, last_seq, state }
        });
        let hello = LinkLine::Hello(RunnerHello {
            runner_id: config.runner_id.clone(),
            hostname: config.hostname.clone(),
            harnesses: config.harnesses.installed(),
            max_sessions: config.max_sessions as u64,
            version: config.version.clone(),
            os: std::env::consts::OS.to_owned(),
            sessions: sessions.collect(),
            compression: compression.iter().map(|name| (*name).to_owned()).collect(),
        });
        // Our own types have string keys only, so writing them cannot fail.
        let mut line = serde_json::to_vec(&hello).unwrap_or_default();
        line.push(b'\n');
        line.into()
    }

    /// Takes the welcome as the ack it is, and lets the sessions use the link.
    fn start_using(&self, link: &HubLink, welcome: &RunnerWelcome) {
        let RunnerContext { hub_delivery, store, .. } = &*self.shared;
        let hub_seqs: BTreeMap<String, u64> =
            welcome.sessions.iter().map(|session| (session.session_id.clone(), session.last_seq)).collect();
        hub_delivery.link_up(link.clone(), &hub_seqs);
        for refused in &welcome.refused {
            note_refused_session(&self.shared, link.origin, &refused.session_id, &refused.reason);
        }
        for (session_id, published) in hub_delivery.sessions() {
            let is_refused = welcome.refused.iter().any(|refused| refused.session_id == session_id);
            let Some(seq) = hub_seqs.get(&session_id).filter(|_| !is_refused) else { continue };
            store.ack(&session_id, *seq);
            if *seq > published {
                hub_delivery.post_to_session(&session_id, SessionInput::HubHas(*seq));
            }
        }
    }
}

/// Asks every session how it stands.
pub(crate) async fn describe_all(shared: &RunnerContext) -> BTreeMap<String, Box<SessionState>> {
    let mut asked = Vec::new();
    for (session_id, sender) in shared.hub_delivery.mailboxes.lock().iter() {
        let (answer, state) = oneshot::channel();
        // A session whose mailbox is full is busy: it goes without.
        if sender.try_send(SessionInput::Describe(answer)).is_ok() {
            asked.push((session_id.clone(), state));
        }
    }
    let deadline = tokio::time::Instant::now() + DESCRIBE_TIMEOUT;
    let mut states = BTreeMap::new();
    for (session_id, state) in asked {
        if let Ok(Ok(state)) = tokio::time::timeout_at(deadline, state).await {
            states.insert(session_id, state);
        }
    }
    states
}
