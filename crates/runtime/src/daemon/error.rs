//! What the daemon answers when it does not do what was asked: one code, one message, on either kind of endpoint.

use std::fmt::Display;
use std::io;
use std::path::Path;

use crate::code::Code;

#[derive(Clone, Debug)]
pub(crate) struct Error {
    pub(crate) code: Code,
    pub(crate) message: String,
}

impl Error {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(Code::Internal, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }

    /// The system refused something about a path.
    pub(crate) fn of_path(doing: &str, path: &Path, error: &io::Error) -> Self {
        let message = format!("error {doing} '{}': {error}", path.display());
        Self::new(code_of(error), message)
    }

    pub(crate) fn missing(path: &Path) -> Self {
        Self::not_found(format!("path '{}' does not exist", path.display()))
    }

    /// The same of a path at which there should be something.
    pub(crate) fn of_existing(doing: &str, path: &Path, error: &io::Error) -> Self {
        if is_missing(error) {
            Self::missing(path)
        } else {
            Self::of_path(doing, path, error)
        }
    }

    /// The daemon's own work broke off, which no request should be able to cause.
    pub(crate) fn broken(cause: impl Display) -> Self {
        Self::internal(format!("the request broke off: {cause}"))
    }
}

/// What is missing is so also below something that is no directory.
pub(crate) fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

fn code_of(error: &io::Error) -> Code {
    match error.kind() {
        io::ErrorKind::NotFound => Code::NotFound,
        io::ErrorKind::PermissionDenied => Code::PermissionDenied,
        io::ErrorKind::AlreadyExists => Code::AlreadyExists,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Code::ResourceExhausted,
        io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::InvalidInput
        | io::ErrorKind::InvalidFilename
        | io::ErrorKind::DirectoryNotEmpty => Code::InvalidArgument,
        _ if error.raw_os_error() == Some(libc::ELOOP) => Code::FailedPrecondition,
        _ => Code::Internal,
    }
}
