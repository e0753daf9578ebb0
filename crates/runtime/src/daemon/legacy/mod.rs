//! The HTTP API of agent-sandbox's older runtime: whole commands and whole files, in one directory.
//!
//! Clients speak it on port 8888 by default. `command` splits a line into words as they expect.

mod command;

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::body::Body;
use super::error::Error;
use super::files::{self, Multipart, Refusal};
use super::process::{Captured, Launch, capture};
use super::root::{self, Entry};
use super::scope::Scope;
use super::users::User;
use super::{Daemon, route};
use crate::messages::process::ProcessConfig;

/// Room for every command that the system can start.
const LARGEST: usize = 4 << 20;

/// What a command may take when the client does not say.
const LIMIT: Duration = Duration::from_secs(300);

/// How much later a command is killed by a daemon that knows nothing of its client.
const AFTER_LIMIT: Duration = Duration::from_secs(1);

/// The exit code of a command that did not run, or took longer than any may.
const FAILED: i32 = 1;

/// The exit code of a command that took longer than its client gave it.
const TIMED_OUT: i32 = 124;

pub(super) async fn answer(daemon: Arc<Daemon>, request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    // whoever looks whether it is up has no token
    let is_probe = head.uri.path() == "/";
    if !is_probe && !daemon.settings.admits(head.headers.get("x-access-token")) {
        return route::refuse(StatusCode::UNAUTHORIZED, route::UNAUTHORIZED);
    }
    dispatch(daemon, head, body)
        .await
        .unwrap_or_else(|refusal| refusal.answer())
}

async fn dispatch(
    daemon: Arc<Daemon>,
    head: Parts,
    body: Incoming,
) -> Result<Response<Body>, Refusal> {
    let path = head.uri.path();
    let below = path.strip_prefix('/').unwrap_or(path);
    let (endpoint, encoded) = match below.split_once('/') {
        Some((endpoint, encoded)) => (endpoint, Some(encoded)),
        None => (below, None),
    };
    match (&head.method, endpoint, encoded) {
        (&Method::GET, "", None) => Ok(ok(&json!({"status": "ok", "message": "ready"}))),
        (&Method::POST, "execute", None) => execute(&daemon, body).await,
        (&Method::POST, "upload", None) => upload(&daemon, &head, body).await,
        (&Method::GET, "download", Some(encoded)) => {
            let path = root::path_of(encoded)?;
            let scope = Scope::of(daemon, None)?;
            scope
                .elsewhere(move |scope| download(&scope.daemon, &path, &head))
                .await
        }
        (&Method::GET, "list", Some(encoded)) => {
            let path = root::path_of(encoded)?;
            let scope = Scope::of(daemon, None)?;
            scope
                .elsewhere(move |scope| list(&scope.daemon, &path))
                .await
        }
        (&Method::GET, "exists", Some(encoded)) => {
            let path = root::path_of(encoded)?;
            let scope = Scope::of(daemon, None)?;
            scope
                .elsewhere(move |scope| exists(&scope.daemon, &path))
                .await
        }
        (_, "", None) | (_, "download" | "list" | "exists", Some(_)) => {
            Ok(route::not_allowed("GET"))
        }
        (_, "execute" | "upload", None) => Ok(route::not_allowed("POST")),
        _ => Ok(route::not_found(path)),
    }
}

fn ok(content: &impl Serialize) -> Response<Body> {
    route::json(StatusCode::OK, content)
}

fn not_understood(why: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, why)
}

#[derive(Deserialize)]
struct Execute {
    command: String,
    /// What newer clients give a command.
    timeout_seconds: Option<f64>,
}

#[derive(Serialize)]
struct Executed {
    stdout: String,
    stderr: String,
    exit_code: i32,
    timed_out: bool,
}

async fn execute(daemon: &Arc<Daemon>, body: Incoming) -> Result<Response<Body>, Refusal> {
    let body = Limited::new(body, LARGEST).collect().await;
    let body = body.map_err(|e| not_understood(format!("the body cannot be read: {e}")))?;
    let request: Execute = serde_json::from_slice(&body.to_bytes())
        .map_err(|e| not_understood(format!("the body is not understood: {e}")))?;
    let given = request.timeout_seconds.map(limit).transpose()?;
    let daemon = Arc::clone(daemon);
    // goes on without a client: one that has left does not end what it began
    let done = tokio::spawn(async move { daemon.run(&request.command, given).await });
    let done = done.await.unwrap_or_else(|e| Err(Error::broken(e)));
    Ok(ok(&done.unwrap_or_else(|error| Executed {
        stdout: String::new(),
        stderr: error.message,
        exit_code: FAILED,
        timed_out: false,
    })))
}

fn limit(seconds: f64) -> Result<Duration, Refusal> {
    let limit = Duration::try_from_secs_f64(seconds).ok();
    limit
        .filter(|limit| !limit.is_zero())
        .ok_or_else(|| not_understood(format!("timeout_seconds cannot be {seconds}")))
}

impl Daemon {
    async fn run(&self, line: &str, given: Option<Duration>) -> Result<Executed, Error> {
        let mut words = command::split(line)?.into_iter();
        let cmd = words
            .next()
            .ok_or_else(|| Error::invalid("the command is empty"))?;
        let user = self.user(None)?;
        let limit = given.unwrap_or(LIMIT);
        let (process, mut events) = self.launch(Launch {
            user: &user,
            config: ProcessConfig {
                cmd,
                args: words.collect(),
                ..ProcessConfig::default()
            },
            environment: self.environment_of_container(&user, &BTreeMap::new()),
            cwd: self.legacy_root.path().to_owned(),
            pty: None,
            stdin: false,
            tag: None,
            // for a daemon that takes over; this one is there first
            deadline: Instant::now().checked_add(limit.saturating_add(AFTER_LIMIT)),
        })?;
        let captured = capture(&process, &mut events, Some(limit)).await;
        Ok(Executed::of(captured, limit, given.is_some()))
    }
}

impl Executed {
    fn of(captured: Captured, limit: Duration, given: bool) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let mut stderr = text(captured.stderr);
        let exit_code = match captured.exit {
            _ if captured.timed_out => {
                let seconds = limit.as_secs_f64();
                stderr.push_str(&format!("the command took longer than {seconds} seconds\n"));
                if given { TIMED_OUT } else { FAILED }
            }
            Some(status) => exit_code(status),
            None => FAILED,
        };
        Self {
            stdout: text(captured.stdout),
            stderr,
            exit_code,
            timed_out: captured.timed_out,
        }
    }
}

/// A signal is its negative number, as in Python.
fn exit_code(status: ExitStatus) -> i32 {
    let signal = || status.signal().map(|signal| -signal);
    status.code().or_else(signal).unwrap_or(FAILED)
}

async fn upload(
    daemon: &Arc<Daemon>,
    head: &Parts,
    body: Incoming,
) -> Result<Response<Body>, Refusal> {
    let prepared = || {
        let boundary = files::boundary_of(&head.headers)?
            .ok_or_else(|| not_understood("the body is no multipart form"))?;
        Ok((Arc::clone(daemon), daemon.user(None)?, boundary))
    };
    let writer = prepared().map(|(daemon, user, boundary)| {
        move |arriving| write(&daemon, &user, Multipart::new(arriving, &boundary))
    });
    let name = files::receive(body, writer).await?;
    Ok(ok(&json!({"message": format!("'{name}' is written")})))
}

/// Writes the first file of a form, and reads on to its end.
fn write(
    daemon: &Daemon,
    user: &User,
    mut parts: Multipart<impl std::io::BufRead>,
) -> Result<String, Refusal> {
    let _rights = daemon.act_for(user)?;
    let mut written = None;
    while let Some(part) = parts.next().map_err(|e| files::of_body(&e))? {
        if part.name != "file" || written.is_some() {
            continue;
        }
        let name = part.filename.filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| not_understood("the file has no name"))?;
        let path = daemon.legacy_root.resolve(&name)?;
        let file = files::open_for(&path, user)?;
        files::fill(file, &path, |out| parts.copy_to(out))?;
        written = Some(name);
    }
    written.ok_or_else(|| not_understood("the form has no part 'file'"))
}

fn download(daemon: &Daemon, path: &str, request: &Parts) -> Result<Response<Body>, Refusal> {
    let path = daemon.legacy_root.resolve(path)?;
    if root::metadata(&path)?.is_file() {
        files::octets(path, request)
    } else {
        let message = format!("path '{}' is not a file", path.display());
        Err(Refusal::new(StatusCode::NOT_FOUND, message))
    }
}

fn list(daemon: &Daemon, path: &str) -> Result<Response<Body>, Refusal> {
    let path = daemon.legacy_root.resolve(path)?;
    if !root::metadata(&path)?.is_dir() {
        let message = format!("path '{}' is not a directory", path.display());
        return Err(Refusal::new(StatusCode::NOT_FOUND, message));
    }
    let entries = daemon.legacy_root.list(&path)?;
    let entries: Vec<_> = entries.iter().map(describe).collect();
    Ok(ok(&entries))
}

fn describe(entry: &Entry) -> serde_json::Value {
    let modified = entry.metadata.modified().unwrap_or(UNIX_EPOCH);
    // before 1970 is a negative number
    let seconds = modified.duration_since(UNIX_EPOCH).map_or_else(
        |before| -before.duration().as_secs_f64(),
        |since| since.as_secs_f64(),
    );
    json!({
        "name": entry.name,
        "size": entry.metadata.len(),
        "type": if entry.metadata.is_dir() { "directory" } else { "file" },
        "mod_time": seconds,
    })
}

fn exists(daemon: &Daemon, path: &str) -> Result<Response<Body>, Refusal> {
    let exists = Path::exists(&daemon.legacy_root.resolve(path)?);
    Ok(ok(&json!({"path": path, "exists": exists})))
}
