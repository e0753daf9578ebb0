//! `sandbar down`: no trace is left.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use local::{
    node,
    serve::{Home, StartError},
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{runtime::Runtime, time::sleep};

use crate::{
    api::{default_directory, say, with_remedy},
    up::node_directory,
};

/// How long an instance may take to stop: its sandboxes end in their own time.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(50);
/// All that an instance has in its data directory.
const PARTS: [&str; 8] = [
    "kubeconfig",
    "kubeconfig-viewer",
    "images",
    "pki",
    "pool-made",
    "store",
    "tokens",
    "process",
];

/// Remove an instance of `sandbar up` or `sandbar api` from this machine
///
/// Stops it if it runs, ends its sandboxes, and removes its network, its cgroups, its images and all its objects. The data
/// directory itself goes if nothing else is in it.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where the instance keeps everything [default: ~/.sandbar]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

impl Args {
    pub(crate) fn run(self) -> Result<()> {
        let runtime = Runtime::new().context("starting threads")?;
        runtime.block_on(self.down())
    }

    async fn down(self) -> Result<()> {
        let directory = match self.data_dir {
            Some(directory) => directory,
            None => default_directory()?,
        };
        if !directory.is_dir() {
            say(&format!("nothing is in {}\n", directory.display()))?;
            return Ok(());
        }
        if !directory.join("process").is_file() {
            bail!(
                "{} is not the data directory of an instance: nothing was removed",
                directory.display()
            );
        }
        let home = take(&directory).await?;
        let removed = node::remove(&node_directory(home.path())).await?;
        remove_parts(home.path())?;
        let path = home.path().to_owned();
        drop(home);
        // what else is there is not ours
        let _ = fs::remove_dir(&path);
        say(&format!(
            "removed {} and {} sandboxes\n",
            path.display(),
            removed.pods
        ))
    }
}

/// The directory, once whoever has it has stopped.
async fn take(directory: &Path) -> Result<Home> {
    let begun = Instant::now();
    let mut asked = false;
    loop {
        match Home::open(directory) {
            Err(StartError::InUse {
                process: Some(process),
                ..
            }) if begun.elapsed() < PATIENCE => {
                if !asked {
                    asked = true;
                    say(&format!("stopping process {process}\n"))?;
                    ask_to_stop(process)?;
                }
            }
            taken => return taken.map_err(with_remedy),
        }
        sleep(PAUSE).await;
    }
}

fn ask_to_stop(process: u32) -> Result<()> {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    let pid = pid.with_context(|| format!("{process} is no process"))?;
    match kill_process(pid, Signal::TERM) {
        // it has just ended
        Err(rustix::io::Errno::SRCH) => Ok(()),
        sent => sent.with_context(|| format!("stopping process {process}")),
    }
}

fn remove_parts(directory: &Path) -> Result<()> {
    for part in PARTS {
        let path = directory.join(part);
        let removed = match path.is_dir() {
            true => container::remove_tree(&path),
            false => fs::remove_file(&path),
        };
        match removed {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("removing {}", path.display()));
            }
            _ => {}
        }
    }
    Ok(())
}
