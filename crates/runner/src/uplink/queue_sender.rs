//! Sends what was queued for the hub: answers that had no room in the link, and records from the spool.

use std::time::Duration;

use qd_link::memory::BLOCKS_MAX;

use crate::hub_delivery::{CatchUpTurn, DeliveryStep, HubLink};
use crate::session::{RunnerContext, SessionInput};

/// A spool that cannot be read is tried again after this.
const READ_RETRY: Duration = Duration::from_secs(1);

/// How often a full link is looked at.
const ROOM_POLL: Duration = Duration::from_millis(20);

/// The reading side learns why a link ended; it may take a moment longer than the writing side.
const REASON_WAIT: Duration = Duration::from_secs(1);

/// Runs until the link takes nothing any more.
pub(super) async fn send_queued(shared: &RunnerContext, link: &HubLink) {
    while let Some(step) = shared.hub_delivery.next_step(link.origin).await {
        let block = match step {
            DeliveryStep::Send(block) => Some(block),
            DeliveryStep::Read(turn) => read(shared, &turn).await,
            DeliveryStep::Snapshot(session_id) => {
                shared.hub_delivery.post_to_session(&session_id, SessionInput::Snapshot);
                None
            }
            DeliveryStep::Room => {
                check_room(shared, link).await;
                None
            }
            DeliveryStep::Wait => None,
        };
        if let Some(block) = block
            && link.sender.send(block).await.is_err()
        {
            break;
        }
    }
    tokio::time::sleep(REASON_WAIT).await;
}

/// Half of the queue must be free: a link that takes a block now and then is no place for live events.
async fn check_room(shared: &RunnerContext, link: &HubLink) {
    if link.sender.room() >= BLOCKS_MAX / 2 {
        shared.hub_delivery.has_room(link.origin);
    } else {
        tokio::time::sleep(ROOM_POLL).await;
    }
}

async fn read(shared: &RunnerContext, turn: &CatchUpTurn) -> Option<bytes::Bytes> {
    match shared.store.spool_after(&turn.session_id, turn.after, turn.rows_max).await {
        Ok(rows) => shared.hub_delivery.records_read(turn, rows),
        Err(error) => {
            tracing::error!(%error, session_id = turn.session_id, "the spool cannot be read; tried again");
            tokio::time::sleep(READ_RETRY).await;
            None
        }
    }
}
