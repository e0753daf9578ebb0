//! Service `filesystem.Filesystem`: the nine methods.
//!
//! `entry` describes what is at a path, `tree` lists, makes, moves and removes, `watches` hears from the kernel what happens in
//! directories, `interest` remembers who wants to know, and `queue` what they were not told yet.

pub(super) mod entry;
mod interest;
mod queue;
pub(super) mod tree;
mod watches;

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use hyper::body::Incoming;

use self::watches::Watch;
pub(super) use self::watches::Watches;
use super::Daemon;
use super::body::Body;
use super::error::Error;
use super::handover;
use super::route::Asked;
use super::rpc::{self, Call, Sink};
use super::scope::Scope;
use crate::messages::Empty;
use crate::messages::filesystem::{
    CreateWatcherResponse, EntryInfo, EntryResponse, ListDirRequest, ListDirResponse, MoveRequest,
    PathRequest, WatchDirResponse, WatchRequest, WatcherEventsResponse, WatcherRequest,
};

impl Daemon {
    /// `None` when there is no such method.
    pub(super) async fn answer_filesystem(
        self: Arc<Self>,
        asked: Asked<'_>,
    ) -> Option<Response<Body>> {
        let (call, body) = (asked.call, asked.body);
        let daemon = Arc::clone(&self);
        let scope = asked.user.map(|user| Scope { daemon, user });
        let keepalive = call.keepalive();
        Some(match asked.method {
            "Stat" => answer_entry(call, body, scope, tree::stat).await,
            "MakeDir" => answer_entry(call, body, scope, tree::make_directory).await,
            "Move" => {
                rpc::unary(call, body, async |request: MoveRequest| {
                    let work = move |scope: &Scope| tree::rename(scope, &request);
                    let entry = scope?.elsewhere(work).await?;
                    Ok(EntryResponse { entry: Some(entry) })
                })
                .await
            }
            "ListDir" => {
                rpc::unary(call, body, async |request: ListDirRequest| {
                    let work = move |scope: &Scope| tree::list(scope, &request);
                    let entries = scope?.elsewhere(work).await?;
                    Ok(ListDirResponse { entries })
                })
                .await
            }
            "Remove" => {
                rpc::unary(call, body, async |request: PathRequest| {
                    let work = move |scope: &Scope| tree::remove(scope, &request.path);
                    scope?.elsewhere(work).await?;
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
                    let events = self.watches.events_of(&request.watcher_id).await?;
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
        let entry = scope?
            .elsewhere(move |scope| work(scope, &request.path))
            .await?;
        Ok(EntryResponse { entry: Some(entry) })
    })
    .await
}

async fn begin(scope: Scope, request: WatchRequest) -> Result<Watch, Error> {
    let begin = move |scope: &Scope| {
        let root = scope.resolve(&request.path)?;
        let names = request
            .include_entry
            .then(|| Arc::clone(&scope.daemon.accounts));
        let rights = scope.daemon.rights_of(&scope.user);
        let watches = &scope.daemon.watches;
        watches.begin(&root, &request, names, rights)
    };
    scope.elsewhere(begin).await
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
