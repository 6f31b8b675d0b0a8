//! How a runner begins: the sessions of last time.

use std::collections::BTreeMap;
use std::sync::Arc;

use qd_core::session::StoredQuestion;
use qd_store::ApprovalRow;
use qd_wire::InputRequest;

use super::RunnerError;
use crate::session::{RunnerContext, restore, spawn_restored};

/// Brings back every session the store knows.
pub(super) async fn restore_sessions(shared: &Arc<RunnerContext>) -> Result<(), RunnerError> {
    let mut questions: BTreeMap<String, Vec<StoredQuestion>> = BTreeMap::new();
    for approval in shared.store.approvals().await? {
        let ApprovalRow { session_id, request_id, body_json } = approval;
        // A question that cannot be read still has a name, under which it can be withdrawn; forgotten it would stay
        // stored for ever.
        let question = serde_json::from_slice(&body_json).unwrap_or_else(|error| {
            tracing::error!(session_id, request_id, %error, "a stored question cannot be read; it is withdrawn");
            let (title, message) = (String::new(), String::new());
            let request = InputRequest::Confirm { request_id, title, message, timeout: None };
            StoredQuestion { request, asked_seq: None }
        });
        questions.entry(session_id).or_default().push(question);
    }
    for row in shared.store.sessions().await? {
        let session_id = row.session_id.clone();
        let open = questions.remove(&session_id).unwrap_or_default();
        // Known to the hub delivery before its actor says the first word.
        shared.hub_delivery.restore(&session_id, row.next_seq.saturating_sub(1));
        match restore(&shared.config, row, open) {
            Ok(restored) => {
                let sender = spawn_restored(shared, restored);
                shared.hub_delivery.mailboxes.lock().insert(session_id, sender);
            }
            Err(error) => {
                tracing::error!(session_id, %error, "a stored session cannot be read; it is left alone")
            }
        }
    }
    Ok(())
}
