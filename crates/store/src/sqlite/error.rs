//! SQLite's errors as the store's.

use std::fmt;

use rusqlite::{ErrorCode, ffi};

use crate::error::{DatabaseMessage, StoreError};

/// What functions of this folder that speak SQL return. The engine turns it into the store's result, so that no
/// signature outside names SQLite.
pub(crate) type SqlResult<T, E = SqlError> = std::result::Result<T, E>;

/// A failure inside this folder. `?` makes it of SQLite's errors and of the store's; a conversion from SQLite's to
/// `StoreError` itself would be part of what this crate shows to others.
#[derive(Debug)]
pub(crate) struct SqlError(StoreError);

impl From<StoreError> for SqlError {
    fn from(error: StoreError) -> Self {
        Self(error)
    }
}

impl From<SqlError> for StoreError {
    fn from(SqlError(error): SqlError) -> Self {
        error
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl std::error::Error for SqlError {}

impl From<rusqlite::Error> for SqlError {
    fn from(error: rusqlite::Error) -> Self {
        Self(store_error(&error))
    }
}

fn store_error(error: &rusqlite::Error) -> StoreError {
    let cause = DatabaseMessage::new(error);
    let Some(code) = error.sqlite_error() else { return StoreError::Refused(cause) };
    match code.code {
        ErrorCode::DiskFull => StoreError::Full,
        // SQLite turns ENOSPC of a write into SQLITE_FULL, but growing the shared-memory file has its own code.
        _ if code.extended_code == ffi::SQLITE_IOERR_SHMSIZE => StoreError::Full,
        ErrorCode::SystemIoFailure | ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::OutOfMemory => {
            StoreError::Io(cause)
        }
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => StoreError::Busy(cause),
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => StoreError::Corrupt(cause),
        ErrorCode::ConstraintViolation => StoreError::Constraint(cause),
        _ => StoreError::Refused(cause),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_can_tell_the_causes_apart() {
        let of = |code: i32| store_error(&rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
        assert!(matches!(of(ffi::SQLITE_FULL), StoreError::Full));
        assert!(matches!(of(ffi::SQLITE_IOERR_SHMSIZE), StoreError::Full));
        assert!(matches!(of(ffi::SQLITE_IOERR_READ), StoreError::Io(_)));
        assert!(matches!(of(ffi::SQLITE_READONLY), StoreError::Io(_)));
        assert!(matches!(of(ffi::SQLITE_BUSY), StoreError::Busy(_)));
        assert!(matches!(of(ffi::SQLITE_LOCKED), StoreError::Busy(_)));
        assert!(matches!(of(ffi::SQLITE_CORRUPT), StoreError::Corrupt(_)));
        assert!(matches!(of(ffi::SQLITE_NOTADB), StoreError::Corrupt(_)));
        assert!(matches!(of(ffi::SQLITE_CONSTRAINT_UNIQUE), StoreError::Constraint(_)));
        assert!(matches!(of(ffi::SQLITE_MISUSE), StoreError::Refused(_)));
        let other = store_error(&rusqlite::Error::InvalidQuery);
        assert!(matches!(other, StoreError::Refused(_)) && other.is_refusal());
        assert!(of(ffi::SQLITE_CONSTRAINT_UNIQUE).is_refusal());
        for code in [ffi::SQLITE_FULL, ffi::SQLITE_IOERR, ffi::SQLITE_BUSY, ffi::SQLITE_CORRUPT] {
            assert!(!of(code).is_refusal(), "{code}: what is not the request's fault may pass");
        }
    }
}
