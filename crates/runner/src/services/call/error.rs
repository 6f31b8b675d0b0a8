//! The ways a service call can fail.

use std::io;

use qd_wire::{CodedError, ErrorCode};
use tokio::task::JoinError;

/// Why a service did not do it. The words of the first ones are those clients of the run document know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ServiceError {
    /// `missing path`, `missing q`…
    #[error("missing {0}")]
    Missing(&'static str),
    #[error("path must be relative")]
    NotRelative,
    #[error("path contains ..")]
    ParentInPath,
    #[error("invalid path")]
    InvalidPath,
    /// The system's own reason, with the code that says as much.
    #[error("bad path: {0}")]
    BadPath(CodedError),
    #[error("path escapes run cwd")]
    Escapes,
    #[error("file is not valid utf-8")]
    NotUtf8,
    #[error("path is not a directory")]
    NotADirectory,
    #[error("path is a directory")]
    IsADirectory,
    #[error("path is not a regular file")]
    NotAFile,
    /// Tokens, keys and records; nobody's files.
    #[error("path is Quarterdeck's own data")]
    OwnData,
    /// A person said no.
    #[error("denied")]
    Denied,
    /// A person said no, and why; or there is nobody to ask.
    #[error("denied: {0}")]
    DeniedBecause(String),
    #[error("timeout")]
    Timeout,
    #[error("cancelled")]
    Cancelled,
    #[error("{0}")]
    Other(CodedError),
}

/// What a service call comes to.
pub(crate) type ServiceResult<T> = Result<T, ServiceError>;

impl ServiceError {
    /// Any other reason, in words that say what to do next.
    pub(crate) fn coded(code: ErrorCode, reason: impl Into<String>) -> Self {
        ServiceError::Other(code.with(reason))
    }

    /// A parameter that cannot be used.
    pub(crate) fn invalid(reason: impl Into<String>) -> Self {
        ServiceError::Other(CodedError::invalid(reason))
    }

    /// What programs decide by.
    pub(crate) const fn code(&self) -> ErrorCode {
        match self {
            ServiceError::Missing(_)
            | ServiceError::NotRelative
            | ServiceError::ParentInPath
            | ServiceError::InvalidPath
            | ServiceError::Escapes
            | ServiceError::NotUtf8
            | ServiceError::NotADirectory
            | ServiceError::IsADirectory
            | ServiceError::NotAFile => ErrorCode::InvalidRequest,
            ServiceError::OwnData => ErrorCode::PermissionDenied,
            ServiceError::Denied | ServiceError::DeniedBecause(_) => ErrorCode::Denied,
            ServiceError::Timeout => ErrorCode::TimedOut,
            ServiceError::Cancelled => ErrorCode::Cancelled,
            ServiceError::BadPath(error) | ServiceError::Other(error) => error.code,
        }
    }
}

impl From<io::Error> for ServiceError {
    fn from(error: io::Error) -> Self {
        ServiceError::BadPath(ErrorCode::of_io(&error).with(error.to_string()))
    }
}

/// A thread of the runner that failed.
impl From<JoinError> for ServiceError {
    fn from(error: JoinError) -> Self {
        ServiceError::coded(ErrorCode::Internal, error.to_string())
    }
}

impl From<serde_json::Error> for ServiceError {
    fn from(error: serde_json::Error) -> Self {
        ServiceError::coded(ErrorCode::Internal, error.to_string())
    }
}

impl From<CodedError> for ServiceError {
    fn from(error: CodedError) -> Self {
        ServiceError::Other(error)
    }
}

impl From<ServiceError> for CodedError {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Other(error) => error,
            other => other.code().with(other.to_string()),
        }
    }
}
