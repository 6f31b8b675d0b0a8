//! The store's errors. They name no database, so that callers decide the same way for every backend.

use std::fmt;
use std::sync::Arc;

pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Why a store request failed, in words that hold for every backend. Cheap to clone, because a failed commit fails
/// every request in its group.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Apart from `Io`, because it passes when somebody frees space and the same request may then be sent again.
    #[error("the disk is full; nothing of this request was stored: free some space and send it again")]
    Full,
    /// Old code must not write to a schema it does not know: a downgrade is refused before anything is touched.
    #[error(
        "{database} was written by a newer qd (schema {found}, this one knows {known}): \
         start the newer qd, or use another data directory"
    )]
    Newer { database: String, found: i64, known: i64 },
    #[error("cannot open {database}: {reason}")]
    Open { database: String, reason: String },
    #[error("cannot bring {database} to schema {version}: {reason}; it is unchanged, report this")]
    Migration { database: String, version: i64, reason: String },
    #[error("the database is damaged ({0}): stop qd and restore it from a copy")]
    Corrupt(DatabaseMessage),
    #[error("the database cannot be read or written ({0}): check the disk, then send the request again")]
    Io(DatabaseMessage),
    #[error("another program holds the database ({0}): send the request again, or stop that program")]
    Busy(DatabaseMessage),
    #[error("the request cannot be stored: {0}")]
    Invalid(String),
    #[error("{column} has the value '{value}', which this qd does not know: start the qd that wrote it")]
    Unknown { column: &'static str, value: String },
    #[error("a rule of the database refuses the request: {0}")]
    Constraint(DatabaseMessage),
    #[error("the database refused the request: {0}")]
    Refused(DatabaseMessage),
    /// Also the answer to a request whose writer went away without answering it.
    #[error("the store is closed; open it again")]
    Closed,
}

/// What the database said of a failure: text for people, never for programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseMessage(Arc<str>);

impl DatabaseMessage {
    pub(crate) fn new(said: &dyn fmt::Display) -> Self {
        Self(said.to_string().into())
    }
}

impl fmt::Display for DatabaseMessage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl StoreError {
    /// True when the fault is the request's: sent again, it would be refused again, while others may succeed. False
    /// when it is the database's, so that the rest of a group fails with it and a later attempt may succeed.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Invalid(_) | Self::Unknown { .. } | Self::Constraint(_) | Self::Refused(_) => true,
            Self::Full | Self::Corrupt(_) | Self::Io(_) | Self::Busy(_) | Self::Closed => false,
            Self::Newer { .. } | Self::Open { .. } | Self::Migration { .. } => false,
        }
    }
}
