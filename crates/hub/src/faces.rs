//! Faces: other protocols on top of the hub's own commands and events, and pushes, which live of the same.
//!
//! The rest of the hub knows no face by name. It has [`Faces`], tells it once of whatever happens, and every face that
//! is registered below is told. A face is one module here (with its types in `wire` and its pure part in `core/view`)
//! and one line in the list of [`faces!`]; whoever wants to know why, see ADR 0018.

mod face;
mod host;
mod pi_server;
mod push;
mod run;
#[cfg(test)]
mod toy;

use std::sync::Arc;

use axum::Router;
use qd_store::StoreError;
use qd_wire::InputRequest;
use qd_wire::data::SessionStatus;
use qd_wire::rest::Health;

use crate::config::HubConfig;
use crate::hub::Hub;
use crate::server::Server;
use crate::sessions::published::{NativeEvents, PublishedEvents};
use crate::sessions::session::SessionEntry;
pub(crate) use face::{Face, FaceFuture, RunnerUpdate, SessionUpdate};
pub use pi_server::{PiConnector, PiConnectorClosed, PiConnectorEnd, PiServerConfig, PiServerPorts};
pub use push::{PushConfig, PushKey, PushKeyError};

/// Registers the faces: the name of each, its type, and what of `HubConfig` is its own.
macro_rules! faces {
    ($($(#[$attribute:meta])* $name:ident: $face:ty;)*) => {
        /// All faces of a hub. A face finds itself here; for the rest of the hub the fields are private.
        pub(crate) struct Faces {
            $($(#[$attribute])* $name: $face,)*
        }

        impl Faces {
            pub(crate) fn new(config: &HubConfig) -> Self {
                Self { $($(#[$attribute])* $name: <$face>::new(config),)* }
            }

            fn each<'a>(&'a self, mut tell: impl FnMut(&'a dyn Face)) {
                $($(#[$attribute])* tell(&self.$name);)*
            }
        }
    };
}

faces! {
    pi_server: pi_server::PiServer;
    run: run::RunFace;
    host: host::HostFace;
    push: push::PushFace;
    #[cfg(test)]
    toy: toy::ToyFace;
}

/// The settings of the faces that have some.
#[derive(Debug, Clone, Default)]
pub struct FaceSettings {
    pub pi_server: PiServerConfig,
    pub push: PushConfig,
}

impl Faces {
    fn all(&self) -> Vec<&dyn Face> {
        let mut all = Vec::new();
        self.each(|face| all.push(face));
        all
    }

    /// Where clients of the faces come, under one of the hub's own names.
    pub(crate) fn routes(&self) -> Router<Server> {
        self.all().into_iter().fold(Router::new(), |routes, face| routes.merge(face.routes()))
    }

    /// Where machines come that are no browsers, under any name.
    pub(crate) fn machine_routes(&self) -> Router<Server> {
        self.all().into_iter().fold(Router::new(), |routes, face| routes.merge(face.machine_routes()))
    }

    /// Whether an address that begins with this part is a face's.
    pub(crate) fn has_path_prefix(&self, first_part: &str) -> bool {
        self.all().into_iter().any(|face| face.path_prefixes().contains(&first_part))
    }

    /// Method and path of each of their routes that `qd_wire::rest` describes.
    #[cfg(test)]
    pub(crate) fn described_routes(&self) -> Vec<(&'static str, &'static str)> {
        self.all().into_iter().flat_map(|face| face.described_routes()).copied().collect()
    }

    /// Takes over what the store knows, before anybody connects.
    pub(crate) async fn open(&self, hub: &Arc<Hub>) -> Result<(), StoreError> {
        for face in self.all() {
            face.open(hub).await?;
        }
        Ok(())
    }

    /// What the faces do by themselves, for ever.
    pub(crate) async fn run_background(&self, hub: &Arc<Hub>) {
        futures_util::future::join_all(self.all().into_iter().map(|face| face.run_background(hub))).await;
    }

    /// The one place where the hub tells of what it has stored and published.
    pub(crate) fn published(&self, hub: &Arc<Hub>, published: PublishedEvents<'_>) {
        if !published.is_of_interest() {
            return;
        }
        self.each(|face| {
            if face.is_used() {
                face.on_published(hub, published);
            }
        });
    }

    /// Events of a session in the words of its own harness, which are nobody's records. They come while a face has
    /// asked for them with [`crate::command::ask::watch`].
    pub(crate) fn native_events(&self, hub: &Arc<Hub>, entry: &SessionEntry, events: &NativeEvents) {
        self.each(|face| face.on_native_events(hub, entry, events));
    }

    /// Something that happened in a session and is no record of it, as a line of its runner's link says it.
    async fn unrecorded(&self, hub: &Arc<Hub>, entry: &Arc<SessionEntry>, line: &[u8]) {
        for face in self.all() {
            face.on_unrecorded(hub, entry, line).await;
        }
    }

    /// A session was created, closed or deleted.
    pub(crate) fn session_update(&self, hub: &Arc<Hub>, session_id: &str, update: SessionUpdate) {
        self.each(|face| face.on_session_update(hub, session_id, update));
    }

    /// A runner that has come says how a session of its stands.
    pub(crate) fn described(
        &self,
        hub: &Arc<Hub>,
        entry: &SessionEntry,
        status: SessionStatus,
        pending: &[InputRequest],
    ) {
        let ended_turn = match status {
            SessionStatus::Working => None,
            SessionStatus::Starting
            | SessionStatus::Idle
            | SessionStatus::Dormant
            | SessionStatus::Failed
            | SessionStatus::Closed
            | SessionStatus::Offline => entry.projection().end_turn(),
        };
        self.each(|face| face.on_described(hub, entry, status, pending, ended_turn));
    }

    /// A runner has come or gone.
    pub(crate) fn runner_update(&self, hub: &Arc<Hub>, runner_id: &str, update: RunnerUpdate) {
        self.each(|face| face.on_runner_update(hub, runner_id, update));
    }

    /// A session is gone, and another may have its name.
    pub(crate) fn forget(&self, session_id: &Arc<str>) {
        self.each(|face| face.forget(session_id));
    }

    /// The access of a principal was taken back: what was kept for it goes, so that another one of its name does not
    /// find it.
    pub(crate) async fn revoke(&self, hub: &Arc<Hub>, principal: &str) -> Result<(), StoreError> {
        for face in self.all() {
            face.revoke(hub, principal).await?;
        }
        Ok(())
    }

    /// Closes the connections whose access was taken back or has ended.
    pub(crate) fn close_revoked(&self) {
        self.each(|face| face.close_revoked());
    }

    /// The hub is about to stop: work under way gets its time, new work is refused.
    pub(crate) async fn finish_work(&self, hub: &Arc<Hub>) {
        futures_util::future::join_all(self.all().into_iter().map(|face| face.finish_work(hub))).await;
    }

    /// Closes every connection after what waits for it, and takes no more.
    pub(crate) fn close_connections(&self) {
        self.each(|face| face.close_connections());
    }

    /// Nothing comes any more: what is still to be stored is stored.
    pub(crate) async fn close(&self, hub: &Arc<Hub>) {
        for face in self.all() {
            face.close(hub).await;
        }
    }

    /// How many clients are connected to all faces together.
    pub(crate) fn connection_count(&self) -> usize {
        let mut count = 0;
        self.each(|face| count += face.connection_count());
        count
    }

    /// Adds what `GET /healthz` tells of the faces.
    pub(crate) fn show_health(&self, health: &mut Health) {
        self.each(|face| face.show_health(health));
    }
}
