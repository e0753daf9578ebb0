//! What the kernel has refused to containers. It counts that, and tells nobody: whoever wants to know has to look.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use crate::cgroup::{Cgroups, Hierarchy};

/// The cgroups in which an instance has its pods.
pub struct Refusals {
    hierarchies: Vec<Hierarchy>,
    parent: String,
}

impl Refusals {
    /// By the name that pods are given as [`crate::PodSettings::cgroup_parent`]. Where there are no cgroups, nothing is refused.
    pub fn of(parent: &str) -> Self {
        Self {
            hierarchies: Hierarchy::mounted().unwrap_or_default(),
            parent: parent.to_owned(),
        }
    }

    /// How often a process of a container that runs could not be started, because there were as many as there may be.
    pub fn processes(&self, pod: &str, container: &str) -> u64 {
        self.of_pod(pod).refused_processes(container)
    }

    /// How many processes of a container that runs the kernel has ended for want of memory.
    pub fn memory(&self, pod: &str, container: &str) -> u64 {
        self.of_pod(pod).oom_kills(container)
    }

    fn of_pod(&self, pod: &str) -> Cgroups {
        Cgroups::new(self.hierarchies.clone(), &self.parent, pod)
    }
}

/// How many processes there are where no cgroup counts them: in each user namespace that this user may look at.
pub struct Crowds {
    by_namespace: HashMap<PathBuf, u64>,
}

impl Crowds {
    /// Looks at every process of the machine.
    pub fn now() -> Self {
        let mut by_namespace = HashMap::new();
        let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        for process in numbers {
            // those that have ended meanwhile and those of others are nobody's
            if let (Some(namespace), Some(count)) = (namespace(process), threads(process)) {
                *by_namespace.entry(namespace).or_default() += count;
            }
        }
        Self { by_namespace }
    }

    /// How many processes and threads share the user namespace of a process.
    pub fn around(&self, process: i32) -> u64 {
        let found = namespace(process).and_then(|own| self.by_namespace.get(&own));
        found.copied().unwrap_or(0)
    }
}

fn namespace(process: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{process}/ns/user")).ok()
}

/// Each has a directory in here, and so a link to this one, beside the two that every directory has.
fn threads(process: i32) -> Option<u64> {
    let tasks = fs::metadata(format!("/proc/{process}/task")).ok()?;
    Some(tasks.nlink().saturating_sub(2))
}

#[cfg(test)]
mod tests {
    use super::Crowds;

    #[test]
    fn threads_are_counted_with_those_who_share_their_users() {
        let own = i32::try_from(std::process::id()).unwrap();
        let end = std::sync::Barrier::new(51);
        std::thread::scope(|scope| {
            for _ in 0..50 {
                scope.spawn(|| end.wait());
            }
            let found = Crowds::now().around(own);
            end.wait();
            assert!(found > 50, "{found}");
        });
        assert_eq!(Crowds::now().around(i32::MAX), 0);
    }
}
