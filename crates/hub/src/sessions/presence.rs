//! What people look at: each connection says it, and nobody is pushed what they see.

use std::collections::HashMap;
use std::sync::Arc;

use qd_link::mutex::Mutex;
use qd_wire::CodedError;
use qd_wire::mux::{SystemClientFrame, SystemCommand};

use crate::command::reply;
use crate::connection::HandlerContext;

/// The longest name of a session.
const SESSION_ID_BYTES_MAX: usize = 256;

/// All connections whose person looks at something.
#[derive(Default)]
pub(crate) struct Presence(Mutex<HashMap<Arc<str>, ConnectionView>>);

/// What one connection shows.
struct ConnectionView {
    principal: Arc<str>,
    /// `None` for the list of all sessions.
    session_id: Option<Box<str>>,
}

impl Presence {
    /// Whether somebody sees this session, or the list of all where its line is enough.
    pub(crate) fn is_looking(&self, principal: &str, session_id: &str, list_is_enough: bool) -> bool {
        let sees = |view: &ConnectionView| match &view.session_id {
            Some(shown) => **shown == *session_id,
            None => list_is_enough,
        };
        self.0.lock().values().any(|view| *view.principal == *principal && sees(view))
    }
}

/// The place of a connection that has said something; it is left when the connection ends.
pub(crate) struct PresenceEntry {
    presence: Arc<Presence>,
    connection_id: Arc<str>,
}

impl Drop for PresenceEntry {
    fn drop(&mut self) {
        self.presence.0.lock().remove(&self.connection_id);
    }
}

/// Acts on a frame of the `system` channel.
pub(crate) fn handle(context: &mut HandlerContext<'_>, seat: &mut Option<PresenceEntry>, text: &str) {
    let frame: SystemClientFrame = match serde_json::from_str(text) {
        Ok(frame) => frame,
        Err(error) => {
            let error = CodedError::invalid(format!(
                "The system channel takes no commands, only `presence`; use 'agent': {error}"
            ));
            return context.send_queue.push(reply::system_error(None, &error));
        }
    };
    let SystemCommand::Presence { visible, session_id } = frame.command;
    if session_id.as_ref().is_some_and(|id| id.len() > SESSION_ID_BYTES_MAX) {
        let error = CodedError::invalid(format!("'session_id' is longer than {SESSION_ID_BYTES_MAX} bytes"));
        return context.send_queue.push(reply::system_error(None, &error));
    }
    if !visible {
        *seat = None;
        return;
    }
    let seat = seat.get_or_insert_with(|| PresenceEntry {
        presence: Arc::clone(&context.hub.presence),
        connection_id: Arc::clone(&context.mailbox.asker.connection_id),
    });
    let principal = Arc::clone(&context.mailbox.asker.principal);
    let view = ConnectionView { principal, session_id: session_id.map(String::into_boxed_str) };
    seat.presence.0.lock().insert(Arc::clone(&seat.connection_id), view);
}
