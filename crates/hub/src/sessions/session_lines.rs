//! Lines of lists: what is stored of a session, with what is known of it now.

use std::sync::MutexGuard;

use qd_core::projection::{Projection, one_line};
use qd_store::{HubSession, SessionTotals};
use qd_wire::data::{SessionStatus, SessionSummary};

use crate::hub::Hub;
use crate::sessions::session::SessionEntry;

impl SessionEntry {
    /// How it looks from outside; held for a moment only.
    pub(crate) fn projection(&self) -> MutexGuard<'_, Projection> {
        self.projection.lock()
    }

    pub(crate) fn status(&self) -> SessionStatus {
        self.projection().status()
    }

    /// True if that is news.
    pub(crate) fn set_status(&self, status: SessionStatus) -> bool {
        self.projection().set_status(status)
    }

    pub(crate) fn set_totals(&self, totals: SessionTotals) {
        let (tokens, cost_usd) = usage(totals);
        self.projection().set_usage(tokens, cost_usd);
    }

    /// Its line in lists as the hub knows it without its store.
    pub(crate) fn summary(&self, is_away: bool) -> SessionSummary {
        SessionSummary {
            session_id: self.id.to_string(),
            runner_id: self.runner_id.to_string(),
            last_activity: self.last_activity(),
            seq: self.committed_seq(),
            subscriber_count: self.ring.subscriber_count() as u64,
            ..self.projection().summary(is_away)
        }
    }
}

impl Hub {
    /// A row of the store as a line, with what is known of now.
    pub(crate) fn summary(&self, row: HubSession) -> SessionSummary {
        let is_away = self.is_away(&row.runner_id);
        let mut summary = of_row(row);
        match self.session(&summary.session_id) {
            Some(entry) => {
                summary.subscriber_count = entry.ring.subscriber_count() as u64;
                entry.projection().show_now(&mut summary, is_away);
            }
            // A row without an entry is only what the store remembers; whether its agent runs is not known.
            None if is_away => summary.state = "offline".to_owned(),
            None => {}
        }
        summary
    }
}

/// Zero means that nothing was counted, which lists show as nothing and not as a price.
fn usage(totals: SessionTotals) -> (Option<u64>, Option<f64>) {
    let tokens = u64::try_from(totals.tokens).ok().filter(|tokens| *tokens > 0);
    (tokens, Some(totals.cost_usd).filter(|cost| *cost > 0.0))
}

/// What is stored of a session as a line.
pub(crate) fn of_row(row: HubSession) -> SessionSummary {
    let (tokens, cost_usd) = usage(row.totals);
    SessionSummary {
        session_id: row.session_id,
        runner_id: row.runner_id,
        harness: row.harness,
        state: row.state,
        cwd: (!row.cwd.is_empty()).then_some(row.cwd),
        title: row.title,
        provider: row.provider,
        model: row.model,
        created_at: row.created_at,
        last_activity: row.updated_at,
        seq: row.last_seq,
        message_count: row.message_count,
        branch: row.branch,
        last_text: row.last_text.map(|text| one_line(&text, usize::MAX)),
        tokens,
        cost_usd,
        error: row.error,
        run_tool: row.run_tool,
        ..SessionSummary::default()
    }
}
