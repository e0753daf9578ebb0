//! `POST /upgrade`: another program takes over in the same process, with everything that runs.
//!
//! First it is tried whether the new program starts at all. Then uploads are waited for, what processes write is left in their pipes,
//! what was read goes out, connections end, and the process becomes the new program: children stay children, and descriptors
//! stay open. What is said about them goes through memory, never a disk: the access token is part of it. Until the very last
//! step everything can be taken back, and the old program serves on. The listening socket is among what is left: who connects
//! meanwhile waits, and is not refused.

pub(in crate::daemon) mod state;

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::request::Parts;
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use prost::Message as _;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{Errno, FdFlags, fcntl_setfd};

use self::state::{State, VERSION};
use super::body::Body;
use super::handover::Phase;
use super::{Daemon, descriptors, nothing, route, serve, sys};

/// The only place that clients may name for the new program. It need not be there: what is sent is run from memory.
const PROGRAM: &str = "/usr/bin/sandbar-runtime";

/// What it is called in a list of processes.
const NAME: &str = "sandbar-runtime";

/// More than any daemon.
const LARGEST: usize = 256 << 20;

/// How long a new program may take to say that it starts.
const TRIAL: Duration = Duration::from_secs(5);

/// How long uploads may go on, and requests whose clients could not come back for an answer.
const REQUESTS: Duration = Duration::from_secs(10);

/// How long clients may take to read what is on its way to them. Who is slower misses it.
const FLUSH: Duration = Duration::from_secs(10);

/// What a signal takes to be told to those who wait for it.
const A_MOMENT: Duration = Duration::from_millis(1);

/// Makes a descriptor stay open, or not, when this process becomes another program. Returns its number.
pub(super) type Inherit = fn(BorrowedFd<'_>) -> io::Result<i32>;

type Refusal = (StatusCode, String);

pub(super) async fn answer(daemon: &Arc<Daemon>, head: &Parts, body: Incoming) -> Response<Body> {
    match upgrade(daemon, head, body).await {
        Ok(never) => match never {},
        Err((status, message)) => route::refuse(status, &message),
    }
}

async fn upgrade(
    daemon: &Arc<Daemon>,
    head: &Parts,
    body: Incoming,
) -> Result<Infallible, Refusal> {
    let named = head.headers.get("x-envd-upgrade-bin");
    if named.is_some_and(|path| path.as_bytes() != PROGRAM.as_bytes()) {
        let message = format!("x-envd-upgrade-bin can only be {PROGRAM}");
        return Err((StatusCode::BAD_REQUEST, message));
    }
    if !daemon.settings.is_initialized() {
        let message = "there was no init yet".to_owned();
        return Err((StatusCode::CONFLICT, message));
    }
    let program = Program::receive(daemon, body).await?;
    // if the caller leaves, his connection is like any other
    let _not_waited_for = daemon.handover.unconnected();
    let daemon = Arc::clone(daemon);
    // a task of its own: a caller that leaves must not leave the daemon half way
    let replacing = tokio::spawn(async move {
        let _only_one = daemon.initializing.try_lock().map_err(|_| {
            let text = "an init or another upgrade is under way, try again";
            (StatusCode::SERVICE_UNAVAILABLE, text.to_owned())
        })?;
        program.try_out().await?;
        settle(&daemon).await;
        sys::hold_stop_signals();
        // those that came before are told by now
        tokio::time::sleep(A_MOMENT).await;
        let error = program.become_it(&daemon);
        sys::release_stop_signals();
        daemon.handover.turn_to(Phase::Serving);
        Err(failed(&format!("the program cannot be run: {error}")))
    });
    replacing
        .await
        .unwrap_or_else(|e| Err(failed(&e.to_string())))
}

fn failed(why: &str) -> Refusal {
    let message = format!("the daemon was not replaced and goes on: {why}");
    (StatusCode::INTERNAL_SERVER_ERROR, message)
}

/// Brings everything to rest that another program cannot take over in motion.
async fn settle(daemon: &Daemon) {
    let handover = &daemon.handover;
    handover.turn_to(Phase::Draining);
    handover.until_finished(REQUESTS).await;
    handover.turn_to(Phase::Pausing);
    handover.until_unread(FLUSH).await;
    handover.turn_to(Phase::Closing);
    handover.until_alone(FLUSH).await;
}

struct Program {
    /// What was sent, in memory. None to run the same again.
    sent: Option<OwnedFd>,
    arguments: Vec<OsString>,
}

impl Program {
    async fn receive(daemon: &Daemon, mut body: Incoming) -> Result<Self, Refusal> {
        let mut file = File::from(memory(NAME).map_err(|e| failed(&e.to_string()))?);
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| (StatusCode::BAD_REQUEST, e.to_string()))?;
            let data = frame.into_data().unwrap_or_default();
            length += data.len();
            if length > LARGEST {
                let message = format!("the program is larger than {LARGEST} bytes");
                return Err((StatusCode::PAYLOAD_TOO_LARGE, message));
            }
            file.write_all(&data).map_err(|e| failed(&e.to_string()))?;
        }
        let words = if length == 0 {
            &daemon.options.words[..]
        } else {
            &[]
        };
        Ok(Self {
            sent: (length > 0).then(|| file.into()),
            arguments: [words, &daemon.options.arguments].concat(),
        })
    }

    fn path(&self) -> String {
        match &self.sent {
            Some(fd) => format!("/proc/self/fd/{}", fd.as_raw_fd()),
            None => "/proc/self/exe".to_owned(),
        }
    }

    /// Whether it starts, and understands what it would be told.
    async fn try_out(&self) -> Result<(), Refusal> {
        let not_run = |e: io::Error| failed(&format!("the program cannot be run: {e}"));
        let mut command = Command::new(self.path());
        command
            .arg0(NAME)
            .args(&self.arguments)
            .arg(CAN_TAKE_OVER)
            .stdin(nothing::input().map_err(not_run)?)
            .stdout(Stdio::piped())
            .stderr(nothing::output().map_err(not_run)?);
        let mut child = command.spawn().map_err(not_run)?;
        let mut output = child.stdout.take();
        let reading = tokio::task::spawn_blocking(move || {
            let mut said = String::new();
            if let Some(output) = &mut output {
                // what is not text is no answer
                let _ = output.take(100).read_to_string(&mut said);
            }
            said
        });
        let said = tokio::time::timeout(TRIAL, reading).await;
        // it may have ended long ago; it is reaped like every child
        let _ = child.kill();
        let said = said.ok().and_then(Result::ok).unwrap_or_default();
        check(&said)
    }

    /// Returns only if that fails.
    fn become_it(&self, daemon: &Daemon) -> io::Error {
        if daemon.stopping.load(Ordering::Relaxed) {
            // the other would not know, and stay
            return io::Error::other("the daemon was told to stop");
        }
        let left = leave(daemon, stay_open).and_then(|state| written(&state));
        let error = match left {
            Ok(told) => {
                let told = told.as_raw_fd().to_string();
                let own = self.arguments.iter().map(OsString::as_os_str);
                let last = [TAKE_OVER, &told].map(OsStr::new);
                let arguments = [OsStr::new(NAME)].into_iter().chain(own).chain(last);
                // else it would take ours for that of commands
                descriptors::set(descriptors::of_commands());
                let error = sys::become_program(self.path().as_ref(), arguments);
                descriptors::raise();
                error
            }
            Err(error) => error,
        };
        // nothing else is done with it: only the descriptors matter
        let _ = leave(daemon, close_with_program);
        error
    }
}

/// Says that this program could take over, and from what.
pub(super) const CAN_TAKE_OVER: &str = "--can-take-over";

/// Followed by the descriptor that [`State`] is read from.
pub(super) const TAKE_OVER: &str = "--take-over";

const SAYS: &str = "can take over version ";

/// The answer to [`CAN_TAKE_OVER`].
pub(super) fn introduction() -> String {
    format!("{SAYS}{VERSION}\n")
}

fn check(said: &str) -> Result<(), Refusal> {
    let number = said.strip_prefix(SAYS).map(str::trim_end);
    match number.and_then(|number| number.parse::<u32>().ok()) {
        Some(version) if version >= VERSION => Ok(()),
        Some(version) => Err(failed(&format!(
            "the program understands version {version} of what it would be told, not {VERSION}"
        ))),
        None => Err(failed("the program does not say that it can take over")),
    }
}

fn stay_open(fd: BorrowedFd<'_>) -> io::Result<i32> {
    fcntl_setfd(fd, FdFlags::empty())?;
    Ok(fd.as_raw_fd())
}

fn close_with_program(fd: BorrowedFd<'_>) -> io::Result<i32> {
    fcntl_setfd(fd, FdFlags::CLOEXEC)?;
    Ok(fd.as_raw_fd())
}

fn leave(daemon: &Daemon, inherit: Inherit) -> io::Result<State> {
    Ok(State {
        version: VERSION,
        listeners: serve::hand_over(&daemon.listeners, inherit)?,
        settings: daemon.settings.hand_over(),
        processes: daemon.processes.hand_over(inherit)?,
        watches: daemon.watches.hand_over(inherit)?,
        published: daemon.published.hand_over(inherit)?,
    })
}

fn written(state: &State) -> io::Result<OwnedFd> {
    let mut file = File::from(memory("state")?);
    file.write_all(&state.encode_to_vec())?;
    file.rewind()?;
    stay_open(file.as_fd())?;
    Ok(file.into())
}

fn memory(name: &str) -> io::Result<OwnedFd> {
    match memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::EXEC) {
        // a kernel that does not know the second
        Err(Errno::INVAL) => Ok(memfd_create(name, MemfdFlags::CLOEXEC)?),
        made => Ok(made?),
    }
}

/// What the program before this one left.
pub(super) fn read(fd: i32) -> io::Result<State> {
    let mut told = Vec::new();
    File::from(sys::inherited(fd)?).read_to_end(&mut told)?;
    let state = State::decode(&*told).map_err(io::Error::other)?;
    if state.version > VERSION {
        let message = format!("what is to be taken over is of version {}", state.version);
        return Err(io::Error::new(io::ErrorKind::Unsupported, message));
    }
    Ok(state)
}

#[cfg(test)]
mod tests {
    use std::os::fd::IntoRawFd as _;

    use super::state::{State, VERSION};
    use super::{SAYS, check, introduction, read, written};

    #[test]
    fn only_a_program_that_understands_at_least_what_is_said_here_may_take_over() {
        assert!(check(&introduction()).is_ok());
        assert!(check(&format!("{SAYS}{}\n", VERSION + 1)).is_ok());
        for said in ["", "1\n", SAYS, &format!("{SAYS}{}\n", VERSION - 1)] {
            assert!(check(said).is_err(), "{said}");
        }
    }

    #[test]
    fn what_is_newer_than_what_is_known_here_is_not_taken_over() {
        for (version, is_read) in [(VERSION, true), (VERSION + 1, false)] {
            let state = State {
                version,
                ..State::default()
            };
            let left = written(&state).unwrap().into_raw_fd();
            assert_eq!(read(left).is_ok(), is_read, "{version}");
        }
    }
}
