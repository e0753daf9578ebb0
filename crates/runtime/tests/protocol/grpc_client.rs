//! A published gRPC client, as upgrade hooks use one, which knows nothing of ours.

use std::time::Duration;

use http::uri::PathAndQuery;
use prost::Message;
use runtime::messages::Empty;
use runtime::messages::filesystem::{EntryResponse, FileType, PathRequest};
use runtime::messages::process::{
    EventResponse, ListResponse, ProcessConfig, ProcessEvent, ProcessSelector, SelectRequest,
    StartRequest,
};
use serde_json::json;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::client::{PATIENCE, basic};
use crate::daemon::{Daemon, user_ids};

const START: &str = "/process.Process/Start";

struct Client {
    grpc: Grpc<Channel>,
    metadata: Vec<(&'static str, String)>,
}

impl Client {
    async fn new(daemon: &Daemon) -> Self {
        let endpoint = Channel::from_shared(format!("http://{}", daemon.address)).unwrap();
        Self {
            grpc: Grpc::new(endpoint.connect().await.unwrap()),
            metadata: Vec::new(),
        }
    }

    fn with(mut self, name: &'static str, value: &str) -> Self {
        self.metadata.push((name, value.to_owned()));
        self
    }

    fn request<Q>(&self, message: Q) -> Request<Q> {
        let mut request = Request::new(message);
        for (name, value) in &self.metadata {
            request.metadata_mut().insert(*name, value.parse().unwrap());
        }
        request
    }

    async fn ask<Q, A>(&mut self, method: &'static str, message: Q) -> Result<A, Status>
    where
        Q: Message + Default + 'static,
        A: Message + Default + 'static,
    {
        let request = self.request(message);
        self.grpc.ready().await.unwrap();
        let codec = ProstCodec::<Q, A>::default();
        let path = PathAndQuery::from_static(method);
        let answer = self.grpc.unary(request, path, codec);
        in_time(answer).await.map(tonic::Response::into_inner)
    }

    async fn start(
        &mut self,
        request: Request<StartRequest>,
    ) -> Result<Streaming<EventResponse>, Status> {
        self.grpc.ready().await.unwrap();
        let path = PathAndQuery::from_static(START);
        let codec = ProstCodec::default();
        let answer = self.grpc.server_streaming(request, path, codec);
        in_time(answer).await.map(tonic::Response::into_inner)
    }

    /// Why a command is not started.
    async fn refusal(&mut self) -> Status {
        let request = self.request(command(&["/bin/sh", "-c", "touch started"]));
        match self.start(request).await {
            Err(status) => status,
            Ok(mut events) => next(&mut events).await.unwrap_err(),
        }
    }
}

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.expect("the daemon goes on")
}

async fn next(events: &mut Streaming<EventResponse>) -> Result<Option<ProcessEvent>, Status> {
    let message = in_time(events.message()).await?;
    Ok(message.map(|message| message.event.unwrap()))
}

/// All events, and how the call ended.
async fn all(mut events: Streaming<EventResponse>) -> (Vec<ProcessEvent>, Result<(), Status>) {
    let mut read = Vec::new();
    loop {
        match next(&mut events).await {
            Ok(Some(event)) => read.push(event),
            Ok(None) => return (read, Ok(())),
            Err(status) => return (read, Err(status)),
        }
    }
}

fn command(words: &[&str]) -> StartRequest {
    StartRequest {
        process: Some(ProcessConfig {
            cmd: words[0].into(),
            args: words[1..].iter().map(|word| (*word).into()).collect(),
            ..ProcessConfig::default()
        }),
        ..StartRequest::default()
    }
}

fn stdout_of(events: &[ProcessEvent]) -> Vec<u8> {
    let data = events.iter().filter_map(|event| event.data.as_ref());
    data.filter_map(|data| data.stdout.as_deref())
        .collect::<Vec<_>>()
        .concat()
}

#[tokio::test]
async fn a_hook_runs_as_its_user_and_is_heard_to_its_end() {
    let daemon = Daemon::launch();
    daemon.init(&json!({"accessToken": "secret"}));
    let client = Client::new(&daemon).await;
    let mut client = client
        .with("x-access-token", "secret")
        .with("authorization", &basic("user"));
    let script = "id -u; seq 100000; exit 7";
    let mut request = client.request(command(&["/bin/sh", "-c", script]));
    request.set_timeout(PATIENCE);
    let (events, outcome) = all(client.start(request).await.unwrap()).await;
    outcome.unwrap();
    assert!(events[0].start.is_some());
    let lines = (1..=100_000).map(|number| format!("{number}\n"));
    let expected = format!("{}\n{}", user_ids().0, lines.collect::<String>());
    assert!(stdout_of(&events) == expected.as_bytes());
    let end = events.last().unwrap().end.as_ref().unwrap();
    assert_eq!((end.exit_code, end.exited), (7, true));
}

#[tokio::test]
async fn a_deadline_of_the_client_ends_the_command_and_is_told_as_such() {
    let daemon = Daemon::launch();
    let mut client = Client::new(&daemon).await;
    let mut request = client.request(command(&["/bin/sleep", "1000"]));
    request.set_timeout(Duration::from_secs(3));
    let (events, outcome) = all(client.start(request).await.unwrap()).await;
    assert_eq!(outcome.unwrap_err().code(), Code::DeadlineExceeded);
    assert_eq!(events.len(), 1);
    let pid = events[0].start.unwrap().pid;
    let is_gone = || !std::path::Path::new(&format!("/proc/{pid}")).exists();
    crate::daemon::wait_until("the command is killed", is_gone);
}

#[tokio::test]
async fn who_is_not_known_or_has_no_token_starts_nothing() {
    let daemon = Daemon::launch();
    daemon.init(&json!({"accessToken": "secret"}));
    let stranger = Client::new(&daemon).await;
    let status = stranger.with("x-access-token", "guessed").refusal().await;
    assert_eq!(status.code(), Code::Unauthenticated);
    assert!(
        status.message().starts_with("unauthorized access"),
        "{status}"
    );
    let client = Client::new(&daemon).await;
    let mut client = client
        .with("x-access-token", "secret")
        .with("authorization", &basic("wer-schön"));
    let status = client.refusal().await;
    assert_eq!(status.code(), Code::Unauthenticated);
    assert_eq!(status.message(), "invalid username: 'wer-schön'");
    assert!(!daemon.home().join("started").exists());
}

#[tokio::test]
async fn unary_calls_and_their_errors_are_understood() {
    let daemon = Daemon::launch();
    std::fs::write(daemon.home().join("file"), "12345").unwrap();
    let mut client = Client::new(&daemon).await;
    let stat = |path: &str| PathRequest { path: path.into() };
    let method = "/filesystem.Filesystem/Stat";
    let found: EntryResponse = client.ask(method, stat("file")).await.unwrap();
    let entry = found.entry.unwrap();
    assert_eq!((entry.size, entry.path), (5, daemon.path("file")));
    assert_eq!(entry.r#type, i32::from(FileType::File));
    for (path, code) in [("none", Code::NotFound), ("~other", Code::InvalidArgument)] {
        let refused = client.ask::<_, EntryResponse>(method, stat(path)).await;
        assert_eq!(refused.unwrap_err().code(), code, "{path}");
    }
    let method = "/filesystem.Filesystem/Nothing";
    let refused = client.ask::<_, EntryResponse>(method, stat("file")).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    assert_eq!(refused.message(), format!("there is no '{method}' here"));
    // which the message names, but not in full
    let tag = Some("tég".repeat(100_000));
    let process = Some(ProcessSelector { pid: None, tag });
    let method = "/process.Process/CloseStdin";
    let refused = client
        .ask::<_, Empty>(method, SelectRequest { process })
        .await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound, "{refused}");
    assert!(refused.message().starts_with("process with tag tégtég"));
    // on the same connection as all before
    let method = "/process.Process/List";
    let list: ListResponse = client.ask(method, Empty {}).await.unwrap();
    assert_eq!(list.processes, []);
}
