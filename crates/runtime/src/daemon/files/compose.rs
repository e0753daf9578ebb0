//! `POST /files/compose`: several files become one.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::{Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde::Deserialize;
use tokio::task::spawn_blocking;

use super::upload::{Target, Written, open_for};
use super::{Refusal, metadata, resolve};
use crate::daemon::body::Body;
use crate::daemon::error::Error;
use crate::daemon::users::User;
use crate::daemon::{Daemon, route};

/// Room for tens of thousands of paths.
const LARGEST: usize = 4 << 20;

#[derive(Deserialize)]
struct Compose {
    source_paths: Vec<String>,
    destination: String,
    username: Option<String>,
}

pub(in crate::daemon) async fn compose(daemon: &Arc<Daemon>, body: Incoming) -> Response<Body> {
    let body = match Limited::new(body, LARGEST).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => {
            let message = format!("the body cannot be read: {error}");
            return Refusal::bad_request(message).answer();
        }
    };
    let daemon = Arc::clone(daemon);
    let written = spawn_blocking(move || run(&daemon, &body)).await;
    match written.unwrap_or_else(|broken| Err(Error::broken(broken).into())) {
        Ok(written) => route::json(StatusCode::OK, &written),
        Err(refusal) => refusal.answer(),
    }
}

fn run(daemon: &Daemon, body: &[u8]) -> Result<Written, Refusal> {
    let compose: Compose = serde_json::from_slice(body)
        .map_err(|e| Refusal::bad_request(format!("the body is not understood: {e}")))?;
    let user = daemon.user(compose.username.as_deref())?;
    if compose.source_paths.is_empty() || compose.destination.is_empty() {
        let message = "source_paths and destination must not be empty";
        return Err(Refusal::bad_request(message));
    }
    let destination = resolve(daemon, &user, &compose.destination)?;
    let sources: Vec<PathBuf> = compose
        .source_paths
        .iter()
        .map(|path| resolve(daemon, &user, path))
        .collect::<Result<_, _>>()?;
    let _rights = daemon.act_for(&user)?;
    for source in &sources {
        check(source, &destination)?;
    }
    concatenate(&sources, &destination, &user)?;
    for source in &sources {
        match fs::remove_file(source) {
            // one that was named twice
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            removed => removed.map_err(|e| Refusal::of_path("removing", source, &e))?,
        }
    }
    Ok(Written::new(&destination, metadata::of_path(&destination)))
}

/// Before anything is written: a missing source must not cost the destination its content.
fn check(source: &Path, destination: &Path) -> Result<(), Refusal> {
    let found = fs::metadata(source).map_err(|e| Refusal::of_existing("reading", source, &e))?;
    if !found.is_file() {
        let message = format!("path '{}' is not a regular file", source.display());
        return Err(Refusal::bad_request(message));
    }
    let same = |other: fs::Metadata| (other.dev(), other.ino()) == (found.dev(), found.ino());
    if fs::metadata(destination).is_ok_and(same) {
        let message = format!("path '{}' is both source and destination", source.display());
        return Err(Refusal::bad_request(message));
    }
    Ok(())
}

fn concatenate(sources: &[PathBuf], destination: &Path, user: &User) -> Result<(), Refusal> {
    let mut target = Target::new(open_for(destination, user)?);
    for source in sources {
        append(source, &mut target).map_err(|e| Refusal::of_path("copying", source, &e))?;
    }
    target
        .flush()
        .map_err(|e| Refusal::of_path("writing", destination, &e))
}

fn append(source: &Path, target: &mut Target) -> io::Result<()> {
    let mut file = File::open(source)?;
    let mut buffer = vec![0; 256 << 10];
    loop {
        let length = file.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        target.write_all(&buffer[..length])?;
    }
}
