//! The client's own connection: attaches to every session it knows of, reads every frame, connects again.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use qd_link::client::{ClientRequest, Frame, FrameKind, FrameQueue, MuxClient};
use qd_wire::command::{NoParams, SessionAttachParams};
use qd_wire::data::{AttachData, SessionCreatedData};
use qd_wire::{Command, CommandResponse};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};

use super::{ClientState, connect_options};
use crate::state::World;
use crate::trace;
use crate::view::SessionView;

/// How often the client looks whether there is a session it does not follow.
const LOOK_EVERY: Duration = Duration::from_millis(250);

pub(super) async fn run(world: Rc<World>, state: Rc<ClientState>) {
    loop {
        let connected = MuxClient::connect_with(&connect_options(&world)).await;
        match connected {
            Ok((client, frames)) => {
                trace::note(state.name, "connected");
                trace::count("client connections");
                *state.mux.borrow_mut() = Some(client);
                let mut connection =
                    Connection { world: &world, state: &state, frames, awaited: BTreeMap::new() };
                let reason = connection.serve().await;
                trace::note(state.name, &format!("disconnected: {reason}"));
                *state.mux.borrow_mut() = None;
                state.creating.borrow_mut().clear();
                state.views.borrow_mut().values_mut().for_each(SessionView::detach);
            }
            Err(error) => trace::note(state.name, &format!("not connected: {error}")),
        }
        sleep(state.millis(50, 800)).await;
    }
}

struct Connection<'a> {
    world: &'a World,
    state: &'a ClientState,
    frames: FrameQueue,
    /// Attaches whose answers have not come, with their cursors.
    awaited: BTreeMap<u64, (String, Option<u64>)>,
}

impl Connection<'_> {
    /// Until the connection ends; says why it did.
    async fn serve(&mut self) -> String {
        let mut look_at = Instant::now();
        loop {
            match timeout_at(look_at, self.frames.next()).await {
                Ok(Some(frame)) => self.take(&frame),
                Ok(None) => return self.frames.close_reason(),
                Err(_) => {
                    look_at = Instant::now() + LOOK_EVERY;
                    if self.state.mux.borrow().is_none() {
                        return "given up by the client".to_owned();
                    }
                    self.look().await;
                }
            }
        }
    }

    async fn look(&mut self) {
        if !self.world.is_settling() && self.state.percent(2) {
            self.detach_one().await;
        }
        let sessions: Vec<String> = self.world.oracle.borrow().created.iter().cloned().collect();
        for session in sessions {
            let cursor = {
                let mut views = self.state.views.borrow_mut();
                let view = views
                    .entry(session.clone())
                    .or_insert_with(|| SessionView::new(self.state.name, &session, false));
                let is_asked = self.awaited.values().any(|(asked, _)| *asked == session);
                if view.is_attached() || is_asked { None } else { Some(view.last) }
            };
            if let Some(after) = cursor {
                self.attach(session, after).await;
            }
        }
    }

    async fn attach(&mut self, session: String, after: Option<u64>) {
        // Some clients have thrown away what they knew.
        let after = after.filter(|_| !self.state.percent(10));
        if after.is_none() {
            self.state
                .views
                .borrow_mut()
                .insert(session.clone(), SessionView::new(self.state.name, &session, false));
        }
        let request = ClientRequest::session(&session, Command::SessionAttach(SessionAttachParams { after }));
        // A closed connection shows itself at the next frame.
        if let Ok(id) = self.frames.client().post(&request).await {
            self.awaited.insert(id, (session, after));
        }
    }

    async fn detach_one(&mut self) {
        let attached: Vec<String> = {
            let views = self.state.views.borrow();
            views.iter().filter(|(_, view)| view.is_attached()).map(|(session, _)| session.clone()).collect()
        };
        if attached.is_empty() {
            return;
        }
        let session = self.state.random.borrow_mut().pick(&attached).clone();
        if let Some(view) = self.state.views.borrow_mut().get_mut(&session) {
            view.detach();
        }
        let request = ClientRequest::session(&session, Command::SessionDetach(NoParams {}));
        // A closed connection shows itself at the next frame.
        let _posted = self.frames.client().post(&request).await;
    }

    fn take(&mut self, frame: &Frame) {
        match frame.kind() {
            FrameKind::Response(Some(id)) => {
                if let Some((session, after)) = self.awaited.remove(&id) {
                    self.attached(&session, after, frame);
                }
                let creating = self.state.creating.borrow_mut().remove(&id);
                if let Some(waiting) = creating {
                    self.created(frame, waiting);
                }
            }
            FrameKind::Event => self.event(frame),
            FrameKind::System | FrameKind::Response(None) => {}
            FrameKind::Unknown => trace::violate(self.state.name, "frames", frame.text()),
        }
    }

    fn attached(&mut self, session: &str, after: Option<u64>, frame: &Frame) {
        let Ok(response) = frame.response() else {
            return trace::violate(self.state.name, "frames", frame.text());
        };
        if !response.success {
            let error = response.error.unwrap_or_default();
            return trace::note(self.state.name, &format!("{session} not attached: {error}"));
        }
        let attach: AttachData = match serde_json::from_value(response.data.unwrap_or_default()) {
            Ok(attach) => attach,
            Err(error) => return trace::violate(self.state.name, "frames", &error.to_string()),
        };
        let text = format!(
            "{session} attached after {after:?}: {:?} at {}, {}",
            attach.resume,
            attach.seq,
            attach.state.status.as_str()
        );
        trace::note(self.state.name, &text);
        if let Some(view) = self.state.views.borrow_mut().get_mut(session) {
            view.attached(after, &attach, false);
        }
    }

    fn created(&mut self, frame: &Frame, waiting: oneshot::Sender<CommandResponse>) {
        let Ok(response) = frame.response() else {
            return trace::violate(self.state.name, "frames", frame.text());
        };
        let data = response.data.clone().unwrap_or_default();
        if response.success {
            match serde_json::from_value::<SessionCreatedData>(data) {
                Ok(created) => {
                    let session = created.session_id;
                    trace::note(self.state.name, &format!("{session} created at {}", created.attach.seq));
                    let mut views = self.state.views.borrow_mut();
                    let view = views
                        .entry(session.clone())
                        .or_insert_with(|| SessionView::new(self.state.name, &session, false));
                    if response.replayed == Some(true) {
                        // The answer of then says how things stood then; attach to learn how they stand now.
                        view.detach();
                    } else {
                        view.attached(None, &created.attach, false);
                    }
                }
                Err(error) => trace::violate(self.state.name, "frames", &error.to_string()),
            }
        }
        // Who asked may have lost patience.
        let _told = waiting.send(response);
    }

    fn event(&mut self, frame: &Frame) {
        let event = match frame.event() {
            Ok(event) => event,
            Err(error) => {
                let detail = format!("{error}: {}", frame.text());
                return trace::violate(self.state.name, "frames", &detail);
            }
        };
        if std::env::var_os("QD_WORLD_FRAMES").is_some() {
            println!("{} {:?} {}", self.state.name, trace::now(), frame.text());
        }
        // Events before the answer belong to an older attachment.
        if self.awaited.values().any(|(session, _)| *session == event.session_id) {
            return;
        }
        let mut views = self.state.views.borrow_mut();
        let Some(view) = views.get_mut(&event.session_id).filter(|view| view.is_attached()) else { return };
        if let Some(seq) = event.seq {
            let hash = self.world.bodies.hash(frame.text());
            self.world.oracle.borrow_mut().shown(self.state.name, &event.session_id, seq, hash);
        }
        view.event(&event);
    }
}
