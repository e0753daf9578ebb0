//! What a shim that was killed left behind. States are read from files; processes and cgroups are removed by `sweep`.
//! Mounts are never left over: they live in mount namespaces that end with the last process in them.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{io, thread};

use crate::cgroup::{Cgroups, Hierarchy};
use crate::shim::Record;
use crate::state::{self, ContainerState};
use crate::{birth, strays, sys};

/// A killed process is gone in moments; one that is not hangs in the kernel.
const ATTEMPTS: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(5);

/// What is recorded in a pod's directory.
#[derive(Debug)]
pub struct Remains {
    /// Whether the shim lives; then ask it, by `Pod::connect`.
    pub shim_alive: bool,
    /// All containers ever started and not removed. One without an exit that is not alive ended when nobody watched.
    pub containers: Vec<ContainerState>,
}

#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    #[error("the shim of {} is alive, or being made: stop the pod instead of sweeping it", .0.display())]
    Alive(PathBuf),
    #[error("process {pid} of container {name} does not end")]
    Process { name: String, pid: i32 },
    #[error("removing the cgroups of {}: {source}", .dir.display())]
    Cgroups { dir: PathBuf, source: io::Error },
}

/// Looks without touching.
pub fn remains(dir: &Path) -> Remains {
    Remains {
        shim_alive: has_shim(dir),
        containers: state::load_all(dir),
    }
}

/// Ends a shim that does not answer. Its containers go on until they are swept.
pub fn kill_shim(dir: &Path) {
    if let Ok(record) = Record::load(dir)
        && record.process.is_alive()
    {
        let _ = sys::kill(record.process.pid, libc::SIGKILL);
    }
}

/// Whether a shim lives in a pod's directory, or is being made there.
pub fn has_shim(dir: &Path) -> bool {
    // in this order: one that is not expected any more has recorded itself
    birth::is_expected(dir) || Record::load(dir).is_ok_and(|record| record.process.is_alive())
}

/// Ends every process of a pod whose shim is dead and removes its cgroups. States and logs stay. Blocks for as long as
/// processes take to die.
pub fn sweep(dir: &Path) -> Result<Remains, SweepError> {
    let remains = remains(dir);
    if remains.shim_alive {
        return Err(SweepError::Alive(dir.to_owned()));
    }
    for state in remains.containers.iter().filter(|s| s.is_alive()) {
        // the first process of a container takes all others with it
        let _ = sys::kill(state.pid(), libc::SIGKILL);
    }
    if let Ok(record) = Record::load(dir) {
        if !record.isolated {
            strays::kill_marked(dir);
        }
        let failed = |source| SweepError::Cgroups {
            dir: dir.to_owned(),
            source,
        };
        let hierarchies = Hierarchy::mounted().map_err(failed)?;
        let cgroups = Cgroups::new(hierarchies, &record.cgroup_parent, &record.cgroup);
        cgroups.remove_pod().map_err(failed)?;
    }
    for state in &remains.containers {
        let gone = (0..ATTEMPTS).any(|_| {
            let gone = !state.is_alive();
            if !gone {
                thread::sleep(PAUSE);
            }
            gone
        });
        if !gone {
            return Err(SweepError::Process {
                name: state.name.clone(),
                pid: state.pid(),
            });
        }
    }
    Record::remove(dir);
    Ok(remains)
}
