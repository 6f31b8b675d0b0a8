//! An upload whose last piece a person is asked about: it stays as it is until there is an answer.

use std::sync::Arc;

use serde_json::json;

use super::Call;
use super::dispatch::{Done, blocking};
use super::error::{Cancel, ServiceError};
use super::limits::Place;
use crate::services::fs::{self, Approved, Stage, Staged, UploadKey};
use crate::services::root::Root;
use crate::session::Shared;
use qd_wire::service::FsUploadParams;

/// What came of the last piece.
pub(crate) enum Kept {
    /// There is nothing to ask: it was done before, or it is not the last piece of what has arrived.
    Answered(Done),
    Frozen(Frozen),
}

/// An upload that nobody changes, aborts or gives up until this is dropped.
pub(crate) struct Frozen {
    shared: Arc<Shared>,
    key: UploadKey,
    pub(crate) staged: Staged,
}

impl Frozen {
    /// What may become the file once a person has said yes.
    pub(crate) fn approved(&self) -> Approved {
        Approved { ticket: Some(self.staged.ticket), sha256: self.staged.sha256.clone() }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.shared.services.uploads.thaw(&self.key, self.staged.ticket);
    }
}

/// Takes the last piece and keeps the whole as it is.
pub(crate) async fn freeze(
    call: &Call,
    params: &FsUploadParams,
    root: &std::path::Path,
    place: Place,
) -> Result<Kept, ServiceError> {
    let (shared, params, root) = (Arc::clone(&call.shared), params.clone(), root.to_owned());
    let principal = call.incoming.principal.clone();
    blocking(place, move || {
        let root = Root::open_apart_from(shared.services.own_data(&shared)?, &root)?;
        let uploads = &shared.services.uploads;
        match fs::stage(uploads, &root, &params, &principal, &Cancel::default())? {
            Stage::Answer(data) => {
                let summary = json!({ "path": params.path, "received": data.received });
                Ok(Kept::Answered(Done::new(&data, summary)?))
            }
            Stage::Ask(key, staged) => Ok(Kept::Frozen(Frozen { shared: Arc::clone(&shared), key, staged })),
        }
    })
    .await
}
