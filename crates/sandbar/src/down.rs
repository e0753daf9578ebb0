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

/// How long an instance that leaves its sandboxes behind may take to stop.
const AT_ONCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(50);
/// All that an instance has in its data directory.
const PARTS: [&str; 10] = [
    "kubeconfig",
    "kubeconfig-viewer",
    "images",
    "pki",
    "pod-cidr",
    "pod-cidr.new",
    "pool-made",
    "store",
    "tokens",
    "process",
];

/// Remove an instance of `sandbar up` or `sandbar api` from this machine
///
/// Stops it if it runs, ends its sandboxes, and removes its network, its cgroups, its images and all its objects. The data
/// directory itself goes if nothing else is in it, unless it was named by a link, which would then lead nowhere.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where the instance keeps everything [default: ~/.sandbar]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// How long sandboxes may take to end in their own time; then they are ended
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    grace: u64,
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
        let home = take(&directory, Duration::from_secs(self.grace)).await?;
        let removed = node::remove(&node_directory(home.path())).await?;
        remove_parts(home.path())?;
        let path = home.path().to_owned();
        drop(home);
        if !is_link(&directory) {
            // what else is there is not ours
            let _ = fs::remove_dir(&path);
        }
        say(&format!(
            "removed {} and {} sandboxes\n",
            path.display(),
            removed.pods
        ))
    }
}

/// Whether a path names a link, with a slash at its end or without.
fn is_link(path: &Path) -> bool {
    path.components().as_path().is_symlink()
}

/// The directory, once whoever has it has stopped.
async fn take(directory: &Path, grace: Duration) -> Result<Home> {
    let begun = Instant::now();
    let patience = grace.saturating_add(AT_ONCE);
    let mut asked = 0;
    loop {
        let due = match begun.elapsed() >= grace {
            true => 2,
            false => 1,
        };
        match Home::open(directory) {
            Err(StartError::InUse {
                process: Some(process),
                ..
            }) if begun.elapsed() < patience => {
                if asked < due {
                    asked += 1;
                    say(&match asked {
                        1 => format!("stopping process {process}\n"),
                        _ => "its sandboxes take too long and are ended\n".to_owned(),
                    })?;
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
