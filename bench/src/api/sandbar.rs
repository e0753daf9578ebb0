//! `sandbar api` as a process of its own.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::rival::Side;
use bench::client::{Access, Ask};
use bench::process;

/// The program, and the disk its data goes to.
pub(crate) struct Program {
    pub(crate) file: PathBuf,
    pub(crate) disk: PathBuf,
}

/// A running server.
pub(crate) struct Server {
    child: Child,
    /// Its own directory, if it has one.
    _directory: Option<TempDir>,
    pub(crate) side: Side,
    /// From the start of the process to the answer of an authenticated `GET /readyz`.
    pub(crate) ready_after: Duration,
}

impl Program {
    pub(crate) fn directory(&self) -> Result<TempDir> {
        Ok(tempfile::tempdir_in(&self.disk)?)
    }

    pub(crate) async fn start_empty(&self) -> Result<Server> {
        let directory = self.directory()?;
        let mut server = self.start(directory.path()).await?;
        server._directory = Some(directory);
        Ok(server)
    }

    pub(crate) async fn start(&self, directory: &Path) -> Result<Server> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let begun = Instant::now();
        let mut child = Command::new(&self.file)
            .args(["api", "--port", &port.to_string(), "--data-dir"])
            .arg(directory)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {}", self.file.display()))?;
        let said = child.stdout.take().context("no output")?;
        let mut lines = BufReader::new(said).lines();
        loop {
            match lines.next_line().await? {
                Some(line) if line == "ready" => break,
                Some(_) => {}
                None => bail!("{} ended instead of serving", self.file.display()),
            }
        }
        let access = Access::read(&directory.join("kubeconfig")).await?;
        access.connect().await?.whole(Ask::get("/readyz")).await?;
        let ready_after = begun.elapsed();
        let pid = child.id().context("it has ended")?;
        Ok(Server {
            child,
            _directory: None,
            side: Side {
                name: "sandbar",
                access,
                pids: vec![pid],
            },
            ready_after,
        })
    }
}

impl Server {
    pub(crate) fn resident(&self) -> Result<f64> {
        process::resident(self.side.pids[0])
    }

    pub(crate) async fn stop(mut self) -> Result<()> {
        self.child.kill().await?;
        Ok(())
    }
}
