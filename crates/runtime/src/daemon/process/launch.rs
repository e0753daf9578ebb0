//! How a process comes to be: started, entered in the table, and looked after until its end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::Events;
use super::running::{self, Process};
use super::spawn::{self, Command};
use crate::code::Code;
use crate::daemon::Daemon;
use crate::daemon::error::Error;
use crate::daemon::users::User;
use crate::messages::process::{ProcessConfig, Pty};

/// Where programs are looked for when the daemon itself was not told.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub(in crate::daemon) struct Launch<'a> {
    pub(in crate::daemon) user: &'a User,
    /// What is run, and what those who list processes are told of it.
    pub(in crate::daemon) config: ProcessConfig,
    /// All of it: nothing is added to it.
    pub(in crate::daemon) environment: Vec<(String, String)>,
    pub(in crate::daemon) cwd: PathBuf,
    pub(in crate::daemon) pty: Option<Pty>,
    /// Whether there is a pipe to it; of no meaning with a terminal.
    pub(in crate::daemon) stdin: bool,
    pub(in crate::daemon) tag: Option<String>,
    /// When it is killed.
    pub(in crate::daemon) deadline: Option<Instant>,
}

impl Daemon {
    pub(in crate::daemon) fn launch(
        &self,
        launch: Launch<'_>,
    ) -> Result<(Arc<Process>, Events), Error> {
        if self.stopping.load(Ordering::Relaxed) {
            let message = "the sandbox is being stopped";
            return Err(Error::new(Code::Unavailable, message));
        }
        let Launch {
            user,
            config,
            environment,
            cwd,
            pty,
            stdin,
            tag,
            deadline,
        } = launch;
        let spawned = spawn::spawn(&Command {
            user,
            config: &config,
            environment,
            cwd,
            pty,
            stdin,
        });
        let spawned = spawned
            .map_err(|e| Error::invalid(format!("error starting process '{}': {e}", config.cmd)))?;
        let pid = spawned.pid;
        let process = Process::new(spawned, config, tag, deadline).map_err(|e| {
            running::kill(pid);
            Error::internal(format!("the process cannot be looked after: {e}"))
        })?;
        let events = process.subscribe();
        let process = self.processes.insert(process, &self.handover);
        Ok((process, events))
    }

    /// Nothing else of the daemon's own environment gets to a process.
    pub(super) fn environment(
        &self,
        user: &User,
        set: &BTreeMap<String, String>,
    ) -> Vec<(String, String)> {
        let path = std::env::var("PATH").unwrap_or_else(|_| PATH.to_owned());
        let own = [
            ("PATH", path),
            ("HOME", user.home.to_string_lossy().into_owned()),
            ("USER", user.name.clone()),
            ("LOGNAME", user.name.clone()),
        ];
        let own = own.map(|(name, value)| (name.to_owned(), value));
        own.into_iter()
            .chain(self.settings.environment())
            .chain(set.clone())
            .collect()
    }

    /// With all of the daemon's own: what a pod's template sets is for its commands.
    pub(in crate::daemon) fn environment_of_container(
        &self,
        user: &User,
        set: &BTreeMap<String, String>,
    ) -> Vec<(String, String)> {
        let inherited = std::env::vars_os().filter_map(|(name, value)| {
            // an environment is text here; what is none is left out
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        inherited.chain(self.environment(user, set)).collect()
    }
}
