//! The volumes of a pod as directories of this machine.
//!
//! Tokens of service accounts are left out: the embedded API gives none, and a pod is a stranger to it. Limits of the size of
//! an `emptyDir` on disk are the business of `storage`.
//!
//! Containers write to an `emptyDir`, a claim and a path of the host; nothing below one of these is ever followed or trusted
//! here. All else is mounted read-only.

mod atomic;
mod host_path;
pub(super) mod memory;
mod ownership;
mod payload;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, Pod, Volume};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::documents::Documents;
use super::place::PodPlace;
use super::settings::fields::Facts;
use super::trouble::Trouble;

/// What each volume of a pod is on this machine.
pub(crate) type Volumes = BTreeMap<String, Backing>;

/// A directory or a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backing {
    pub(crate) path: PathBuf,
    /// What is meant is below `path` and must be resolved without leaving it.
    pub(crate) below: Option<PathBuf>,
    pub(crate) read_only: bool,
}

/// A pod, and all that its volumes are made of.
pub(crate) struct Sources<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) place: &'a PodPlace,
    pub(crate) documents: &'a Documents,
    /// The directories of claims that are bound, by the name of the claim.
    pub(crate) claims: &'a BTreeMap<String, PathBuf>,
    /// A directory for the volumes in memory of this pod alone. It need not exist.
    pub(crate) memory: &'a Path,
    /// Without the right to it, volumes in memory are directories as any other.
    pub(crate) may_mount: bool,
    /// Below these, paths of the host are given to pods.
    pub(crate) host_paths: &'a [PathBuf],
    pub(crate) pod_ip: Option<&'a str>,
    pub(crate) host_ip: &'a str,
    /// Of the node.
    pub(crate) allocatable: &'a BTreeMap<String, Quantity>,
}

impl<'a> Sources<'a> {
    fn facts(&self) -> Facts<'a> {
        Facts {
            pod: self.pod,
            pod_ip: self.pod_ip,
            host_ip: self.host_ip,
            allocatable: self.allocatable,
        }
    }
}

/// Makes the volumes that containers mount. What is there already stays as it is, content included.
pub(crate) fn prepare(sources: &Sources<'_>) -> Result<Volumes, Trouble> {
    let group = ownership::group(sources.pod);
    mounted(sources.pod)
        .map(|volume| Ok((volume.name.clone(), backing(sources, volume, group)?)))
        .collect()
}

/// Writes anew what has changed of the volumes that are made of documents and of the pod itself; tells whether any has.
/// One that cannot be written keeps what it has, and the others do not wait for it.
pub(crate) fn refresh(sources: &Sources<'_>) -> Result<bool, Trouble> {
    let group = ownership::group(sources.pod);
    let mut has_changed = false;
    let mut trouble = None;
    for volume in mounted(sources.pod).filter(|volume| payload::is_written(volume)) {
        match write(sources, volume, group) {
            Ok((_, changed)) => has_changed |= changed,
            Err(error) => trouble = trouble.or(Some(error)),
        }
    }
    trouble.map_or(Ok(has_changed), Err)
}

/// Whether anything outside of a pod can change one of its volumes, or it itself can by its metadata.
pub(crate) fn is_refreshable(pod: &Pod) -> bool {
    mounted(pod).any(payload::is_written)
}

/// A volume that no container mounts is not looked at.
fn mounted(pod: &Pod) -> impl Iterator<Item = &Volume> {
    let spec = pod.spec.as_ref();
    let init = spec.and_then(|spec| spec.init_containers.as_ref());
    let containers = spec.map(|spec| &spec.containers);
    let mounts = [init, containers]
        .into_iter()
        .flatten()
        .flatten()
        .flat_map(|container| container.volume_mounts.iter().flatten());
    let names: BTreeSet<&str> = mounts.map(|mount| mount.name.as_str()).collect();
    let volumes = spec.and_then(|spec| spec.volumes.as_ref());
    volumes
        .into_iter()
        .flatten()
        .filter(move |volume| names.contains(volume.name.as_str()))
}

fn backing(sources: &Sources<'_>, volume: &Volume, group: Option<u32>) -> Result<Backing, Trouble> {
    check_name(&volume.name)?;
    if payload::is_written(volume) {
        let (path, _) = write(sources, volume, group)?;
        return Ok(directory(path, true));
    }
    if let Some(claim) = &volume.persistent_volume_claim {
        let read_only = claim.read_only == Some(true);
        return claimed(sources, volume, &claim.claim_name, read_only, group);
    }
    if volume.ephemeral.is_some() {
        let pod = sources.pod.metadata.name.as_deref().unwrap_or_default();
        let claim = format!("{pod}-{}", volume.name);
        return claimed(sources, volume, &claim, false, group);
    }
    if let Some(wish) = &volume.host_path {
        return host_path::backing(&volume.name, wish, sources.host_paths);
    }
    match (&volume.empty_dir, other_kind(volume)) {
        (Some(wish), _) => empty_dir(sources, volume, wish, group),
        (None, Some(kind)) => Err(Trouble::config(format!(
            "volume {:?}: {kind} volumes are not supported by this node",
            volume.name
        ))),
        (None, None) => empty_dir(sources, volume, &EmptyDirVolumeSource::default(), group),
    }
}

fn directory(path: PathBuf, read_only: bool) -> Backing {
    Backing {
        path,
        below: None,
        read_only,
    }
}

/// The name becomes a directory.
fn check_name(name: &str) -> Result<(), Trouble> {
    let is_label = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    match !name.is_empty() && name.bytes().all(is_label) {
        true => Ok(()),
        false => Err(Trouble::config(format!(
            "volume {name:?}: its name must be letters, digits and '-'"
        ))),
    }
}

/// The field that says what a volume is.
fn other_kind(volume: &Volume) -> Option<String> {
    let value = serde_json::to_value(volume).ok()?;
    let mut fields = value.as_object()?.keys();
    fields.find(|field| *field != "name").cloned()
}

/// As a kubelet says it in an event, while the pod waits.
fn not_set_up(volume: &str, why: impl std::fmt::Display) -> Trouble {
    let message = format!("MountVolume.SetUp failed for volume {volume:?} : {why}");
    Trouble::new("ContainerCreating", message)
}

fn write(
    sources: &Sources<'_>,
    volume: &Volume,
    group: Option<u32>,
) -> Result<(PathBuf, bool), Trouble> {
    if let Some(kind) = payload::unsupported(volume) {
        return Err(Trouble::config(format!(
            "volume {:?}: projected {kind} sources are not supported by this node",
            volume.name
        )));
    }
    let payload = payload::of(sources, volume).map_err(|why| not_set_up(&volume.name, why))?;
    let path = sources.place.volumes().join(&volume.name);
    let changed = atomic::write(&path, &payload, group);
    let changed = changed.map_err(|error| not_set_up(&volume.name, error))?;
    Ok((path, changed))
}

fn claimed(
    sources: &Sources<'_>,
    volume: &Volume,
    claim: &str,
    read_only: bool,
    group: Option<u32>,
) -> Result<Backing, Trouble> {
    let Some(path) = sources.claims.get(claim) else {
        let message = format!("persistentvolumeclaim {claim:?} not found or not bound");
        return Err(Trouble::new("ContainerCreating", message));
    };
    if let (Some(group), false) = (group, read_only) {
        let given = ownership::give(path, group);
        given.map_err(|error| not_set_up(&volume.name, error))?;
    }
    Ok(directory(path.clone(), read_only))
}

fn empty_dir(
    sources: &Sources<'_>,
    volume: &Volume,
    wish: &EmptyDirVolumeSource,
    group: Option<u32>,
) -> Result<Backing, Trouble> {
    let name = &volume.name;
    let made = match wish.medium.as_deref().unwrap_or_default() {
        "" => make_empty(&sources.place.volumes(), name, group),
        "Memory" if sources.may_mount => {
            let size = memory::size(sources.pod, wish);
            memory::make(sources.memory, name, size, group)
        }
        "Memory" => make_empty(sources.memory, name, group),
        other => {
            return Err(Trouble::config(format!(
                "volume {name:?}: an emptyDir in {other} is not supported by this node"
            )));
        }
    };
    let path = made.map_err(|error| not_set_up(name, error))?;
    Ok(directory(path, false))
}

/// Everyone's, unless it is there: then its containers may have made it theirs. It appears only when it is ready.
fn make_empty(parent: &Path, name: &str, group: Option<u32>) -> io::Result<PathBuf> {
    let path = parent.join(name);
    if path.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        return Ok(path);
    }
    fs::create_dir_all(parent)?;
    let unready = parent.join(format!("..{name}"));
    match fs::remove_dir(&unready) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => fs::create_dir(&unready)?,
    }
    ownership::set_directory(&unready, 0o777, group)?;
    fs::rename(&unready, &path)?;
    Ok(path)
}
