//! `sandbar up` as a process of its own. Nothing of it is left when its handle goes, however that comes about.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bench::client::Access;
use bench::process;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Sandboxes end in their own time, and have five seconds for it by default.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);

/// The program, and the disk its data goes to.
pub(crate) struct Program {
    pub(crate) file: PathBuf,
    pub(crate) disk: PathBuf,
}

pub(crate) struct Instance<'a> {
    program: &'a Program,
    directory: TempDir,
    running: Option<Running>,
}

struct Running {
    child: Child,
    begun: Instant,
    /// Kept open: the program has more to say when it ends.
    said: BufReader<ChildStdout>,
}

impl Program {
    /// In a directory of its own that is empty.
    pub(crate) fn up(&self, options: &[&str]) -> Result<Instance<'_>> {
        let mut instance = Instance {
            program: self,
            directory: tempfile::tempdir_in(&self.disk)?,
            running: None,
        };
        instance.start(options)?;
        Ok(instance)
    }
}

impl Instance<'_> {
    /// Waits until it says that it is ready.
    pub(crate) fn start(&mut self, options: &[&str]) -> Result<()> {
        let begun = Instant::now();
        let mut command = Command::new(&self.program.file);
        command.args(["up", "--port", "0", "--data-dir"]);
        command.arg(self.data()).args(options);
        // who presses Ctrl-C means this program, which then ends the other in its own way
        command.process_group(0).stdout(Stdio::piped());
        let starting = || format!("starting {}", self.program.file.display());
        let mut child = command.spawn().with_context(starting)?;
        let said = child.stdout.take().context("no output")?;
        let running = self.running.insert(Running {
            child,
            begun,
            said: BufReader::new(said),
        });
        let mut line = String::new();
        while !line.starts_with("ready after") {
            line.clear();
            let read = running.said.read_line(&mut line)?;
            ensure!(read > 0, "sandbar up ended instead of serving");
        }
        Ok(())
    }

    /// When the process that runs was started.
    pub(crate) fn begun(&self) -> Result<Instant> {
        Ok(self.running()?.begun)
    }

    pub(crate) fn pid(&self) -> Result<u32> {
        Ok(self.running()?.child.id())
    }

    /// The process that forks shims.
    pub(crate) fn helper(&self) -> Result<u32> {
        let found = process::children(self.pid()?, "sandbar-helper")?;
        found.first().copied().context("no helper runs")
    }

    pub(crate) async fn access(&self) -> Result<Access> {
        Access::read(&self.data().join("kubeconfig")).await
    }

    /// Ends the process; what it has made stays.
    pub(crate) fn stop(&mut self) -> Result<()> {
        let Some(Running { mut child, .. }) = self.running.take() else {
            return Ok(());
        };
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.context("no process")?, Signal::TERM)?;
        let asked = Instant::now();
        while child.try_wait()?.is_none() {
            if asked.elapsed() > PATIENCE {
                eprintln!("sandbar up does not stop and is killed");
                child.kill()?;
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn running(&self) -> Result<&Running> {
        self.running.as_ref().context("sandbar up does not run")
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn remove(&mut self) -> Result<()> {
        self.stop()?;
        let mut down = Command::new(&self.program.file);
        down.args(["down", "--data-dir"]).arg(self.data());
        let output = down.output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "sandbar down: {}", said.trim());
        Ok(())
    }
}

impl Drop for Instance<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            eprintln!("bench-up: removing {}: {error:#}", self.data().display());
        }
    }
}
