//! Starting containers and commands: a forked child builds, and reports when the program runs.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::WaitStatus;

use super::container::Container;
use super::log::Log;
use super::{Shim, not_running, setup};
use crate::build::{self, BuildError, Place, Running, Stdio, Users};
use crate::process::{Held, Identity};
use crate::settings::{ContainerSettings, ExecSettings};
use crate::state::{self, ContainerState, Exit};
use crate::sys;
use crate::tree::remove_tree;
use crate::wire::{Built, Event, Failure, FromShim, Incoming, Reply, Started, StreamKind};

/// So many earlier attempts are remembered.
const KEPT: u32 = 10;

/// A child that builds, and whom to tell.
pub(super) struct Builder {
    pub(super) id: u64,
    pub(super) process: Held,
    pub(super) socket: OwnedFd,
    incoming: Incoming,
    peer: u64,
    call: u64,
    work: Work,
}

impl Builder {
    pub(super) fn builds_container(&self) -> bool {
        matches!(self.work, Work::Container(_))
    }
}

enum Work {
    /// The container with this id.
    Container(u64),
    /// A command in the container with this id; the client's ends of its streams.
    Exec(u64, Vec<StreamKind>, Vec<OwnedFd>),
}

/// A command that runs.
pub(super) struct Exec {
    pub(super) id: u64,
    pub(super) process: Held,
    peer: u64,
}

/// Both ends of a container's streams: its own, and the other ones.
#[derive(Default)]
struct Pipes {
    theirs: Stdio,
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
}

impl Pipes {
    /// With a terminal there are none: the container makes it and sends it here.
    fn new(stdin: bool, tty: bool) -> io::Result<Self> {
        let mut pipes = Self::default();
        if tty {
            return Ok(pipes);
        }
        if stdin {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
            pipes.theirs.stdin = Some(read);
            pipes.stdin = Some(write);
        }
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        pipes.stdout = Some(read);
        pipes.theirs.stdout = Some(write);
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        pipes.stderr = Some(read);
        pipes.theirs.stderr = Some(write);
        Ok(pipes)
    }
}

/// The shim's end, and that of the builder.
pub(super) fn builder_sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    let sockets = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    Ok(sockets)
}

impl Shim {
    pub(super) fn start(
        &mut self,
        peer: u64,
        call: u64,
        settings: ContainerSettings,
    ) -> Result<Option<Reply>, Failure> {
        let checked = settings.check(&self.settings);
        checked.map_err(Failure::Refused)?;
        let name = settings.name.clone();
        if self.stopping.is_some() {
            return Err(Failure::Refused(format!(
                "the pod of container {name} is stopping"
            )));
        }
        if self
            .containers
            .iter()
            .any(|c| c.name == name && !c.has_ended())
        {
            return Err(Failure::Refused(format!(
                "container {name} is already running"
            )));
        }
        let dir = state::container_dir(&self.settings.dir, &name, settings.attempt);
        if dir.exists() {
            let attempt = settings.attempt;
            return Err(Failure::Refused(format!(
                "container {name} has been started as attempt {attempt} before: count on"
            )));
        }
        self.discard_earlier(&name, settings.attempt);
        let id = self.new_id();
        self.containers.retain(|c| c.name != name);
        self.begin(peer, call, id, &settings, &dir)
            .map_err(|error| {
                self.abandon(id, &name, &dir);
                Failure::Failed(format!("starting container {name}: {error}"))
            })?;
        Ok(None)
    }

    fn begin(
        &mut self,
        peer: u64,
        call: u64,
        id: u64,
        settings: &ContainerSettings,
        dir: &Path,
    ) -> io::Result<()> {
        let name = &settings.name;
        // whoever is not needed now is sent away
        let early = self.early.take();
        fs::create_dir_all(dir.join("runtime"))?;
        let log = Log::open(&settings.log).map_err(|error| {
            let text = format!("opening log {}: {error}", settings.log.display());
            io::Error::new(error.kind(), text)
        })?;
        self.cgroups.create(name)?;
        if self.settings.isolated {
            self.cgroups.restrict_devices(name)?;
        }
        self.cgroups.apply(name, &settings.limits)?;
        let mut pipes = Pipes::new(settings.stdin, settings.tty)?;
        for fd in [&pipes.stdin, &pipes.stdout, &pipes.stderr]
            .into_iter()
            .flatten()
        {
            setup::unblock(fd)?;
        }
        let theirs = std::mem::take(&mut pipes.theirs);
        let container = Container {
            id,
            name: name.clone(),
            attempt: settings.attempt,
            dir: dir.to_owned(),
            stop_signal: settings.stop_signal.unwrap_or(libc::SIGTERM),
            log,
            stdin: pipes.stdin,
            stdin_once: settings.stdin_once,
            stdout: pipes.stdout,
            stderr: pipes.stderr,
            terminal: None,
            state: None,
            watchers: Vec::new(),
            process: None,
        };
        self.containers.push(container);
        let work = Work::Container(id);
        if let Some((process, socket)) = early.and_then(|early| early.build(settings, dir, &theirs))
        {
            self.expect(peer, call, work, process, socket);
            return Ok(());
        }
        self.fork_builder(peer, call, work, name, theirs, |shim, stdio| {
            build::container(&shim.place(dir, name), settings, stdio)
        })
    }

    pub(super) fn exec(
        &mut self,
        peer: u64,
        call: u64,
        name: &str,
        settings: ExecSettings,
    ) -> Result<Option<Reply>, Failure> {
        settings.check().map_err(Failure::Refused)?;
        let container = self.running(name)?;
        let (id, dir) = (container.id, container.dir.clone());
        self.begin_exec(peer, call, (id, name), &settings, &dir)
            .map_err(|error| {
                Failure::Failed(format!("starting a command in container {name}: {error}"))
            })?;
        Ok(None)
    }

    fn begin_exec(
        &mut self,
        peer: u64,
        call: u64,
        (container, name): (u64, &str),
        settings: &ExecSettings,
        dir: &Path,
    ) -> io::Result<()> {
        let mut pipes = Pipes::new(settings.stdin, settings.tty)?;
        let theirs = std::mem::take(&mut pipes.theirs);
        let ends = [
            (StreamKind::Stdin, pipes.stdin),
            (StreamKind::Stdout, pipes.stdout),
            (StreamKind::Stderr, pipes.stderr),
        ];
        let (kinds, fds) = ends
            .into_iter()
            .filter_map(|(k, fd)| Some((k, fd?)))
            .unzip();
        let work = Work::Exec(container, kinds, fds);
        self.fork_builder(peer, call, work, name, theirs, |shim, stdio| {
            build::exec(&shim.place(dir, name), settings, stdio)
        })
    }

    /// In a child: what it becomes belongs to the container, and has nothing of this process but what it needs.
    pub(super) fn enter(
        &self,
        name: &str,
        socket: &OwnedFd,
        stdio: &Stdio,
    ) -> Result<(), BuildError> {
        let needed = [socket].into_iter().chain(&self.users);
        build::leave(needed.chain(stdio.descriptors()))?;
        let is_own_user = self.settings.user_namespace.is_some() && self.users.is_none();
        let with_v2 = self.settings.isolated && !is_own_user;
        build::enter(&self.cgroups, name, with_v2)
    }

    pub(super) fn place<'a>(&'a self, dir: &'a Path, leaf: &'a str) -> Place<'a> {
        Place {
            dir,
            cgroups: &self.cgroups,
            leaf,
            user_namespace: self.settings.user_namespace.is_some() && self.users.is_none(),
            users: self.users(),
            isolated: self.settings.isolated,
        }
    }

    fn users(&self) -> Option<Users<'_>> {
        let ids = self.settings.user_namespace.as_ref()?;
        let namespace = self.users.as_ref()?;
        Some(Users { namespace, ids })
    }

    fn fork_builder(
        &mut self,
        peer: u64,
        call: u64,
        work: Work,
        name: &str,
        stdio: Stdio,
        build: impl FnOnce(&Self, Stdio) -> Result<Running, BuildError>,
    ) -> io::Result<()> {
        let (ours, theirs) = builder_sockets()?;
        let Some(pid) = sys::fork()? else {
            // the client's ends of pipes must not stay open here: they would hide that the client has closed them
            drop((ours, work));
            let entered = self.enter(name, &theirs, &stdio);
            build::report(&theirs, entered.and_then(|()| build(self, stdio)))
        };
        self.expect(peer, call, work, Held::child(pid)?, ours);
        Ok(())
    }

    fn expect(&mut self, peer: u64, call: u64, work: Work, process: Held, socket: OwnedFd) {
        let id = self.new_id();
        self.builders.push(Builder {
            id,
            process,
            socket,
            incoming: Incoming::default(),
            peer,
            call,
            work,
        });
    }

    /// A builder has something to say, or is gone.
    pub(super) fn built(&mut self, id: u64) {
        let Some(index) = self.builders.iter().position(|b| b.id == id) else {
            return;
        };
        let builder = &mut self.builders[index];
        let alive = builder
            .incoming
            .receive(builder.socket.as_fd())
            .unwrap_or(false);
        let (built, fds) = match builder.incoming.next::<Built>() {
            Ok(Some(message)) => message,
            Ok(None) if alive => return,
            Ok(None) | Err(_) => (Built::Failed("its builder died".to_owned()), Vec::new()),
        };
        let builder = self.builders.swap_remove(index);
        let (peer, call) = (builder.peer, builder.call);
        let mut fds = fds.into_iter();
        let started = match built {
            Built::Running { pid } => self
                .started(pid, fds.next())
                .inspect(|_| build::take_over(&builder.socket))
                .map_err(Failure::Failed),
            Built::Unstartable(reason) => Err(Failure::Unstartable(reason)),
            Built::Failed(reason) => Err(Failure::Failed(reason)),
        };
        match (builder.work, started) {
            (Work::Container(id), Ok(process)) => {
                self.container_runs(peer, call, id, process, fds.next());
            }
            (Work::Container(id), Err(failure)) => {
                self.container_failed(peer, call, id, failure);
            }
            (Work::Exec(_, mut kinds, mut streams), Ok(process)) => {
                if let Some(terminal) = fds.next() {
                    kinds.push(StreamKind::Terminal);
                    streams.push(terminal);
                }
                self.exec_runs(peer, call, process, kinds, streams);
            }
            (Work::Exec(container, ..), Err(failure)) => {
                let reply = Reply::Failed(self.why_no_command(container, failure));
                self.reply(peer, call, reply, Vec::new());
            }
        }
        if self.builders.is_empty() {
            self.unclaimed.clear();
        }
        self.tell_containers();
    }

    fn started(&mut self, pid: i32, shown: Option<OwnedFd>) -> Result<Held, String> {
        let is_reaped = self.unclaimed.iter().any(|(reaped, _)| *reaped == pid);
        let shown = shown.ok_or("its builder showed no process")?;
        let process = Held::shown(pid, shown, is_reaped)
            .map_err(|error| format!("its builder named process {pid}: {error}"))?;
        if !process.is_reaped() {
            // whoever has ended under this number before was somebody else
            self.unclaimed.retain(|(reaped, _)| *reaped != pid);
        }
        Ok(process)
    }

    fn container_runs(
        &mut self,
        peer: u64,
        call: u64,
        id: u64,
        process: Held,
        terminal: Option<OwnedFd>,
    ) {
        let Some(container) = self.containers.iter_mut().find(|c| c.id == id) else {
            return;
        };
        if let Some(Err(error)) = terminal.as_ref().map(setup::unblock) {
            eprintln!("terminal of container {}: {error}", container.name);
        }
        container.terminal = terminal;
        if self.stopping.is_some() {
            let _ = process.signal(container.stop_signal);
        }
        let pid = process.pid;
        container.process = Some(process);
        // one that has ended already is still there to be looked at: it is reaped by nobody but this process
        let identity = Identity::of(pid).unwrap_or_else(|_| Identity {
            pid,
            started: 0,
            boot: String::new(),
        });
        let state = ContainerState {
            name: container.name.clone(),
            attempt: container.attempt,
            process: identity,
            started_at: SystemTime::now(),
            exit: None,
            log_dropped: 0,
            limits_not_applied: self.cgroups.unavailable().map(str::to_owned),
        };
        container.state = Some(state.clone());
        if let Err(error) = state::save(&container.dir, &state) {
            eprintln!("recording the start of container {}: {error}", state.name);
        }
        let started = Started {
            pid,
            started_at: state.started_at,
            limits_not_applied: state.limits_not_applied.clone(),
        };
        self.reply(peer, call, Reply::Started(started), Vec::new());
        self.broadcast(&FromShim::Event(Event::Started(state)));
        self.settle(pid);
    }

    fn container_failed(&mut self, peer: u64, call: u64, id: u64, failure: Failure) {
        let found = self.containers.iter().find(|c| c.id == id);
        if let Some((name, dir)) = found.map(|c| (c.name.clone(), c.dir.clone())) {
            self.abandon(id, &name, &dir);
        }
        self.reply(peer, call, Reply::Failed(failure), Vec::new());
    }

    /// Leaves no trace of a container that never ran.
    fn abandon(&mut self, id: u64, name: &str, dir: &Path) {
        self.containers.retain(|c| c.id != id);
        if let Err(error) = self.cgroups.remove(name) {
            eprintln!("removing the cgroup of container {name}: {error}");
        }
        let _ = remove_tree(dir);
    }

    fn exec_runs(
        &mut self,
        peer: u64,
        call: u64,
        process: Held,
        streams: Vec<StreamKind>,
        fds: Vec<OwnedFd>,
    ) {
        let id = self.new_id();
        let pid = process.pid;
        self.execs.push(Exec { id, process, peer });
        self.reply(peer, call, Reply::Exec { exec: id, streams }, fds);
        self.settle(pid);
    }

    /// What goes wrong while the container ends goes wrong because it does.
    fn why_no_command(&self, container: u64, failure: Failure) -> Failure {
        let container = self.containers.iter().find(|c| c.id == container);
        let is_alive = |c: &Container| c.state().is_some_and(|state| state.is_alive());
        match container {
            Some(c) if self.stopping.is_some() || !is_alive(c) => not_running(&c.name),
            _ => match failure {
                Failure::Unstartable(reason) => Failure::Failed(reason),
                failure => failure,
            },
        }
    }

    pub(super) fn exec_ended(&mut self, exec: &Exec, status: WaitStatus) {
        let message = FromShim::ExecExited {
            exec: exec.id,
            exit: Exit::new(status, false),
        };
        self.tell(exec.peer, &message, Vec::new());
    }

    /// A short program may have ended before it was known what it is.
    fn settle(&mut self, pid: i32) {
        if let Some(index) = self.unclaimed.iter().position(|(p, _)| *p == pid) {
            let (_, status) = self.unclaimed.swap_remove(index);
            self.ended(pid, status);
        }
    }

    /// What earlier attempts wrote is of no use to the next one; how the last few ended stays.
    fn discard_earlier(&self, name: &str, attempt: u32) {
        let attempts = state::containers_dir(&self.settings.dir).join(name);
        let attempts = fs::read_dir(attempts).into_iter().flatten().flatten();
        let (old, recent): (Vec<_>, Vec<_>) = attempts.partition(|entry| {
            let number = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            number.is_some_and(|number: u32| number.saturating_add(KEPT) < attempt)
        });
        for entry in old {
            let _ = remove_tree(&entry.path());
        }
        let recent = recent.into_iter();
        for entry in recent.flat_map(|a| fs::read_dir(a.path()).into_iter().flatten().flatten()) {
            let path: PathBuf = entry.path();
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                let _ = remove_tree(&path);
            } else if entry.file_name() != "state.json" {
                let _ = fs::remove_file(path);
            }
        }
    }
}
