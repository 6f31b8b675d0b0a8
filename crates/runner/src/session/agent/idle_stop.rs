//! Stops agents that nobody needs, and tells the driver whether the hub wants its native events.
//!
//! An agent that is stopped for being idle loses nothing: its conversation is in its file, and the next prompt starts
//! it again.

use qd_core::session::AgentEnd;
use qd_core::view::watched_form;

use super::agent_state::AgentState;
use crate::clock::now_ms;
use crate::session::actor::SessionActor;

impl SessionActor {
    /// The hub's word; one that is older than the last changes nothing.
    pub(crate) fn watch(&mut self, number: u64, on: bool) {
        if number < self.watch_number {
            return;
        }
        self.watch_number = number;
        if on != self.session.is_watched() {
            let tells_it = self.shared.config.harnesses.tells_native_events(&self.config.harness);
            self.session.set_watched(on.then(|| watched_form(tells_it)));
        }
        self.update_driver_watch();
    }

    /// Lets the driver know whether native events are wanted; also after each start.
    pub(crate) fn update_driver_watch(&self) {
        let on = self.session.is_watched();
        if let Some(driver) = &self.agent.driver {
            driver.set_watched(on);
        }
    }

    /// When the agent is to be stopped because nobody needs it.
    pub(crate) fn idle_deadline(&self) -> Option<i64> {
        let after = i64::try_from(self.shared.config.agent_idle_stop?.as_millis()).ok()?;
        self.agent.idle_since?.checked_add(after)
    }

    /// Notes since when there is nothing to do, and stops an agent that had nothing for long enough.
    pub(crate) async fn stop_if_idle(&mut self) {
        if self.shared.config.agent_idle_stop.is_none() {
            return;
        }
        let now = now_ms();
        self.agent.idle_since = if self.is_idle() { self.agent.idle_since.or(Some(now)) } else { None };
        if self.finished || self.idle_deadline().is_none_or(|at| now < at) {
            return;
        }
        self.agent.idle_since = None;
        self.stop_agent(AgentEnd::Stopped).await;
        // Stored as it stands now, so that the next start of the runner does not take it for one that was in use.
        self.publishing.stored = None;
        // There is no record of such a stop: everybody learns from this how the session stands.
        self.session.resync(now_ms(), &mut self.out);
    }

    /// Nothing runs, nothing waits, nobody is asked.
    fn is_idle(&self) -> bool {
        let activity = self.session.activity();
        self.agent.state == AgentState::Ready
            && self.exists
            && !activity.is_busy
            && !activity.has_questions
            && !self.session.has_waiting()
            && self.commands.queue().is_empty()
    }
}
