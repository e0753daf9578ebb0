//! The cgroups of an instance: one for its helper and shims, and for each pod one per container. Version 1, version 2, and both
//! at once.
//!
//! `hierarchy` finds what the machine has, `limits` says which files hold which limit; here directories are made, joined,
//! emptied and removed. Joining is what costs: the kernel waits until no processor forks. So a container's first process
//! joins once, and shims are born where the helper is.

mod hierarchy;
mod limits;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io, thread};

use crate::settings::Limits;
use crate::sys;

pub(crate) use hierarchy::Hierarchy;

/// The cgroup of helper and shims beside those of pods, whose names never begin with a dot.
const SHIMS: &str = ".shims";
/// A cgroup is busy until the last of its processes is gone for good, moments after it was reaped or killed.
const ATTEMPTS: u32 = 400;
const PAUSE: Duration = Duration::from_millis(5);

/// A pod's cgroups in all hierarchies.
pub(crate) struct Cgroups {
    hierarchies: Vec<Hierarchy>,
    parent: String,
    pod: String,
    /// Why there are none.
    unavailable: Option<String>,
}

impl Cgroups {
    pub(crate) fn new(hierarchies: Vec<Hierarchy>, parent: &str, pod: &str) -> Self {
        let unavailable = hierarchies
            .is_empty()
            .then(|| "no cgroup file system is mounted".to_owned());
        Self {
            hierarchies,
            parent: parent.to_owned(),
            pod: pod.to_owned(),
            unavailable,
        }
    }

    /// Moves this process, the helper, and with it all shims to come: what stops Sandbar's own service must not stop pods.
    /// Where that is forbidden they stay where they are.
    pub(crate) fn enter_shims(&self) {
        for hierarchy in self.usable() {
            let dir = self.parent_dir(hierarchy).join(SHIMS);
            let _ =
                fs::create_dir_all(&dir).and_then(|()| fs::write(dir.join("cgroup.procs"), "0"));
        }
    }

    /// Moves this process out again, and removes what nobody is in any more.
    pub(crate) fn leave_shims(&self) {
        for hierarchy in self.usable() {
            let _ = fs::write(hierarchy.root().join("cgroup.procs"), "0");
        }
        self.remove_parent();
    }

    /// Makes the pod's cgroup. Where that is forbidden the pod goes without.
    pub(crate) fn create_pod(&mut self) {
        let made = self.usable().try_for_each(|hierarchy| {
            let dir = self.pod_dir(hierarchy);
            in_dir(&dir, fs::create_dir_all(&dir))
        });
        if let Err(error) = made {
            for hierarchy in &self.hierarchies {
                let _ = fs::remove_dir(self.pod_dir(hierarchy));
            }
            self.remove_parent();
            self.unavailable = Some(format!("cgroups cannot be made: {error}"));
        }
    }

    /// Whether there is a version 2 hierarchy, which a container's own cgroup namespace is made in.
    pub(crate) fn has_v2(&self) -> bool {
        self.usable().any(|h| matches!(h, Hierarchy::V2 { .. }))
    }

    /// Why limits are not in force, where they are not.
    pub(crate) fn unavailable(&self) -> Option<&str> {
        self.unavailable.as_deref()
    }

    pub(crate) fn create(&self, leaf: &str) -> io::Result<()> {
        for hierarchy in self.usable() {
            let dir = self.dir(hierarchy, leaf);
            in_dir(&dir, fs::create_dir_all(&dir))?;
            hierarchy.enable_controllers(&self.parent, &self.pod);
        }
        Ok(())
    }

    /// Moves this process in.
    pub(crate) fn join(&self, leaf: &str) -> io::Result<()> {
        for hierarchy in self.usable() {
            let file = self.dir(hierarchy, leaf).join("cgroup.procs");
            in_dir(&file, fs::write(&file, "0"))?;
        }
        Ok(())
    }

    /// Where the container's limits are, and what they are called where it looks for them. Nothing for version 2. A hierarchy that is
    /// mounted more than once is shown once.
    pub(crate) fn shown(&self, leaf: &str) -> Vec<(PathBuf, PathBuf)> {
        let mut shown: Vec<(&Hierarchy, PathBuf)> = Vec::new();
        let (usual, others): (Vec<_>, Vec<_>) = self.usable().partition(|h| h.is_in_sys());
        for hierarchy in usual.into_iter().chain(others) {
            let Some(name) = hierarchy.shown_as() else {
                continue;
            };
            let mut known = shown.iter();
            if !known.any(|(h, taken)| h.is_same(hierarchy) || *taken == name) {
                shown.push((hierarchy, name));
            }
        }
        let shown = shown.into_iter();
        shown
            .map(|(hierarchy, name)| (self.dir(hierarchy, leaf), name))
            .collect()
    }

    /// Lets everybody look at the container's cgroup, which nobody but who sees the file system it is in can.
    pub(crate) fn show(&self, leaf: &str) -> io::Result<()> {
        for hierarchy in self.usable() {
            let dir = self.dir(hierarchy, leaf);
            let everybody = fs::Permissions::from_mode(0o755);
            in_dir(&dir, fs::set_permissions(&dir, everybody))?;
        }
        Ok(())
    }

    /// Puts limits in force; what is not limited is lifted.
    pub(crate) fn apply(&self, leaf: &str, wanted: &Limits) -> io::Result<()> {
        for hierarchy in self.usable() {
            hierarchy.apply(&self.dir(hierarchy, leaf), wanted)?;
        }
        Ok(())
    }

    /// Lets the container have the devices that every container has, and no other.
    pub(crate) fn restrict_devices(&self, leaf: &str) -> io::Result<()> {
        for hierarchy in self.usable() {
            hierarchy.restrict_devices(&self.dir(hierarchy, leaf))?;
        }
        Ok(())
    }

    /// How many processes of the container the kernel has killed for want of memory.
    pub(crate) fn oom_kills(&self, leaf: &str) -> u64 {
        let count = |h: &Hierarchy| h.oom_kills(&self.dir(h, leaf));
        self.usable().filter_map(count).max().unwrap_or(0)
    }

    /// How often a process of the container could not be started, because there were as many as there may be.
    pub(crate) fn refused_processes(&self, leaf: &str) -> u64 {
        let count = |h: &Hierarchy| h.refused_processes(&self.dir(h, leaf));
        self.usable().filter_map(count).max().unwrap_or(0)
    }

    /// Kills what is left in a container's cgroup and removes it.
    pub(crate) fn remove(&self, leaf: &str) -> io::Result<()> {
        let dirs: Vec<PathBuf> = self.usable().map(|h| self.dir(h, leaf)).collect();
        remove_trees(&dirs)
    }

    /// Kills what is left in the pod and removes its cgroup; the instance's too if nothing else is in it.
    pub(crate) fn remove_pod(&self) -> io::Result<()> {
        let pods: Vec<PathBuf> = self.usable().map(|h| self.pod_dir(h)).collect();
        let removed = remove_trees(&pods);
        self.remove_parent();
        removed
    }

    /// Fails, as it should, while there are pods, shims or a helper.
    fn remove_parent(&self) {
        for hierarchy in &self.hierarchies {
            let parent = self.parent_dir(hierarchy);
            let _ = fs::remove_dir(parent.join(SHIMS));
            let _ = fs::remove_dir(parent);
        }
    }

    fn usable(&self) -> impl Iterator<Item = &Hierarchy> {
        let all = if self.unavailable.is_none() {
            self.hierarchies.as_slice()
        } else {
            &[]
        };
        all.iter()
    }

    fn pod_dir(&self, hierarchy: &Hierarchy) -> PathBuf {
        self.parent_dir(hierarchy).join(&self.pod)
    }

    fn parent_dir(&self, hierarchy: &Hierarchy) -> PathBuf {
        hierarchy.root().join(&self.parent)
    }

    fn dir(&self, hierarchy: &Hierarchy, leaf: &str) -> PathBuf {
        self.pod_dir(hierarchy).join(leaf)
    }
}

/// Kills until nothing is left, then removes from the leaves up.
fn remove_trees(dirs: &[PathBuf]) -> io::Result<()> {
    for attempt in 1..=ATTEMPTS {
        let mut failed = Ok(());
        for dir in dirs {
            kill_tree(dir);
            if let Err(error) = remove_tree(dir) {
                failed = in_dir(dir, Err(error));
            }
        }
        if failed.is_ok() || attempt == ATTEMPTS {
            return failed;
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

fn kill_tree(dir: &Path) {
    if fs::write(dir.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    for child in subdirectories(dir) {
        kill_tree(&child);
    }
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let processes = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    for pid in processes.lines().filter_map(|line| line.parse().ok()) {
        if pid != own {
            // it may have ended since it was read
            let _ = sys::kill(pid, libc::SIGKILL);
        }
    }
}

fn remove_tree(dir: &Path) -> io::Result<()> {
    for child in subdirectories(dir) {
        remove_tree(&child)?;
    }
    match fs::remove_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

fn subdirectories(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let dirs = entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
    dirs.map(|e| e.path()).collect()
}

/// An error of the file system that says where.
fn in_dir<T>(path: &Path, result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{Cgroups, Hierarchy, hierarchy};
    use crate::settings::Limits;

    /// Version 2 as plain files: what is written can be read, what the kernel would do is not done.
    fn pretend(root: &Path) -> Cgroups {
        let root = root.to_owned();
        Cgroups::new(
            vec![Hierarchy::V2 { root, limits: true }],
            "instance",
            "pod",
        )
    }

    #[test]
    fn version_2_gets_controllers_passed_down_and_limits_in_the_leaf() {
        let root = tempfile::tempdir().unwrap();
        let cgroups = pretend(root.path());
        cgroups.create("main").unwrap();
        for dir in ["", "instance", "instance/pod"] {
            let file = root.path().join(dir).join("cgroup.subtree_control");
            assert!(file.exists(), "{dir}");
        }
        let leaf = root.path().join("instance/pod/main");
        let limits = Limits {
            memory: Some(1000),
            ..Limits::default()
        };
        let refused = cgroups.apply("main", &limits).unwrap_err().to_string();
        assert!(refused.contains("memory.max"), "{refused}");
        fs::write(leaf.join("memory.max"), "max").unwrap();
        fs::write(leaf.join("memory.swap.max"), "max").unwrap();
        cgroups.apply("main", &limits).unwrap();
        let read = |file: &str| fs::read_to_string(leaf.join(file)).unwrap();
        assert_eq!(
            (read("memory.max"), read("memory.swap.max")),
            ("1000".to_owned(), "0".to_owned())
        );
        cgroups.apply("main", &Limits::default()).unwrap();
        assert_eq!(read("memory.max"), "max");
    }

    #[test]
    fn version_2_tells_of_killed_processes_and_kills_all_at_once() {
        let root = tempfile::tempdir().unwrap();
        let cgroups = pretend(root.path());
        cgroups.create("main").unwrap();
        let leaf = root.path().join("instance/pod/main");
        assert_eq!(cgroups.oom_kills("main"), 0);
        fs::write(leaf.join("memory.events"), "low 0\noom 4\noom_kill 3\n").unwrap();
        assert_eq!(cgroups.oom_kills("main"), 3);
        super::kill_tree(&leaf);
        assert_eq!(fs::read_to_string(leaf.join("cgroup.kill")).unwrap(), "1");
    }

    #[test]
    fn version_2_tells_of_processes_that_were_refused() {
        let root = tempfile::tempdir().unwrap();
        let cgroups = pretend(root.path());
        cgroups.create("main").unwrap();
        assert_eq!(cgroups.refused_processes("main"), 0);
        let events = root.path().join("instance/pod/main/pids.events");
        fs::write(events, "max 7\n").unwrap();
        assert_eq!(cgroups.refused_processes("main"), 7);
    }

    #[test]
    fn a_hierarchy_that_is_mounted_twice_is_shown_once_and_from_its_usual_place() {
        let mounts = "\
31 30 0:27 / /jail/sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
32 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
33 30 0:27 / /elsewhere/cpu rw - cgroup cgroup rw,cpu,cpuacct
34 30 0:28 / /jail/sys/fs/cgroup/memory rw - cgroup cgroup rw,memory";
        let cgroups = Cgroups::new(hierarchy::parse(mounts), "instance", "pod");
        let expected = [
            (
                "/sys/fs/cgroup/cpu,cpuacct/instance/pod/main",
                "cpu,cpuacct",
            ),
            ("/jail/sys/fs/cgroup/memory/instance/pod/main", "memory"),
        ];
        let expected = expected.map(|(own, name)| (own.into(), name.into()));
        assert_eq!(cgroups.shown("main"), expected);
    }

    #[test]
    fn without_any_cgroup_nothing_fails_and_the_reason_is_known() {
        let mut cgroups = Cgroups::new(Vec::new(), "instance", "pod");
        cgroups.create_pod();
        cgroups.create("main").unwrap();
        cgroups.apply("main", &Limits::default()).unwrap();
        cgroups.remove_pod().unwrap();
        assert!(cgroups.unavailable().is_some());
    }
}
