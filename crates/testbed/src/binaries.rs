//! The programs that make up a cluster: found on the machine or built and unpacked into the cache, never installed.

mod debian;
mod go;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::lock::FileLock;
use crate::paths;
use crate::plan::Spec;
use crate::progress::Progress;

pub(crate) use debian::NodeTools;

/// Where each program of a plan is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Tools {
    programs: BTreeMap<String, PathBuf>,
    /// What a real node needs; absent without a kubelet.
    pub(crate) node: Option<NodeTools>,
}

impl Tools {
    pub(crate) fn path(&self, program: &str) -> Result<&Path> {
        self.programs
            .get(program)
            .map(PathBuf::as_path)
            .with_context(|| format!("the plan does not contain {program}"))
    }

    /// Applies `f` to every path.
    pub(crate) fn map_paths(&mut self, mut f: impl FnMut(&Path) -> PathBuf) {
        for path in self.programs.values_mut() {
            *path = f(path);
        }
        if let Some(node) = &mut self.node {
            node.map_paths(f);
        }
    }
}

/// Finds or makes all programs that `spec` needs. Two processes that need the same set make it once.
pub(crate) fn ensure(spec: &Spec, progress: &mut Progress) -> Result<Tools> {
    let cache = paths::cache_dir()?;
    let mut kubernetes = vec!["kube-apiserver", "kubectl"];
    if spec.controller_manager {
        kubernetes.push("kube-controller-manager");
    }
    if spec.scheduler() {
        kubernetes.push("kube-scheduler");
    }
    if spec.kubelet {
        kubernetes.extend(["kubelet", "kube-proxy"]);
    }
    let mut programs = BTreeMap::new();
    let mut add = |set: &go::Set, wanted: &[&str], progress: &mut Progress| -> Result<()> {
        programs.extend(set.ensure(&cache, wanted, progress)?);
        Ok(())
    };
    add(&go::ETCD, &["etcd"], progress)?;
    add(&go::KUBERNETES, &kubernetes, progress)?;
    if spec.kwok() {
        add(&go::KWOK, &["kwok"], progress)?;
    }
    let mut node = None;
    if spec.kubelet {
        let mut tools = debian::ensure(&cache, progress)?;
        tools.images = base_images(&cache, &tools)?;
        node = Some(tools);
    }
    Ok(Tools { programs, node })
}

/// Finds or makes kubectl alone.
pub(crate) fn kubectl() -> Result<PathBuf> {
    let found =
        go::KUBERNETES.ensure(&paths::cache_dir()?, &["kubectl"], &mut Progress::new(true))?;
    found.into_values().next().context("there is no kubectl")
}

/// Finds or makes the oldest kubectl that is served.
pub(crate) fn old_kubectl(progress: &mut Progress) -> Result<PathBuf> {
    let found = go::OLD_KUBECTL.ensure(&paths::cache_dir()?, &["kubectl"], progress)?;
    found
        .into_values()
        .next()
        .context("there is no older kubectl")
}

/// Finds or makes a registry of images.
pub(crate) fn registry(progress: &mut Progress) -> Result<PathBuf> {
    let found = go::REGISTRY.ensure(&paths::cache_dir()?, &["registry"], progress)?;
    found.into_values().next().context("there is no registry")
}

/// Checks what cannot be fetched, so that the answer comes before a long build and names the remedy.
pub(crate) fn check_host() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!(
            "the testbed needs root: it creates namespaces, mounts and a network link (run it with sudo -E, or as root in a container)"
        );
    }
    for (program, package) in [
        ("unshare", "util-linux"),
        ("nsenter", "util-linux"),
        ("setpriv", "util-linux"),
        ("ip", "iproute2"),
    ] {
        if on_path(program).is_none() {
            bail!("the program {program} is missing: install the package {package}");
        }
    }
    Ok(())
}

/// The first file of that name on `PATH`.
pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|p| p.is_file())
}

/// Makes a directory of the cache once: `fill` gets a temporary one that appears under `name` only when complete.
fn make_once(cache: &Path, name: &str, fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let target = cache.join(name);
    if target.is_dir() {
        return Ok(target);
    }
    let _lock = FileLock::exclusive(&cache.join(format!("{name}.lock")))?;
    if target.is_dir() {
        return Ok(target);
    }
    let temporary = cache.join(format!("{name}.partial"));
    if temporary.exists() {
        fs::remove_dir_all(&temporary)
            .with_context(|| format!("removing {}", temporary.display()))?;
    }
    fs::create_dir_all(&temporary).with_context(|| format!("creating {}", temporary.display()))?;
    fill(&temporary)?;
    fs::rename(&temporary, &target)
        .with_context(|| format!("moving {} into place", target.display()))?;
    Ok(target)
}

/// The images that a node knows from the start, made once per busybox.
fn base_images(cache: &Path, node: &NodeTools) -> Result<PathBuf> {
    let busybox =
        fs::read(&node.busybox).with_context(|| format!("reading {}", node.busybox.display()))?;
    let hash = paths::short_hash([busybox.as_slice(), crate::images::LAYOUT.as_bytes()]);
    let dir = make_once(cache, &format!("images-{hash}"), |dir| {
        crate::images::write_base_images(&node.busybox, &dir.join("base.tar"))
    })?;
    Ok(dir.join("base.tar"))
}
