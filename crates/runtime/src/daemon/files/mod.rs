//! `/files`: whole files in and out over plain HTTP.
//!
//! `access` decides who may; a download is `download` with `conditions`, `encoding` and `kind`, its bytes come from `content`. An
//! upload is `upload` with `multipart` and `arriving`, and `metadata` is what clients attach to a file.

mod access;
mod arriving;
mod compose;
mod conditions;
mod content;
mod download;
mod encoding;
mod kind;
pub(super) mod metadata;
mod multipart;
mod upload;

use std::io;
use std::path::{Path, PathBuf};

use http::request::Parts;
use http::{Response, StatusCode};

pub(super) use self::compose::compose;
pub(super) use self::content::Content;
pub(super) use self::download::{download, octets};
pub(super) use self::multipart::Multipart;
#[cfg(feature = "fuzz")]
pub(super) use self::multipart::boundary;
pub(super) use self::upload::{
    Target, boundary_of, copy, fill, of_body, open_for, receive, upload,
};
use super::body::Body;
use super::error::{Error, is_missing};
use super::users::User;
use super::{Daemon, paths, route};

/// Why a request for a file is not answered with it.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
        }
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// The system refused something about a path.
    pub(super) fn of_path(doing: &str, path: &Path, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::new(
                StatusCode::INSUFFICIENT_STORAGE,
                format!("not enough disk space {doing} '{}'", path.display()),
            ),
            io::ErrorKind::IsADirectory => {
                Self::bad_request(format!("path '{}' is a directory", path.display()))
            }
            _ => Error::of_path(doing, path, error).into(),
        }
    }

    /// The same of a path at which there should be something.
    pub(super) fn of_existing(doing: &str, path: &Path, error: &io::Error) -> Self {
        if is_missing(error) {
            Error::missing(path).into()
        } else {
            Self::of_path(doing, path, error)
        }
    }

    pub(super) fn answer(&self) -> Response<Body> {
        route::refuse(self.status, &self.message)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::new(error.code.http(), error.message)
    }
}

/// What the query of a request says.
#[derive(Default)]
struct Query {
    path: Option<String>,
    username: Option<String>,
    signature: Option<String>,
    expiration: Option<String>,
}

impl Query {
    fn of(request: &Parts) -> Self {
        let mut query = Self::default();
        let text = request.uri.query().unwrap_or_default();
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            let field = match &*name {
                "path" => &mut query.path,
                "username" => &mut query.username,
                "signature" => &mut query.signature,
                "signature_expiration" => &mut query.expiration,
                _ => continue,
            };
            field.get_or_insert(value.into_owned());
        }
        query
    }
}

fn resolve(daemon: &Daemon, user: &User, path: &str) -> Result<PathBuf, Refusal> {
    let workdir = daemon.settings.default_workdir();
    Ok(paths::resolve(path, user, workdir.as_deref())?)
}
