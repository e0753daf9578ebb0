//! The controller under measurement: any command that serves these APIs.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bench::process;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

/// How long it may take to end when it is asked to.
const PATIENCE: Duration = Duration::from_secs(15);
const LAST_WORDS: usize = 15;

/// How it is started.
#[derive(Clone)]
pub(crate) struct Launch {
    pub(crate) command: String,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) log: PathBuf,
}

pub(crate) struct Controller {
    child: Child,
    leader: u32,
    log: PathBuf,
    pub(crate) started: Instant,
}

impl Launch {
    pub(crate) fn start(&self) -> Result<Controller> {
        let log = append(&self.log)?;
        let started = Instant::now();
        let child = Command::new("sh")
            .args(["-c", &self.command])
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("sharing the log")?)
            .stderr(log)
            // so that all of it can be measured and stopped, whatever the shell starts
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {}", self.command))?;
        let leader = child.id().context("the controller has ended at once")?;
        Ok(Controller {
            child,
            leader,
            log: self.log.clone(),
            started,
        })
    }
}

fn append(path: &Path) -> Result<File> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.with_context(|| format!("opening {}", path.display()))
}

impl Controller {
    /// An error if it has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("the controller ended: {}", self.last_words(status));
        }
        Ok(())
    }

    fn last_words(&self, status: ExitStatus) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines.len().saturating_sub(LAST_WORDS);
        format!("{status}\n{}", lines[last..].join("\n"))
    }

    /// Processor time so far.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let each = self.processes()?.into_iter();
        // a helper that has ended since is not what is measured
        let used = each.map(|pid| process::cpu(&[pid]).unwrap_or_default());
        Ok(used.sum())
    }

    /// Resident now and at most, MiB.
    pub(crate) fn memory(&self) -> Result<(f64, f64)> {
        let (mut now, mut most) = (0.0, 0.0);
        for pid in self.processes()? {
            now += process::resident(pid).unwrap_or_default();
            most += process::peak(pid).unwrap_or_default();
        }
        Ok((now, most))
    }

    fn processes(&self) -> Result<Vec<u32>> {
        let group = process::group(self.leader)?;
        ensure!(!group.is_empty(), "the controller has ended");
        Ok(group)
    }

    /// Asks it to end and waits for that.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.signal(Signal::TERM);
        match tokio::time::timeout(PATIENCE, self.child.wait()).await {
            Ok(status) => drop(status.context("waiting for the controller")?),
            Err(_) => eprintln!("! the controller does not end when asked to; killed"),
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        let leader = i32::try_from(self.leader).ok().and_then(Pid::from_raw);
        if let Some(leader) = leader {
            // nobody there is what is wanted
            let _ = kill_process_group(leader, signal);
        }
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}
