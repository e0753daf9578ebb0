//! A builder that is there before its container is asked for.
//!
//! Joining a cgroup takes as long as the kernel needs to see every processor once, which is a good part of a start. While the
//! pod's network and volumes are being made, a child of the shim waits for that and then for what to build.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use super::Shim;
use super::start::builder_sockets;
use crate::build::{self, Stdio};
use crate::process::Held;
use crate::settings::ContainerSettings;
use crate::sys;
use crate::wire::{self, Incoming};

pub(super) struct Early {
    /// The container in whose cgroup it is.
    name: String,
    process: Held,
    /// If this is closed, the child ends.
    socket: OwnedFd,
}

impl Shim {
    /// Without cgroups nothing is gained. What fails here fails again, and is told, when the container is started.
    pub(super) fn begin_early(&mut self) {
        if let Some(name) = self.settings.first.clone()
            && self.cgroups.unavailable().is_none()
            && self.cgroups.create(&name).is_ok()
        {
            self.early = self.fork_early(name).ok();
        }
    }

    fn fork_early(&self, name: String) -> io::Result<Early> {
        let (ours, theirs) = builder_sockets()?;
        let Some(pid) = sys::fork()? else {
            drop(ours);
            self.wait_and_build(&name, &theirs);
            sys::exit_child(1)
        };
        Ok(Early {
            name,
            process: Held::child(pid)?,
            socket: ours,
        })
    }

    /// In the child: returns if there is nothing to build.
    fn wait_and_build(&self, name: &str, socket: &OwnedFd) {
        let entered = self.enter(name, socket, &Stdio::default());
        let mut incoming = Incoming::default();
        let (asked, fds) = loop {
            match incoming.next::<wire::Build>() {
                Ok(Some(message)) => break message,
                Ok(None) if incoming.receive(socket.as_fd()).unwrap_or(false) => {}
                Ok(None) | Err(_) => return,
            }
        };
        let stdio = Stdio::received(asked.streams.into_iter().zip(fds));
        let place = self.place(&asked.dir, name);
        let built = entered.and_then(|()| build::container(&place, &asked.settings, stdio));
        build::report(socket, built)
    }
}

impl Early {
    /// The child and its socket, if this is the container that it waits for and it is still there.
    pub(super) fn build(
        self,
        settings: &ContainerSettings,
        dir: &Path,
        stdio: &Stdio,
    ) -> Option<(Held, OwnedFd)> {
        if self.name != settings.name {
            return None;
        }
        let (streams, fds) = stdio.copies().ok()?;
        let build = wire::Build {
            settings: settings.clone(),
            dir: dir.to_owned(),
            streams,
        };
        wire::send(self.socket.as_fd(), &build, fds).ok()?;
        Some((self.process, self.socket))
    }
}
