//! What a node offers: the door through which the API reaches the containers of pods.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use k8s_openapi::jiff::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use crate::status::Failure;

/// What a node lets one do with its pods' containers.
///
/// A future or a session that is dropped says that nobody is there any more. The message of a failure is passed on as it is,
/// behind words that say what was tried.
pub trait PodStreams: Send + Sync + 'static {
    /// Whether the container runs or, if none is named, anything of the pod. Asked before a connection becomes a stream.
    fn runs(&self, pod: PodRef, container: Option<String>) -> BoxFuture<'_, bool>;

    /// What a container has written; `log_file::read` makes it of a file.
    fn log(&self, pod: PodRef, options: LogOptions) -> BoxFuture<'_, Result<Log, Failure>>;

    /// Starts a process in a running container.
    fn exec(&self, pod: PodRef, ask: ExecAsk) -> BoxFuture<'_, Result<Session, Failure>>;

    /// Joins the first process of a running container.
    fn attach(&self, pod: PodRef, ask: AttachAsk) -> BoxFuture<'_, Result<Session, Failure>>;

    /// Connects to a port in the pod's network.
    fn dial(&self, pod: PodRef, port: u16) -> BoxFuture<'_, Result<Box<dyn Duplex>, Failure>>;
}

pub type Log = BoxStream<'static, std::io::Result<Bytes>>;

/// A connection into a pod.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A pod, and no other that has had its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodRef {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// Which part of a log is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOptions {
    pub container: String,
    /// The run of the container whose log it is, as the pod's status names it.
    pub container_id: String,
    /// Whether that run is the one before the present one.
    pub previous: bool,
    /// Goes on until the container ends.
    pub follow: bool,
    /// Only what was written at this time or later.
    pub since: Option<Timestamp>,
    /// Only the last lines.
    pub tail: Option<u64>,
    /// No more bytes than this.
    pub limit: Option<u64>,
    /// Each line begins with its time.
    pub timestamps: bool,
    pub stream: LogStream,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogStream {
    #[default]
    All,
    Stdout,
    Stderr,
}

/// Which streams are wanted. With a terminal, there is no stderr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    pub tty: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecAsk {
    pub container: String,
    /// The program and its arguments; no shell.
    pub command: Vec<String>,
    pub streams: Streams,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachAsk {
    pub container: String,
    pub streams: Streams,
}

/// A process one is connected with. Streams that were not asked for are absent.
pub struct Session {
    /// Shut down when the client has no more to say.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    pub stdout: Option<Box<dyn AsyncRead + Send + Unpin>>,
    pub stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// The size of the client's terminal; of several changes the last one counts.
    pub resize: Option<watch::Sender<TerminalSize>>,
    /// How the process ended. Its output is read to the end nevertheless.
    pub exit: BoxFuture<'static, Result<i32, Failure>>,
}

/// In characters; nothing is known while both are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TerminalSize {
    pub width: u16,
    pub height: u16,
}

/// The nodes that offer something.
#[derive(Default)]
pub(in crate::server) struct Nodes(RwLock<HashMap<String, Arc<dyn PodStreams>>>);

impl Nodes {
    pub(in crate::server) fn set(&self, name: &str, streams: Arc<dyn PodStreams>) {
        let mut nodes = self.0.write().unwrap_or_else(PoisonError::into_inner);
        nodes.insert(name.to_owned(), streams);
    }

    pub(in crate::server) fn remove(&self, name: &str) {
        let mut nodes = self.0.write().unwrap_or_else(PoisonError::into_inner);
        nodes.remove(name);
    }

    pub(in crate::server) fn clear(&self) {
        let mut nodes = self.0.write().unwrap_or_else(PoisonError::into_inner);
        nodes.clear();
    }

    pub(in crate::server) fn get(&self, name: &str) -> Option<Arc<dyn PodStreams>> {
        let nodes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        nodes.get(name).cloned()
    }
}
