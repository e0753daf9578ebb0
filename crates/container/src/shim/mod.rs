//! One small process per pod. It holds the pod's network, ipc and host name, starts its containers, writes their logs and
//! records how they end, whoever comes and goes at its socket.
//!
//! One thread, one `poll`. Nothing it does waits for a client or for a container: what takes time is done by a forked child
//! that reports through a socket (`start`), and output is read when there is some (`container`, `log`).

mod container;
mod early;
mod log;
mod peer;
mod setup;
mod start;
mod stop;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{WaitOptions, WaitStatus};

use crate::cgroup::{Cgroups, Hierarchy};
use crate::settings::{Limits, PodSettings};
use crate::state::{self, ContainerState, Exit};
use crate::tree::remove_tree;
use crate::wire::{self, Call, Event, Failure, FromShim, Reply, Request};
use crate::{strays, sys};
use container::Container;
use early::Early;
use log::Stream;
use peer::Peer;
use start::{Builder, Exec};
use stop::Stopping;

pub(crate) use setup::{Record, SOCKET};

pub(super) struct Shim {
    settings: PodSettings,
    cgroups: Cgroups,
    /// The user namespace of a pod that this process is not in itself.
    users: Option<OwnedFd>,
    listener: UnixListener,
    signals: OwnedFd,
    peers: Vec<Peer>,
    containers: Vec<Container>,
    builders: Vec<Builder>,
    early: Option<Early>,
    execs: Vec<Exec>,
    /// Who asks for all containers, by which call, and waits for those that are being built.
    asking: Vec<(u64, u64)>,
    /// Processes that ended before their builder said what they are.
    unclaimed: Vec<(i32, WaitStatus)>,
    stopping: Option<Stopping>,
    next_id: u64,
}

/// What a descriptor in the poll set is.
#[derive(Clone, Copy)]
enum Source {
    Listener,
    Signals,
    Peer(u64),
    Builder(u64),
    Output(u64, Stream),
    /// Somebody who watches a container; polled only to notice that he left.
    Watcher(u64, u64),
}

/// Lives until the pod is stopped.
pub(crate) fn run(settings: PodSettings, connection: OwnedFd, birth: OwnedFd) -> ! {
    let ready = match setup::become_shim(&settings) {
        Ok(ready) => ready,
        Err(error) => {
            // before the answer: whoever has it may go on to remove everything
            let mounted = Hierarchy::mounted().unwrap_or_default();
            Cgroups::new(mounted, &settings.cgroup_parent, &settings.cgroup).leave_shims();
            let text = format!("starting pod {}: {error}", settings.cgroup);
            let reply = Reply::Failed(Failure::Failed(text));
            let _ = wire::send(
                connection.as_fd(),
                &FromShim::Reply { id: 0, reply },
                Vec::new(),
            );
            sys::exit_child(1)
        }
    };
    drop(birth);
    let mut shim = Shim {
        settings,
        cgroups: ready.cgroups,
        users: ready.users,
        listener: ready.listener,
        signals: ready.signals,
        peers: Vec::new(),
        containers: Vec::new(),
        builders: Vec::new(),
        early: None,
        execs: Vec::new(),
        asking: Vec::new(),
        unclaimed: Vec::new(),
        stopping: None,
        next_id: 1,
    };
    shim.welcome(connection);
    shim.begin_early();
    loop {
        if let Err(error) = shim.turn() {
            eprintln!("{error}");
        }
    }
}

impl Shim {
    /// Waits until something happens, and handles all that did.
    fn turn(&mut self) -> io::Result<()> {
        let ready = self.wait()?;
        for (source, flags) in ready {
            match source {
                Source::Listener => self.accept(),
                Source::Signals => self.reap(),
                Source::Peer(id) => self.serve(id, flags),
                Source::Builder(id) => self.built(id),
                Source::Output(id, stream) => self.read_output(id, stream),
                Source::Watcher(id, watcher) => self.forget_watcher(id, watcher),
            }
        }
        self.go_on_stopping();
        Ok(())
    }

    fn wait(&self) -> io::Result<Vec<(Source, PollFlags)>> {
        let (input, output) = (PollFlags::IN, PollFlags::OUT);
        let mut sources = vec![
            (Source::Listener, self.listener.as_fd(), input),
            (Source::Signals, self.signals.as_fd(), input),
        ];
        for peer in &self.peers {
            let flags = if peer.is_behind() {
                input | output
            } else {
                input
            };
            sources.push((Source::Peer(peer.id), peer.socket.as_fd(), flags));
        }
        for builder in &self.builders {
            sources.push((Source::Builder(builder.id), builder.socket.as_fd(), input));
        }
        for container in &self.containers {
            for (stream, fd) in container.outputs() {
                sources.push((Source::Output(container.id, stream), fd, input));
            }
            for (watcher, fd) in container.watchers() {
                let source = Source::Watcher(container.id, watcher);
                sources.push((source, fd, PollFlags::empty()));
            }
        }
        let mut fds: Vec<PollFd<'_>> = sources
            .iter()
            .map(|(_, fd, flags)| PollFd::from_borrowed_fd(*fd, *flags))
            .collect();
        match poll(&mut fds, self.timeout().as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = sources
            .iter()
            .zip(&fds)
            .filter(|(_, fd)| !fd.revents().is_empty());
        Ok(ready
            .map(|((source, ..), fd)| (*source, fd.revents()))
            .collect())
    }

    /// Until the grace of a stop is over.
    fn timeout(&self) -> Option<Timespec> {
        let deadline = self.stopping.as_ref()?.deadline()?;
        let left = deadline.saturating_duration_since(Instant::now());
        Timespec::try_from(left).ok()
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Learns who has ended. What is nobody's is an orphan of some command, adopted only to be reaped.
    fn reap(&mut self) {
        let mut signal = [0_u8; 128];
        while rustix::io::read(&self.signals, &mut signal).is_ok_and(|n| n > 0) {}
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let pid = pid.as_raw_pid();
            if !self.ended(pid, status) && !self.builders.is_empty() {
                self.unclaimed.push((pid, status));
            }
        }
    }

    /// Whether the process was one of ours.
    fn ended(&mut self, pid: i32, status: WaitStatus) -> bool {
        if let Some(index) = self.containers.iter().position(|c| c.runs_as(pid)) {
            self.container_ended(index, status);
            return true;
        }
        if let Some(index) = self.execs.iter().position(|e| e.process.pid == pid) {
            let exec = self.execs.swap_remove(index);
            self.exec_ended(&exec, status);
            return true;
        }
        self.builders.iter().any(|b| b.process.pid == pid)
    }

    /// Records an end: first what was said last, then the truth on disk, then the news.
    fn container_ended(&mut self, index: usize, status: WaitStatus) {
        let container = &mut self.containers[index];
        container.drain();
        if !self.settings.isolated {
            strays::kill_marked(&container.dir);
        }
        let exit = Exit {
            processes_refused: self.cgroups.refused_processes(&container.name) > 0,
            ..Exit::new(status, self.cgroups.oom_kills(&container.name) > 0)
        };
        if let Err(error) = self.cgroups.remove(&container.name) {
            eprintln!(
                "removing the cgroup of container {}: {error}",
                container.name
            );
        }
        let Some(state) = container.end(exit) else {
            return;
        };
        if let Err(error) = state::save(&container.dir, &state) {
            eprintln!("recording the end of container {}: {error}", state.name);
        }
        self.broadcast(&FromShim::Event(Event::Exited(state)));
    }

    fn read_output(&mut self, id: u64, stream: Stream) {
        if let Some(container) = self.containers.iter_mut().find(|c| c.id == id) {
            container.read(stream);
        }
    }

    fn forget_watcher(&mut self, id: u64, watcher: u64) {
        if let Some(container) = self.containers.iter_mut().find(|c| c.id == id) {
            container.forget_watcher(watcher);
        }
    }

    /// Does what a client asks. What takes time is answered later.
    fn handle(&mut self, peer: u64, call: Call) {
        let Call { id, request } = call;
        let answer = match request {
            Request::Start(settings) => self.start(peer, id, *settings),
            Request::Exec { name, settings } => self.exec(peer, id, &name, settings),
            Request::Stop {
                order,
                grace_millis,
            } => {
                self.stop(peer, id, &order, grace_millis);
                Ok(None)
            }
            Request::Attach { name } => {
                self.attach(peer, id, &name);
                Ok(None)
            }
            Request::Kill { name, signal } => self.kill(&name, signal).map(Some),
            Request::KillExec { exec, signal } => self.kill_exec(exec, signal).map(Some),
            Request::Resize { name, limits } => self.resize(&name, &limits).map(Some),
            Request::Remove { name } => self.remove(&name).map(Some),
            Request::Containers => {
                self.asking.push((peer, id));
                self.tell_containers();
                Ok(None)
            }
        };
        match answer {
            Ok(None) => {}
            Ok(Some(reply)) => self.reply(peer, id, reply, Vec::new()),
            Err(failure) => self.reply(peer, id, Reply::Failed(failure), Vec::new()),
        }
    }

    fn kill(&mut self, name: &str, signal: i32) -> Result<Reply, Failure> {
        match self.running(name)?.signal(signal) {
            Some(Ok(())) => Ok(Reply::Done),
            Some(Err(error)) => Err(Failure::Failed(format!(
                "sending signal {signal} to container {name}: {error}"
            ))),
            None => Err(not_running(name)),
        }
    }

    fn kill_exec(&mut self, exec: u64, signal: i32) -> Result<Reply, Failure> {
        let found = self.execs.iter().find(|e| e.id == exec);
        let exec = found.ok_or_else(|| Failure::NotRunning("the command has ended".to_owned()))?;
        exec.process
            .signal(signal)
            .map(|()| Reply::Done)
            .map_err(|error| Failure::Failed(format!("sending signal {signal}: {error}")))
    }

    fn resize(&mut self, name: &str, limits: &Limits) -> Result<Reply, Failure> {
        self.running(name)?;
        if let Some(reason) = self.cgroups.unavailable() {
            return Err(Failure::Failed(format!(
                "limits are not in force: {reason}"
            )));
        }
        self.cgroups
            .apply(name, limits)
            .map(|()| Reply::Done)
            .map_err(|error| Failure::Failed(format!("limiting container {name}: {error}")))
    }

    /// Forgets a container that has ended, with everything it wrote but its log.
    fn remove(&mut self, name: &str) -> Result<Reply, Failure> {
        if self
            .containers
            .iter()
            .any(|c| c.name == name && !c.has_ended())
        {
            return Err(Failure::Refused(format!(
                "container {name} is running: stop it first"
            )));
        }
        let dir = state::containers_dir(&self.settings.dir).join(name);
        remove_tree(&dir)
            .map_err(|error| Failure::Failed(format!("removing container {name}: {error}")))?;
        self.containers.retain(|c| c.name != name);
        Ok(Reply::Done)
    }

    /// Answers those who ask for all containers, once it is known of each whether it runs: whoever started one may be gone, and
    /// would not be asked for it.
    fn tell_containers(&mut self) {
        if self.asking.is_empty() || self.builders.iter().any(Builder::builds_container) {
            return;
        }
        let states = self.states();
        for (peer, id) in std::mem::take(&mut self.asking) {
            self.reply(peer, id, Reply::Containers(states.clone()), Vec::new());
        }
    }

    /// What is recorded, and for what lives here what is known.
    fn states(&self) -> Vec<ContainerState> {
        let mut states = state::load_all(&self.settings.dir);
        for known in self.containers.iter().filter_map(Container::state) {
            let same = |s: &&mut ContainerState| s.name == known.name && s.attempt == known.attempt;
            match states.iter_mut().find(same) {
                Some(state) => *state = known,
                None => states.push(known),
            }
        }
        states
    }

    fn running(&mut self, name: &str) -> Result<&mut Container, Failure> {
        let mut containers = self.containers.iter_mut();
        containers
            .find(|c| c.name == name && c.pid().is_some())
            .ok_or_else(|| not_running(name))
    }
}

fn not_running(name: &str) -> Failure {
    Failure::NotRunning(format!("container {name} is not running"))
}
