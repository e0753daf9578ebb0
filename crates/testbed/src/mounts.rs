//! What the processes of an instance see of the file system: their own `/run`, `/tmp` and `/var`, so that paths
//! which Kubernetes has hard-coded never touch the host.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::mount::{MountFlags, mount, mount_bind, mount_move};

use crate::binaries::Tools;

/// The instance's directory as seen from inside. Short, because socket paths are limited to 107 bytes.
pub(crate) const INSIDE: &str = "/run/sandbar-testbed";

/// Kernel settings that a kubelet insists on. Its node gets files with the wanted values instead of the real
/// ones: the settings belong to the whole machine, and `panic_on_oops` is not a test's to change.
const KUBELET_SYSCTLS: &[(&str, &str)] = &[
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// Changes the mounts of the current namespace and returns `tools` with the paths they now have.
pub(crate) fn enter(dir: &Path, tools: &Tools) -> Result<Tools> {
    // the host's file may be a link into /run
    let resolv = fs::read("/etc/resolv.conf").unwrap_or_default();
    fs::write(dir.join("resolv.conf"), resolv).context("copying resolv.conf")?;
    for sub in [
        "var/lib",
        "var/log",
        "var/tmp",
        "var/cache",
        "tmp",
        "sysctl",
        "stage",
    ] {
        let path = dir.join(sub);
        fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
    }
    for sub in ["tmp", "var/tmp"] {
        fs::set_permissions(dir.join(sub), fs::Permissions::from_mode(0o1777))
            .with_context(|| format!("opening {sub} to all"))?;
    }
    std::os::unix::fs::symlink("/run", dir.join("var/run")).context("linking var/run")?;

    // prepared beside its place and moved there at the end: the sources may themselves be below /run or /tmp
    let stage = dir.join("stage");
    mount(
        "tmpfs",
        &stage,
        "tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV,
        c"mode=755",
    )
    .context("mounting a fresh /run")?;
    bind(dir, &stage.join("sandbar-testbed"))?;
    let tools = bind_tools(&stage, tools)?;

    for (name, value) in KUBELET_SYSCTLS {
        let file = dir.join("sysctl").join(name.replace('/', "-"));
        fs::write(&file, format!("{value}\n")).with_context(|| format!("writing {name}"))?;
        let target = Path::new("/proc/sys").join(name);
        if target.exists() {
            mount_bind(&file, &target).with_context(|| format!("hiding {}", target.display()))?;
        }
    }

    mount_move(&stage, "/run").context("moving the fresh /run into place")?;
    for hidden in ["tmp", "var"] {
        let target = Path::new("/").join(hidden);
        mount_bind(Path::new(INSIDE).join(hidden), &target)
            .with_context(|| format!("mounting a fresh {}", target.display()))?;
    }
    std::env::set_current_dir("/").context("leaving the directory that is now hidden")?;
    Ok(tools)
}

/// Makes each directory that holds a tool visible under `/run`, wherever it is on the host.
fn bind_tools(stage: &Path, tools: &Tools) -> Result<Tools> {
    let mut bound: Vec<(PathBuf, PathBuf)> = Vec::new();
    let mut failure = None;
    let mut tools = tools.clone();
    tools.map_paths(|path| {
        // a package's programs find their libraries and links relative to its root, so the whole set is bound
        let root = set_of(path);
        let inside = match bound.iter().find(|(from, _)| *from == root) {
            Some((_, inside)) => inside.clone(),
            None => {
                let name = format!("sandbar-tools-{}", bound.len());
                if let Err(error) = bind(&root, &stage.join(&name)) {
                    failure.get_or_insert(error);
                }
                bound.push((root.clone(), Path::new("/run").join(&name)));
                Path::new("/run").join(name)
            }
        };
        match path.strip_prefix(&root) {
            Ok(rest) if !rest.as_os_str().is_empty() => inside.join(rest),
            _ => inside,
        }
    });
    failure.map_or(Ok(tools), Err)
}

/// The directory to bind for `path`: its set in the cache, else the directory it is in.
fn set_of(path: &Path) -> PathBuf {
    let is_set = |dir: &&Path| {
        let name = dir
            .file_name()
            .map(|n| n.to_string_lossy().into_owned())
            .unwrap_or_default();
        ["debian-", "kubernetes-", "etcd-", "kwok-", "images-"]
            .iter()
            .any(|p| name.starts_with(p))
    };
    let fallback = if path.is_dir() {
        path
    } else {
        path.parent().unwrap_or(path)
    };
    path.ancestors().find(is_set).unwrap_or(fallback).to_owned()
}

fn bind(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to).with_context(|| format!("creating {}", to.display()))?;
    mount_bind(from, to).with_context(|| format!("binding {} to {}", from.display(), to.display()))
}
