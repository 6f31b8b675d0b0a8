//! An upload whose last piece a person is asked about: it stays as it is until there is an answer.

use std::sync::Arc;

use serde_json::json;

use super::Call;
use super::dispatch::{CallOutput, blocking};
use super::limits::CallPermit;
use super::{Cancellation, ServiceResult};
use crate::services::fs::{self, ApprovedUpload, StageResult, StagedUpload, UploadKey};
use crate::services::root::Root;
use crate::session::RunnerContext;
use qd_wire::service::FsUploadParams;

/// What came of the last piece.
pub(crate) enum ApprovalStage {
    /// There is nothing to ask: it was done before, or it is not the last piece of what has arrived.
    Answered(CallOutput),
    Frozen(FrozenUpload),
}

/// An upload that nobody changes, aborts or gives up until this is dropped.
pub(crate) struct FrozenUpload {
    shared: Arc<RunnerContext>,
    key: UploadKey,
    pub(crate) staged: StagedUpload,
}

impl FrozenUpload {
    /// What may become the file once a person has said yes.
    pub(crate) fn approved(&self) -> ApprovedUpload {
        ApprovedUpload { ticket: Some(self.staged.ticket), sha256: self.staged.sha256.clone() }
    }
}

impl Drop for FrozenUpload {
    fn drop(&mut self) {
        self.shared.services.uploads.unfreeze(&self.key, self.staged.ticket);
    }
}

/// Takes the last piece and keeps the whole as it is.
pub(crate) async fn freeze(
    call: &Call,
    params: &FsUploadParams,
    root: &std::path::Path,
    permit: CallPermit,
) -> ServiceResult<ApprovalStage> {
    let (shared, params, root) = (Arc::clone(&call.shared), params.clone(), root.to_owned());
    let principal = call.incoming.principal.clone();
    blocking(permit, move || {
        let root = Root::open_apart_from(shared.services.own_data(&shared)?, &root)?;
        let uploads = &shared.services.uploads;
        match fs::stage(uploads, &root, &params, &principal, &Cancellation::default())? {
            StageResult::Answer(data) => {
                let summary = json!({ "path": params.path, "received": data.received });
                Ok(ApprovalStage::Answered(CallOutput::new(data, |_| summary)?))
            }
            StageResult::Ask(key, staged) => {
                Ok(ApprovalStage::Frozen(FrozenUpload { shared: Arc::clone(&shared), key, staged }))
            }
        }
    })
    .await
}
