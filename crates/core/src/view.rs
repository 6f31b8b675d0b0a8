//! Views: what other protocols' documents say, in terms of our own commands and events.

pub mod pi_server;
pub mod run;

use crate::session::EventForm;

/// The further form of a session's events that the link's `watch` asks for. `tells_it` says whether the agent tells
/// its events in this form itself.
pub fn watched_form(tells_it: bool) -> Box<dyn EventForm> {
    pi_server::watch::form(tells_it)
}
