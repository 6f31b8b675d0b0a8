//! How a runner begins: the sessions of last time.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::RunnerError;
use crate::session::{Shared, restore, spawn_restored};

/// Brings back every session the store knows.
pub(super) async fn restore_sessions(shared: &Arc<Shared>) -> Result<(), RunnerError> {
    let mut questions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for approval in shared.store.approvals().await? {
        questions.entry(approval.session_id).or_default().push(approval.request_id);
    }
    for row in shared.store.sessions().await? {
        let session_id = row.session_id.clone();
        let open = questions.remove(&session_id).unwrap_or_default();
        // Known to the outlet before its actor says the first word.
        shared.outlet.restore(&session_id, row.next_seq.saturating_sub(1));
        match restore(&shared.config, row, open) {
            Ok(restored) => {
                let sender = spawn_restored(shared, restored);
                shared.outlet.directory().insert(session_id, sender);
            }
            Err(error) => {
                tracing::error!(session_id, error, "a stored session cannot be read; it is left alone")
            }
        }
    }
    Ok(())
}
