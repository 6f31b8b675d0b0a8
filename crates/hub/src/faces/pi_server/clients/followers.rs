//! Who gets a session's events, and what becomes of those who do not read them.
//!
//! A follower that does not read is not waited for: its events are counted, and when it has read what it had, it is
//! told how many it missed and how the session stands now. The runner sends native events only while somebody
//! follows.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use qd_link::mutex::Mutex;
use qd_wire::pi_server::FaceEvent;

use crate::command::ask::watch;
use crate::faces::pi_server::clients::client::PiClient;
use crate::faces::pi_server::commands::lifecycle;
use crate::hub::Hub;
use crate::sessions::session::SessionEntry;

/// The sessions that somebody follows. Locked after the pending commands, never before it.
#[derive(Default)]
pub(crate) struct SessionFollowers {
    sessions: Mutex<HashMap<Arc<str>, FollowedSession>>,
}

struct FollowedSession {
    entry: Arc<SessionEntry>,
    /// Commands under way whose success is one more follower.
    joining: usize,
    followers: Vec<Follower>,
}

struct Follower {
    client: Arc<PiClient>,
    place: FollowerPosition,
    /// Events dropped since the client was last told.
    missed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FollowerPosition {
    /// Gets events as they come.
    Live,
    /// Does not read; events are counted.
    Behind,
    /// Its runner was asked how the session stands; what comes before the answer is in it.
    Resyncing,
}

/// Clients that are to be told how a session stands.
pub(crate) struct ResyncTargets {
    pub(crate) entry: Arc<SessionEntry>,
    pub(crate) clients: Vec<Arc<PiClient>>,
}

impl SessionFollowers {
    /// Somebody is about to follow the session: its runner says its events from now on.
    pub(crate) fn join(self: &Arc<Self>, hub: &Arc<Hub>, entry: &Arc<SessionEntry>) -> PendingFollower {
        let mut sessions = self.sessions.lock();
        let following = sessions.entry(Arc::clone(&entry.id)).or_insert_with(|| {
            watch(hub, entry, true);
            FollowedSession { entry: Arc::clone(entry), joining: 0, followers: Vec::new() }
        });
        if !Arc::ptr_eq(&following.entry, entry) {
            // Another session has the name by now, and its runner knows nothing yet.
            watch(hub, entry, true);
            following.entry = Arc::clone(entry);
        }
        following.joining += 1;
        PendingFollower { hub: Arc::downgrade(hub), followers: Arc::clone(self), entry: Arc::clone(entry) }
    }

    /// Tells a runner that is here again which of its sessions are followed. Nobody begins or ends to follow one
    /// meanwhile, so what the runner is told last is true.
    pub(crate) fn watch_all(&self, hub: &Hub, runner_id: &str) {
        let sessions = self.sessions.lock();
        let of_runner = sessions.values().filter(|following| &*following.entry.runner_id == runner_id);
        of_runner.for_each(|following| watch(hub, &following.entry, true));
    }

    pub(crate) fn is_follower(&self, session_id: &str, client: &Arc<PiClient>) -> bool {
        let sessions = self.sessions.lock();
        let followers = sessions.get(session_id).into_iter().flat_map(|following| &following.followers);
        followers.into_iter().any(|follower| Arc::ptr_eq(&follower.client, client))
    }

    /// Whether somebody follows the session.
    pub(crate) fn has(&self, session_id: &str) -> bool {
        self.sessions.lock().contains_key(session_id)
    }

    /// Events of a session, for all who follow it.
    pub(crate) fn send_events(&self, session_id: &str, frames: &Bytes, count: u64) {
        let mut sessions = self.sessions.lock();
        let Some(following) = sessions.get_mut(session_id) else { return };
        for follower in &mut following.followers {
            match follower.place {
                FollowerPosition::Live => {
                    if !follower.client.put_unless_full(frames) {
                        follower.place = FollowerPosition::Behind;
                        follower.missed = count;
                    }
                }
                FollowerPosition::Behind => follower.missed += count,
                FollowerPosition::Resyncing => {}
            }
        }
    }

    /// A client has read nearly everything: it is told what it missed, and gives the sessions that it has to catch up with.
    pub(crate) fn catch_up(&self, client: &Arc<PiClient>) -> Vec<ResyncTargets> {
        let mut sessions = self.sessions.lock();
        let mut behind = Vec::new();
        for following in sessions.values_mut() {
            let is_behind = |follower: &&mut Follower| {
                follower.place == FollowerPosition::Behind && Arc::ptr_eq(&follower.client, client)
            };
            if let Some(follower) = following.followers.iter_mut().find(is_behind) {
                follower.start_resync(&following.entry);
                behind.push(ResyncTargets {
                    entry: Arc::clone(&following.entry),
                    clients: vec![Arc::clone(client)],
                });
            }
        }
        behind
    }

    /// The same for one session, whether the client missed something of it or not.
    pub(crate) fn catch_up_one(&self, session_id: &str, client: &Arc<PiClient>) -> Option<ResyncTargets> {
        let mut sessions = self.sessions.lock();
        let following = sessions.get_mut(session_id)?;
        let mut followers = following.followers.iter_mut();
        followers.find(|follower| Arc::ptr_eq(&follower.client, client))?.start_resync(&following.entry);
        Some(ResyncTargets { entry: Arc::clone(&following.entry), clients: vec![Arc::clone(client)] })
    }

    /// What the sessions of a runner said while it was away is lost: all who follow them catch up.
    pub(crate) fn catch_up_all(&self, runner_id: &str) -> Vec<ResyncTargets> {
        let mut sessions = self.sessions.lock();
        let of_runner = sessions.values_mut().filter(|following| &*following.entry.runner_id == runner_id);
        let resync = |following: &mut FollowedSession| {
            let mut clients = Vec::new();
            for follower in &mut following.followers {
                // One that has yet to read what waits for it catches up after that.
                if follower.place != FollowerPosition::Behind || !follower.client.is_behind() {
                    follower.start_resync(&following.entry);
                    clients.push(Arc::clone(&follower.client));
                }
            }
            ResyncTargets { entry: Arc::clone(&following.entry), clients }
        };
        of_runner.map(resync).filter(|resync| !resync.clients.is_empty()).collect()
    }

    /// Clients get the frames that say how the session stands, and live events after them; without frames they stay
    /// behind. Gives the clients that still follow it.
    pub(crate) fn end_resync(&self, resync: &ResyncTargets, frames: Option<&Bytes>) -> Vec<Arc<PiClient>> {
        let mut sessions = self.sessions.lock();
        let Some(following) = sessions.get_mut(&resync.entry.id) else { return Vec::new() };
        let mut found = Vec::new();
        for follower in &mut following.followers {
            let is_meant = resync.clients.iter().any(|client| Arc::ptr_eq(client, &follower.client));
            if follower.place != FollowerPosition::Resyncing || !is_meant {
                continue;
            }
            if let Some(frames) = frames {
                follower.client.put(frames.clone());
                follower.place = FollowerPosition::Live;
            } else {
                follower.place = FollowerPosition::Behind;
            }
            found.push(Arc::clone(&follower.client));
        }
        found
    }

    /// Its runner does not know the session any more: these clients hear nothing of it.
    pub(crate) fn give_up(&self, hub: &Hub, resync: &ResyncTargets) {
        let mut sessions = self.sessions.lock();
        let Some(following) = sessions.get_mut(&resync.entry.id) else { return };
        if !Arc::ptr_eq(&following.entry, &resync.entry) {
            // Another session has the name by now.
            return;
        }
        let is_meant = |client: &Arc<PiClient>| resync.clients.iter().any(|other| Arc::ptr_eq(other, client));
        following.followers.retain(|follower| !is_meant(&follower.client));
        end_if_alone(hub, &mut sessions, &resync.entry.id);
    }

    /// The session is gone.
    pub(crate) fn end_session(&self, hub: &Hub, session_id: &str) {
        let mut sessions = self.sessions.lock();
        if let Some(following) = sessions.get_mut(session_id) {
            following.followers = Vec::new();
            end_if_alone(hub, &mut sessions, session_id);
        }
    }

    /// The client is gone.
    pub(crate) fn remove_client(&self, hub: &Hub, client: &Arc<PiClient>) {
        let mut sessions = self.sessions.lock();
        let mut left = Vec::new();
        for (session_id, following) in &mut *sessions {
            let before = following.followers.len();
            following.followers.retain(|follower| !Arc::ptr_eq(&follower.client, client));
            if following.followers.len() < before {
                left.push(Arc::clone(session_id));
            }
        }
        left.iter().for_each(|session_id| end_if_alone(hub, &mut sessions, session_id));
    }
}

/// The runner of a session that nobody follows need not say its events.
fn end_if_alone(hub: &Hub, sessions: &mut HashMap<Arc<str>, FollowedSession>, session_id: &str) {
    if sessions
        .get(session_id)
        .is_some_and(|following| following.joining == 0 && following.followers.is_empty())
        && let Some(following) = sessions.remove(session_id)
    {
        watch(hub, &following.entry, false);
    }
}

impl Follower {
    /// Tells the client what it missed; what comes until its runner has answered is part of the answer.
    fn start_resync(&mut self, entry: &SessionEntry) {
        let missed = std::mem::take(&mut self.missed);
        if missed > 0 {
            self.client.put(lifecycle::event(&entry.id, &FaceEvent::EventGap { missed }));
        }
        self.place = FollowerPosition::Resyncing;
    }
}

/// A command under way that may add a follower. While it is there, the session's runner says its events.
pub(crate) struct PendingFollower {
    hub: Weak<Hub>,
    followers: Arc<SessionFollowers>,
    entry: Arc<SessionEntry>,
}

impl Drop for PendingFollower {
    fn drop(&mut self) {
        let mut sessions = self.followers.sessions.lock();
        let Some(following) = sessions.get_mut(&self.entry.id) else { return };
        following.joining = following.joining.saturating_sub(1);
        if let Some(hub) = self.hub.upgrade() {
            end_if_alone(&hub, &mut sessions, &self.entry.id);
        }
    }
}

/// A follower to be, and what it gets first.
pub(crate) struct NewFollower {
    pub(crate) joining: PendingFollower,
    pub(crate) events: Vec<Bytes>,
}

impl NewFollower {
    /// Live events come from here on.
    pub(crate) fn follow(self, client: &Arc<PiClient>) {
        let mut sessions = self.joining.followers.sessions.lock();
        if let Some(following) = sessions.get_mut(&self.joining.entry.id) {
            self.events.into_iter().for_each(|event| client.put(event));
            let is_known = |follower: &Follower| Arc::ptr_eq(&follower.client, client);
            if !client.is_closed() && !following.followers.iter().any(is_known) {
                let client = Arc::clone(client);
                following.followers.push(Follower { client, place: FollowerPosition::Live, missed: 0 });
            }
        }
        // The place that was kept for the follower is given up with the lock open.
        drop(sessions);
    }
}
