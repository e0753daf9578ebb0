//! What is mounted in a container, in the order in which it is: the pod's own files of `/etc`, volumes, and the file for
//! last words.

use std::path::{Component, Path, PathBuf};

use container::{Mount, MountSource};
use k8s_openapi::api::core::v1::VolumeMount;

use super::Ask;
use super::env::Env;
use super::expand::expand;
use crate::kinds::TOKEN_PATH;
use crate::node::trouble::Trouble;

const LAST_WORDS: &str = "/dev/termination-log";

pub(super) fn mounts(ask: &Ask<'_>, env: &Env, is_read_only: bool) -> Result<Vec<Mount>, Trouble> {
    if ask
        .container
        .volume_devices
        .as_ref()
        .is_some_and(|it| !it.is_empty())
    {
        return Err(Trouble::config(format!(
            "container {:?}: volumeDevices are not supported by this node",
            ask.container.name
        )));
    }
    if !ask.is_isolated {
        return without_isolation(ask);
    }
    let wanted = ask.container.volume_mounts.iter().flatten();
    let volumes: Vec<Mount> = wanted
        .map(|mount| of_volume(ask, env, mount))
        .collect::<Result<_, _>>()?;
    let volumes = parents_first(volumes);
    let own = [
        // programs write to it, and a root file system that is read-only is no reason against it
        ("hosts", false),
        ("hostname", is_read_only),
        ("resolv.conf", is_read_only),
    ];
    let mut mounts = Vec::new();
    for (file, read_only) in own {
        let destination = Path::new("/etc").join(file);
        let is_covered = volumes
            .iter()
            .any(|volume| destination.starts_with(&volume.destination));
        if !is_covered {
            mounts.push(bind(ask.place.etc(file), destination, read_only));
        }
    }
    mounts.extend(volumes);
    let path = ask.container.termination_message_path.as_deref();
    let path = path.filter(|path| !path.is_empty()).unwrap_or(LAST_WORDS);
    let words = ask.place.last_words(&ask.container.name, ask.attempt);
    mounts.push(bind(words, absolute(path), false));
    Ok(mounts)
}

/// Nothing can be mounted where only this container would see it. What every pod is given unasked is left out.
fn without_isolation(ask: &Ask<'_>) -> Result<Vec<Mount>, Trouble> {
    let mut wanted = ask.container.volume_mounts.iter().flatten();
    match wanted.find(|mount| mount.mount_path != TOKEN_PATH) {
        Some(mount) => Err(Trouble::config(format!(
            "volume {:?} cannot be mounted at {} without isolation: leave it out, or run sandbar where it can isolate",
            mount.name, mount.mount_path
        ))),
        None => Ok(Vec::new()),
    }
}

fn bind(path: PathBuf, destination: PathBuf, read_only: bool) -> Mount {
    Mount {
        destination,
        source: MountSource::Bind {
            path,
            sub_path: None,
        },
        read_only,
    }
}

fn of_volume(ask: &Ask<'_>, env: &Env, mount: &VolumeMount) -> Result<Mount, Trouble> {
    let backing = ask.volumes.get(&mount.name).ok_or_else(|| {
        Trouble::config(format!(
            "cannot find volume {:?} to mount into container {:?}",
            mount.name, ask.container.name
        ))
    })?;
    let sub_path = sub_path(mount, env)?;
    let below = match (backing.below.clone(), sub_path) {
        (Some(below), Some(sub_path)) => Some(below.join(sub_path)),
        (below, sub_path) => below.or(sub_path),
    };
    Ok(Mount {
        destination: absolute(&mount.mount_path),
        source: MountSource::Bind {
            path: backing.path.clone(),
            sub_path: below,
        },
        read_only: backing.read_only || mount.read_only == Some(true),
    })
}

fn sub_path(mount: &VolumeMount, env: &Env) -> Result<Option<PathBuf>, Trouble> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let path = match given(&mount.sub_path_expr) {
        Some(expression) => expanded(&expression, env)?,
        None => given(&mount.sub_path).unwrap_or_default(),
    };
    if path.is_empty() {
        return Ok(None);
    }
    if path.starts_with('/') {
        return Err(Trouble::config(format!(
            "error SubPath `{path}` must not be an absolute path"
        )));
    }
    if path.split('/').any(|part| part == "..") {
        return Err(Trouble::config(format!(
            "unable to provision SubPath `{path}`: must not contain '..'"
        )));
    }
    Ok(Some(PathBuf::from(path)))
}

/// Every name in it must be known, and not empty: else containers would share a directory that each was to have alone.
fn expanded(expression: &str, env: &Env) -> Result<String, Trouble> {
    let mut missing = std::collections::BTreeSet::new();
    let path = expand(expression, |name| {
        let value = env.get(name).filter(|value| !value.is_empty());
        if value.is_none() {
            missing.insert(name.to_owned());
        }
        value.map(str::to_owned)
    });
    if missing.is_empty() {
        return Ok(path);
    }
    let missing: Vec<String> = missing.into_iter().collect();
    let message = format!("missing value for {}", missing.join(", "));
    Err(Trouble::config(message))
}

/// A mount below another comes after it; else the order stays.
fn parents_first(mounts: Vec<Mount>) -> Vec<Mount> {
    let mut ordered: Vec<Mount> = Vec::with_capacity(mounts.len());
    for mount in mounts {
        let is_below = |other: &Mount| {
            other.destination != mount.destination
                && other.destination.starts_with(&mount.destination)
        };
        let at = ordered.iter().position(is_below);
        ordered.insert(at.unwrap_or(ordered.len()), mount);
    }
    ordered
}

/// A path in the container from its root, whatever it is relative to.
pub(super) fn absolute(path: &str) -> PathBuf {
    let mut out = PathBuf::from("/");
    for part in Path::new(path).components() {
        match part {
            Component::Normal(name) => out.push(name),
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    out
}
