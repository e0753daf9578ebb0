//! `/v1/files/{path}`: files and directories below the root.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufRead, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{DateTime, SecondsFormat};
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::not_allowed;
use crate::daemon::body::Body;
use crate::daemon::error::Error;
use crate::daemon::files::{self, Multipart, Refusal, Target};
use crate::daemon::filesystem::entry::within_calendar;
use crate::daemon::root::{self, Entry};
use crate::daemon::scope::Scope;
use crate::daemon::users::User;
use crate::daemon::{Daemon, paths, route};

/// The mode of a file when the client does not say.
const MODE: u32 = 0o644;

pub(super) async fn answer(
    daemon: Arc<Daemon>,
    head: &Parts,
    encoded: &str,
    body: Incoming,
) -> Result<Response<Body>, Refusal> {
    let path = root::path_of(encoded)?;
    match head.method {
        Method::GET => {
            let head = head.clone();
            Scope::of(daemon, None)?
                .elsewhere(move |scope| get(&scope.daemon, &path, &head))
                .await
        }
        Method::HEAD => {
            let head = head.clone();
            let whole = Scope::of(daemon, None)?
                .elsewhere(move |scope| get(&scope.daemon, &path, &head))
                .await?;
            Ok(without_body(whole))
        }
        Method::PUT => {
            let put = Put::of(&daemon, head, &path);
            let writer = put.map(|put| move |arriving| put.write(arriving));
            files::receive(body, writer).await?;
            Ok(done())
        }
        Method::DELETE => {
            let recursive = flag(head, "recursive")?;
            let scope = Scope::of(daemon, None)?;
            scope
                .elsewhere(move |scope| remove(&scope.daemon, &path, recursive))
                .await?;
            Ok(done())
        }
        _ => Ok(not_allowed("GET, HEAD, PUT, DELETE")),
    }
}

fn done() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

fn without_body(mut response: Response<Body>) -> Response<Body> {
    if let Some(length) = response.body().size_hint().exact() {
        let length = HeaderValue::from(length);
        response.headers_mut().insert(CONTENT_LENGTH, length);
    }
    *response.body_mut() = Body::empty();
    response
}

fn parameter(request: &Parts, wanted: &str) -> Option<String> {
    let query = request.uri.query().unwrap_or_default();
    let found = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == wanted);
    found
        .map(|(_, value)| value.into_owned())
        .filter(|value| !value.is_empty())
}

fn flag(request: &Parts, name: &str) -> Result<bool, Refusal> {
    match parameter(request, name).as_deref() {
        Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(true),
        None | Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(false),
        Some(other) => Err(Refusal::bad_request(format!(
            "{name} '{other}' is neither true nor false"
        ))),
    }
}

fn get(daemon: &Daemon, path: &str, request: &Parts) -> Result<Response<Body>, Refusal> {
    let real = daemon.sandboxd_root.resolve(path)?;
    if !root::metadata(&real)?.is_dir() {
        return files::octets(real, request);
    }
    let entries = daemon.sandboxd_root.list(&real)?;
    let entries: Vec<Value> = entries.iter().map(describe).collect();
    let path = format!("/{}", path.trim_start_matches('/'));
    let listing = json!({"path": path, "entries": entries});
    Ok(route::json(StatusCode::OK, &listing))
}

fn describe(entry: &Entry) -> Value {
    let seconds = within_calendar(entry.metadata.mtime());
    let modified = DateTime::from_timestamp(seconds, 0).unwrap_or_default();
    json!({
        "name": entry.name,
        "size": entry.metadata.len(),
        "type": if entry.metadata.is_dir() { "directory" } else { "file" },
        "modified_at": modified.to_rfc3339_opts(SecondsFormat::Secs, true),
        "mode": format!("{:04o}", entry.metadata.mode() & 0o777),
    })
}

struct Put {
    daemon: Arc<Daemon>,
    user: User,
    path: PathBuf,
    mode: u32,
    boundary: Option<String>,
}

impl Put {
    fn of(daemon: &Arc<Daemon>, request: &Parts, path: &str) -> Result<Self, Refusal> {
        let user = daemon.user(None)?;
        let _rights = daemon.act_for(&user)?;
        Ok(Self {
            daemon: Arc::clone(daemon),
            user,
            path: daemon.sandboxd_root.resolve(path)?,
            mode: match parameter(request, "mode") {
                Some(mode) => permissions(&mode)?,
                None => MODE,
            },
            boundary: files::boundary_of(&request.headers)?,
        })
    }

    fn write(&self, mut body: impl BufRead) -> Result<(), Refusal> {
        let _rights = self.daemon.act_for(&self.user)?;
        let Some(boundary) = &self.boundary else {
            return self.replace(|out| files::copy(&mut body, out));
        };
        let mut parts = Multipart::new(body, boundary);
        let mut written = false;
        while let Some(part) = parts.next().map_err(|e| files::of_body(&e))? {
            if part.name == "file" && !written {
                self.replace(|out| parts.copy_to(out))?;
                written = true;
            }
        }
        if written {
            Ok(())
        } else {
            Err(Refusal::bad_request("the form has no part 'file'"))
        }
    }

    /// Whoever reads meanwhile reads all of the old content or all of the new.
    fn replace(&self, write: impl FnOnce(&mut Target) -> io::Result<()>) -> Result<(), Refusal> {
        let path = &self.path;
        if path.is_dir() {
            let message = format!("path '{}' is a directory", path.display());
            return Err(Refusal::bad_request(message));
        }
        let refused = |doing| move |e: io::Error| Refusal::of_path(doing, path, &e);
        let directory = path.parent().unwrap_or(path);
        paths::make_directories(directory, &self.user)
            .map_err(refused("making the directory of"))?;
        let (draft, file) = Draft::beside(path)?;
        fchown(&file, Some(self.user.uid), Some(self.user.gid))
            .and_then(|()| file.set_permissions(Permissions::from_mode(self.mode)))
            .map_err(refused("changing the owner of"))?;
        files::fill(file, path, write)?;
        fs::rename(&draft.path, path).map_err(refused("replacing"))
    }
}

fn permissions(mode: &str) -> Result<u32, Refusal> {
    let is_octal = |bits: &str| bits.len() == 3 && bits.bytes().all(|b| (b'0'..=b'7').contains(&b));
    let bits = mode.strip_prefix('0').filter(|bits| is_octal(bits));
    bits.and_then(|bits| u32::from_str_radix(bits, 8).ok())
        .ok_or_else(|| Refusal::bad_request(format!("mode '{mode}' is not as in 0644")))
}

/// A file that is not complete. It is gone when it was not put in its place.
struct Draft {
    path: PathBuf,
}

impl Draft {
    fn beside(path: &Path) -> Result<(Self, File), Refusal> {
        let mut random = [0; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(|e| Error::internal(format!("no random number: {e}")))?;
        let name = format!(".upload-{:016x}", u64::from_ne_bytes(random));
        let draft = path.with_file_name(name);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)
            .map_err(|e| Refusal::of_path("making", &draft, &e))?;
        Ok((Self { path: draft }, file))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // gone already if it is in its place
        let _ = fs::remove_file(&self.path);
    }
}

fn remove(daemon: &Daemon, path: &str, recursive: bool) -> Result<(), Refusal> {
    let entry = daemon.sandboxd_root.resolve_entry(path)?;
    let found =
        fs::symlink_metadata(&entry).map_err(|e| Refusal::of_existing("reading", &entry, &e))?;
    if entry == daemon.sandboxd_root.resolve("")? {
        return if recursive {
            empty(&entry)
        } else {
            Err(not_empty(&entry))
        };
    }
    remove_entry(&entry, found.is_dir(), recursive)
}

/// The root itself stays: it may be where a volume is mounted.
fn empty(directory: &Path) -> Result<(), Refusal> {
    let refused = |e: &io::Error| Refusal::of_path("emptying", directory, e);
    for entry in fs::read_dir(directory).map_err(|e| refused(&e))? {
        let entry = entry.map_err(|e| refused(&e))?;
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        remove_entry(&entry.path(), is_directory, true)?;
    }
    Ok(())
}

fn remove_entry(path: &Path, is_directory: bool, recursive: bool) -> Result<(), Refusal> {
    let removed = match (is_directory, recursive) {
        (false, _) => fs::remove_file(path),
        (true, false) => fs::remove_dir(path),
        (true, true) => fs::remove_dir_all(path),
    };
    match removed {
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Err(not_empty(path)),
        removed => removed.map_err(|e| Refusal::of_path("removing", path, &e)),
    }
}

fn not_empty(path: &Path) -> Refusal {
    let message = format!(
        "directory '{}' is only removed with recursive=true",
        path.display()
    );
    Refusal::new(StatusCode::CONFLICT, message)
}
