//! A daemon that is started for a measurement and ended after it.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bench::process;
use rustix::process::{Pid, Signal, kill_process};

use crate::talk::Connection;

/// How long a daemon may take until it answers.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Program {
    /// With `{port}` in it.
    pub(crate) command: String,
    pub(crate) file: Option<PathBuf>,
}

impl Program {
    /// In MB.
    pub(crate) fn size(&self) -> Result<Option<f64>> {
        let Some(file) = &self.file else {
            return Ok(None);
        };
        let found = file
            .metadata()
            .with_context(|| file.display().to_string())?;
        Ok(Some(found.len() as f64 / 1e6))
    }
}

pub(crate) struct Daemon {
    child: Child,
    pub(crate) pid: u32,
    pub(crate) address: SocketAddr,
}

impl Daemon {
    /// And how long it took until it was healthy.
    pub(crate) async fn start(program: &Program) -> Result<(Self, Duration)> {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let line = program.command.replace("{port}", &free.port().to_string());
        let mut words = line.split_whitespace();
        let begun = Instant::now();
        let child = Command::new(words.next().context("an empty command")?)
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| line.clone())?;
        let daemon = Self {
            pid: child.id(),
            child,
            address: free,
        };
        while !is_healthy(free).await {
            ensure!(begun.elapsed() < PATIENCE, "{line} does not answer");
            tokio::time::sleep(Duration::from_micros(100)).await;
        }
        Ok((daemon, begun.elapsed()))
    }
}

async fn is_healthy(address: SocketAddr) -> bool {
    match Connection::open(address).await {
        Ok(mut connection) => connection.is_healthy().await,
        Err(_) => false,
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        for child in process::children(self.pid, "sleep").unwrap_or_default() {
            if let Some(child) = i32::try_from(child).ok().and_then(Pid::from_raw) {
                let _ = kill_process(child, Signal::KILL);
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
