//! Files that arrive in pieces. What has arrived is in a file under a temporary name, so that a piece can be sent again
//! and the file appears whole. Without the runner's process it is lost and the sender begins again.
//!
//! Where a person is asked first, the whole upload is received and *frozen*, so that what is approved (its hash) is
//! what becomes the file. Locks are taken in one order: an upload, then the table. The table is never held while a
//! file is read or written.

mod bounds;

use std::collections::HashMap;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use qd_link::mutex::Mutex;
use qd_wire::ErrorCode;
use qd_wire::service::{FsUploadData, FsUploadParams, FsWriteData};
use sha2::{Digest, Sha256};

use super::temp::{TempFile, replaced};
use super::write::{check_size, commit};
use super::{from_base64, hash_file, read_rest};
use crate::clock::now_ms;
use crate::services::call::{Cancellation, ServiceError, ServiceResult};
use crate::services::root::{NameInDir, RelativePath, Root, failure};
use qd_core::encoding::hex;

/// Uploads at a time; each holds two descriptors and a file on the disk.
const UPLOADS_MAX: usize = 64;

/// Of these one principal's: a few files at a time, and room for others whatever it does.
const UPLOADS_PER_PRINCIPAL_MAX: usize = 16;

/// An upload nobody sent a piece of for so long was given up.
const UPLOAD_IDLE_MS_MAX: i64 = 60 * 60 * 1000;

/// Bytes of one upload: enough for any image or archive, too little to fill a disk unnoticed.
const UPLOAD_BYTES_MAX: u64 = 8 << 30;

/// Bytes of the name a sender gives an upload; two UUIDs fit.
const UPLOAD_ID_BYTES_MAX: usize = 128;

/// Characters of an upload that a person who is asked about it is shown.
const PREVIEW_CHARACTERS_MAX: usize = 2000;

/// Bytes that hold so many characters.
const PREVIEW_BYTES_MAX: usize = 4 * PREVIEW_CHARACTERS_MAX;

/// The uploads of a runner.
#[derive(Debug, Default)]
pub(crate) struct UploadTable {
    entries: Mutex<HashMap<UploadKey, UploadEntry>>,
    tickets: AtomicU64,
}

/// Names are the sender's, so that the same one of two people or in two directories means two uploads.
pub(crate) type UploadKey = (PathBuf, String, String);

#[derive(Debug)]
struct UploadEntry {
    /// When the last piece came, in Unix milliseconds.
    touched_at: i64,
    is_done: bool,
    /// Bytes that have arrived.
    received: u64,
    /// A person is asked about it: it is neither aborted nor given up.
    is_frozen: bool,
    upload: Arc<Mutex<Upload>>,
}

#[derive(Debug, Default)]
struct Upload {
    path: String,
    state: UploadState,
    /// The call that a person is asked about; no other adds anything.
    frozen_for: Option<u64>,
}

#[derive(Debug, Default)]
enum UploadState {
    #[default]
    New,
    Open {
        temp: TempFile,
        received: u64,
        digest: Sha256,
    },
    /// Kept for a sender who did not hear the answer.
    Done(FsWriteData),
}

/// Who sends a piece.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UploadSender<'a> {
    pub(crate) principal: &'a str,
    /// Where a person was asked: nothing else becomes the file.
    pub(crate) approved: Option<&'a ApprovedUpload>,
}

/// What a person has said yes to.
#[derive(Debug, Clone)]
pub(crate) struct ApprovedUpload {
    /// Of the call that froze it; none when the runner was restarted since.
    pub(crate) ticket: Option<u64>,
    pub(crate) sha256: String,
}

/// What a person is asked about.
#[derive(Debug, Clone)]
pub(crate) struct StagedUpload {
    pub(crate) ticket: u64,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
    /// Its first characters; what is no text has signs instead.
    pub(crate) preview: String,
}

/// What came of a last piece before anybody was asked.
#[derive(Debug)]
pub(crate) enum StageResult {
    /// There is nothing to ask about.
    Answer(FsUploadData),
    /// It is whole, and stays as it is until [`UploadTable::unfreeze`].
    Ask(UploadKey, StagedUpload),
}

impl UploadTable {
    /// Removes what was given up.
    pub(crate) fn expire(&self, now: i64) {
        let is_kept = |entry: &UploadEntry| {
            entry.is_frozen || now.saturating_sub(entry.touched_at) < UPLOAD_IDLE_MS_MAX
        };
        self.entries.lock().retain(|_, entry| is_kept(entry));
    }

    /// Nobody is asked about it any more.
    pub(crate) fn unfreeze(&self, key: &UploadKey, ticket: u64) {
        // An upload is locked before the map, never the other way round.
        let Some(upload) = self.entries.lock().get(key).map(|entry| entry.upload.clone()) else { return };
        let mut upload = upload.lock();
        if upload.frozen_for != Some(ticket) {
            return;
        }
        upload.frozen_for = None;
        if let Some(entry) = self.entries.lock().get_mut(key) {
            entry.is_frozen = false;
            entry.touched_at = now_ms();
        }
    }

    fn find(&self, key: &UploadKey, params: &FsUploadParams, now: i64) -> ServiceResult<Arc<Mutex<Upload>>> {
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.get_mut(key) {
            entry.touched_at = now;
            return Ok(entry.upload.clone());
        }
        if params.offset != 0 {
            refuse!(Conflict, "this upload's data is gone: start it again at offset 0");
        }
        let under_way = entries.iter().filter(|(of, entry)| of.1 == key.1 && !entry.is_done).count();
        if under_way >= UPLOADS_PER_PRINCIPAL_MAX {
            refuse!(
                Busy,
                "{UPLOADS_PER_PRINCIPAL_MAX} of your uploads are under way: wait until one has ended, or abort one"
            );
        }
        // Only finished ones make room: they are kept for a repeated last piece, and cost the sender nothing but that
        // answer.
        if entries.len() >= UPLOADS_MAX {
            let oldest =
                entries.iter().filter(|(_, entry)| entry.is_done).min_by_key(|(_, entry)| entry.touched_at);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                refuse!(Busy, "{UPLOADS_MAX} uploads are in progress: wait for one to end, or abort one");
            };
            entries.remove(&oldest);
        }
        let upload = Upload { path: params.path.clone(), ..Upload::default() };
        let upload = Arc::new(Mutex::new(upload));
        let entry = UploadEntry {
            touched_at: now,
            is_done: false,
            received: 0,
            is_frozen: false,
            upload: upload.clone(),
        };
        entries.insert(key.clone(), entry);
        Ok(upload)
    }

    fn abort(&self, key: &UploadKey) -> ServiceResult<()> {
        let mut entries = self.entries.lock();
        if entries.get(key).is_some_and(|entry| entry.is_frozen) {
            return Err(frozen());
        }
        entries.remove(key);
        Ok(())
    }

    fn forget(&self, key: &UploadKey) {
        self.entries.lock().remove(key);
    }

    fn set_done(&self, key: &UploadKey) {
        if let Some(entry) = self.entries.lock().get_mut(key) {
            entry.is_done = true;
        }
    }

    /// Keeps the upload as it is, if it is still the one that has this name. Says under which number.
    fn freeze(
        &self,
        key: &UploadKey,
        shared: &Arc<Mutex<Upload>>,
        upload: &mut Upload,
    ) -> ServiceResult<u64> {
        let mut entries = self.entries.lock();
        let entry = entries.get_mut(key).filter(|entry| Arc::ptr_eq(&entry.upload, shared));
        let entry = entry.ok_or_else(|| {
            ServiceError::coded(ErrorCode::Conflict, "the upload was aborted: start it again at offset 0")
        })?;
        entry.is_frozen = true;
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed) + 1;
        upload.frozen_for = Some(ticket);
        Ok(ticket)
    }
}

fn frozen() -> ServiceError {
    ServiceError::coded(
        ErrorCode::Conflict,
        "a person is asked about this upload: wait for the answer, or cancel that call",
    )
}

/// Takes one piece. With the last one the file appears.
pub(crate) fn upload(
    uploads: &UploadTable,
    root: &Root,
    params: &FsUploadParams,
    sender: UploadSender<'_>,
    cancel: &Cancellation,
) -> ServiceResult<FsUploadData> {
    upload_at(uploads, root, params, sender, cancel, now_ms())
}

pub(super) fn upload_at(
    uploads: &UploadTable,
    root: &Root,
    params: &FsUploadParams,
    sender: UploadSender<'_>,
    cancel: &Cancellation,
    now: i64,
) -> ServiceResult<FsUploadData> {
    if params.abort == Some(true) {
        RelativePath::parse(&params.path)?;
        uploads.abort(&key(root, params, sender.principal)?)?;
        return Ok(answer(params, 0, None));
    }
    let received_piece = receive_piece(uploads, root, params, sender.principal, cancel, now)?;
    let mut upload = received_piece.upload.lock();
    let received = match received_piece.receive(uploads, root, &mut upload, params, sender.approved)? {
        PieceResult::Answer(data) => return Ok(data),
        PieceResult::Whole(received) => received,
    };
    // On failure the state stays open, so that the last piece can be sent again.
    let written = upload.state.finish(root, &received_piece.path, params, sender.approved, cancel)?;
    upload.state = UploadState::Done(written.clone());
    uploads.set_done(&received_piece.key);
    Ok(answer(params, received, Some(written)))
}

/// Takes the last piece, and keeps the whole as it is for a person to decide about.
pub(crate) fn stage(
    uploads: &UploadTable,
    root: &Root,
    params: &FsUploadParams,
    principal: &str,
    cancel: &Cancellation,
) -> ServiceResult<StageResult> {
    let received_piece = receive_piece(uploads, root, params, principal, cancel, now_ms())?;
    let mut upload = received_piece.upload.lock();
    let bytes = match received_piece.receive(uploads, root, &mut upload, params, None)? {
        PieceResult::Answer(data) => return Ok(StageResult::Answer(data)),
        PieceResult::Whole(received) => received,
    };
    let UploadState::Open { temp, digest, .. } = &upload.state else { return Err(ended()) };
    let sha256 = hex(&digest.clone().finalize());
    let preview = preview(temp)?;
    let ticket = uploads.freeze(&received_piece.key, &received_piece.upload, &mut upload)?;
    drop(upload);
    Ok(StageResult::Ask(received_piece.key, StagedUpload { ticket, bytes, sha256, preview }))
}

/// A piece and the upload it is of.
struct ReceivedPiece {
    key: UploadKey,
    path: RelativePath,
    piece: Vec<u8>,
    upload: Arc<Mutex<Upload>>,
}

enum PieceResult {
    /// There is more to come, or it is done.
    Answer(FsUploadData),
    /// All is there.
    Whole(u64),
}

fn receive_piece(
    uploads: &UploadTable,
    root: &Root,
    params: &FsUploadParams,
    principal: &str,
    cancel: &Cancellation,
    now: i64,
) -> ServiceResult<ReceivedPiece> {
    let path = RelativePath::parse(&params.path)?;
    let key = key(root, params, principal)?;
    // The runner's own timer comes only once an hour, and what was given up takes one of the places.
    uploads.expire(now);
    // Before it is decoded: four characters of base64 are three bytes.
    check_size(params.data.len() / 4 * 3)?;
    let piece = from_base64(&params.data)?;
    cancel.check()?;
    let upload = uploads.find(&key, params, now)?;
    Ok(ReceivedPiece { key, path, piece, upload })
}

fn key(root: &Root, params: &FsUploadParams, principal: &str) -> ServiceResult<UploadKey> {
    if params.upload_id.is_empty() || params.upload_id.len() > UPLOAD_ID_BYTES_MAX {
        refuse!(InvalidRequest, "upload_id must have 1 to {UPLOAD_ID_BYTES_MAX} bytes");
    }
    Ok((root.path().to_owned(), principal.to_owned(), params.upload_id.clone()))
}

fn answer(params: &FsUploadParams, received: u64, written: Option<FsWriteData>) -> FsUploadData {
    FsUploadData { upload_id: params.upload_id.clone(), received, written }
}

fn ended() -> ServiceError {
    ServiceError::coded(ErrorCode::Conflict, "this upload has ended: use another upload_id")
}

impl ReceivedPiece {
    /// Adds the piece.
    fn receive(
        &self,
        uploads: &UploadTable,
        root: &Root,
        upload: &mut Upload,
        params: &FsUploadParams,
        approved: Option<&ApprovedUpload>,
    ) -> ServiceResult<PieceResult> {
        if upload.path != params.path {
            refuse!(Conflict, "this upload is for {}: use another upload_id", upload.path);
        }
        if upload.frozen_for.is_some() && upload.frozen_for != approved.and_then(|approved| approved.ticket) {
            return Err(frozen());
        }
        if matches!(upload.state, UploadState::New) {
            match open(root, &self.path, params.create_parents == Some(true)) {
                Ok(state) => upload.state = state,
                Err(error) => {
                    uploads.forget(&self.key);
                    return Err(error);
                }
            }
        }
        let is_last = params.last == Some(true);
        if let UploadState::Done(written) = &upload.state {
            let data = answer(params, written.bytes_written, is_last.then(|| written.clone()));
            return Ok(PieceResult::Answer(data));
        }
        let received = upload.state.append(params.offset, &self.piece)?;
        uploads.note_received(&self.key, received);
        if !is_last || params.offset + self.piece.len() as u64 != received {
            return Ok(PieceResult::Answer(answer(params, received, None)));
        }
        Ok(PieceResult::Whole(received))
    }
}

/// The first characters of what has arrived.
fn preview(temp: &TempFile) -> ServiceResult<String> {
    let mut bytes = vec![0; PREVIEW_BYTES_MAX];
    let mut length = 0;
    while let Some(rest) = bytes.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match temp.file.read_at(rest, length as u64).map_err(failure)? {
            0 => break,
            read => length += read,
        }
    }
    bytes.truncate(length);
    Ok(String::from_utf8_lossy(&bytes).chars().take(PREVIEW_CHARACTERS_MAX).collect())
}

/// A temporary file where the upload will be, or as near as there is a directory: those that are missing are made when
/// the file is whole, and whoever must be asked was asked.
fn open(root: &Root, path: &RelativePath, create_parents: bool) -> ServiceResult<UploadState> {
    let near = match root.parent_of_file(path) {
        Ok(place) => {
            replaced(&place)?;
            place.dir
        }
        Err(ServiceError::BadPath(_)) if create_parents => root.nearest_dir(path)?,
        Err(error) => return Err(error),
    };
    Ok(UploadState::Open { temp: TempFile::create(&near, None)?, received: 0, digest: Sha256::new() })
}

impl UploadState {
    /// Adds a piece that begins where the last one ended. One that has arrived before changes nothing.
    fn append(&mut self, offset: u64, piece: &[u8]) -> ServiceResult<u64> {
        let UploadState::Open { temp, received, digest } = self else {
            return Err(ended());
        };
        let end = offset.saturating_add(piece.len() as u64);
        if offset != *received {
            if end <= *received {
                return Ok(*received);
            }
            refuse!(Conflict, "this upload continues at offset {received}: send the piece that starts there");
        }
        if end > UPLOAD_BYTES_MAX {
            let limit = UPLOAD_BYTES_MAX >> 30;
            refuse!(TooLarge, "an upload may have at most {limit} GiB: abort it, and send the file in parts");
        }
        temp.file.write_all_at(piece, offset).map_err(failure)?;
        digest.update(piece);
        *received = end;
        Ok(end)
    }

    fn finish(
        &mut self,
        root: &Root,
        path: &RelativePath,
        params: &FsUploadParams,
        approved: Option<&ApprovedUpload>,
        cancel: &Cancellation,
    ) -> ServiceResult<FsWriteData> {
        let UploadState::Open { temp, received, digest } = self else {
            return Err(ended());
        };
        if let Some(approved) = approved {
            // Read from the disk again: others may write there while a person thinks.
            let mut file = temp.file.try_clone().map_err(failure)?;
            file.seek(SeekFrom::Start(0)).map_err(failure)?;
            if hash_file(file, cancel)? != approved.sha256 {
                return Err(ServiceError::coded(
                    ErrorCode::Conflict,
                    "the content is not what was approved any more: abort the upload and send it again",
                ));
            }
        }
        root.create_parents(path, params.create_parents)?;
        let place = root.parent_of_file(path)?;
        let expected = params.expected_hash.as_deref();
        if is_other_device(temp, &place)? {
            let mut near = copy_near(temp, &place, cancel)?;
            commit(&mut near, &place, expected, cancel)?;
        } else {
            commit(temp, &place, expected, cancel)?;
        }
        Ok(FsWriteData {
            path: params.path.clone(),
            bytes_written: *received,
            hash: hex(&digest.clone().finalize()),
            truncated: false,
        })
    }
}

/// Whether a directory on the way is another file system, to which nothing can be renamed.
fn is_other_device(temp: &TempFile, place: &NameInDir) -> ServiceResult<bool> {
    let own = rustix::fs::fstat(&temp.file).map_err(failure)?;
    let dir = rustix::fs::fstat(&place.dir).map_err(failure)?;
    Ok(dir.st_dev != own.st_dev)
}

/// The same content in the directory of the place.
pub(super) fn copy_near(
    temp: &mut TempFile,
    place: &NameInDir,
    cancel: &Cancellation,
) -> ServiceResult<TempFile> {
    let mut near = TempFile::create(&place.dir, replaced(place)?.as_ref())?;
    temp.file.seek(SeekFrom::Start(0)).map_err(failure)?;
    read_rest(&mut temp.file, cancel, |piece| near.file.write_all(piece))?;
    Ok(near)
}

#[cfg(test)]
#[path = "upload_tests.rs"]
mod tests;
