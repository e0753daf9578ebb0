//! Service `filesystem.Filesystem`: the nine methods.
//!
//! `entry` describes what is at a path, `tree` lists, makes, moves and removes, `watches` hears from the kernel what happens in
//! directories and `interest` remembers who wants to know.

mod entry;
mod interest;
pub(super) mod tree;
mod watches;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Response;
use hyper::body::Incoming;
use tokio::task::spawn_blocking;

use self::watches::Watch;
pub(super) use self::watches::Watches;
use super::body::Body;
use super::error::Error;
use super::handover;
use super::rpc::{self, Call, Sink};
use super::users::{Names, User};
use super::{Daemon, paths};
use crate::messages::Empty;
use crate::messages::filesystem::{
    CreateWatcherResponse, EntryInfo, EntryResponse, ListDirRequest, ListDirResponse, MoveRequest,
    PathRequest, WatchDirResponse, WatchRequest, WatcherEventsResponse, WatcherRequest,
};

/// Whose files, and what the numbers of their owners mean.
struct Scope {
    daemon: Arc<Daemon>,
    user: User,
}

impl Scope {
    fn resolve(&self, path: &str) -> Result<PathBuf, Error> {
        let workdir = self.daemon.settings.default_workdir();
        paths::resolve(path, &self.user, workdir.as_deref())
    }

    fn names(&self) -> Names {
        self.daemon.accounts.names()
    }
}

/// Runs where a slow disk holds up nobody else.
pub(super) async fn elsewhere<T: Send + 'static, E: From<Error> + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    let done = spawn_blocking(work).await;
    done.unwrap_or_else(|broken| Err(Error::broken(broken).into()))
}

impl Daemon {
    /// `None` when there is no such method.
    pub(super) async fn answer_filesystem(
        self: Arc<Self>,
        method: &str,
        call: Call,
        user: Result<User, Error>,
        body: Incoming,
    ) -> Option<Response<Body>> {
        let daemon = Arc::clone(&self);
        let scope = user.map(|user| Scope { daemon, user });
        let keepalive = call.keepalive();
        Some(match method {
            "Stat" => answer_entry(call, body, scope, tree::stat).await,
            "MakeDir" => answer_entry(call, body, scope, tree::make_directory).await,
            "Move" => {
                rpc::unary(call, body, async |request: MoveRequest| {
                    let scope = scope?;
                    let entry = elsewhere(move || tree::rename(&scope, &request)).await?;
                    Ok(EntryResponse { entry: Some(entry) })
                })
                .await
            }
            "ListDir" => {
                rpc::unary(call, body, async |request: ListDirRequest| {
                    let scope = scope?;
                    let entries = elsewhere(move || tree::list(&scope, &request)).await?;
                    Ok(ListDirResponse { entries })
                })
                .await
            }
            "Remove" => {
                rpc::unary(call, body, async |request: PathRequest| {
                    let scope = scope?;
                    elsewhere(move || tree::remove(&scope, &request.path)).await?;
                    Ok(Empty {})
                })
                .await
            }
            "WatchDir" => {
                rpc::server_stream(call, body, |request, sink| async move {
                    tokio::select! {
                        outcome = watch(scope, request, sink, keepalive) => outcome,
                        () = self.handover.closing() => Err(handover::come_again()),
                    }
                })
                .await
            }
            "CreateWatcher" => {
                rpc::unary(call, body, async |request: WatchRequest| {
                    let watch = begin(scope?, request).await?;
                    let watcher_id = self.watches.keep(watch)?;
                    Ok(CreateWatcherResponse { watcher_id })
                })
                .await
            }
            "GetWatcherEvents" => {
                rpc::unary(call, body, async |request: WatcherRequest| {
                    let events = self.watches.events_of(&request.watcher_id)?;
                    Ok(WatcherEventsResponse { events })
                })
                .await
            }
            "RemoveWatcher" => {
                rpc::unary(call, body, async |request: WatcherRequest| {
                    self.watches.remove(&request.watcher_id)?;
                    Ok(Empty {})
                })
                .await
            }
            _ => return None,
        })
    }
}

async fn answer_entry(
    call: Call,
    body: Incoming,
    scope: Result<Scope, Error>,
    work: fn(&Scope, &str) -> Result<EntryInfo, Error>,
) -> Response<Body> {
    rpc::unary(call, body, async |request: PathRequest| {
        let scope = scope?;
        let entry = elsewhere(move || work(&scope, &request.path)).await?;
        Ok(EntryResponse { entry: Some(entry) })
    })
    .await
}

async fn begin(scope: Scope, request: WatchRequest) -> Result<Watch, Error> {
    elsewhere(move || {
        let root = scope.resolve(&request.path)?;
        let names = request
            .include_entry
            .then(|| Arc::clone(&scope.daemon.accounts));
        let watches = &scope.daemon.watches;
        watches.begin(&root, &request, names)
    })
    .await
}

async fn watch(
    scope: Result<Scope, Error>,
    request: WatchRequest,
    sink: Sink<WatchDirResponse>,
    keepalive: Duration,
) -> Result<(), Error> {
    let watch = begin(scope?, request).await?;
    let start = WatchDirResponse {
        start: Some(Empty {}),
        ..WatchDirResponse::default()
    };
    sink.send(&start).await?;
    loop {
        match tokio::time::timeout(keepalive, watch.next_events()).await {
            Ok(events) => {
                for event in events {
                    let message = WatchDirResponse {
                        filesystem: Some(event),
                        ..WatchDirResponse::default()
                    };
                    sink.send(&message).await?;
                }
            }
            Err(_) => {
                let keepalive = WatchDirResponse {
                    keepalive: Some(Empty {}),
                    ..WatchDirResponse::default()
                };
                sink.send(&keepalive).await?;
            }
        }
    }
}
