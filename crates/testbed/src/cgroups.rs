//! The control group of an instance: made before its kubelet starts, removed with everything below it afterwards.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Where the kernel's hierarchies are mounted.
pub(crate) const ROOT: &str = "/sys/fs/cgroup";

/// How long the kernel may take to let go of a group whose processes were killed.
const PATIENCE: Duration = Duration::from_secs(20);

/// The roots of all hierarchies: one for version 2, one per controller for version 1.
fn hierarchies(root: &Path) -> Result<Vec<PathBuf>> {
    if root.join("cgroup.controllers").exists() {
        return Ok(vec![root.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(root).with_context(|| format!("listing {}", root.display()))? {
        let path = entry?.path();
        // co-mounted controllers appear a second time as symbolic links
        if !path.is_symlink() && path.join("cgroup.procs").exists() {
            found.push(path);
        }
    }
    if found.is_empty() {
        bail!(
            "no control groups below {}: mount them (cgroup v1 or v2) first",
            root.display()
        );
    }
    Ok(found)
}

/// Creates the group `name` in every hierarchy.
pub(crate) fn create(root: &Path, name: &str) -> Result<()> {
    for hierarchy in hierarchies(root)? {
        let group = hierarchy.join(name);
        if !group.is_dir() {
            fs::create_dir(&group).with_context(|| format!("creating {}", group.display()))?;
        }
        // a version 1 cpuset accepts no process until these are set
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if hierarchy.join("cgroup.clone_children").exists()
                && let Ok(value) = fs::read_to_string(hierarchy.join(file))
            {
                fs::write(group.join(file), value.trim())
                    .with_context(|| format!("setting {file} of {}", group.display()))?;
            }
        }
        if hierarchy == root
            && let Ok(controllers) = fs::read_to_string(hierarchy.join("cgroup.controllers"))
        {
            for controller in controllers.split_whitespace() {
                // some controllers cannot be delegated; the kubelet names the ones it misses
                let _ = fs::write(
                    hierarchy.join("cgroup.subtree_control"),
                    format!("+{controller}"),
                );
            }
        }
    }
    Ok(())
}

/// Removes the group and everything below it, waiting for processes that are still dying.
pub(crate) fn remove(root: &Path, name: &str) -> Result<()> {
    let give_up = Instant::now() + PATIENCE;
    for hierarchy in hierarchies(root)? {
        let group = hierarchy.join(name);
        while let Err(error) = remove_tree(&group) {
            if Instant::now() > give_up {
                return Err(error).with_context(|| {
                    format!(
                        "removing the control group {}: processes are left in it",
                        group.display()
                    )
                });
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(())
}

/// Children first: the kernel only removes a group without any.
fn remove_tree(group: &Path) -> std::io::Result<()> {
    let entries = match fs::read_dir(group) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    match fs::remove_dir(group) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::{create, remove};
    use std::fs;

    /// The machine that runs the tests has one version; the other is checked on a tree of plain files.
    #[test]
    fn version_2_has_one_hierarchy() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "cpu memory\n").unwrap();
        create(root.path(), "one").unwrap();
        assert!(root.path().join("one").is_dir());
        fs::create_dir_all(root.path().join("one/kubepods/pod1")).unwrap();
        remove(root.path(), "one").unwrap();
        assert!(!root.path().join("one").exists());
    }

    #[test]
    fn version_1_has_one_hierarchy_per_controller_and_cpusets_are_filled() {
        let root = tempfile::tempdir().unwrap();
        for controller in ["cpuset", "memory"] {
            fs::create_dir(root.path().join(controller)).unwrap();
            fs::write(root.path().join(controller).join("cgroup.procs"), "").unwrap();
        }
        let cpuset = root.path().join("cpuset");
        fs::write(cpuset.join("cgroup.clone_children"), "0").unwrap();
        fs::write(cpuset.join("cpuset.cpus"), "0-1\n").unwrap();
        fs::write(cpuset.join("cpuset.mems"), "0\n").unwrap();
        create(root.path(), "one").unwrap();
        assert_eq!(
            fs::read_to_string(cpuset.join("one/cpuset.cpus")).unwrap(),
            "0-1"
        );
        assert!(root.path().join("memory/one").is_dir());
    }
}
