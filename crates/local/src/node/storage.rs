//! How much of the disk a pod uses, where it may not use more than so much. What a kubelet does about it is called an eviction.

use std::{
    collections::HashSet,
    ffi::CString,
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
};

use k8s_openapi::{
    api::core::v1::{Container, Pod},
    apimachinery::pkg::api::resource::Quantity as Amount,
};
use quantity::Quantity;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};

use super::place::PodPlace;

const RESOURCE: &str = "ephemeral-storage";
/// Each level takes a descriptor. Who nests deeper than any program does hides something, and counts as over every limit.
const DEEPEST: u32 = 128;
/// What `st_blocks` counts in, whatever the file system.
const BLOCK: u64 = 512;

/// What a part of a pod may use, and what is said when it uses more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    limit: u64,
    paths: Vec<PathBuf>,
    excess: String,
}

/// In the order and the words of a kubelet. `memory` is the pod's directory of volumes in memory.
pub(crate) fn allowances(pod: &Pod, place: &PodPlace, memory: &Path) -> Vec<Allowance> {
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    let mut all = Vec::new();
    let mut on_disk = Vec::new();
    for volume in spec.volumes.iter().flatten() {
        let Some(wish) = &volume.empty_dir else {
            continue;
        };
        let is_in_memory = wish.medium.as_deref() == Some("Memory");
        let path = match is_in_memory {
            true => memory.join(&volume.name),
            false => place.volumes().join(&volume.name),
        };
        if !is_in_memory {
            on_disk.push(path.clone());
        }
        all.extend(wish.size_limit.as_ref().and_then(|limit| {
            let (name, text) = (&volume.name, &limit.0);
            let excess = format!("Usage of EmptyDir volume {name:?} exceeds the limit {text:?}. ");
            allowance(limit, vec![path], excess)
        }));
    }
    all.extend(of_pod(&spec.containers, place, on_disk));
    let inits = spec.init_containers.iter().flatten();
    all.extend(inits.chain(&spec.containers).filter_map(|container| {
        let (limit, name) = (limit(container)?, &container.name);
        let text = &limit.0;
        let excess =
            format!("Container {name} exceeded its local ephemeral storage limit {text:?}. ");
        allowance(limit, written(name, place), excess)
    }));
    all
}

/// All that the containers may use together is what all of the pod may: volumes have no container.
fn of_pod(containers: &[Container], place: &PodPlace, volumes: Vec<PathBuf>) -> Option<Allowance> {
    let limits: Vec<&Amount> = containers.iter().filter_map(limit).collect();
    let total: u64 = limits.iter().filter_map(|limit| bytes(limit)).sum();
    let text = match limits.as_slice() {
        [] => return None,
        [only] => only.0.clone(),
        _ => total.to_string(),
    };
    let own = containers.iter().flat_map(|one| written(&one.name, place));
    Some(Allowance {
        limit: total,
        paths: own.chain(volumes).chain([place.etc("")]).collect(),
        excess: format!(
            "Pod ephemeral local storage usage exceeds the total limit of containers {text}. "
        ),
    })
}

fn limit(container: &Container) -> Option<&Amount> {
    let resources = container.resources.as_ref()?;
    resources.limits.as_ref()?.get(RESOURCE)
}

/// What a container has written outside of volumes.
fn written(container: &str, place: &PodPlace) -> Vec<PathBuf> {
    vec![
        place.runs(container),
        place.logs(container),
        place.workplace(container),
        place.all_last_words(container),
    ]
}

fn allowance(limit: &Amount, paths: Vec<PathBuf>, excess: String) -> Option<Allowance> {
    Some(Allowance {
        limit: bytes(limit)?,
        paths,
        excess,
    })
}

/// A limit of nothing is none.
pub(crate) fn bytes(amount: &Amount) -> Option<u64> {
    let amount = Quantity::parse(&amount.0).ok()?;
    u64::try_from(amount.value())
        .ok()
        .filter(|bytes| *bytes > 0)
}

/// What to say of the first that is exceeded. Looks at every file, so it may take a while; what vanishes meanwhile is not
/// counted.
pub(crate) fn exceeded(allowances: &[Allowance]) -> Option<String> {
    let exceeded = allowances.iter().find(|one| {
        let mut count = Count {
            used: 0,
            limit: one.limit,
            seen: HashSet::new(),
        };
        one.paths.iter().any(|path| count.add_tree(path))
    });
    exceeded.map(|one| one.excess.clone())
}

struct Count {
    used: u64,
    limit: u64,
    /// Files with several names.
    seen: HashSet<(u64, u64)>,
}

impl Count {
    /// Whether it is too much already.
    fn add_tree(&mut self, top: &Path) -> bool {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(CWD, top, flags, Mode::empty()) {
            Ok(top) => self.add_content(top.as_fd(), DEEPEST),
            Err(_) => false,
        }
    }

    fn add_content(&mut self, directory: BorrowedFd<'_>, depth: u32) -> bool {
        let mut below: Vec<CString> = Vec::new();
        for entry in Dir::read_from(directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let Ok(found) = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            if self.add(&found) {
                return true;
            }
            if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
                below.push(name.to_owned());
            }
        }
        let Some(depth) = depth.checked_sub(1) else {
            return !below.is_empty();
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        below.iter().any(|name| {
            let opened = rustix::fs::openat(directory, name.as_c_str(), flags, Mode::empty());
            opened.is_ok_and(|opened| self.add_content(opened.as_fd(), depth))
        })
    }

    fn add(&mut self, found: &Stat) -> bool {
        let is_known = found.st_nlink > 1
            && FileType::from_raw_mode(found.st_mode) != FileType::Directory
            && !self.seen.insert((found.st_dev, found.st_ino));
        if !is_known {
            let blocks = u64::try_from(found.st_blocks).unwrap_or_default();
            self.used = self.used.saturating_add(blocks.saturating_mul(BLOCK));
        }
        self.used > self.limit
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::Path};

    use serde_json::json;

    use super::{Allowance, allowances, exceeded};
    use crate::node::place::PodPlace;

    fn allow(limit: u64, path: &Path) -> Vec<Allowance> {
        vec![Allowance {
            limit,
            paths: vec![path.to_owned()],
            excess: "too much".to_owned(),
        }]
    }

    #[test]
    fn what_is_limited_is_told_apart_and_named_as_kubelets_do() {
        let pod = serde_json::from_value(json!({"spec": {
            "volumes": [
                {"name": "disk", "emptyDir": {"sizeLimit": "1Mi"}},
                {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Mi"}},
                {"name": "free", "emptyDir": {}},
            ],
            "containers": [{"name": "main", "resources": {"limits": {"ephemeral-storage": "3Mi"}}}],
        }}));
        let place = PodPlace::new(Path::new("/pods"), "u");
        let all = allowances(&pod.unwrap(), &place, Path::new("/memory/u"));
        let told: Vec<_> = all
            .iter()
            .map(|one| (one.limit >> 20, one.excess.trim()))
            .collect();
        assert_eq!(
            told,
            [
                (
                    1,
                    "Usage of EmptyDir volume \"disk\" exceeds the limit \"1Mi\"."
                ),
                (
                    2,
                    "Usage of EmptyDir volume \"shm\" exceeds the limit \"2Mi\"."
                ),
                (
                    3,
                    "Pod ephemeral local storage usage exceeds the total limit of containers 3Mi."
                ),
                (
                    3,
                    "Container main exceeded its local ephemeral storage limit \"3Mi\"."
                ),
            ]
        );
        assert_eq!(all[1].paths, [Path::new("/memory/u/shm")]);
        assert!(all[2].paths.contains(&place.volumes().join("free")));
        assert!(!all[3].paths.contains(&place.volumes().join("free")));
        assert!(all[2].paths.contains(&place.etc("")));
        assert!(all[3].paths.contains(&place.all_last_words("main")));
        assert!(allowances(&Default::default(), &place, Path::new("/")).is_empty());
    }

    #[test]
    fn files_count_once_and_only_below_their_directory() {
        let dir = tempfile::tempdir().unwrap();
        let (top, outside) = (dir.path().join("top"), dir.path().join("outside"));
        fs::create_dir_all(top.join("deep")).unwrap();
        fs::write(&outside, vec![1; 1 << 20]).unwrap();
        symlink(&outside, top.join("link")).unwrap();
        fs::write(top.join("deep/file"), vec![1; 100 << 10]).unwrap();
        for name in ["a", "b", "c"] {
            fs::hard_link(top.join("deep/file"), top.join(name)).unwrap();
        }
        let sparse = fs::File::create(top.join("sparse")).unwrap();
        sparse.set_len(1 << 30).unwrap();
        assert_eq!(exceeded(&allow(200 << 10, &top)), None);
        assert_eq!(
            exceeded(&allow(64 << 10, &top)).as_deref(),
            Some("too much")
        );
        assert_eq!(exceeded(&allow(1, &dir.path().join("none"))), None);
    }

    #[test]
    fn who_nests_deeper_than_can_be_looked_is_over_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let deep = |levels: usize| dir.path().join("d/".repeat(levels));
        fs::create_dir_all(deep(100)).unwrap();
        assert_eq!(exceeded(&allow(1 << 30, dir.path())), None);
        fs::create_dir_all(deep(200)).unwrap();
        assert!(exceeded(&allow(1 << 30, dir.path())).is_some());
    }
}
