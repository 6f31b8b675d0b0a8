use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::ErrorCode;
use rusqlite::ffi;

pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Why a store request failed. Cheap to clone, because a failed commit fails every request in its group.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    #[error("the disk is full; nothing of this request was stored: free some space and send it again")]
    Full,
    #[error(
        "{path} was written by a newer qd (schema {found}, this one knows {known}): \
         start the newer qd, or use another data directory"
    )]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error("cannot open {path}: {reason}; check that the directory exists and is writable")]
    Open { path: PathBuf, reason: String },
    #[error("cannot bring {path} to schema {version}: {reason}; the file is unchanged, report this")]
    Migration { path: PathBuf, version: i64, reason: String },
    #[error("the database is damaged ({0}): stop qd and restore the file from a copy")]
    Corrupt(Arc<rusqlite::Error>),
    #[error("the disk failed ({0}): check the disk, then send the request again")]
    Io(Arc<rusqlite::Error>),
    #[error("the request cannot be stored: {0}")]
    Invalid(String),
    #[error("{column} has the value '{value}', which this qd does not know: start the qd that wrote it")]
    Unknown { column: &'static str, value: String },
    #[error("the database refused the request: {0}")]
    Sqlite(Arc<rusqlite::Error>),
    #[error("the store is closed; open it again")]
    Closed,
}

impl StoreError {
    /// True when the fault is the database's and not the request's: retrying the rest of a group is no use.
    pub(crate) fn concerns_everyone(&self) -> bool {
        match self {
            Self::Full | Self::Corrupt(_) | Self::Io(_) | Self::Closed => true,
            Self::Newer { .. } | Self::Open { .. } | Self::Migration { .. } => true,
            Self::Invalid(_) | Self::Unknown { .. } | Self::Sqlite(_) => false,
        }
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        let Some(code) = error.sqlite_error() else { return Self::Sqlite(Arc::new(error)) };
        match code.code {
            ErrorCode::DiskFull => Self::Full,
            // SQLite turns ENOSPC of a write into SQLITE_FULL, but growing the shared-memory file has its own code.
            _ if code.extended_code == ffi::SQLITE_IOERR_SHMSIZE => Self::Full,
            ErrorCode::SystemIoFailure | ErrorCode::ReadOnly | ErrorCode::CannotOpen => {
                Self::Io(Arc::new(error))
            }
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::OutOfMemory => {
                Self::Io(Arc::new(error))
            }
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => Self::Corrupt(Arc::new(error)),
            _ => Self::Sqlite(Arc::new(error)),
        }
    }
}
