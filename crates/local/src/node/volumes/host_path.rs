//! Paths of the host: given to pods only below what whoever started the node has allowed.

use std::fs::{self, FileType};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::HostPathVolumeSource;

use super::{Backing, not_set_up};
use crate::node::trouble::Trouble;

pub(super) fn backing(
    volume: &str,
    wish: &HostPathVolumeSource,
    allowed: &[PathBuf],
) -> Result<Backing, Trouble> {
    let path = Path::new(&wish.path);
    let climbs = path.components().any(|part| part == Component::ParentDir);
    let found = allowed
        .iter()
        .find_map(|prefix| Some((prefix, path.strip_prefix(prefix).ok()?)));
    let Some((prefix, below)) = found.filter(|_| path.is_absolute() && !climbs) else {
        return Err(Trouble::config(format!(
            "volume {volume:?}: hostPath {} is not given to pods by this node: allow it with --allow-host-path",
            path.display()
        )));
    };
    check_type(volume, path, wish.type_.as_deref().unwrap_or_default())?;
    Ok(Backing {
        path: prefix.clone(),
        // links in it are a stranger's as soon as one pod can write there
        below: (below != Path::new("")).then(|| below.to_owned()),
        read_only: false,
    })
}

/// Whether the path is what the pod says it is. A directory that may be missing is made when it is mounted.
fn check_type(volume: &str, path: &Path, wish: &str) -> Result<(), Trouble> {
    let kind = fs::metadata(path).map(|found| found.file_type()).ok();
    let is = |what: fn(&FileType) -> bool| kind.as_ref().is_some_and(what);
    let (fits, what) = match wish {
        "" => (true, ""),
        "Directory" => (is(FileType::is_dir), "a directory"),
        "DirectoryOrCreate" => (kind.is_none() || is(FileType::is_dir), "a directory"),
        "File" | "FileOrCreate" => (is(FileType::is_file), "a file"),
        "Socket" => (is(|kind| kind.is_socket()), "a socket file"),
        other => {
            return Err(Trouble::config(format!(
                "volume {volume:?}: hostPath type {other} is not supported by this node"
            )));
        }
    };
    match fits {
        true => Ok(()),
        false => Err(not_set_up(
            volume,
            format!(
                "hostPath type check failed: {} is not {what}",
                path.display()
            ),
        )),
    }
}
