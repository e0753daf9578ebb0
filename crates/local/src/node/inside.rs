//! The way to a port of a pod's loopback, for root and for everybody else.
//!
//! Root joins the pod's network namespace on a thread. Who is not root would have to join its user namespace first, which only
//! a process of one thread may: a copy of the program does so, hands the connected socket over, and ends.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::Interest;
use tokio::net::UnixStream;

use crate::network::{self, DialError, dial_from_inside};

/// How long a program may take to accept a connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// Two addresses are tried, and a process is started for it.
const PATIENCE_WITH_A_PROCESS: Duration = Duration::from_secs(25);

/// An answer is the error of the system, or this with a socket.
const CONNECTED: i32 = 0;

/// How to get inside.
#[derive(Clone, Debug)]
pub struct Inside(Way);

#[derive(Clone, Debug)]
enum Way {
    Join,
    Through(Program),
    Loopback,
}

#[derive(Clone, Debug)]
struct Program {
    path: OsString,
    arguments: Vec<OsString>,
}

impl Inside {
    /// For root, who may join what he likes.
    pub fn directly() -> Self {
        Self(Way::Join)
    }

    /// For everybody else: by a program that calls [`run`] with what follows these arguments.
    pub fn through<'a>(path: &Path, arguments: impl IntoIterator<Item = &'a str>) -> Self {
        Self(Way::Through(Program {
            path: path.into(),
            arguments: arguments.into_iter().map(OsString::from).collect(),
        }))
    }

    /// For pods that have no network of their own, but this machine's.
    pub fn loopback() -> Self {
        Self(Way::Loopback)
    }

    /// Connects to a port of the loopback addresses of the pod that a process is in.
    pub async fn dial(&self, process: i32, port: u16) -> io::Result<tokio::net::TcpStream> {
        let program = match &self.0 {
            Way::Join => return join(process, port).await,
            Way::Loopback => {
                let loopback: [IpAddr; 2] =
                    [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
                let addresses = loopback.map(|address| SocketAddr::new(address, port));
                let dialled = tokio::net::TcpStream::connect(addresses.as_slice());
                return tokio::time::timeout(PATIENCE, dialled).await?;
            }
            Way::Through(program) => program,
        };
        let dialled = program.dial(process, port);
        let stream = tokio::time::timeout(PATIENCE_WITH_A_PROCESS, dialled).await??;
        stream.set_nonblocking(true)?;
        tokio::net::TcpStream::from_std(stream)
    }
}

async fn join(process: i32, port: u16) -> io::Result<tokio::net::TcpStream> {
    let namespace = format!("/proc/{process}/ns/net");
    let dialled = network::dial(Path::new(&namespace), port, PATIENCE).await;
    dialled.map_err(|error| match error {
        DialError::Connect(error) => error,
        DialError::Network(error) => io::Error::other(error),
    })
}

impl Program {
    async fn dial(&self, process: i32, port: u16) -> io::Result<TcpStream> {
        let (ours, theirs) = BlockingStream::pair()?;
        let mut command = Command::new(&self.path);
        command
            .args(&self.arguments)
            .args([process.to_string(), port.to_string()])
            .env_clear()
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null());
        let mut command = tokio::process::Command::from(command);
        let mut child = command.kill_on_drop(true).spawn()?;
        // it holds the other end, and without it the end of the child is the end of the stream
        drop(command);
        ours.set_nonblocking(true)?;
        let answer = answer(&UnixStream::from_std(ours)?).await;
        child.wait().await?;
        answer
    }
}

async fn answer(socket: &UnixStream) -> io::Result<TcpStream> {
    loop {
        socket.readable().await?;
        match socket.try_io(Interest::READABLE, || receive(socket)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            answer => return answer,
        }
    }
}

fn receive(socket: impl AsFd) -> io::Result<TcpStream> {
    let mut code = [0; size_of::<i32>()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [IoSliceMut::new(&mut code)];
    let received = recvmsg(socket, &mut bytes, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let sockets = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let socket = sockets.last();
    let silent = || io::Error::other("the program that joins pods ended without an answer");
    if received.bytes < code.len() {
        return Err(silent());
    }
    match i32::from_ne_bytes(code) {
        CONNECTED => socket.map(TcpStream::from).ok_or_else(silent),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Joins a pod, connects, and hands the socket to whoever is at the other end of standard input. To be called first thing in
/// `main`, before there is any thread, with the last arguments of the program.
pub fn run(arguments: &[OsString]) -> ExitCode {
    let [process, port] = arguments else {
        eprintln!("the arguments are a process and a port");
        return ExitCode::FAILURE;
    };
    let (Some(process), Some(port)) = (number(process), number(port)) else {
        eprintln!("process and port are numbers");
        return ExitCode::FAILURE;
    };
    let dialled = dial_from_inside(process, port, PATIENCE);
    match send(dialled) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("telling what became of a connection: {error}");
            ExitCode::FAILURE
        }
    }
}

fn number<T: std::str::FromStr>(text: &OsStr) -> Option<T> {
    text.to_str()?.parse().ok()
}

fn send(dialled: io::Result<TcpStream>) -> io::Result<()> {
    let (code, stream) = match dialled {
        Ok(stream) => (CONNECTED, Some(stream)),
        Err(error) => (code(&error), None),
    };
    let sockets: Vec<_> = stream.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !sockets.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&sockets));
    }
    let code = code.to_ne_bytes();
    let bytes = [IoSlice::new(&code)];
    sendmsg(io::stdin(), &bytes, &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Waiting in vain is no error of the system, but of the library.
fn code(error: &io::Error) -> i32 {
    let unknown = match error.kind() {
        io::ErrorKind::TimedOut => Errno::TIMEDOUT,
        _ => Errno::IO,
    };
    error.raw_os_error().unwrap_or(unknown.raw_os_error())
}
