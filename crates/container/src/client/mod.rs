//! How the rest of Sandbar speaks to helper and shims: asynchronously, and without losing anything when it is restarted.

mod connection;
mod streams;

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::{Mutex, broadcast};
use tokio::time::sleep;

use crate::settings::{ContainerSettings, ExecSettings, Limits, PodSettings};
use crate::shim::SOCKET;
use crate::state::ContainerState;
use crate::wire::{Event, Failure, Outgoing, Reply, Request, StartPod, Started};
use crate::{birth, descriptors};
use connection::{Answer, Connection};

pub use streams::{Attached, Exec, Pipe, Streams};

/// How often, and how soon, one comes again to a shim that has too many waiting.
const ATTEMPTS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was asked for makes no sense, or is not allowed.
    #[error("{0}")]
    Refused(String),
    /// The container or command is not there any more.
    #[error("{0}")]
    NotRunning(String),
    /// The program of a container cannot be run: it is not there, or nothing that runs.
    #[error("{0}")]
    Unstartable(String),
    /// The machine would not do it, or the program of a command cannot be run.
    #[error("{0}")]
    Failed(String),
    #[error("no shim lives in {}", .0.display())]
    NobodyHome(PathBuf),
    #[error("the pod's shim is gone")]
    ShimGone,
    #[error("the container helper is gone: {0}")]
    HelperGone(io::Error),
    #[error("starting the container helper: {0}")]
    Spawn(io::Error),
    #[error("speaking to the pod's shim: {0}")]
    Connection(io::Error),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(text) => Self::Refused(text),
            Failure::NotRunning(text) => Self::NotRunning(text),
            Failure::Unstartable(text) => Self::Unstartable(text),
            Failure::Failed(text) => Self::Failed(text),
        }
    }
}

/// The helper process. It ends when this is dropped; pods do not.
pub struct Helper {
    socket: UnixStream,
    outgoing: Mutex<Outgoing>,
    _process: Child,
}

impl Helper {
    /// Starts a program that calls [`crate::helper::run`]. It gets neither our environment nor our descriptors.
    pub fn spawn(command: std::process::Command) -> Result<Self, Error> {
        let (ours, theirs) = BlockingStream::pair().map_err(Error::Spawn)?;
        let mut command = Command::from(command);
        command
            .env_clear()
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null());
        let process = command.spawn().map_err(Error::Spawn)?;
        // in time: it does nothing before it is asked to
        if let Some(pid) = process.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
            descriptors::give_back(pid);
        }
        Ok(Self {
            socket: connection::asynchronous(ours).map_err(Error::Spawn)?,
            outgoing: Mutex::default(),
            _process: process,
        })
    }

    /// Starts a pod without containers.
    pub async fn start_pod(&self, settings: &PodSettings) -> Result<Pod, Error> {
        settings.check().map_err(Error::Refused)?;
        let (ours, theirs) = BlockingStream::pair().map_err(Error::Connection)?;
        let birth = birth::announce(&settings.dir).map_err(|error| {
            let dir = settings.dir.display();
            Error::Failed(format!("announcing a shim in {dir}: {error}"))
        })?;
        let message = StartPod {
            settings: settings.clone(),
        };
        let mut outgoing = self.outgoing.lock().await;
        outgoing
            .push(&message, vec![OwnedFd::from(theirs), birth])
            .map_err(Error::HelperGone)?;
        if let Err(error) = flush(&self.socket, &mut outgoing).await {
            // nobody will ever read it, and what goes with it would be held until then
            *outgoing = Outgoing::default();
            return Err(Error::HelperGone(error));
        }
        drop(outgoing);
        let socket = connection::asynchronous(ours).map_err(Error::Connection)?;
        Pod::open(&settings.dir, socket).await
    }
}

/// A connection to the shim of a running pod. Dropping it leaves the pod as it is.
pub struct Pod {
    dir: PathBuf,
    pid: i32,
    connection: Connection,
}

impl Pod {
    /// Finds the shim that lives in a directory.
    pub async fn connect(dir: &Path) -> Result<Self, Error> {
        // before it is looked for: one that is not expected any more can be found
        let is_expected = birth::is_expected(dir);
        let not_reached = |error: io::Error| not_reached(dir, is_expected, error);
        // by way of a descriptor: the path may be longer than the address of a socket can be
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(dir, flags, Mode::empty())
            .map_err(|error| not_reached(error.into()))?;
        let path = format!("/proc/self/fd/{}/{SOCKET}", opened.as_raw_fd());
        let socket = dial(&path).await.map_err(not_reached)?;
        Self::open(dir, socket).await
    }

    async fn open(dir: &Path, socket: UnixStream) -> Result<Self, Error> {
        let (connection, pid) = Connection::open(socket).await?;
        Ok(Self {
            dir: dir.to_owned(),
            pid,
            connection,
        })
    }

    /// The directory that the pod was started with.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The shim's process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Where the pod's network namespace can be opened while the pod lives.
    pub fn network_namespace(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/net", self.pid))
    }

    /// Starts a container; answered when its program runs.
    pub async fn start(&self, settings: &ContainerSettings) -> Result<Started, Error> {
        let request = Request::Start(Box::new(settings.clone()));
        match self.connection.call(request).await?.reply {
            Reply::Started(started) => Ok(started),
            other => Err(unexpected(&other)),
        }
    }

    /// Sends a signal to a container's first process.
    pub async fn kill(&self, name: &str, signal: i32) -> Result<(), Error> {
        let name = name.to_owned();
        self.done(Request::Kill { name, signal }).await
    }

    /// Runs a command in a container; answered when its program runs.
    pub async fn exec(&self, name: &str, settings: &ExecSettings) -> Result<Exec, Error> {
        let request = Request::Exec {
            name: name.to_owned(),
            settings: settings.clone(),
        };
        match self.connection.call(request).await? {
            Answer {
                reply: Reply::Exec { exec, streams },
                fds,
                exit: Some(exit),
            } => Exec::new(self.connection.clone(), exec, &streams, fds, exit),
            Answer { reply, .. } => Err(unexpected(&reply)),
        }
    }

    /// What a container says from now on, and a way to speak to it if it was started with one. Who reads too slowly misses
    /// output; the log has it all.
    pub async fn attach(&self, name: &str) -> Result<Attached, Error> {
        let name = name.to_owned();
        let answer = self.connection.call(Request::Attach { name }).await?;
        match answer.reply {
            Reply::Attached { streams } => Attached::new(&streams, answer.fds),
            other => Err(unexpected(&other)),
        }
    }

    /// Changes the limits of a running container.
    pub async fn resize(&self, name: &str, limits: &Limits) -> Result<(), Error> {
        let (name, limits) = (name.to_owned(), limits.clone());
        self.done(Request::Resize { name, limits }).await
    }

    /// Forgets a container that has ended, all its attempts and all it wrote, but not its log.
    pub async fn remove(&self, name: &str) -> Result<(), Error> {
        let name = name.to_owned();
        self.done(Request::Remove { name }).await
    }

    /// All containers that were started and not removed, every attempt, also those that ended when nobody was connected.
    pub async fn containers(&self) -> Result<Vec<ContainerState>, Error> {
        match self.connection.call(Request::Containers).await?.reply {
            Reply::Containers(containers) => Ok(containers),
            other => Err(unexpected(&other)),
        }
    }

    /// What happens from now on. Ask for `containers` afterwards, and nothing is missed.
    pub fn events(&self) -> Events {
        Events {
            receiver: self.connection.events(),
        }
    }

    /// Ends the pod: a signal to each container, those in `order` first, SIGKILL after the grace, and nothing left at the end
    /// but states and logs.
    pub async fn stop(&self, order: &[String], grace: Duration) -> Result<(), Error> {
        let request = Request::Stop {
            order: order.to_vec(),
            grace_millis: u64::try_from(grace.as_millis()).unwrap_or(u64::MAX),
        };
        self.done(request).await
    }

    async fn done(&self, request: Request) -> Result<(), Error> {
        match self.connection.call(request).await?.reply {
            Reply::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
}

/// Connects, if need be when those who came before have been let in.
async fn dial(path: &str) -> io::Result<UnixStream> {
    for _ in 0..ATTEMPTS {
        match UnixStream::connect(path).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(PAUSE).await,
            answer => return answer,
        }
    }
    UnixStream::connect(path).await
}

/// Nobody is home where there is no socket, or nobody who listens, and nobody will be. Anything else says nothing about the
/// shim.
fn not_reached(dir: &Path, is_expected: bool, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused if !is_expected => {
            Error::NobodyHome(dir.to_owned())
        }
        _ => Error::Connection(error),
    }
}

/// What happens in a pod, from `Pod::events`.
pub struct Events {
    receiver: broadcast::Receiver<Event>,
}

impl Events {
    /// The next one; none when the shim is gone.
    pub async fn next(&mut self) -> Option<Event> {
        match self.receiver.recv().await {
            Ok(event) => Some(event),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(Event::Missed),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// Failures have become errors before; what is left is a shim of another version.
fn unexpected(_: &Reply) -> Error {
    let text = "an answer to another question";
    Error::Connection(io::Error::new(io::ErrorKind::InvalidData, text))
}

/// Sends everything.
async fn flush(socket: &UnixStream, outgoing: &mut Outgoing) -> io::Result<()> {
    loop {
        socket.writable().await?;
        match socket.try_io(Interest::WRITABLE, || outgoing.flush(socket.as_fd())) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::{Error, Pod, SOCKET};

    #[tokio::test]
    async fn nobody_is_home_only_where_nobody_listens() {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        let is_empty = |reached: Result<Pod, Error>| matches!(reached, Err(Error::NobodyHome(_)));
        assert!(is_empty(Pod::connect(&dir.join("absent")).await));
        assert!(is_empty(Pod::connect(dir).await));
        drop(UnixListener::bind(dir.join(SOCKET)).unwrap());
        assert!(is_empty(Pod::connect(dir).await));

        std::fs::remove_file(dir.join(SOCKET)).unwrap();
        symlink(SOCKET, dir.join(SOCKET)).unwrap();
        let reached = Pod::connect(dir).await;
        assert!(matches!(reached, Err(Error::Connection(_))));
    }

    #[tokio::test]
    async fn whom_others_wait_for_is_home() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(SOCKET);
        let listener = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        // the queue of nobody holds one
        let _first = UnixStream::connect(&path).unwrap();
        let reached = Pod::connect(directory.path()).await;
        assert!(matches!(reached, Err(Error::Connection(_))));

        let reaching = Pod::connect(directory.path());
        let letting_in = async {
            listener.accept().unwrap();
            drop(tokio::task::spawn_blocking(move || listener.accept().map(drop)).await);
        };
        // let in, and not spoken to
        let (reached, ()) = tokio::join!(reaching, letting_in);
        assert!(matches!(reached, Err(Error::ShimGone)));
    }
}
