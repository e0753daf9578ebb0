//! `POST /files`.

use std::collections::{BTreeMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufWriter, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use hyper::body::Incoming;
use rustix::process::geteuid;
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::access::{self, Operation};
use super::arriving::{self, Arriving};
use super::multipart::{self, Multipart};
use super::{Query, Refusal, metadata, resolve};
use crate::daemon::body::Body;
use crate::daemon::error::Error;
use crate::daemon::users::User;
use crate::daemon::{Daemon, paths, route};

/// What is collected before it is written. A small file is written at once, and so makes one event.
const BUFFER: usize = 256 << 10;

/// More than anybody uploads at once; what is answered about them is kept in memory.
const MOST_FILES: usize = 10_000;

/// Each has a thread until its body is written, also while nothing comes. The rest of the threads is for other work on files.
static WRITERS: Semaphore = Semaphore::const_new(128);

/// What is answered about each file.
#[derive(Serialize)]
pub(super) struct Written {
    path: PathBuf,
    name: String,
    r#type: &'static str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
}

pub(in crate::daemon) async fn upload(
    daemon: &Arc<Daemon>,
    request: &Parts,
    body: Incoming,
) -> Response<Body> {
    let upload = Upload::of(daemon, request);
    let writer = upload.map(|upload| move |arriving| upload.write(arriving));
    match receive(body, writer).await {
        Ok(written) => route::json(StatusCode::OK, &written),
        Err(refusal) => refusal.answer(),
    }
}

/// Has a body written where a slow disk holds up nobody else. If nobody can write it, it is read all the same.
pub(in crate::daemon) async fn receive<T: Send + 'static>(
    mut body: Incoming,
    writer: Result<impl FnOnce(Arriving) -> Result<T, Refusal> + Send + 'static, Refusal>,
) -> Result<T, Refusal> {
    let outcome = match writer {
        Ok(write) => {
            let _one_of_few = WRITERS.acquire().await.map_err(Error::broken)?;
            let (reader, arriving) = arriving::channel();
            let writing = spawn_blocking(move || write(arriving));
            let ((), written) = tokio::join!(arriving::feed(&mut body, reader), writing);
            written.unwrap_or_else(|broken| Err(Error::broken(broken).into()))
        }
        Err(refusal) => Err(refusal),
    };
    if outcome.is_err() {
        arriving::drain(&mut body).await;
    }
    outcome
}

struct Upload {
    daemon: Arc<Daemon>,
    user: User,
    path: Option<PathBuf>,
    form: Form,
    gzip: bool,
    metadata: BTreeMap<String, String>,
}

enum Form {
    Octets,
    Multipart { boundary: String },
}

impl Upload {
    fn of(daemon: &Arc<Daemon>, request: &Parts) -> Result<Self, Refusal> {
        let query = Query::of(request);
        access::check(daemon, request, &query, Operation::Write)?;
        let user = daemon.user(query.username.as_deref())?;
        let path = query.path.filter(|path| !path.is_empty());
        let path = path.map(|path| resolve(daemon, &user, &path)).transpose()?;
        Ok(Self {
            daemon: Arc::clone(daemon),
            user,
            path,
            form: Form::of(&request.headers)?,
            gzip: is_gzip(&request.headers)?,
            metadata: metadata::of_headers(&request.headers)?,
        })
    }

    fn write(self, arriving: Arriving) -> Result<Vec<Written>, Refusal> {
        let _rights = self.daemon.act_for(&self.user)?;
        let mut source = arriving.unpacked(self.gzip);
        match &self.form {
            Form::Octets => {
                let path = self.path.as_deref().ok_or_else(|| {
                    Refusal::bad_request("the path of an application/octet-stream is missing")
                })?;
                let written = self.write_file(path, |out| copy(&mut source, out))?;
                Ok(vec![written])
            }
            Form::Multipart { boundary } => self.write_parts(Multipart::new(source, boundary)),
        }
    }

    fn write_parts(&self, mut parts: Multipart<Box<dyn BufRead>>) -> Result<Vec<Written>, Refusal> {
        let mut written = Vec::new();
        let mut paths = HashSet::new();
        while let Some(part) = parts.next().map_err(|e| of_body(&e))? {
            if part.name != "file" {
                continue;
            }
            let path = match (&self.path, part.filename) {
                (Some(path), _) => path.clone(),
                (None, Some(name)) => resolve(&self.daemon, &self.user, &name)?,
                (None, None) => {
                    let message = "a part has no file name, and the request no path";
                    return Err(Refusal::bad_request(message));
                }
            };
            if !paths.insert(path.clone()) {
                let message = format!("path '{}' is uploaded twice", path.display());
                return Err(Refusal::bad_request(message));
            }
            if written.len() == MOST_FILES {
                let message = format!("more than {MOST_FILES} files in one request");
                return Err(Refusal::bad_request(message));
            }
            written.push(self.write_file(&path, |out| parts.copy_to(out))?);
        }
        Ok(written)
    }

    fn write_file(
        &self,
        path: &Path,
        write: impl FnOnce(&mut Target) -> io::Result<()>,
    ) -> Result<Written, Refusal> {
        let file = open_for(path, &self.user)?;
        let metadata = metadata::replace(&file, &self.metadata)
            .map_err(|e| Refusal::of_path("storing metadata of", path, &e))?;
        fill(file, path, write)?;
        Ok(Written::new(path, metadata))
    }
}

pub(in crate::daemon) fn fill(
    file: File,
    path: &Path,
    write: impl FnOnce(&mut Target) -> io::Result<()>,
) -> Result<(), Refusal> {
    let mut target = Target::new(file);
    let filled = write(&mut target).and_then(|()| target.flush());
    match (filled, target.failed) {
        (Ok(()), _) => Ok(()),
        (Err(error), true) => Err(Refusal::of_path("writing", path, &error)),
        (Err(error), false) => Err(of_body(&error)),
    }
}

/// A file being written, which remembers whether it was the file that failed.
pub(in crate::daemon) struct Target {
    file: BufWriter<File>,
    failed: bool,
}

impl Target {
    pub(super) fn new(file: File) -> Self {
        Self {
            file: BufWriter::with_capacity(BUFFER, file),
            failed: false,
        }
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).inspect_err(|_| self.failed = true)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush().inspect_err(|_| self.failed = true)
    }
}

impl Written {
    pub(super) fn new(path: &Path, metadata: BTreeMap<String, String>) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Self {
            path: path.to_owned(),
            name: name.into_owned(),
            r#type: "file",
            metadata,
        }
    }
}

impl Form {
    fn of(headers: &HeaderMap) -> Result<Self, Refusal> {
        if let Some(boundary) = boundary_of(headers)? {
            return Ok(Self::Multipart { boundary });
        }
        match essence(content_type(headers)) {
            essence if essence.eq_ignore_ascii_case("application/octet-stream") => Ok(Self::Octets),
            essence => Err(Refusal::bad_request(format!(
                "content type '{essence}' is neither multipart/form-data nor application/octet-stream"
            ))),
        }
    }
}

fn content_type(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE);
    value
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

fn essence(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

/// What separates the parts of a body, if it is a form.
pub(in crate::daemon) fn boundary_of(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let content_type = content_type(headers);
    if !essence(content_type).eq_ignore_ascii_case("multipart/form-data") {
        return Ok(None);
    }
    let boundary = multipart::boundary(content_type)
        .ok_or_else(|| Refusal::bad_request("the multipart form names no boundary"))?;
    Ok(Some(boundary))
}

fn is_gzip(headers: &HeaderMap) -> Result<bool, Refusal> {
    match headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes) {
        None | Some(b"" | b"identity") => Ok(false),
        Some(b"gzip") => Ok(true),
        Some(other) => Err(Refusal::bad_request(format!(
            "content encoding '{}' is neither gzip nor identity",
            String::from_utf8_lossy(other)
        ))),
    }
}

/// Opens a file for its new content. An existing one stays the same inode with the same mode; both belong to the user.
pub(in crate::daemon) fn open_for(path: &Path, user: &User) -> Result<File, Refusal> {
    let refused = |doing| move |e: io::Error| Refusal::of_path(doing, path, &e);
    if path.to_string_lossy().ends_with('/') || path.is_dir() {
        let message = format!("path '{}' is a directory", path.display());
        return Err(Refusal::bad_request(message));
    }
    if let Some(parent) = path.parent() {
        paths::make_directories(parent, user).map_err(refused("making the directory of"))?;
    }
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o666)
        // not to wait for whoever reads a pipe
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map_err(refused("opening"))?;
    let existing = file.metadata().map_err(refused("opening"))?;
    if !existing.is_file() {
        let message = format!("path '{}' is not a regular file", path.display());
        return Err(Refusal::bad_request(message));
    }
    // emptying an empty file would be an event to watchers
    if existing.len() > 0 {
        file.set_len(0).map_err(refused("emptying"))?;
    }
    let is_anothers = existing.uid() != geteuid().as_raw();
    match fchown(&file, Some(user.uid), Some(user.gid)) {
        // who may write to a file of another's may not take it from him
        Err(error) if error.kind() == ErrorKind::PermissionDenied && is_anothers => {}
        given => given.map_err(refused("changing the owner of"))?,
    }
    Ok(file)
}

pub(in crate::daemon) fn copy(source: &mut impl BufRead, out: &mut impl Write) -> io::Result<()> {
    loop {
        let available = source.fill_buf()?;
        if available.is_empty() {
            return Ok(());
        }
        out.write_all(available)?;
        let amount = available.len();
        source.consume(amount);
    }
}

/// The body broke off or is not what its headers say.
pub(in crate::daemon) fn of_body(error: &io::Error) -> Refusal {
    if error.kind() == ErrorKind::TimedOut {
        return Refusal::new(StatusCode::REQUEST_TIMEOUT, "the upload has stalled");
    }
    Refusal::bad_request(format!("the body cannot be read: {error}"))
}
