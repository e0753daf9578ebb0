//! What is known of a container, and the file that keeps it when everybody who knew it is gone.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::process::Identity;

const FILE: &str = "state.json";

/// A container that was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerState {
    pub name: String,
    pub attempt: u32,
    pub(crate) process: Identity,
    pub started_at: SystemTime,
    /// Set once it has ended. Without it the container runs, or ended when nobody watched.
    pub exit: Option<Exit>,
    /// Bytes of output that could not be written to the log.
    pub log_dropped: u64,
    /// Why limits are not in force, where they are not.
    pub limits_not_applied: Option<String>,
}

impl ContainerState {
    pub fn pid(&self) -> i32 {
        self.process.pid
    }

    /// Whether its first process runs at this moment, whatever is recorded.
    pub fn is_alive(&self) -> bool {
        self.exit.is_none() && self.process.is_alive()
    }
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// As a shell would say it: 128 and the signal's number for one that a signal ended.
    pub code: i32,
    pub signal: Option<i32>,
    /// Whether the kernel killed something in the container for want of memory.
    pub oom_killed: bool,
    /// Whether something in the container could not be started, because it had as many processes as it may have. Not known
    /// of those whose end was recorded before it was looked at.
    #[serde(default)]
    pub processes_refused: bool,
    pub finished_at: SystemTime,
}

impl Exit {
    pub(crate) fn new(status: rustix::process::WaitStatus, oom_killed: bool) -> Self {
        let signal = status.terminating_signal();
        let code = signal.map_or_else(|| status.exit_status().unwrap_or(255), |s| 128 + s);
        Self {
            code,
            signal,
            oom_killed,
            processes_refused: false,
            finished_at: SystemTime::now(),
        }
    }
}

/// Where a pod keeps one run of one container.
pub(crate) fn container_dir(pod: &Path, name: &str, attempt: u32) -> PathBuf {
    containers_dir(pod).join(name).join(attempt.to_string())
}

pub(crate) fn containers_dir(pod: &Path) -> PathBuf {
    pod.join("containers")
}

/// Replaces the state file. How a container ended is there even after a power cut, which the start of one does not outlive: the
/// disk is waited for only when there is an end to tell.
pub(crate) fn save(dir: &Path, state: &ContainerState) -> io::Result<()> {
    let path = dir.join(FILE);
    match state.exit {
        Some(_) => save_json(&path, state),
        None => replace(&path, state),
    }
}

/// Replaces a file; afterwards the old or the new one is there, even after a power cut.
pub(crate) fn save_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let fresh = write(path, value)?;
    File::open(&fresh)?.sync_all()?;
    fs::rename(&fresh, path)?;
    let dir = path.parent().unwrap_or(Path::new("/"));
    File::open(dir)?.sync_all()
}

/// Replaces a file, without waiting for the disk.
pub(crate) fn replace(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let fresh = write(path, value)?;
    fs::rename(fresh, path)
}

fn write(path: &Path, value: &impl Serialize) -> io::Result<PathBuf> {
    let fresh = path.with_extension("new");
    let mut file = File::create(&fresh)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    Ok(fresh)
}

/// All states recorded under a pod's directory, by name and attempt. Files that cannot be read are passed over: they are
/// of starts that never came to an end.
pub(crate) fn load_all(pod: &Path) -> Vec<ContainerState> {
    let mut states: Vec<ContainerState> = children(&containers_dir(pod))
        .iter()
        .flat_map(|container| children(container))
        .filter_map(|attempt| serde_json::from_slice(&fs::read(attempt.join(FILE)).ok()?).ok())
        .collect();
    states.sort_by(|a, b| (&a.name, a.attempt).cmp(&(&b.name, b.attempt)));
    states
}

fn children(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten();
    entries.filter_map(|e| Some(e.ok()?.path())).collect()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::{ContainerState, container_dir, load_all, save};
    use crate::process::Identity;

    #[test]
    fn states_come_back_in_order_and_half_written_ones_do_not_count() {
        let pod = tempfile::tempdir().unwrap();
        let state = |name: &str, attempt| ContainerState {
            name: name.to_owned(),
            attempt,
            process: Identity::of(1).unwrap(),
            started_at: SystemTime::now(),
            exit: None,
            log_dropped: 0,
            limits_not_applied: None,
        };
        let states = [state("a", 2), state("a", 10), state("b", 0)];
        for state in states.iter().rev() {
            let dir = container_dir(pod.path(), &state.name, state.attempt);
            std::fs::create_dir_all(&dir).unwrap();
            save(&dir, state).unwrap();
        }
        let broken = container_dir(pod.path(), "c", 0);
        std::fs::create_dir_all(&broken).unwrap();
        std::fs::write(broken.join("state.json"), "{").unwrap();
        assert_eq!(load_all(pod.path()), states);
    }
}
