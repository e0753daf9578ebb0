//! `GET /files`.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use http::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE,
    LAST_MODIFIED, VARY,
};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use rustix::fs::fstatfs;
use tokio::task::spawn_blocking;

use super::access::{self, Operation};
use super::conditions::{self, Part};
use super::content::Content;
use super::encoding::{self, Encoding};
use super::{Query, Refusal, kind, resolve};
use crate::daemon::Daemon;
use crate::daemon::body::Body;
use crate::daemon::error::Error;

/// The type of the file system at `/sys`.
const SYSFS: i64 = 0x6265_6572;

/// How much of a file decides what it is.
const BEGINNING: u64 = 512;

pub(in crate::daemon) async fn download(daemon: Arc<Daemon>, request: Parts) -> Response<Body> {
    let found = spawn_blocking(move || {
        let found = find(&daemon, &request)?;
        found.answer(&request)
    });
    let answer = found.await;
    answer
        .unwrap_or_else(|broken| Err(Error::broken(broken).into()))
        .unwrap_or_else(|refusal| refusal.answer())
}

/// A file as it is, or the part of it that is asked for.
pub(in crate::daemon) fn octets(path: PathBuf, request: &Parts) -> Result<Response<Body>, Refusal> {
    let (file, metadata) = open(&path)?;
    let found = Found {
        path,
        file,
        metadata,
    };
    let mut response = Response::new(Body::empty());
    set(&mut response, CONTENT_TYPE, "application/octet-stream");
    set(&mut response, ACCEPT_RANGES, "bytes");
    found.date(&mut response);
    found.fill(request, &mut response)?;
    Ok(response)
}

struct Found {
    path: PathBuf,
    file: File,
    metadata: Metadata,
}

fn find(daemon: &Daemon, request: &Parts) -> Result<Found, Refusal> {
    let query = Query::of(request);
    access::check(daemon, request, &query, Operation::Read)?;
    let user = daemon.user(query.username.as_deref())?;
    let path = resolve(daemon, &user, query.path.as_deref().unwrap_or_default())?;
    let _rights = daemon.act_for(&user)?;
    let (file, metadata) = open(&path)?;
    Ok(Found {
        path,
        file,
        metadata,
    })
}

/// Does not wait for the other end of a pipe that somebody calls a file.
fn open(path: &Path) -> Result<(File, Metadata), Refusal> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .and_then(|file| Ok((file.metadata()?, file)));
    let (metadata, file) = opened.map_err(|e| Refusal::of_existing("opening", path, &e))?;
    if metadata.is_dir() {
        let message = format!("path '{}' is a directory", path.display());
        return Err(Refusal::bad_request(message));
    }
    if !metadata.is_file() {
        let message = format!("path '{}' is not a regular file", path.display());
        return Err(Refusal::bad_request(message));
    }
    Ok((file, metadata))
}

impl Found {
    fn answer(self, request: &Parts) -> Result<Response<Body>, Refusal> {
        let wanted = encoding::preferred(&request.headers).ok_or_else(|| {
            let message = "only gzip and identity are served, and neither is accepted";
            Refusal::new(StatusCode::NOT_ACCEPTABLE, message)
        })?;
        let mut response = Response::new(Body::empty());
        self.describe(&mut response)?;
        if wanted == Encoding::Gzip && !conditions::present(&request.headers) {
            set(&mut response, CONTENT_ENCODING, "gzip");
            let length = self.length()?;
            *response.body_mut() = Body::File(Content::gzip(self.file, length));
            return Ok(response);
        }
        set(&mut response, ACCEPT_RANGES, "bytes");
        self.fill(request, &mut response)?;
        Ok(response)
    }

    fn describe(&self, response: &mut Response<Body>) -> Result<(), Refusal> {
        let mut beginning = Vec::new();
        let mut file = &self.file;
        file.take(BEGINNING)
            .read_to_end(&mut beginning)
            .and_then(|_| file.rewind())
            .map_err(|e| Refusal::of_path("reading", &self.path, &e))?;
        set(response, VARY, "Accept-Encoding");
        set(
            response,
            CONTENT_TYPE,
            kind::content_type(&self.path, &beginning),
        );
        set(
            response,
            CONTENT_DISPOSITION,
            &kind::disposition(&self.path),
        );
        self.date(response);
        Ok(())
    }

    /// Nothing where only reading it tells: the kernel's own files say that they are empty, or a page long.
    fn length(&self) -> Result<Option<u64>, Refusal> {
        let said = self.metadata.len();
        let may_be_wrong = said == 0 || fstatfs(&self.file).is_ok_and(|at| at.f_type == SYSFS);
        if !may_be_wrong {
            return Ok(Some(said));
        }
        let mut file = &self.file;
        let read = file
            .read(&mut [0])
            .and_then(|read| file.rewind().map(|()| read))
            .map_err(|e| Refusal::of_path("reading", &self.path, &e))?;
        Ok((read == 0).then_some(0))
    }

    fn date(&self, response: &mut Response<Body>) {
        // from then on such dates cannot be written, as before 1970
        let end = UNIX_EPOCH + Duration::from_secs(253_402_300_800);
        let modified = self.metadata.modified();
        if let Some(modified) = modified.ok().filter(|at| (UNIX_EPOCH..end).contains(at)) {
            set(response, LAST_MODIFIED, &httpdate::fmt_http_date(modified));
        }
    }

    fn fill(mut self, request: &Parts, response: &mut Response<Body>) -> Result<(), Refusal> {
        let length = self.length()?;
        let size = length.unwrap_or_default();
        let modified = self.metadata.modified().unwrap_or(UNIX_EPOCH);
        match conditions::part(&request.headers, size, modified) {
            Part::Whole => *response.body_mut() = Body::File(Content::plain(self.file, length)),
            Part::NotModified => {
                *response.status_mut() = StatusCode::NOT_MODIFIED;
                response.headers_mut().remove(CONTENT_TYPE);
            }
            Part::PreconditionFailed => *response.status_mut() = StatusCode::PRECONDITION_FAILED,
            Part::Unsatisfiable => {
                let message = format!("the range is not within the {size} bytes of the file");
                *response = Refusal::new(StatusCode::RANGE_NOT_SATISFIABLE, message).answer();
                set(response, CONTENT_RANGE, &format!("bytes */{size}"));
            }
            Part::Range(range) => {
                self.file
                    .seek(SeekFrom::Start(range.start))
                    .map_err(|e| Refusal::of_path("reading", &self.path, &e))?;
                let (first, last) = (range.start, range.end - 1);
                set(
                    response,
                    CONTENT_RANGE,
                    &format!("bytes {first}-{last}/{size}"),
                );
                *response.status_mut() = StatusCode::PARTIAL_CONTENT;
                let content = Content::plain(self.file, Some(range.end - range.start));
                *response.body_mut() = Body::File(content);
            }
        }
        Ok(())
    }
}

/// A value that a header cannot hold is left out.
fn set(response: &mut Response<Body>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
