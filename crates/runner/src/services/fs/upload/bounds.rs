//! How much may arrive before a person is asked about it.

use qd_wire::service::FsUploadParams;

use super::{UploadKey, UploadTable};
use crate::services::call::ServiceResult;

/// Bytes that one principal has here in all its uploads before a person is asked about any: enough for documents and
/// pictures, nothing that fills a disk. The question needs the whole content, so it cannot come before the first byte.
pub(super) const UNAPPROVED_BYTES_MAX: u64 = 64 << 20;

impl UploadTable {
    /// Whether a piece may come of an upload that a person will be asked about.
    pub(crate) fn check_unapproved(&self, params: &FsUploadParams, principal: &str) -> ServiceResult<()> {
        let entries = self.entries.lock();
        let theirs = entries.iter().filter(|(key, entry)| key.1 == principal && !entry.is_done);
        let received: u64 = theirs.map(|(_, entry)| entry.received).sum();
        if received + params.data.len() as u64 / 4 * 3 > UNAPPROVED_BYTES_MAX {
            let limit = UNAPPROVED_BYTES_MAX >> 20;
            refuse!(
                TooLarge,
                "uploads that a person has to approve have at most {limit} MiB together: send the file in parts that are approved one by one, or have somebody send it who needs no approval"
            );
        }
        Ok(())
    }

    pub(super) fn note_received(&self, key: &UploadKey, received: u64) {
        if let Some(entry) = self.entries.lock().get_mut(key) {
            entry.received = received;
        }
    }
}
